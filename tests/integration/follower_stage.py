"""What the scenarios of follower_scenarios.py play on: a pool user at real registrars, and pool elements.

    python -m tests.integration.follower_stage IDENTIFIER ADDRESS REGISTRAR...

is one pool element in a process of its own.
"""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address, ip_network

import psutil
from pool_user.belief import Belief, BeliefEvent, PoolRules
from pool_user.registrars.polling import Intervals
from pool_user.user import PoolUser
from pool_user.views import PoolView
from rserpool.aio.element import PoolElementClient
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.parameters import PoolElement, Protocol, Transport
from rserpool.policies import LeastUsed

from tests.support.stalls import Deadline, Mark

HANDLE = "sip-as-udp"
REREGISTRATION_MS = 500
ACCEPT = (ip_network("10.66.0.0/16"),)
RULES = {HANDLE: PoolRules(ACCEPT)}
INTERVALS = Intervals(hot_s=0.05, hot_for_s=60.0, idle_s=3600.0)
"""What nobody looks up is as good as never asked about: a registrar that is followed has to tell."""
CHECKED_AFTER_S = 0.2
"""So long after a change nobody is asked about it any more."""


class Stage:
    """The registrars, a pool user and what it said, and pool elements in processes of their own."""

    def __init__(self, address: str, supervisors: Sequence[int]) -> None:
        self.address = address
        self.supervisors = supervisors
        self.registrars = [
            RegistrarAddress(address, 3863 + place, 9901 + place) for place in range(len(supervisors))
        ]
        self.belief = Belief([str(one) for one in self.registrars], RULES)
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

    def _on_change(self, views: Mapping[str, PoolView]) -> None:
        self.view = views[HANDLE]
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

    @property
    def standings(self) -> list[str]:
        return [state.standing.value for state in self.pool_user.registrar_states()]

    @property
    def follow(self) -> list[str]:
        return [state.follow for state in self.pool_user.registrar_states()]

    async def until(self, what: str, condition: Callable[[], bool], timeout_s: float = 20) -> float:
        """Wait for the condition; return how long it took."""
        started, deadline = Mark.now(), Deadline(timeout_s)
        while not condition():
            if deadline.is_over:
                raise AssertionError(f"not within {timeout_s} s: {what}; {self.members} {self.standings}")
            await asyncio.sleep(0.002)
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

    async def element(self, identifier: int, *places: int) -> None:
        """Start a pool element that registers at the registrars of these places, the first one first."""
        registrars = [str(self.registrars[place]) for place in places or (0, 1, 2)]
        self.elements[identifier] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __spec__.name, str(identifier), self.address, *registrars)
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

    def registrar_process(self, place: int) -> psutil.Process:
        """The rspregistrar itself, below its supervisor."""
        for process in psutil.Process(self.supervisors[place]).children(recursive=True):
            if process.name() == "rspregistrar":
                return process
        raise AssertionError(f"no rspregistrar below {self.supervisors[place]}")

    def home_place(self, identifier: int) -> int | None:
        """Where a member is at home, by the place of its registrar."""
        homes = [state.identifier for state in self.pool_user.registrar_states()]
        member = next(member for member in self.view.members if member.identifier == identifier)
        return homes.index(member.home_registrar) if member.home_registrar in homes else None

    def was_always_in(self, identifier: int, since_s: float) -> None:
        missing = [members for at_s, members in self.changes if at_s >= since_s and identifier not in members]
        assert not missing, f"{identifier} blinked: {self.changes}"


async def be_element(identifier: int, address: str, registrars: Sequence[str]) -> None:
    transport = Transport(Protocol.UDP, 5000 + identifier, (ip_address(address),))
    element = PoolElementClient(
        [RegistrarAddress.parse(one) for one in registrars],
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


if __name__ == "__main__":
    asyncio.run(be_element(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
