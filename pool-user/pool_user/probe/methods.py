"""One probe of one member, from where this name server stands.

It makes up to three attempts at even times within its timeout, so that one or two lost packets mean nothing;
the first answer ends it, and so does a refusal.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from daemon_kit.sip import OptionsRequest, Response, ResponseStream, new_request, parse_response

from pool_user.probe.probing import ATTEMPTS, Plan, ProbeResult
from pool_user.views import Member
from rserpool import Protocol

MAX_ADDRESSES = 2
"""Addresses of a multihomed member that are tried, one after the other; one that answers is enough."""
MAX_REPLY_BYTES = 8192
_REFUSAL = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.ECONNRESET}
_UNTRIED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EACCES, errno.EPERM}


class Heard(NamedTuple):
    """The outcome of one probe, and what the member or the network said, in words for people."""

    outcome: ProbeResult
    words: str = ""
    is_answer: bool = False
    """Whether the member itself spoke: then it is there, whatever it said."""


async def probe(member: Member, plan: Plan) -> ProbeResult:
    """See `listen_for_life()`."""
    return (await listen_for_life(member, plan)).outcome


async def listen_for_life(member: Member, plan: Plan) -> Heard:
    """Probe a member as its plan says.

    "tcp": by connecting to its port. "sip-options": by OPTIONS over its own transport, UDP or TCP (over
    SCTP by connecting). "connect": TCP and SCTP by connecting; services over UDP cannot be probed. "auto":
    by OPTIONS over UDP, and over TCP where the plan says that the member speaks SIP; else by connecting.
    """
    found: dict[ProbeResult, Heard] = {}
    for address in member.addresses[:MAX_ADDRESSES]:
        if ProbeResult.ALIVE not in found:
            heard = await _probe_address(member, address, plan)
            found.setdefault(heard.outcome, heard)
    return next(
        found[one] for one in (ProbeResult.ALIVE, ProbeResult.UNKNOWN, ProbeResult.FAILED) if one in found
    )


async def _probe_address(member: Member, address: IPv4Address | IPv6Address, plan: Plan) -> Heard:
    target = (str(address), member.port)
    match plan.method, member.protocol:
        case "tcp", _:
            return await _attempts(target, socket.IPPROTO_TCP, plan)
        case "sip-options" | "auto", Protocol.UDP:
            return await _options(target, plan)
        case _, Protocol.TCP:
            asks = plan.method == "sip-options" or (plan.method == "auto" and plan.speaks_sip(member.port))
            return await _attempts(target, socket.IPPROTO_TCP, plan, asks=asks)
        case _, Protocol.SCTP:
            return await _attempts(target, socket.IPPROTO_SCTP, plan)
        case _:
            return Heard(ProbeResult.UNKNOWN, "a service over UDP other than SIP can't be probed")


async def _attempts(target: tuple[str, int], protocol: int, plan: Plan, *, asks: bool = False) -> Heard:
    """Connect, and again while nothing is heard: the system repeats a lost SYN after 1 s only."""
    tasks: set[asyncio.Task[Heard]] = set()
    end_s = asyncio.get_running_loop().time() + plan.timeout_s
    try:
        for left in range(ATTEMPTS, 0, -1):
            tasks.add(asyncio.create_task(_attempt(target, protocol, end_s, plan.mark, asks=asks)))
            wait_s = (end_s - asyncio.get_running_loop().time()) / left
            done, _ = await asyncio.wait(tasks, timeout=max(0.0, wait_s), return_when=asyncio.FIRST_COMPLETED)
            if done:
                return done.pop().result()
        return _nothing(plan.timeout_s)
    finally:
        for task in tasks:
            task.cancel()


async def _attempt(target: tuple[str, int], protocol: int, end_s: float, mark: int, *, asks: bool) -> Heard:
    """Connect and, if `asks`, send OPTIONS and wait for the answer."""
    family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
    try:
        connection = _marked(socket.socket(family, socket.SOCK_STREAM, protocol), mark)
    except OSError as problem:  # no SCTP here, no descriptor left, or no right to mark
        return Heard(ProbeResult.UNKNOWN, f"not probed: {problem.strerror}")
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with contextlib.closing(connection):
        connection.setblocking(False)
        try:
            async with asyncio.timeout_at(end_s):
                await loop.sock_connect(connection, target)
                return (
                    await _ask(connection, target)
                    if asks
                    else Heard(ProbeResult.ALIVE, "accepts connections", is_answer=True)
                )
        except TimeoutError:
            return _nothing(end_s - began_s)
        except OSError as problem:
            return _refusal(problem)


async def _ask(connection: socket.socket, target: tuple[str, int]) -> Heard:
    """Send OPTIONS over TCP and read responses until the final one to it is there."""
    loop = asyncio.get_running_loop()
    request = new_request(target, connection.getsockname()[:2], sender="rspdns", transport="TCP")
    await loop.sock_sendall(connection, request.encode())
    stream = ResponseStream()
    received_bytes = 0
    while received_bytes < MAX_REPLY_BYTES and (data := await loop.sock_recv(connection, MAX_REPLY_BYTES)):
        received_bytes += len(data)
        for response in stream.feed(data):
            if (heard := _told_by(response, request)) is not None:
                return heard
    return Heard(ProbeResult.FAILED, "closed the connection without an answer to OPTIONS")


def _told_by(response: Response | None, request: OptionsRequest) -> Heard | None:
    """What a response tells; None when it is not final or answers another request."""
    if response is None or not response.is_final or not request.is_answered_by(response):
        return None
    outcome = ProbeResult.ALIVE if response.shows_life else ProbeResult.FAILED
    return Heard(outcome, f"answers OPTIONS with {response}", is_answer=True)


def _nothing(waited_s: float) -> Heard:
    return Heard(ProbeResult.FAILED, f"no answer within {waited_s * 1000:.0f} ms")


def _refusal(problem: OSError) -> Heard:
    """What the system says instead of an answer."""
    said = os.strerror(problem.errno).lower() if problem.errno else str(problem)
    return Heard(ProbeResult.UNKNOWN if problem.errno in _UNTRIED else ProbeResult.FAILED, said)


class _Answer(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.heard: asyncio.Future[Heard] = asyncio.get_running_loop().create_future()
        self.request: OptionsRequest | None = None

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Take the answer; what answers another request is ignored."""
        if self.request is None or self.heard.done():
            return
        heard = _told_by(parse_response(data), self.request)
        if heard is not None:
            self.heard.set_result(heard)

    def error_received(self, exc: Exception) -> None:
        """ICMP says that nobody listens there."""
        if not self.heard.done() and isinstance(exc, OSError):
            outcome = ProbeResult.FAILED if exc.errno in _REFUSAL else ProbeResult.UNKNOWN
            self.heard.set_result(_refusal(exc)._replace(outcome=outcome))


def _marked(connection: socket.socket, mark: int) -> socket.socket:
    """The socket with this SO_MARK. Raises OSError, the socket closed, without the right to mark."""
    try:
        if mark:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
    except OSError:
        connection.close()
        raise
    return connection


async def _options(target: tuple[str, int], plan: Plan) -> Heard:
    """Send OPTIONS (RFC 3261, section 11) over UDP, repeated while nothing is heard."""
    family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
    try:
        connection = _marked(socket.socket(family, socket.SOCK_DGRAM), plan.mark)
        connection.setblocking(False)
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(connection.close)
            connection.connect(target)
            cleanup.pop_all()
        transport, answer = await asyncio.get_running_loop().create_datagram_endpoint(
            _Answer, sock=connection
        )
    except OSError as problem:
        return _refusal(problem)
    try:
        answer.request = new_request(target, transport.get_extra_info("sockname")[:2], sender="rspdns")
        data = answer.request.encode()
        for _ in range(ATTEMPTS):
            transport.sendto(data)
            done, _pending = await asyncio.wait((answer.heard,), timeout=plan.timeout_s / ATTEMPTS)
            if done:
                return answer.heard.result()
        return _nothing(plan.timeout_s)
    finally:
        transport.close()
