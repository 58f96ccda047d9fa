"""Probes against real sockets, and what they do to a stale pool."""

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from ipaddress import ip_address, ip_network
from typing import Any, cast

import pytest
from daemon_kit.finding import Finding, Life
from pool_user.belief import Belief, PoolRules
from pool_user.probe.methods import listen_for_life
from pool_user.probe.prober import Prober
from pool_user.probe.probing import PoolProbing, ProbePlan
from pool_user.views import Member, PoolView, RememberedPool

from rserpool import Protocol, RoundRobin
from tests.support.waiting import until_async

CONNECT = ProbePlan("connect", timeout_s=0.5)


def options(timeout_s: float = 0.5) -> ProbePlan:
    return ProbePlan("sip-options", timeout_s=timeout_s)


def member(port: int, protocol: Protocol, identifier: int = 1, *addresses: str) -> Member:
    found = tuple(ip_address(address) for address in addresses or ("127.0.0.1",))
    return Member(identifier, 1, found, port, protocol, RoundRobin(), 0.0)


async def life_of(member: Member, plan: ProbePlan) -> Life:
    return (await listen_for_life(member, plan)).life


def free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def copied_headers(request: bytes) -> bytes:
    """Return what a response copies from its request (RFC 3261, section 8.2.6.2)."""
    wanted = (b"Via:", b"Call-ID:", b"CSeq:")
    return b"\r\n".join(line for line in request.split(b"\r\n") if line.startswith(wanted))


class SipServer(asyncio.DatagramProtocol):
    """Answers every request with the given lines, VIA replaced by the request's Via, Call-ID and CSeq."""

    def __init__(self, answers: list[bytes]) -> None:
        self.answers = answers
        self.requests: list[bytes] = []
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.requests.append(data)
        for answer in self.answers:
            assert self.transport is not None
            self.transport.sendto(answer.replace(b"VIA", copied_headers(data)), addr)


@asynccontextmanager
async def sip_server(*answers: bytes) -> AsyncIterator[tuple[int, SipServer]]:
    transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: SipServer(list(answers)), local_addr=("127.0.0.1", 0)
    )
    try:
        yield transport.get_extra_info("sockname")[1], server
    finally:
        transport.close()


async def test_tcp_accepted_is_alive_and_refused_is_not() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await life_of(member(port, Protocol.TCP), CONNECT) is Life.ALIVE
        two = member(port, Protocol.TCP, 1, "127.0.0.9", "127.0.0.1")
        assert await life_of(two, CONNECT) is Life.ALIVE, "the second address answers"
    assert await life_of(member(free_port(socket.SOCK_STREAM), Protocol.TCP), CONNECT) is Life.REFUSED


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([b"SIP/2.0 200 OK\r\nVIA\r\n\r\n"], Life.ALIVE),
        ([b"SIP/2.0 405 Method Not Allowed\r\nVIA\r\n\r\n"], Life.ALIVE),
        ([b"SIP/2.0 100 Trying\r\nVIA\r\n\r\n", b"SIP/2.0 200 OK\r\nVIA\r\n\r\n"], Life.ALIVE),
        ([b"SIP/2.0 503 Service Unavailable\r\nVIA\r\n\r\n"], Life.UNWELL),
        ([b"SIP/2.0 408 Request Timeout\r\nVIA\r\n\r\n"], Life.UNWELL),
        ([b"SIP/2.0 100 Trying\r\nVIA\r\n\r\n"], Life.SILENT),
        ([b"SIP/2.0 200 OK\r\nVia: another\r\n\r\n"], Life.SILENT),
        ([b"SIP/2.0 200 OK\r\nCall-ID: another\r\nVIA\r\n\r\n"], Life.SILENT),
        ([b"\x00\xff garbage", b"", b"SIP/2.0 2"], Life.SILENT),
        ([], Life.SILENT),
    ],
)
async def test_a_final_sip_answer_to_our_request_but_503_and_408_shows_life(
    answers: list[bytes], expected: Life
) -> None:
    async with sip_server(*answers) as (port, server):
        assert await life_of(member(port, Protocol.UDP), options(0.2)) is expected
        assert server.requests[0].startswith(f"OPTIONS sip:127.0.0.1:{port} SIP/2.0\r\n".encode())
        assert b"\r\nMax-Forwards: 0\r\n" in server.requests[0], "a proxy may not answer for another server"


