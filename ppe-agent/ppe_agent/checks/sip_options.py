"""Asks the server by SIP OPTIONS over UDP: any final response but 503 and 408 is life.

Nobody listening on the port (ICMP port unreachable) is death beyond doubt; silence is a failed attempt.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address

from ppe_agent.checks.base import Outcome, Timing, alive, dead, failed, pause_ms
from ppe_agent.checks.sip_message import OptionsRequest, Response, parse_response


class SipOptionsCheck:
    """Sends OPTIONS to `address`:`port` over UDP."""

    kind = "sip-options"

    def __init__(self, address: IPv4Address | IPv6Address, port: int, timing: Timing) -> None:
        self.port = port
        self._address = address
        self._timing = timing
        self._sequence = 0

    async def run(self, report: Callable[[Outcome], bool]) -> None:
        """Ask, wait for the answer or the timeout, report, for ever."""
        while True:
            started_s = time.monotonic()
            soon = report(await self._ask())
            next_s = started_s + pause_ms(self._timing, soon) / 1000
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))

    async def _ask(self) -> Outcome:
        # A socket for each attempt: an ICMP error or answer to an earlier one can't be taken for this one's.
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = loop.create_future()
        try:
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _Receiver(answer), remote_addr=(str(self._address), self.port)
            )
        except OSError as error:
            return failed(f"can't send to port {self.port}: {error.strerror or error}")
        try:
            request = self._next_request(transport)
            protocol = transport.get_protocol()
            assert isinstance(protocol, _Receiver)  # noqa: S101 - made three lines above
            protocol.request = request
            transport.sendto(request.encode())
            async with asyncio.timeout(self._timing.timeout_ms / 1000):
                response = await answer
        except TimeoutError:
            return failed(f"no answer to OPTIONS on port {self.port} within {self._timing.timeout_ms} ms")
        except ConnectionRefusedError:
            return dead(f"nothing listens on UDP port {self.port}")
        except OSError as error:
            return failed(f"OPTIONS to port {self.port}: {error.strerror or error}")
        finally:
            transport.close()
        said = f"OPTIONS answered {response}"
        return alive(said) if response.shows_life else failed(said)

    def _next_request(self, transport: asyncio.DatagramTransport) -> OptionsRequest:
        self._sequence = self._sequence % 0x7FFFFFFF + 1
        local_host, local_port = transport.get_extra_info("sockname")[:2]
        return OptionsRequest(
            target=self._address,
            port=self.port,
            local=ip_address(local_host),
            local_port=local_port,
            call_id=f"{secrets.token_hex(12)}@ppe-agent",  # each a call of its own: SIPp ignores a second one
            sequence=self._sequence,
            branch=f"z9hG4bK{secrets.token_hex(8)}",
            tag=secrets.token_hex(6),
        )


class _Receiver(asyncio.DatagramProtocol):
    """Gives the first final response to `request` to `answer`; all else is dropped."""

    def __init__(self, answer: asyncio.Future[Response]) -> None:
        self._answer = answer
        self.request: OptionsRequest | None = None

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Take one datagram; the kernel lets in only those of the address and port asked."""
        response = parse_response(data)
        if response is None or self.request is None or self._answer.done():
            return
        if response.is_final and self.request.is_answered_by(response):
            self._answer.set_result(response)

    def error_received(self, exc: Exception) -> None:
        """Take an ICMP error."""
        if not self._answer.done():
            self._answer.set_exception(exc)
