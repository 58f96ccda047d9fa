"""The checks against real servers that are killed, stopped and started; rise and fall."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
from daemon_kit.finding import Finding, Life
from hypothesis import given
from hypothesis import strategies as st
from ppe_agent.checks.base import CheckState, PeriodicCheck, RiseFall, Timing, pause_ms
from ppe_agent.checks.configuration import SipOptionsConfig
from ppe_agent.checks.sip import SipOptionsCheck, UdpAsker
from ppe_agent.checks.tcp import TcpHoldCheck, reconnect_delay_ms

from tests.ppe_agent.servers import free_port, kamailio, sipp, tcp_server
from tests.ppe_agent.watching import TIMING, Watcher, watching
from tests.support.stalls import Mark

LOCALHOST = ip_address("127.0.0.1")


async def test_a_killed_tcp_server_is_dead_at_once_and_comes_back() -> None:
    port = free_port()
    async with watching(TcpHoldCheck(LOCALHOST, port, TIMING)) as watcher:
        await watcher.until_state(CheckState.DOWN)
        assert watcher.results[-1].words == f"nothing listens on port {port}"
        with tcp_server(port) as server:
            await watcher.until_state(CheckState.UP)
            told = len(watcher.results)
            server.kill()
            killed = Mark.now()
            await watcher.until_state(CheckState.DOWN)
            assert killed.ran_s() < 0.2  # not an interval, let alone `fall` of them
            # The listening socket may outlive the held connection by a moment; nothing has to fail twice.
            lives = [finding.life for finding in watcher.results[told:]]
            assert lives[-1] is Life.REFUSED
            assert set(lives) <= {Life.ALIVE, Life.REFUSED}
        with tcp_server(port):
            await watcher.until_state(CheckState.UP)


async def test_a_host_that_gives_no_socket_fails_the_check_not_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_socket(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    async with watching(TcpHoldCheck(LOCALHOST, free_port(), TIMING)) as watcher:
        await watcher.until_state(CheckState.DOWN)
        monkeypatch.setattr("ppe_agent.checks.tcp.OutgoingSocket", no_socket)
        await watcher.until(lambda: "Too many open files" in watcher.results[-1].words)
        assert watcher.machine.state is CheckState.DOWN


async def test_a_server_that_closes_idle_connections_stays_up() -> None:
    port = free_port()
    with tcp_server(port, idle_timeout_s=0.05):
        async with watching(TcpHoldCheck(LOCALHOST, port, TIMING)) as watcher:
            await watcher.until_state(CheckState.UP)
            await asyncio.sleep(1)
            assert {finding.life for finding in watcher.results} == {Life.ALIVE}


async def test_a_server_that_closes_every_connection_at_once_is_not_stormed() -> None:
    port = free_port()
    with tcp_server(port, idle_timeout_s=0) as server:
        async with watching(TcpHoldCheck(LOCALHOST, port, TIMING)) as watcher:
            await watcher.until_state(CheckState.UP)
            await asyncio.sleep(2)
            assert watcher.machine.state is CheckState.UP
            assert len(watcher.results) < 40
            server.kill()
            await watcher.until_state(CheckState.DOWN)


def test_reconnecting_slows_down_to_the_interval() -> None:
    delays = [reconnect_delay_ms(quick_closes, 250) for quick_closes in range(12)]
    assert delays[:2] == [0, 0]
    assert delays == sorted(delays)
    assert delays[-1] == 250


async def test_a_full_backlog_is_a_failure_that_has_to_repeat() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        port = listener.getsockname()[1]
        fillers = [stack.enter_context(socket.socket()) for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        async with watching(TcpHoldCheck(LOCALHOST, port, TIMING)) as watcher:
            await watcher.until_state(CheckState.DOWN)
            assert [finding.life for finding in watcher.results] == [Life.SILENT] * 2
            assert watcher.results[0].words == f"no connection to port {port} within 250 ms"


async def test_a_sip_server_that_is_killed_or_stopped_is_down_until_it_is_back() -> None:
    port = free_port(socket.SOCK_DGRAM)
    async with watching(SipOptionsCheck(LOCALHOST, port, TIMING)) as watcher:
        await watcher.until_state(CheckState.DOWN)
        assert watcher.results[-1].words == f"nothing listens on UDP port {port}"
        with sipp(port) as server:
            await watcher.until_state(CheckState.UP)
            assert watcher.results[-1].words == "OPTIONS answered 200 OK"
            server.send_signal(signal.SIGSTOP)
            stopped = Mark.now()
            await watcher.until_state(CheckState.DOWN)
            assert stopped.ran_s() < 3
            assert "no answer to OPTIONS" in watcher.results[-1].words
            server.send_signal(signal.SIGCONT)
            await watcher.until_state(CheckState.UP)
            server.kill()
            await watcher.until_state(CheckState.DOWN)


async def test_a_kamailio_killed_with_all_its_processes_is_down_at_once(tmp_path: Path) -> None:
    port = free_port()
    async with (
        watching(TcpHoldCheck(LOCALHOST, port, TIMING)) as held,
        watching(SipOptionsCheck(LOCALHOST, port, TIMING)) as asked,
    ):
        with kamailio(port, tmp_path) as server:
            await held.until_state(CheckState.UP)
            await asked.until_state(CheckState.UP)
            assert asked.results[-1].words == "OPTIONS answered 483 Too Many Hops"
            os.killpg(server.pid, signal.SIGKILL)
            killed = Mark.now()
            await held.until_state(CheckState.DOWN)
            assert killed.ran_s() < 0.2
            await asked.until_state(CheckState.DOWN)


class FakeSip(asyncio.DatagramProtocol):
    """Answers each request with what `answers` makes of it."""

    def __init__(self, answers: Callable[[bytes], list[bytes]]) -> None:
        self._answers = answers
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: object) -> None:
        assert self._transport is not None
        for answer in self._answers(data):
            self._transport.sendto(answer, addr)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def asked(answers: Callable[[bytes], list[bytes]]) -> AsyncIterator[Watcher]:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: FakeSip(answers), local_addr=("127.0.0.1", 0)
    )
    try:
        port = transport.get_extra_info("sockname")[1]
        async with watching(SipOptionsCheck(LOCALHOST, port, TIMING)) as watcher:
            yield watcher
    finally:
        transport.close()


def reply(request: bytes, status: bytes) -> bytes:
    """Make the response of a real server: the request's headers under a status line."""
    return b"SIP/2.0 " + status + b"\r\n" + request.split(b"\r\n", 1)[1]