async def test_a_udp_port_without_a_listener_is_found_out_at_once() -> None:
    async with asyncio.timeout(20):
        server = member(free_port(socket.SOCK_DGRAM), Protocol.UDP)
        assert await life_of(server, options(30)) is Life.REFUSED


async def test_other_udp_services_cannot_be_probed() -> None:
    assert await life_of(member(free_port(socket.SOCK_DGRAM), Protocol.UDP), CONNECT) is Life.UNKNOWN


async def test_sip_options_are_asked_over_tcp_too() -> None:
    answers: list[bytes] = []
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        asked.append(request)
        for answer in answers:
            writer.write(answer.replace(b"VIA", copied_headers(request)))
            await writer.drain()
            await asyncio.sleep(0.01)
        if answers:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        probed = member(port, Protocol.TCP)
        for said, expected in (
            ([b"SIP/2.0 200 OK\r\nVIA\r\n\r\n"], Life.ALIVE),
            (
                [b"\r\n\r\nSIP/2.0 100 Trying\r\nVIA\r\n\r\n", b"SIP/2.0 4", b"04 No\r\nVIA\r\n\r\n"],
                Life.ALIVE,
            ),
            ([b"SIP/2.0 503 Overloaded\r\nVIA\r\n\r\n"], Life.UNWELL),
            ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], Life.SILENT),
            ([], Life.SILENT),
        ):
            answers[:] = said
            assert await life_of(probed, options(0.3)) is expected, said
            uri = f"sip:127.0.0.1:{port};transport=tcp"
            assert asked[-1].startswith(f"OPTIONS {uri} SIP/2.0\r\nVia: SIP/2.0/TCP ".encode())
            assert b"\r\nMax-Forwards: 0\r\n" in asked[-1]
        assert await life_of(probed, ProbePlan("tcp")) is Life.ALIVE, "it accepts"
    assert await life_of(probed, options(30)) is Life.REFUSED


