"""One probe of one member, from where this name server stands.

It makes up to three attempts at even times within its timeout, so that one or two lost packets mean nothing;
the first answer ends it, and so does a refusal.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

from daemon_kit.finding import Finding, Life, of_error
from daemon_kit.sip import OptionsRequest, Response, ResponseStream, new_request, parse_response

from pool_user.probe.probing import ATTEMPTS, ProbePlan
from pool_user.views import Member
from rserpool import Protocol

MAX_ADDRESSES = 2
"""Addresses of a multihomed member that are tried, one after the other; one that answers is enough."""
MAX_REPLY_BYTES = 8192


async def listen_for_life(member: Member, plan: ProbePlan) -> Finding:
    """Probe a member as its plan says.

    "tcp": by connecting to its port. "sip-options": by OPTIONS over its own transport, UDP or TCP (over
    SCTP by connecting). "connect": TCP and SCTP by connecting; services over UDP cannot be probed. "auto":
    by OPTIONS over UDP, and over TCP where the plan says that the member speaks SIP; else by connecting.
    """
    failure: Finding | None = None
    doubt: Finding | None = None
    for address in member.addresses[:MAX_ADDRESSES]:
        finding = await _probe_address(member, address, plan)
        if finding.life is Life.ALIVE:
            return finding
        if finding.life.is_failure:
            failure = failure or finding
        else:
            doubt = doubt or finding
    return doubt or failure or Finding(Life.UNKNOWN)


async def _probe_address(member: Member, address: IPv4Address | IPv6Address, plan: ProbePlan) -> Finding:
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
            return Finding(Life.UNKNOWN, "a service over UDP other than SIP can't be probed")


async def _attempts(
    target: tuple[str, int], protocol: int, plan: ProbePlan, *, asks: bool = False
) -> Finding:
    """Connect, and again while nothing is heard: the system repeats a lost SYN after 1 s only."""
    tasks: set[asyncio.Task[Finding]] = set()
    end_s = asyncio.get_running_loop().time() + plan.timeout_s
    try:
        for left in range(ATTEMPTS, 0, -1):
            tasks.add(asyncio.create_task(_attempt(target, protocol, end_s, plan.mark, asks=asks)))
            wait_s = (end_s - asyncio.get_running_loop().time()) / left
            done, _ = await asyncio.wait(tasks, timeout=max(0.0, wait_s), return_when=asyncio.FIRST_COMPLETED)
            if done:
                return done.pop().result()
        return Finding(Life.SILENT, waited_ms=plan.timeout_s * 1000)
    finally:
        for task in tasks:
            task.cancel()


async def _attempt(target: tuple[str, int], protocol: int, end_s: float, mark: int, *, asks: bool) -> Finding:
    """Connect and, if `asks`, send OPTIONS and wait for the answer."""
    family = socket.AF_INET6 if ":" in target[0] else socket.AF_INET
    try:
        connection = _marked(socket.socket(family, socket.SOCK_STREAM, protocol), mark)
    except OSError as problem:  # no SCTP here, no descriptor left, or no right to mark
        return replace(of_error(problem, "not probed"), life=Life.UNKNOWN)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with contextlib.closing(connection):
        connection.setblocking(False)
        try:
            async with asyncio.timeout_at(end_s):
                await loop.sock_connect(connection, target)
                if asks:
                    return await _ask(connection, target)
                return Finding(Life.ALIVE, "accepts connections")
        except TimeoutError:
            return Finding(Life.SILENT, waited_ms=(end_s - began_s) * 1000)
        except OSError as problem:
            return of_error(problem)


async def _ask(connection: socket.socket, target: tuple[str, int]) -> Finding:
    """Send OPTIONS over TCP and read responses until the final one to it is there."""
    loop = asyncio.get_running_loop()
    request = new_request(target, connection.getsockname()[:2], sender="rspdns", transport="TCP")
    await loop.sock_sendall(connection, request.encode())
    stream = ResponseStream()
    received_bytes = 0
    while received_bytes < MAX_REPLY_BYTES and (data := await loop.sock_recv(connection, MAX_REPLY_BYTES)):
        received_bytes += len(data)
        for response in stream.feed(data):
            if (finding := _told_by(response, request)) is not None:
                return finding
    return Finding(Life.SILENT, "closed the connection without an answer to OPTIONS")


def _told_by(response: Response | None, request: OptionsRequest) -> Finding | None:
    """The finding of a response; None when it is not final or answers another request."""
    if response is None or not response.is_final or not request.is_answered_by(response):
        return None
    return Finding(Life.ALIVE if response.shows_life else Life.UNWELL, f"answers OPTIONS with {response}")


class _Answer(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.finding: asyncio.Future[Finding] = asyncio.get_running_loop().create_future()
        self.request: OptionsRequest | None = None

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Take the answer; what answers another request is ignored."""
        if self.request is None or self.finding.done():
            return
        finding = _told_by(parse_response(data), self.request)
        if finding is not None:
            self.finding.set_result(finding)

    def error_received(self, exc: Exception) -> None:
        """ICMP says that nobody listens there."""
        if not self.finding.done() and isinstance(exc, OSError):
            self.finding.set_result(of_error(exc))


def _marked(connection: socket.socket, mark: int) -> socket.socket:
    """The socket with this SO_MARK. Raises OSError, the socket closed, without the right to mark."""
    try:
        if mark:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
    except OSError:
        connection.close()
        raise
    return connection


async def _options(target: tuple[str, int], plan: ProbePlan) -> Finding:
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
        return of_error(problem)
    try:
        answer.request = new_request(target, transport.get_extra_info("sockname")[:2], sender="rspdns")
        data = answer.request.encode()
        for _ in range(ATTEMPTS):
            transport.sendto(data)
            done, _pending = await asyncio.wait((answer.finding,), timeout=plan.timeout_s / ATTEMPTS)
            if done:
                return answer.finding.result()
        return Finding(Life.SILENT, waited_ms=plan.timeout_s * 1000)
    finally:
        transport.close()
