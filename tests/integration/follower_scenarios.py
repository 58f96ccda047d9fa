"""A pool user at real, supervised registrars, and what must hold: run by test_follower.py where SCTP works.

    python -m tests.integration.follower_scenarios serve CONTROL_SOCKET ADDRESS PID...

ADDRESS is where the registrars are (ASAP ports 3863 and up), PID the supervisors' process identifiers in
the same order. The command "play" at the control socket plays a scenario, all with the same follower; it is
refused when that does not go as it must.

    python -m tests.integration.follower_scenarios element IDENTIFIER ADDRESS REGISTRAR...

is one pool element in a process of its own.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

import psutil
import uvloop
from daemon_kit.control import ControlCommand, ControlServer
from pool_user import (
    Belief,
    BeliefChange,
    BeliefEvent,
    Intervals,
    PoolRules,
    PoolUser,
    PoolView,
    RegistrarView,
)

from rserpool import (
    AssociationUp,
    HandleUpdate,
    LeastUsed,
    PoolElement,
    PoolElementClient,
    Protocol,
    RegistrarAddress,
    SctpSocket,
    Transport,
    UpdateAction,
    enrp,
)
from tests.support.stalls import Mark
from tests.support.waiting import until_async

HANDLE = "sip-as-udp"
REREGISTRATION_MS = 500
ACCEPT = (ip_network("10.66.0.0/16"),)
RULES = {HANDLE: PoolRules(ACCEPT)}
INTERVALS = Intervals(hot_s=0.05, hot_for_s=60.0, idle_s=3600.0)
"""A pool that is never looked up is as good as never asked about: a registrar that is followed has to
tell."""
CHECKED_AFTER_S = 0.2
"""The time after a change until no registrar is asked about it any more."""


class FollowedPool:
    """The registrars, a pool user and what it said, and pool elements in processes of their own."""

    def __init__(self, address: str, supervisors: Sequence[int]) -> None:
        self.address = address
        self.supervisors = supervisors
        self.registrars = [
            RegistrarAddress(address, 3863 + index, 9901 + index) for index in range(len(supervisors))
        ]
        self.belief = Belief([str(registrar) for registrar in self.registrars], RULES)
        self.pool_user = PoolUser(
            self.registrars,
            RULES,
            self.belief,
            self._on_change,
            is_to_follow=True,
            intervals=INTERVALS,
            timeout_ms=300,
            on_events=self._on_events,
        )
        self.view = PoolView(HANDLE)
        self.changes: list[tuple[float, list[int]]] = []
        self.events: list[BeliefEvent] = []
        self.elements: dict[int, asyncio.subprocess.Process] = {}

    def _on_change(self, change: BeliefChange) -> None:
        self.view = change.views[HANDLE]
        members = [member.identifier for member in self.view.members]
        if not self.changes or self.changes[-1][1] != members:
            self.changes.append((time.monotonic(), members))

    def _on_events(self, events: Sequence[BeliefEvent]) -> None:
        self.events += events
        for event in events:
            print(f"{event.at_s:.3f} {event.kind} {event.identifier} {event.words}", flush=True)

    @property
    def members(self) -> list[int]:
        return [member.identifier for member in self.view.members]

    def _registrars(self) -> tuple[RegistrarView, ...]:
        return self.pool_user.belief.registrar_states(time.monotonic())

    @property
    def standings(self) -> list[str]:
        return [state.standing.value for state in self._registrars()]

    @property
    def follow(self) -> list[str]:
        return [state.follow for state in self._registrars()]

    async def until(self, what: str, condition: Callable[[], bool], timeout_s: float = 20) -> float:
        """Wait for the condition; return how long it took."""
        started = Mark.now()
        await until_async(
            condition, timeout_s, lambda: f"{what}; {self.members} {self.standings}", every_s=0.002
        )
        return started.ran_s()

    async def begin(self) -> None:
        """Forget what was, and wait until all is as at first: followed, settled, and nobody there."""
        for identifier in list(self.elements):
            await self.end(identifier)
        for rules in ({}, RULES):
            self.belief.set_pools(rules, time.monotonic())
            self.pool_user.set_handles(list(rules))
        await self.until("nobody", lambda: self.view.known and self.members == [], 60)
        await self.settled()
        await self.until("followed", lambda: self.follow == ["enrp"] * 3)
        self.changes.clear()
        self.events.clear()

    async def settled(self) -> None:
        await self.until("all registrars settled", lambda: self.standings == ["settled"] * 3)

    async def element(self, identifier: int, *indexes: int) -> None:
        """Start a pool element that registers at the registrars of these indexes, the first one first."""
        registrars = [str(self.registrars[index]) for index in indexes or (0, 1, 2)]
        self.elements[identifier] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __spec__.name, "element", str(identifier), self.address, *registrars)
        )
        await self.until(f"{identifier} is in", lambda: identifier in self.members)

    async def kill(self, identifier: int, *others: psutil.Process) -> float:
        """Kill `others` and a pool element; return how long it was shown after its death.

        When it dies nothing is being asked: only what registrars tell by themselves can show it soon.
        """
        await asyncio.sleep(CHECKED_AFTER_S)
        for other in others:
            other.kill()
        self.elements[identifier].kill()
        took_s = await self.until(f"{identifier} is out", lambda: identifier not in self.members)
        await self.end(identifier)
        return took_s

    async def end(self, identifier: int) -> None:
        """Kill a pool element, if it lives, and forget it."""
        process = self.elements.pop(identifier)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    def registrar_process(self, index: int) -> psutil.Process:
        """The rspregistrar itself, below its supervisor."""
        for process in psutil.Process(self.supervisors[index]).children(recursive=True):
            if process.name() == "rspregistrar":
                return process
        raise AssertionError(f"no rspregistrar below {self.supervisors[index]}")

    def home_index(self, identifier: int) -> int | None:
        """The home of each member, by the index of its registrar."""
        homes = [state.identifier for state in self._registrars()]
        member = next(member for member in self.view.members if member.identifier == identifier)
        return homes.index(member.home_registrar) if member.home_registrar in homes else None

    def was_always_in(self, identifier: int, since_s: float) -> None:
        missing = [members for at_s, members in self.changes if at_s >= since_s and identifier not in members]
        assert not missing, f"{identifier} blinked: {self.changes}"


async def be_element(identifier: int, address: str, registrars: Sequence[str]) -> None:
    transport = Transport(Protocol.UDP, 5000 + identifier, (ip_address(address),))
    element = PoolElementClient(
        [RegistrarAddress.parse(text) for text in registrars],
        HANDLE.encode(),
        PoolElement(identifier, 0, 3 * REREGISTRATION_MS, transport, LeastUsed(0.0)),
        local_addresses=(address,),
        reregistration_ms=REREGISTRATION_MS,
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    element.start()
    await stop.wait()
    await element.deregister()
    await element.close()


SCENARIO_TIMEOUT_S = 200.0
LIFE_MS = 40_000
"""The life of a stranger's registrations: a scenario that broke off leaves them behind for this time."""