@pytest.mark.parametrize(
    "plan", [ProbePlan("auto", is_sip=True), ProbePlan("auto", is_sip=False), ProbePlan("auto")]
)
async def test_hung_server_that_speaks_sip_over_tcp_is_asked_more_than_to_connect(plan: ProbePlan) -> None:
    """The kernel accepts connections for a server that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as hung:
        port = hung.getsockname()[1]
        finding = await listen_for_life(member(port, Protocol.TCP), plan)
    assert finding.life is (Life.SILENT if plan.is_sip else Life.ALIVE)
    assert (plan.speaks_sip(5060), plan.speaks_sip(5061)) == (plan.is_sip is not False, plan.is_sip is True)


async def test_a_lost_packet_or_two_are_no_failure() -> None:
    async with sip_server(b"SIP/2.0 200 OK\r\nVIA\r\n\r\n") as (port, server):
        answer, server.answers = server.answers, []

        def answer_from_now_on() -> None:
            server.answers = answer

        asyncio.get_running_loop().call_later(1.5, answer_from_now_on)
        assert await life_of(member(port, Protocol.UDP), options(3.0)) is Life.ALIVE
        assert len(server.requests) == 3
        assert len(set(server.requests)) == 1, "a repetition (RFC 3261 section 17.1.2.2)"


async def test_the_outcome_of_a_probe_is_told_in_words() -> None:
    closed = free_port(socket.SOCK_DGRAM)
    finding = await listen_for_life(member(closed, Protocol.UDP), options(30))
    assert (finding.life, finding.words) == (Life.REFUSED, "connection refused")
    finding = await listen_for_life(member(free_port(socket.SOCK_STREAM), Protocol.TCP), CONNECT)
    assert (finding.life, finding.words) == (Life.REFUSED, "connection refused")
    for said, life, words in (
        (b"200 OK", Life.ALIVE, "answers OPTIONS with 200 OK"),
        (b"503 Busy", Life.UNWELL, "answers OPTIONS with 503 Busy"),
    ):
        async with sip_server(b"SIP/2.0 " + said + b"\r\nVIA\r\n\r\n") as (port, _):
            finding = await listen_for_life(member(port, Protocol.UDP), options(5))
            assert (finding.life, finding.words, finding.life.is_there) == (life, words, True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        finding = await listen_for_life(member(port, Protocol.UDP), options(0.2))
        assert (finding.life, finding.words) == (Life.SILENT, "no answer within 200 ms")


async def test_probes_that_an_outcome_makes_due_are_sent_at_once() -> None:
    """Eight failures in a row of a suspect, 50 ms apart, while nothing else is due."""
    members = [member(5060, Protocol.UDP, number) for number in (1, 2)]

    class Believer:
        """Suspects the first of two."""

        fell = asyncio.Event()

        def __init__(self) -> None:
            self.answering: set[int] = set()

        views = {"pool": PoolView("pool", tuple(members), suspected=(1,))}  # noqa: RUF012 - read only

        def probe_targets(self) -> dict[str, tuple[Member, ...]]:
            return {"pool": tuple(members)}

        def probing(self, handle: str, member: Member, now: float) -> None:
            pass

        def probe_answered(self, handle: str, member: Member, now: float) -> None:
            self.answering.add(member.identifier)

        def probed(
            self, handle: str, member: Member, reachable: bool, now: float, finding: Finding | None
        ) -> None:
            self.fell.set()

    async def method(member: Member, plan: ProbePlan) -> Finding:
        return Finding(Life.ALIVE if member.identifier == 2 else Life.SILENT)

    believer = Believer()
    plan = ProbePlan("sip-options", interval_s=3600, timeout_s=0.001, fall=8)
    prober = Prober(
        cast("Belief", believer), {"pool": PoolProbing(plan, "pool")}, lambda: None, method=method
    )
    running = asyncio.create_task(prober.run())
    async with asyncio.timeout(60):
        await believer.fell.wait()
    running.cancel()
    assert believer.answering == {2}


async def test_probes_of_another_source_are_made_when_they_are_due() -> None:
    class Source:
        made = 0
        next_due_s = 0.0

        def due(self, now: float) -> list[Coroutine[Any, Any, None]]:
            return [self.probe()] if now >= self.next_due_s else []

        async def probe(self) -> None:
            self.made += 1
            self.next_due_s = asyncio.get_running_loop().time() + (0.0 if self.made < 3 else 3600.0)

    belief, source = Belief(["10.9.0.1"], {}), Source()
    running = asyncio.create_task(Prober(belief, {}, lambda: None, also=source).run())
    await until_async(lambda: source.made == 3)
    await asyncio.sleep(0.05)
    assert source.made == 3
    running.cancel()


async def test_a_stale_pool_loses_the_unreachable_and_gets_them_back() -> None:
    belief = Belief(["10.9.0.1"], {"pool": PoolRules((ip_network("127.0.0.0/8"),))})
    now = asyncio.get_running_loop().time()
    told = asyncio.Event()
    prober = Prober(belief, {"pool": PoolProbing(ProbePlan("sip-options"), "pool")}, told.set)

    def members_are(identifiers: list[int]) -> bool:
        view = belief.evaluate(asyncio.get_running_loop().time()).views["pool"]
        return [member.identifier for member in view.members] == identifiers

    async with sip_server(b"SIP/2.0 200 OK\r\nVIA\r\n\r\n") as (port, _):
        other = free_port(socket.SOCK_DGRAM)
        members = [member(port, Protocol.UDP, 1), member(other, Protocol.UDP, 2)]
        belief.remember(RememberedPool("pool", tuple(members), (), now), now)
        belief.evaluate(now)
        running = asyncio.create_task(prober.run())
        try:
            await until_async(lambda: members_are([1]))
            assert told.is_set()
            second, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: SipServer([b"SIP/2.0 200 OK\r\nVIA\r\n\r\n"]), local_addr=("127.0.0.1", other)
            )
            await until_async(lambda: members_are([1, 2]))
            second.close()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