@pytest.mark.parametrize("status", [b"200 OK", b"483 Too Many Hops", b"405 Method Not Allowed", b"500 Oops"])
async def test_final_responses_are_life(status: bytes) -> None:
    async with asked(lambda request: [reply(request, b"100 Trying"), reply(request, status)]) as watcher:
        await watcher.until_state(CheckState.UP)
        assert watcher.results[-1].words == f"OPTIONS answered {status.decode()}"


@pytest.mark.parametrize("status", [b"503 Service Unavailable", b"408 Request Timeout"])
async def test_overload_and_timeout_are_not(status: bytes) -> None:
    async with asked(lambda request: [reply(request, status)]) as watcher:
        await watcher.until_state(CheckState.DOWN)
        assert watcher.results[-1].words == f"OPTIONS answered {status.decode()}"


@pytest.mark.parametrize(
    "answers",
    [
        lambda request: [reply(request, b"100 Trying")],
        lambda request: [reply(request.replace(b"Call-ID: ", b"Call-ID: x"), b"200 OK")],
        lambda request: [reply(request.replace(b" OPTIONS\r\n", b" INVITE\r\n"), b"200 OK")],
        lambda request: [b"", b"\r\n\r\n", b"\x00" * 60_000, request, b"SIP/2.0 200 OK\r\n\r\n"] * 20,
    ],
)
async def test_other_messages_are_no_life(answers: Callable[[bytes], list[bytes]]) -> None:
    async with asked(answers) as watcher:
        await watcher.until_state(CheckState.DOWN)
        assert "no answer to OPTIONS" in watcher.results[-1].words


async def test_an_answer_among_garbage_is_found() -> None:
    async with asked(lambda request: [b"garbage", request, reply(request, b"200 OK")]) as watcher:
        await watcher.until_state(CheckState.UP)


@contextlib.asynccontextmanager
async def asker(answers: Callable[[bytes], list[bytes]]) -> AsyncIterator[tuple[UdpAsker, list[object]]]:
    """Yield one that asks a fake server, and the addresses that it asked from."""
    heard: list[object] = []

    class Noting(FakeSip):
        def datagram_received(self, data: bytes, addr: object) -> None:
            heard.append(addr)
            super().datagram_received(data, addr)

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Noting(answers), local_addr=("127.0.0.1", 0)
    )
    asking = UdpAsker(LOCALHOST, transport.get_extra_info("sockname")[1])
    try:
        yield asking, heard
    finally:
        asking.close()
        transport.close()


async def test_questions_that_are_answered_come_from_one_socket() -> None:
    async with asker(lambda request: [reply(request, b"200 OK")]) as (asking, heard):
        for _ in range(5):
            assert (await asking.ask(5000)).status == 200
        assert len(set(heard)) == 1