async def members_come_and_go(stage: FollowedPool) -> None:
    """PEs at different homes appear everywhere; a killed one is out in far less than the keep-alive needs."""
    for index in range(3):
        await stage.element(10 + index, index)
    assert {stage.home_index(10 + index) for index in range(3)} == {0, 1, 2}
    for index in range(3):
        took_s = await stage.kill(10 + index)
        print(f"killed: out after {took_s * 1000:.1f} ms", flush=True)
        assert took_s < 1
    await stage.element(10, 1)
    await asyncio.sleep(CHECKED_AFTER_S)
    process = stage.elements.pop(10)
    process.terminate()
    assert await stage.until("deregistered", lambda: stage.members == []) < 1
    assert await process.wait() == 0


async def registrar_killed(stage: FollowedPool) -> None:
    """PEs move to another registrar when theirs is killed, and never blink; a killed one then is out at
    once."""
    await stage.element(20, 0, 1, 2)
    await stage.element(21, 1, 2, 0)
    before = stage.belief.registrar_states(time.monotonic())[0].identifier
    killed_s = time.monotonic()
    stage.registrar_process(0).kill()
    await stage.until("the first is down", lambda: stage.standings[0] != "settled")
    await stage.until("20 moved", lambda: stage.home_index(20) in (1, 2))
    await stage.settled()
    assert stage.belief.registrar_states(time.monotonic())[0].identifier != before
    await asyncio.sleep(1)
    stage.was_always_in(20, killed_s)
    stage.was_always_in(21, killed_s)
    assert await stage.kill(20) < 1


