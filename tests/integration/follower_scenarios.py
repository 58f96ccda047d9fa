"""A follower at real, supervised registrars: run by test_follower.py where SCTP works.

    python -m tests.integration.follower_scenarios CONTROL_SOCKET ADDRESS PID...

ADDRESS is where the registrars are (ASAP ports 3863 and up), PID the supervisors' process identifiers in
the same order. The command "play" at the control socket plays a scenario, all with the same follower; it is
refused when that does not go as it must.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Any

import uvloop
from daemon_kit.control import Command, ControlServer
from rserpool.aio.sctp import AssociationUp, SctpSocket
from rserpool.enrp import HandleUpdate, UpdateAction
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.parameters import PoolElement, Protocol, Transport
from rserpool.policies import LeastUsed

from rserpool import enrp
from tests.integration.follower_stage import CHECKED_AFTER_S, HANDLE, Stage

SCENARIO_TIMEOUT_S = 200.0
LIFE_MS = 40_000
"""Of what a stranger tells of: a scenario that broke off leaves it behind for so long."""


async def members_come_and_go(stage: Stage) -> None:
    """PEs at different homes appear everywhere; a killed one is out in far less than the keep-alive needs."""
    for place in range(3):
        await stage.element(10 + place, place)
    assert {stage.home_place(10 + place) for place in range(3)} == {0, 1, 2}
    for place in range(3):
        took_s = await stage.kill(10 + place)
        print(f"killed: out after {took_s * 1000:.1f} ms", flush=True)
        assert took_s < 1
    await stage.element(10, 1)
    await asyncio.sleep(CHECKED_AFTER_S)
    process = stage.elements.pop(10)
    process.terminate()
    assert await stage.until("deregistered", lambda: stage.members == []) < 1
    assert await process.wait() == 0


async def registrar_killed(stage: Stage) -> None:
    """PEs move to another registrar when theirs is killed, and never blink; a killed one then is out at
    once."""
    await stage.element(20, 0, 1, 2)
    await stage.element(21, 1, 2, 0)
    before = stage.belief.registrar_states(time.monotonic())[0].identifier
    killed_s = time.monotonic()
    stage.registrar_process(0).kill()
    await stage.until("the first is down", lambda: stage.standings[0] != "settled")
    await stage.until("20 moved", lambda: stage.home_place(20) in (1, 2))
    await stage.settled()
    assert stage.belief.registrar_states(time.monotonic())[0].identifier != before
    await asyncio.sleep(1)
    stage.was_always_in(20, killed_s)
    stage.was_always_in(21, killed_s)
    assert await stage.kill(20) < 1


async def member_and_home_die_together(stage: Stage) -> None:
    """Nobody is left to say so but the peers, by takeover.

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


async def registrar_frozen(stage: Stage) -> None:
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


async def all_registrars_restarted(stage: Stage) -> None:
    """With all of them gone the view is stale, nobody is lost, and a death meanwhile shows in the end."""
    for identifier in (50, 51, 52):
        await stage.element(identifier)
    gone_s = time.monotonic()
    try:
        for place in range(3):
            os.kill(stage.supervisors[place], signal.SIGSTOP)
            stage.registrar_process(place).kill()
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


async def moving(stage: Stage) -> None:
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


async def nobody_pushes(stage: Stage) -> None:
    """What no registrar pushes is found by asking; a pool of 200 is known from the handle table alone."""
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


SCENARIOS: dict[str, Callable[[Stage], Awaitable[None]]] = {
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
    stage = Stage(address, supervisors)

    async def play(wanted: dict[str, Any]) -> dict[str, Any]:
        print(f"--- {wanted['scenario']}", flush=True)
        async with asyncio.timeout(SCENARIO_TIMEOUT_S):
            await stage.begin()
            await SCENARIOS[wanted["scenario"]](stage)
        return {}

    stage.pool_user.start()
    server = ControlServer(
        control, {"play": Command(play, {"scenario": str})}
    )  # kept: one that nobody refers to stops listening
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], sys.argv[2], [int(pid) for pid in sys.argv[3:]]))
