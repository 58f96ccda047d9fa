"""One probe of one member, from where this name server stands.

It makes up to three attempts at even times within its timeout, so that one or two lost packets mean nothing;
the first answer ends it, and so does a refusal.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
import socket
from ipaddress import IPv4Address, IPv6Address

from rserpool.parameters import Protocol

from rspdns.probing import ATTEMPTS, Outcome, Plan
from rspdns.views import Member

MAX_ADDRESSES = 2
"""Addresses of a multihomed member that are tried, one after the other; one that answers is enough."""
MAX_REPLY_BYTES = 8192
_REFUSAL = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.ECONNRESET}
_UNTRIED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EACCES, errno.EPERM}


async def probe(member: Member, plan: Plan) -> Outcome:
    """Probe a member as its plan says.

    "tcp": by connecting to its port. "sip-options": by OPTIONS over its own transport, UDP or TCP (over
    SCTP by connecting). "connect": TCP and SCTP by connecting; services over UDP cannot be probed.
    """
    outcomes: list[Outcome] = []
    for address in member.addresses[:MAX_ADDRESSES]:
        if Outcome.ALIVE not in outcomes:
            outcomes.append(await _probe_address(member, address, plan))
    for outcome in (Outcome.ALIVE, Outcome.UNKNOWN):
        if outcome in outcomes:
            return outcome
    return Outcome.FAILED


async def _probe_address(member: Member, address: IPv4Address | IPv6Address, plan: Plan) -> Outcome:
    place = (str(address), member.port)
    match plan.method, member.protocol:
        case "tcp", _:
            return await _attempts(place, socket.IPPROTO_TCP, plan)
        case "sip-options", Protocol.UDP:
            return await _options(place, plan.timeout_s)
        case _, Protocol.TCP:
            return await _attempts(place, socket.IPPROTO_TCP, plan)
        case _, Protocol.SCTP:
            return await _attempts(place, socket.IPPROTO_SCTP, plan)
        case _:
            return Outcome.UNKNOWN


async def _attempts(place: tuple[str, int], protocol: int, plan: Plan) -> Outcome:
    """Connect, and again while nothing is heard: the system repeats a lost SYN after 1 s only."""
    tasks: set[asyncio.Task[Outcome]] = set()
    asks = plan.method == "sip-options" and protocol == socket.IPPROTO_TCP
    end_s = asyncio.get_running_loop().time() + plan.timeout_s
    try:
        for left in range(ATTEMPTS, 0, -1):
            tasks.add(asyncio.create_task(_attempt(place, protocol, end_s, asks=asks)))
            wait_s = (end_s - asyncio.get_running_loop().time()) / left
            done, _ = await asyncio.wait(tasks, timeout=max(0.0, wait_s), return_when=asyncio.FIRST_COMPLETED)
            if done:
                return done.pop().result()
        return Outcome.FAILED
    finally:
        for task in tasks:
            task.cancel()


async def _attempt(place: tuple[str, int], protocol: int, end_s: float, *, asks: bool) -> Outcome:
    """Connect and, if `asks`, send OPTIONS and wait for the answer."""
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    try:
        connection = socket.socket(family, socket.SOCK_STREAM, protocol)
    except OSError:
        return Outcome.UNKNOWN  # no SCTP here, or no descriptor left
    loop = asyncio.get_running_loop()
    with contextlib.closing(connection):
        connection.setblocking(False)
        try:
            async with asyncio.timeout_at(end_s):
                await loop.sock_connect(connection, place)
                return await _ask(connection, place) if asks else Outcome.ALIVE
        except TimeoutError:
            return Outcome.FAILED
        except OSError as problem:
            return Outcome.UNKNOWN if problem.errno in _UNTRIED else Outcome.FAILED


async def _ask(connection: socket.socket, place: tuple[str, int]) -> Outcome:
    """Send OPTIONS over TCP and read the status lines until one is final."""
    loop = asyncio.get_running_loop()
    branch = f"z9hG4bK{secrets.token_hex(8)}"
    await loop.sock_sendall(connection, _request(place, connection.getsockname()[:2], branch, "TCP"))
    received = b""
    while len(received) < MAX_REPLY_BYTES and (data := await loop.sock_recv(connection, MAX_REPLY_BYTES)):
        received += data
        for message in received.split(b"\r\n\r\n")[:-1]:
            outcome = _said(message.lstrip(b"\r\n"), branch.encode())
            if outcome is not None:
                return outcome
    return Outcome.FAILED


def _said(message: bytes, branch: bytes) -> Outcome | None:
    """What a SIP message tells: any final response but 503 and 408 is life; None for what answers another
    request, or is not final."""
    status = message[8:11]
    if not message.startswith(b"SIP/2.0 ") or branch not in message[:MAX_REPLY_BYTES]:
        return None
    if not status.isdigit() or status[:1] == b"1":
        return None
    return Outcome.FAILED if status in (b"503", b"408") else Outcome.ALIVE


class _Answer(asyncio.DatagramProtocol):
    def __init__(self, branch: str) -> None:
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._branch = branch.encode()

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Take the answer; what answers another request is ignored."""
        outcome = _said(data, self._branch)
        if outcome is not None and not self.outcome.done():
            self.outcome.set_result(outcome)

    def error_received(self, exc: Exception) -> None:
        """ICMP says that nobody listens there."""
        if not self.outcome.done():
            refused = isinstance(exc, OSError) and exc.errno in _REFUSAL
            self.outcome.set_result(Outcome.FAILED if refused else Outcome.UNKNOWN)


async def _options(place: tuple[str, int], timeout_s: float) -> Outcome:
    """Send OPTIONS (RFC 3261, section 11) over UDP, repeated while nothing is heard."""
    branch = f"z9hG4bK{secrets.token_hex(8)}"
    try:
        transport, answer = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Answer(branch), remote_addr=place
        )
    except OSError as problem:
        return Outcome.UNKNOWN if problem.errno in _UNTRIED else Outcome.FAILED
    try:
        local_host, local_port = transport.get_extra_info("sockname")[:2]
        request = _request(place, (local_host, local_port), branch, "UDP")
        for _ in range(ATTEMPTS):
            transport.sendto(request)
            done, _pending = await asyncio.wait((answer.outcome,), timeout=timeout_s / ATTEMPTS)
            if done:
                return answer.outcome.result()
        return Outcome.FAILED
    finally:
        transport.close()


def _request(place: tuple[str, int], local: tuple[str, int], branch: str, transport: str) -> bytes:
    there, here = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in (place, local))
    lines = (
        f"OPTIONS sip:{there} SIP/2.0",
        f"Via: SIP/2.0/{transport} {here};branch={branch};rport",
        "Max-Forwards: 70",
        f"From: <sip:rspdns@{here}>;tag={secrets.token_hex(6)}",
        f"To: <sip:{there}>",
        f"Call-ID: {secrets.token_hex(12)}",
        "CSeq: 1 OPTIONS",
        f"Contact: <sip:rspdns@{here}>",
        "Accept: application/sdp",
        "Content-Length: 0",
        "",
        "",
    )
    return "\r\n".join(lines).encode()