async def member_and_home_die_together(stage: FollowedPool) -> None:
    """Only the peers are left to say so, by takeover.

    That can be held up, since its home was started anew just before. Then the registration's life ends, of
    which no registrar tells, and it takes somebody who looks the pool up: it is asked about every second.
    """
    stage.pool_user.note_query(HANDLE)
    await stage.element(30, 0)
    await stage.element(31, 1)
    os.kill(stage.supervisors[0], signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        took_s = await stage.kill(30, stage.registrar_process(0))
        print(f"home and member dead: out after {took_s:.2f} s", flush=True)
        assert took_s < 8
        assert time.monotonic() - began_s > CHECKED_AFTER_S + 0.2
        assert stage.members == [31]
    finally:
        os.kill(stage.supervisors[0], signal.SIGCONT)
    await stage.settled()
    assert stage.members == [31]


async def registrar_frozen(stage: FollowedPool) -> None:
    """A frozen registrar's members stay in, die by the word of the others, and never return when it wakes."""
    await stage.element(40, 0, 1, 2)
    await stage.element(41, 1, 2, 0)
    frozen_s = time.monotonic()
    process = stage.registrar_process(0)
    process.suspend()
    try:
        await stage.until("silent", lambda: stage.standings[0] == "silent")
        await asyncio.sleep(3)
        stage.was_always_in(40, frozen_s)
        stage.was_always_in(41, frozen_s)
        assert await stage.kill(41) < 1
    finally:
        process.resume()
    await stage.settled()
    await asyncio.sleep(1)
    assert stage.members == [40]
    gone_s = next(at_s for at_s, members in stage.changes if at_s > frozen_s and 41 not in members)
    assert all(41 not in members for at_s, members in stage.changes if at_s >= gone_s)


async def all_registrars_restarted(stage: FollowedPool) -> None:
    """With all of them gone the view is stale, nobody is lost, and a death meanwhile shows in the end."""
    for identifier in (50, 51, 52):
        await stage.element(identifier)
    gone_s = time.monotonic()
    try:
        for index in range(3):
            os.kill(stage.supervisors[index], signal.SIGSTOP)
            stage.registrar_process(index).kill()
        await stage.until("stale", lambda: stage.view.stale_since_s is not None)
        await stage.end(52)
        await asyncio.sleep(1)
        assert stage.members == [50, 51, 52]
    finally:
        for supervisor in stage.supervisors:
            os.kill(supervisor, signal.SIGCONT)
    await stage.settled()
    await stage.until("the dead one is out", lambda: stage.members == [50, 51])
    stage.was_always_in(50, gone_s)
    stage.was_always_in(51, gone_s)
    assert stage.view.stale_since_s is None


async def moving(stage: FollowedPool) -> None:
    """Homes are killed one after the other, again and again: who moves never blinks."""
    for identifier in (60, 61, 62):
        await stage.element(identifier)
    started_s = time.monotonic()
    for round_number in range(4):
        stage.registrar_process(round_number % 3).kill()
        await asyncio.sleep(0.3)
        await stage.settled()
        await asyncio.sleep(0.5)
    for identifier in (60, 61, 62):
        stage.was_always_in(identifier, started_s)
    assert sum(event.kind == "moved" for event in stage.events) >= 2


class Stranger:
    """Tells registrars of pool elements as their peer would; none of them passes it on."""

    IDENTIFIER = 0x5EED

    def __init__(self, registrars: Sequence[RegistrarAddress]) -> None:
        self._registrars = registrars
        self._socket = SctpSocket()
        self._associations: list[int] = []

    async def connect(self) -> None:
        for registrar in self._registrars:
            self._socket.connect(registrar.enrp_endpoint)
        while len(self._associations) < len(self._registrars):
            await asyncio.sleep(0.01)
            with contextlib.suppress(BlockingIOError):
                if isinstance(up := self._socket.receive(), AssociationUp):
                    self._associations.append(up.association)

    async def tell(self, action: UpdateAction, identifiers: Sequence[int], address: str) -> None:
        for identifier in identifiers:
            user = Transport(Protocol.UDP, 5000 + identifier, (ip_address(address),))
            asap = Transport(Protocol.SCTP, 9, (ip_address(address),))
            element = PoolElement(identifier, self.IDENTIFIER, LIFE_MS, user, LeastUsed(0.0), asap)
            update = HandleUpdate(self.IDENTIFIER, 0, action, HANDLE.encode(), element)
            for association in self._associations:
                self._socket.send(association, enrp.PPID, enrp.encode(update))
            await asyncio.sleep(0.002)

    def close(self) -> None:
        self._socket.close()


async def nobody_pushes(stage: FollowedPool) -> None:
    """A member that no registrar pushes is found by asking; a pool of 200 is known from the handle table
    alone."""
    stage.pool_user.note_query(HANDLE)  # what nobody looks up is never asked about here
    stranger = Stranger(stage.registrars)
    await stranger.connect()
    try:
        await stranger.tell(UpdateAction.ADD, [70], stage.address)
        print(f"in after {await stage.until('70 is in', lambda: stage.members == [70], 8):.2f} s")
        await stranger.tell(UpdateAction.DELETE, [70], stage.address)
        print(f"out after {await stage.until('70 is out', lambda: stage.members == [], 8):.2f} s")
        many = list(range(1000, 1200))
        await stranger.tell(UpdateAction.ADD, many, stage.address)
        await stage.until("as many as answers name", lambda: len(stage.members) >= 128)
        stage.pool_user.set_handles([HANDLE])
        await stage.until("all 200", lambda: stage.members == many)
        await stranger.tell(UpdateAction.DELETE, many[5:], stage.address)
        await stage.until("those five", lambda: stage.members == many[:5])
        await stranger.tell(UpdateAction.DELETE, many[:5], stage.address)
        await stage.until("nobody", lambda: stage.members == [])
    finally:
        stranger.close()


SCENARIOS: dict[str, Callable[[FollowedPool], Awaitable[None]]] = {
    scenario.__name__: scenario
    for scenario in (
        members_come_and_go,
        registrar_killed,
        member_and_home_die_together,
        registrar_frozen,
        all_registrars_restarted,
        moving,
        nobody_pushes,
    )
}


async def serve(control: str, address: str, supervisors: Sequence[int]) -> None:
    stage = FollowedPool(address, supervisors)

    async def play(wanted: dict[str, Any]) -> dict[str, Any]:
        print(f"--- {wanted['scenario']}", flush=True)
        async with asyncio.timeout(SCENARIO_TIMEOUT_S):
            await stage.begin()
            await SCENARIOS[wanted["scenario"]](stage)
        return {}

    stage.pool_user.start()
    server = ControlServer(
        control, {"play": ControlCommand(play, {"scenario": str})}
    )  # kept: one that nobody refers to stops listening
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "element":
        asyncio.run(be_element(int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
    else:
        uvloop.run(serve(sys.argv[2], sys.argv[3], [int(pid) for pid in sys.argv[4:]]))
