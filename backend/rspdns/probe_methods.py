"""One probe of one address, from where this name server stands."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
import socket
from ipaddress import IPv4Address, IPv6Address

from rserpool.parameters import Protocol

from rspdns.probing import Outcome
from rspdns.views import Member

TIMEOUT_S = 0.5
MAX_ADDRESSES = 2
"""Addresses of a multihomed member that are tried, one after the other; one that answers is enough."""
_REFUSAL = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.ECONNRESET}
_UNTRIED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EACCES, errno.EPERM}


async def probe(member: Member, is_sip: bool, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Probe a member: TCP and SCTP by connecting, SIP over UDP by OPTIONS; other UDP services cannot be
    probed."""
    outcomes = [await _probe_address(member, address, is_sip, timeout_s) for address in member.addresses[:1]]
    for address in member.addresses[1:MAX_ADDRESSES]:
        if Outcome.ALIVE in outcomes:
            break
        outcomes.append(await _probe_address(member, address, is_sip, timeout_s))
    for outcome in (Outcome.ALIVE, Outcome.UNKNOWN):
        if outcome in outcomes:
            return outcome
    return Outcome.FAILED


async def _probe_address(
    member: Member, address: IPv4Address | IPv6Address, is_sip: bool, timeout_s: float
) -> Outcome:
    place = (str(address), member.port)
    match member.protocol:
        case Protocol.TCP:
            return await _connect(socket.IPPROTO_TCP, place, timeout_s)
        case Protocol.SCTP:
            return await _connect(socket.IPPROTO_SCTP, place, timeout_s)
        case Protocol.UDP if is_sip:
            return await _options(place, timeout_s)
        case _:
            return Outcome.UNKNOWN


async def _connect(protocol: int, place: tuple[str, int], timeout_s: float) -> Outcome:
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    try:
        connection = socket.socket(family, socket.SOCK_STREAM, protocol)
    except OSError:
        return Outcome.UNKNOWN  # no SCTP here, or no descriptor left
    with contextlib.closing(connection):
        connection.setblocking(False)
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().sock_connect(connection, place)
        except TimeoutError:
            return Outcome.FAILED
        except OSError as problem:
            return Outcome.UNKNOWN if problem.errno in _UNTRIED else Outcome.FAILED
        return Outcome.ALIVE


class _Answer(asyncio.DatagramProtocol):
    def __init__(self, branch: str) -> None:
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._branch = branch.encode()

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Any final response but 503 and 408 is life; what answers another request is ignored."""
        status = data[8:11]
        if self.outcome.done() or not data.startswith(b"SIP/2.0 ") or self._branch not in data[:8192]:
            return
        if status.isdigit() and status[:1] != b"1":
            self.outcome.set_result(Outcome.FAILED if status in (b"503", b"408") else Outcome.ALIVE)

    def error_received(self, exc: Exception) -> None:
        """ICMP says that nobody listens there."""
        if not self.outcome.done():
            refused = isinstance(exc, OSError) and exc.errno in _REFUSAL
            self.outcome.set_result(Outcome.FAILED if refused else Outcome.UNKNOWN)


async def _options(place: tuple[str, int], timeout_s: float) -> Outcome:
    """Send OPTIONS (RFC 3261, section 11)."""
    branch = f"z9hG4bK{secrets.token_hex(8)}"
    try:
        transport, answer = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Answer(branch), remote_addr=place
        )
    except OSError as problem:
        return Outcome.UNKNOWN if problem.errno in _UNTRIED else Outcome.FAILED
    try:
        local_host, local_port = transport.get_extra_info("sockname")[:2]
        transport.sendto(_request(place, (local_host, local_port), branch))
        async with asyncio.timeout(timeout_s):
            return await answer.outcome
    except TimeoutError:
        return Outcome.FAILED
    finally:
        transport.close()


def _request(place: tuple[str, int], local: tuple[str, int], branch: str) -> bytes:
    there, here = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in (place, local))
    lines = (
        f"OPTIONS sip:{there} SIP/2.0",
        f"Via: SIP/2.0/UDP {here};branch={branch};rport",
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