async def test_after_silence_or_what_nobody_asked_for_the_next_question_comes_from_a_new_socket() -> None:
    replies: list[bytes] = []
    async with asker(lambda request: [reply(request, response) for response in replies]) as (asking, heard):
        with pytest.raises(TimeoutError):
            await asking.ask(20)
        replies[:] = [b"200 OK", b"486 Busy Here"]
        for _ in range(3):
            assert (await asking.ask(5000)).status == 200
            await asyncio.sleep(0.05)  # the second answer comes, too late for this question
        assert len(heard) == len(set(heard)) == 4


async def test_an_error_counts_when_a_new_socket_has_it_too() -> None:
    """An ICMP error may be made up by whoever guesses the port of a socket that lives long."""

    class Refused:
        def __init__(self, real: socket.socket) -> None:
            self.fileno, self.close = real.fileno, real.close

        def send(self, _: bytes) -> int:
            raise ConnectionRefusedError

    async with asker(lambda request: [reply(request, b"200 OK")]) as (asking, heard):
        await asking.ask(5000)
        asking._socket = cast("Any", Refused(cast("Any", asking._socket)))
        assert (await asking.ask(5000)).status == 200
        assert len(set(heard)) == 2


LIVES = {"+": Life.ALIVE, "-": Life.UNWELL, "x": Life.REFUSED}
STATES = {"?": CheckState.UNKNOWN, "U": CheckState.UP, "D": CheckState.DOWN}


@pytest.mark.parametrize(
    ("attempts", "states"),
    [
        ("++", "?U"),
        ("--", "?D"),
        ("+-+-", "????"),
        ("x", "D"),
        ("++--", "?UUD"),
        ("++-+-+", "?UUUUU"),
        ("++x", "?UD"),
        ("++x+", "?UDD"),
        ("++x++", "?UDDU"),
        ("++x+x++", "?UDDDDU"),
        ("++--+-++", "?UUDDDDU"),
        ("++-x", "?UUD"),
    ],
)
def test_states_after_attempts_with_fall_2_and_rise_2(attempts: str, states: str) -> None:
    machine = RiseFall(fall=2, rise=2)
    for verdict, state in zip(attempts, states, strict=True):
        before = machine.state
        assert machine.report(LIVES[verdict]) == (before is not STATES[state])
        assert machine.state is STATES[state]


@given(st.integers(1, 5), st.integers(1, 5), st.text("+-x", max_size=40))
def test_rise_and_fall_agree_with_the_words_of_the_rule(fall: int, rise: int, attempts: str) -> None:
    machine = RiseFall(fall, rise)
    for at, verdict in enumerate(attempts, 1):
        machine.report(LIVES[verdict])
        so_far = attempts[:at]
        if verdict == "x":
            assert machine.state is CheckState.DOWN
        if so_far.endswith("+" * rise):
            assert machine.state is CheckState.UP
        if so_far[-fall:].count("+") == 0 and len(so_far) >= fall:
            assert machine.state is CheckState.DOWN
        if machine.state is CheckState.UP:
            assert "+" * rise in so_far


def test_the_pause_is_short_when_the_next_attempt_should_come_soon() -> None:
    timing = Timing(interval_ms=1000, timeout_ms=250, fall=2, rise=2)
    assert (pause_ms(timing, soon=False), pause_ms(timing, soon=True)) == (1000, 50)
    timing = Timing(interval_ms=20, timeout_ms=250, fall=2, rise=2)
    assert (pause_ms(timing, soon=False), pause_ms(timing, soon=True)) == (20, 20)


class AlwaysWell(PeriodicCheck):
    """Takes no time, and keeps what it was to wait instead of waiting."""

    kind = "fake"
    waits_s: ClassVar[list[float]] = []

    async def attempt(self) -> Finding:
        return Finding(Life.ALIVE, "it is a fake")

    async def _pause(self, time_s: float) -> None:
        self.waits_s.append(time_s)
        if len(self.waits_s) == 100:
            raise asyncio.CancelledError


async def test_jitter_shortens_each_interval_by_another_share() -> None:
    timing = SipOptionsConfig(type="sip-options", interval_ms=10_000, jitter=0.25).timing
    assert pause_ms(timing, soon=False, draw=1) == 7_500
    with contextlib.suppress(asyncio.CancelledError):
        await AlwaysWell("here", timing).run(lambda _: False)
    assert 7 < min(AlwaysWell.waits_s) < 8.5 < 9 < max(AlwaysWell.waits_s) <= 10
    assert len(set(AlwaysWell.waits_s)) > 90


def test_a_check_tries_soon_while_attempts_contradict_its_state() -> None:
    machine = RiseFall(fall=2, rise=2)
    assert machine.try_soon
    for verdict, soon in zip(
        "++-+x-+-x", [True, False, True, False, True, False, True, False, True], strict=True
    ):
        machine.report(LIVES[verdict])
        assert machine.try_soon is soon
