"""Asks the server by SIP OPTIONS over UDP, TCP or SCTP: any final response but 503 and 408 is life.

Nobody listening on the port (ICMP port unreachable, or a refused connection) is death beyond doubt; silence
is a failed attempt. Over TCP and SCTP the connection is held: when the server closes it, the next attempt is
made at once.
"""

from ppe_agent.checks.base import CheckResult, PeriodicCheck, Timing, alive, dead, failed
from ppe_agent.checks.sip_ask import Address, make_asker


class SipOptionsCheck(PeriodicCheck):
    """Sends OPTIONS to `address`:`port` over `transport` ("udp", "tcp" or "sctp")."""

    kind = "sip-options"

    def __init__(self, address: Address, port: int, timing: Timing, transport: str = "udp") -> None:
        super().__init__(f"{transport.upper()} port {port}", timing)
        self._asker = make_asker(address, port, transport, self.hurry)

    async def attempt(self) -> CheckResult:
        """Ask once."""
        try:
            response = await self._asker.ask(self._timing.timeout_ms)
        except TimeoutError:
            return failed(f"no answer to OPTIONS on {self.target} within {self._timing.timeout_ms} ms")
        except ConnectionRefusedError:
            return dead(f"nothing listens on {self.target}")
        except OSError as error:
            return failed(f"OPTIONS to {self.target}: {error.strerror or error}")
        said = f"OPTIONS answered {response}"
        return alive(said) if response.shows_life else failed(said)

    async def close(self) -> None:
        """End the held connection."""
        self._asker.close()
