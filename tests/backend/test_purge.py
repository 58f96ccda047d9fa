"""The purger at control sockets that answer, hang, or are not there."""

import asyncio
import contextlib
import errno
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rspdns.pdns.purge import (
    BURST,
    EARLY_S,
    GAPS_S,
    MAX_NAMES,
    NOT_THERE,
    RETRY_S,
    SPACING_S,
    ControlSocket,
    Purger,
    PurgeSchedule,
)

from tests.support.waiting import until_async

GENEROUS_S = 5.0


class Pdns:
    """A control socket that does what PowerDNS's does: one command per connection, one client at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commands: list[tuple[float, str]] = []
        self.reply: bytes | None = b"1"
        self.rediscovered = b"Ok"
        self._turn = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._client, str(self.path), limit=2**20)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._clients.add(task)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            async with self._turn:
                line = (await reader.readline()).decode()
                self.commands.append((time.monotonic(), line.strip()))
                if self.reply is None:
                    await asyncio.sleep(3600)
                writer.write(self.rediscovered if line == "REDISCOVER\n" else self.reply or b"")
                await writer.drain()
            writer.close()

    async def stop(self) -> None:
        if self._server:
            self._server.close()
        for task in self._clients:
            task.cancel()
        self.path.unlink(missing_ok=True)

    @property
    def asked_for_zones(self) -> int:
        return sum(line == "REDISCOVER" for _, line in self.commands)

    def purged(self, name: str) -> int:
        return sum(name in line.split()[1:] for _, line in self.commands)


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[[str], Pdns]]:
    made: list[Pdns] = []

    def maker(name: str) -> Pdns:
        made.append(Pdns(tmp_path / name))
        return made[-1]

    yield maker
    for pdns in made:
        await pdns.stop()


@pytest.fixture
async def purger() -> AsyncIterator[Callable[..., Purger]]:
    made: list[Purger] = []

    def maker(*paths: Path, timeout_s: float = 0.2, **more: Any) -> Purger:
        made.append(Purger([str(path) for path in paths], timeout_s=timeout_s, **more))
        made[-1].start()
        return made[-1]

    yield maker
    for socket_server in made:
        await socket_server.close()


def idle(control: ControlSocket) -> bool:
    return control.waiting == 0


async def test_all_names_in_one_command_three_times(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("one")
    await pdns.start()
    sender = purger(pdns.path)
    sender.purge(["b.example.net", "a.example.net"])
    await until_async(lambda: len(pdns.commands) == 3)
    await asyncio.sleep(0.1)
    assert len(pdns.commands) == 3
    for _, line in pdns.commands:
        command, *names = line.split()
        assert command == "PURGE"
        assert sorted(names) == ["a.example.net", "b.example.net"]
    assert pdns.commands[1][0] - pdns.commands[0][0] >= 0.009
    assert pdns.commands[2][0] - pdns.commands[1][0] >= 0.039
    assert idle(sender.sockets[0])
    assert sender.sockets[0].problem is None


async def test_command_is_sent_before_anything_else_is_done(tmp_path: Path, purger) -> None:  # type: ignore[no-untyped-def]
    with socket.socket(socket.AF_UNIX) as pdns:
        pdns.bind(str(tmp_path / "pdns"))
        pdns.listen()
        pdns.settimeout(60)
        made = purger(tmp_path / "pdns", timeout_s=60, sign_of_life_every_s=60)
        await asyncio.sleep(0.05)  # the purger waits for something to do
        made.purge(["one.example"])
        connection, _ = pdns.accept()  # the loop stands still meanwhile
        with connection:
            connection.settimeout(60)
            assert connection.recv(100) == b"PURGE one.example\n"
            connection.send(b"1")
        await until_async(lambda: made.sockets[0].counts.names > 0)


async def test_purge_without_a_descriptor_left_is_made_up_for(  # type: ignore[no-untyped-def]
    make, purger, monkeypatch: pytest.MonkeyPatch
) -> None:
    pdns = make("pdns")
    await pdns.start()
    made = purger(pdns.path, timeout_s=60, sign_of_life_every_s=60)
    await asyncio.sleep(0.05)

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", none_left)
        made.purge(["one.example"])
    await until_async(lambda: pdns.purged("one.example") > 0)
    assert made.sockets[0].counts.failures == 1


async def test_a_stuck_socket_does_not_hold_up_another(make, purger) -> None:  # type: ignore[no-untyped-def]
    stuck, fine = make("stuck"), make("fine")
    stuck.reply = None
    await stuck.start()
    await fine.start()
    sender = purger(stuck.path, fine.path, timeout_s=30)
    sender.purge(["a"])
    await until_async(lambda: fine.purged("a") == 3)
    sender.purge(["b"])
    await until_async(lambda: fine.purged("b") == 3)
    assert stuck.purged("b") == 0


async def test_a_socket_that_was_stuck_gets_everything_later(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("pdns")
    await pdns.start()
    _, idle_client = await asyncio.open_unix_connection(str(pdns.path))
    await asyncio.sleep(0.05)
    sender = purger(pdns.path)
    sender.purge(["a"])
    await until_async(lambda: sender.sockets[0].problem)
    assert "within" in sender.sockets[0].problem
    sender.purge(["b"])
    idle_client.close()
    await until_async(lambda: idle(sender.sockets[0]))
    assert pdns.purged("a") >= 3
    assert pdns.purged("b") >= 3
    assert sender.sockets[0].problem is None


async def test_a_missing_socket_keeps_nothing_and_is_used_when_it_comes(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("later")
    sender = purger(pdns.path)
    sender.purge(["old"])
    await until_async(lambda: sender.sockets[0].problem)
    assert idle(sender.sockets[0]), "a PowerDNS that is not there has cached nothing"
    await pdns.start()
    sender.purge(["new"])
    await until_async(lambda: pdns.purged("new") == 3)
    assert pdns.purged("old") == 0


async def test_powerdns_is_seen_to_come_and_go_while_nothing_is_purged(make, purger) -> None:  # type: ignore[no-untyped-def]
    path = make("later").path
    control = purger(path, sign_of_life_every_s=0.05).sockets[0]
    await until_async(lambda: control.problem == NOT_THERE)
    pdns = Pdns(path)
    pdns.reply = b"PONG"
    await pdns.start()
    await until_async(lambda: control.problem is None)
    assert {line for _, line in pdns.commands} == {"RPING"}
    await pdns.stop()
    await until_async(lambda: control.problem == NOT_THERE)
    assert (control.counts.commands, control.counts.failures) == (0, 0), "a sign of life is no purge"


async def test_a_dead_powerdns_leaves_its_socket_behind(tmp_path: Path, purger) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    sender = purger(path)
    sender.purge(["a"])
    await until_async(lambda: sender.sockets[0].problem)
    assert idle(sender.sockets[0])


async def test_an_unexpected_reply_is_tried_again(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("odd")
    pdns.reply = b"Unknown command: 'PURGE'"
    await pdns.start()
    sender = purger(pdns.path)
    sender.purge(["a"])
    await until_async(lambda: sender.sockets[0].problem)
    assert "Unknown command" in sender.sockets[0].problem
    pdns.reply = b"0"
    await until_async(lambda: idle(sender.sockets[0]))
    assert sender.sockets[0].problem is None


async def test_a_storm_goes_in_few_commands(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("storm")
    await pdns.start()
    sender = purger(pdns.path)
    names = [f"{number}.u.as.ims.example.net" for number in range(1000)]
    for name in names:
        sender.purge([name])
        if name.startswith("5"):
            await asyncio.sleep(0)
    await until_async(lambda: idle(sender.sockets[0]))
    assert all(pdns.purged(name) in (2, 3) for name in names[:10] + names[-10:])
    assert len(pdns.commands) < len(names) / 10


async def test_zones_are_read_again_before_anything_else(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("zones")
    pdns.reply = b"Ok"
    await pdns.start()
    sender = purger(pdns.path)
    sender.purge(["a"])
    sender.rediscover()
    await until_async(lambda: len(pdns.commands) >= 4)
    assert [line for _, line in pdns.commands][:2] == ["REDISCOVER", "PURGE a"]


async def test_powerdns_that_is_not_there_yet_is_no_failure(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("later")
    control = purger(pdns.path).sockets[0]
    control.purge(["a"])
    await until_async(lambda: control.counts.commands == 1 and control.problem == NOT_THERE)
    assert control.counts.failures == 0
    await pdns.start()
    control.purge(["a"])
    await until_async(lambda: control.problem is None and idle(control))
    await pdns.stop()
    control.purge(["a"])
    await until_async(lambda: control.counts.failures == 1)


async def test_zones_that_can_not_be_read_again_delay_no_purge(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("zones")
    pdns.rediscovered = b""  # PowerDNS closed the connection
    await pdns.start()
    sender = purger(pdns.path)
    sender.rediscover()
    await until_async(lambda: pdns.asked_for_zones == 1)
    for name in ("a", "b", "c"):
        sender.purge([name])
    await until_async(lambda: all(map(pdns.purged, ("a", "b", "c"))))
    assert pdns.asked_for_zones <= 2
    before = pdns.asked_for_zones
    pdns.rediscovered = b"Done parsing domains, 0 rejected, 1 new, 0 removed\n"  # of the BIND backend
    await until_async(lambda: pdns.asked_for_zones > before)
    last = pdns.asked_for_zones
    await asyncio.sleep(1.5 * RETRY_S)
    assert pdns.asked_for_zones == last


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
async def test_a_forbidden_socket_is_told(make, purger) -> None:  # type: ignore[no-untyped-def]
    pdns = make("forbidden")
    await pdns.start()
    pdns.path.chmod(0)
    pdns.path.parent.chmod(0o711)
    try:
        os.seteuid(65534)
        sender = purger(pdns.path)
        sender.purge(["a"])
        await until_async(lambda: sender.sockets[0].problem)
    finally:
        os.seteuid(0)
    assert "not allowed" in sender.sockets[0].problem


@pytest.mark.parametrize("turns", range(5))
async def test_a_purger_closes_also_when_news_come_in_the_same_moment(tmp_path: Path, turns: int) -> None:
    nobody = Purger([str(tmp_path / "none")])
    nobody.start()
    await asyncio.sleep(0.05)
    nobody.purge({"a.example"})
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(GENEROUS_S):
        await nobody.close()


def run(
    schedule: PurgeSchedule, until_s: float, took_s: float = 0.0, start_s: float = 0.0
) -> list[tuple[float, set[str]]]:
    """Play a PowerDNS that needs `took_s` for a command; returns when it was told to purge what."""
    told = []
    now = start_s
    while (due_s := schedule.next_due_s) is not None and max(now, due_s) <= until_s:
        now = max(now, due_s)
        command = schedule.take(now)
        assert command is not None
        told.append((round(now, 6), set(command.names)))
        now += took_s
        schedule.done(command, now)
    return told


def test_a_change_is_purged_at_once_and_twice_again() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a", "b"}, 5.0)
    assert run(schedule, 99.0) == [(5.0, {"a", "b"}), (5.01, {"a", "b"}), (5.05, {"a", "b"})]
    assert len(schedule) == 0
    assert schedule.next_due_s is None


def test_the_gaps_begin_at_the_end_of_a_slow_command() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a"}, 0.0)
    assert [when for when, _ in run(schedule, 99.0, took_s=1.0)] == [0.0, 1.01, 2.05]


def test_a_name_that_changes_again_begins_anew() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a", "b"}, 0.0)
    assert run(schedule, 0.0) == [(0.0, {"a", "b"})]
    schedule.add({"a"}, 0.005)
    assert run(schedule, 99.0) == [
        (0.005, {"a"}),
        (0.01, {"b"}),
        (0.015, {"a"}),
        (0.05, {"b"}),
        (0.055, {"a"}),
    ]


def test_a_change_during_a_command_is_not_lost() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a"}, 0.0)
    command = schedule.take(0.0)
    assert command is not None
    schedule.add({"a"}, 0.001)
    schedule.done(command, 0.002)
    assert [when for when, _ in run(schedule, 99.0, start_s=0.002)] == [0.002, 0.012, 0.052]


def test_changes_that_wait_go_together() -> None:
    schedule = PurgeSchedule()
    for number in range(100):
        schedule.add({f"{number}", "same"}, number / 1000)
    first = schedule.take(0.1)
    assert first is not None
    assert len(first.names) == 101
    assert schedule.take(0.1) is None


def test_repeats_that_are_due_soon_go_with_a_new_change() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a"}, 0.0)
    assert run(schedule, 0.0) == [(0.0, {"a"})]
    schedule.add({"b"}, 0.008)
    assert run(schedule, 99.0) == [(0.008, {"a", "b"}), (0.018, {"b"}), (0.048, {"a"}), (0.058, {"b"})]


def test_a_storm_is_cut_into_commands_of_bounded_size() -> None:
    schedule = PurgeSchedule()
    names = {str(number) for number in range(2 * MAX_NAMES + 1)}
    schedule.add(names, 0.0)
    told = run(schedule, 0.0)
    assert [len(some) for _, some in told] == [MAX_NAMES, MAX_NAMES, 1]
    assert set().union(*(some for _, some in told)) == names


def test_a_purge_that_failed_is_tried_again_from_the_beginning() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a"}, 0.0)
    command = schedule.take(0.0)
    assert command is not None
    schedule.failed(command, 1.0)
    start_s = 1.0 + RETRY_S
    assert [when for when, _ in run(schedule, 99.0, start_s=1.0)] == [start_s, start_s + 0.01, start_s + 0.05]


def test_nothing_waits_after_clear() -> None:
    schedule = PurgeSchedule()
    schedule.add({"a"}, 0.0)
    schedule.clear()
    assert schedule.next_due_s is None
    assert schedule.take(1.0) is None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 0.02), st.booleans()), max_size=40))
def test_each_name_is_purged_again_late_enough(
    events: list[tuple[str, float, bool]],
) -> None:
    schedule = PurgeSchedule()
    now = 0.0
    purges: dict[str, list[float]] = {}
    for name, pause_s, works in events:
        schedule.add({name}, now)
        purges[name] = []
        now += pause_s
        command = schedule.take(now)
        if command is not None and works:
            for purged in command.names:
                purges[purged].append(now)
            schedule.done(command, now)
        elif command is not None:
            for purged in command.names:
                purges[purged] = []
            schedule.failed(command, now)
    for when, some in run(schedule, float("1e9"), start_s=now):
        for name in some:
            purges[name].append(when)
    assert all(len(times) >= 2 for times in purges.values())
    for times in purges.values():
        assert times[-1] - times[-2] >= GAPS_S[-1] - EARLY_S - 1e-5


def test_where_changes_never_end_commands_are_spaced_and_no_change_waits_long() -> None:
    schedule = PurgeSchedule()
    changed_s = {f"{number}": number / 200 for number in range(400)}
    told: list[tuple[float, set[str]]] = []
    for name, now in changed_s.items():
        schedule.add({name}, now)
        told += run(schedule, now + 1 / 200 - 1e-9, start_s=now)
    told += run(schedule, 99.0, start_s=2.0)
    assert len(told) <= BURST + 2.1 / SPACING_S
    for name, at_s in changed_s.items():
        purged_s = [when for when, names in told if name in names]
        assert purged_s[0] - at_s <= SPACING_S + 1e-5
        assert len(purged_s) in (2, 3)
        assert purged_s[-1] - purged_s[0] >= GAPS_S[-1] - EARLY_S - 1e-5


def test_where_changes_never_end_repeats_go_along_with_them() -> None:
    schedule = PurgeSchedule()
    told: list[tuple[float, set[str]]] = []
    for tick in range(100):
        schedule.add({f"{tick}"}, tick * SPACING_S)
        told += run(schedule, (tick + 1) * SPACING_S - 1e-9, start_s=tick * SPACING_S)
    lasting = [names for when, names in told if when > 1]
    assert all(
        any(name == f"{tick}" for name in names) for tick, names in enumerate(lasting, 100 - len(lasting))
    )
    assert len(lasting) <= 51


def test_after_a_storm_changes_are_purged_at_once_and_three_times_again() -> None:
    schedule = PurgeSchedule()
    for number in range(50):
        schedule.add({f"{number}"}, 0.0)
        run(schedule, 0.0)
    run(schedule, 10.0)
    schedule.add({"a"}, 10.0)
    assert [when for when, _ in run(schedule, 99.0, start_s=10.0)] == [10.0, 10.01, 10.05]
