"""The asyncio clients with real registrars: run by test_rserpool_registrar.py where SCTP works.

    python -m tests.integration.rserpool_scenarios SCENARIO asyncio|uvloop ADDRESS PID...

ADDRESS is where the registrars are (ASAP ports 3863 and up, ENRP ports 9901 and up), PID their process
identifiers in the same order. Exit status 0: the scenario went as it must.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from ipaddress import ip_address

from rserpool.policies import (
    Priority,
    PriorityLeastUsed,
    RandomizedLeastUsed,
    WeightedRandom,
    WeightedRoundRobin,
)

from rserpool import (
    AssociationUp,
    ElementEvent,
    ElementEventKind,
    ElementState,
    EndpointKeepAlive,
    LeastUsed,
    Policy,
    PoolElement,
    PoolElementClient,
    Protocol,
    RegistrarAddress,
    RegistrarClient,
    Resolution,
    ResolutionTimeout,
    RoundRobin,
    RSerPoolError,
    SctpMessage,
    SctpSocket,
    Transport,
    asap,
    least_wanted,
)
from tests.support.stalls import Mark
from tests.support.waiting import until_async

IDENTIFIER = 0xA001
SECOND_ADDRESS = "10.66.1.1"
"""Another address of the host, for what is multihomed."""


@dataclass
class PoolAtRegistrars:
    """The registrars, a client to each, and the pool elements of a scenario."""

    address: str
    pids: list[int]
    registrars: list[RegistrarAddress] = field(default_factory=list)
    clients: dict[RegistrarAddress, RegistrarClient] = field(default_factory=dict)
    events: list[ElementEvent] = field(default_factory=list)
    elements: list[PoolElementClient] = field(default_factory=list)

    def pid(self, registrar: RegistrarAddress | None) -> int:
        assert registrar is not None
        return self.pids[self.registrars.index(registrar)]

    def kinds(self) -> list[ElementEventKind]:
        return [event.kind for event in self.events]

    def element(
        self,
        handle: bytes,
        *,
        identifier: int = IDENTIFIER,
        policy: Policy | None = None,
        transport: Transport | None = None,
        addresses: tuple[str, ...] = (),
        registrars: list[RegistrarAddress] | None = None,
        reregistration_ms: int = 2000,
        pinned: bool = False,
    ) -> PoolElementClient:
        """Start a pool element; UDP port 5060 of this host and half loaded, unless told otherwise."""
        udp = Transport(Protocol.UDP, 5060, (ip_address(self.address),))
        element = PoolElementClient(
            registrars or self.registrars,
            handle,
            PoolElement(identifier, 0, 3 * reregistration_ms, transport or udp, policy or LeastUsed(0.5)),
            local_addresses=addresses or (self.address,),
            reregistration_ms=reregistration_ms,
            pinned=pinned,
            on_event=self._note,
        )
        element.start()
        self.elements.append(element)
        return element

    def _note(self, event: ElementEvent) -> None:
        print(f"{event.at_s:.3f} {event.kind.value} {event.registrar} {event.detail}", flush=True)
        self.events.append(event)

    async def view(self, handle: bytes) -> dict[RegistrarAddress, list[PoolElement] | None]:
        """Return what each registrar lists; None for one that gives no answer."""
        found: dict[RegistrarAddress, list[PoolElement] | None] = {}
        for registrar, client in self.clients.items():
            try:
                found[registrar] = list((await client.resolve(handle)).pool_elements)
            except RSerPoolError:
                found[registrar] = None
        return found

    async def until_listed(
        self, handle: bytes, identifiers: set[int], *, by: int = 3, within_s: float = 5
    ) -> dict[RegistrarAddress, list[PoolElement] | None]:
        """Wait until `by` registrars list exactly these elements."""
        view: dict[RegistrarAddress, list[PoolElement] | None] = {}

        async def listed() -> bool:
            view.update(await self.view(handle))
            lists = [members for members in view.values() if members is not None]
            right = [members for members in lists if {each.identifier for each in members} == identifiers]
            return len(right) >= by

        await until_async(listed, within_s, lambda: f"{handle!r}: {view}")
        return view


@contextlib.asynccontextmanager
async def stage_at(address: str, pids: list[int]) -> AsyncIterator[PoolAtRegistrars]:
    """Connect to every registrar; close all that a scenario started."""
    registrars = [RegistrarAddress(address, 3863 + i, 9901 + i) for i in range(len(pids))]
    here = PoolAtRegistrars(address, pids, registrars)
    for registrar in registrars:
        here.clients[registrar] = RegistrarClient(registrar, timeout_ms=500)
        here.clients[registrar].start()
    try:
        await until_async(lambda: all(client.is_up for client in here.clients.values()), 5)
        yield here
    finally:
        for element in here.elements:
            await element.close()
        for client in here.clients.values():
            await client.close()


async def found_by_all(here: PoolAtRegistrars) -> None:
    """A registered element is listed by every registrar as it was registered; updates arrive everywhere."""
    element = here.element(b"found")
    view = await here.until_listed(b"found", {IDENTIFIER})
    for members in view.values():
        assert members is not None
        assert members[0].user_transport == element.element.user_transport
        assert abs(members[0].policy.load - 0.5) < 1e-6  # type: ignore[union-attr]
    await until_async(lambda: element.home_registrar is not None, 2)
    homes = {members[0].home_registrar for members in view.values() if members}
    assert homes == {element.home_registrar}
    for load in (0.25, 0.75):
        element.update_policy(LeastUsed(load))

        async def everywhere(load: float = load) -> bool:
            members = [each for listed in (await here.view(b"found")).values() for each in listed or []]
            return len(members) == 3 and all(abs(each.policy.load - load) < 1e-6 for each in members)  # type: ignore[union-attr]

        await until_async(everywhere, 2)
    assert here.kinds() == [ElementEventKind.REGISTERED]
    assert all(client.round_trip_ms is not None for client in here.clients.values())


async def deregistered(here: PoolAtRegistrars) -> None:
    """After a deregistration no registrar lists the element."""
    element = here.element(b"leaves")
    await here.until_listed(b"leaves", {IDENTIFIER})
    assert await element.deregister(10_000)
    assert element.state is ElementState.IDLE
    await here.until_listed(b"leaves", set(), within_s=1)


async def rejected(here: PoolAtRegistrars) -> None:
    """An element whose policy differs from its pool's is refused, with the reason in words."""
    here.element(b"picky")
    await here.until_listed(b"picky", {IDENTIFIER})
    other = here.element(b"picky", identifier=0xB002, policy=RoundRobin())
    await until_async(lambda: ElementEventKind.REJECTED in here.kinds(), 3)
    event = next(event for event in here.events if event.kind is ElementEventKind.REJECTED)
    assert "policy" in event.detail
    assert event.causes
    assert not other.is_registered


async def least_wanted_elements(here: PoolAtRegistrars) -> None:
    """An element that nobody should choose is listed with the others, behind them where the policy can."""
    policies: list[Policy] = [
        WeightedRoundRobin(5),
        WeightedRandom(5),
        Priority(5),
        LeastUsed(0.5),
        RandomizedLeastUsed(0.5),
        PriorityLeastUsed(0.5, 0.1),
    ]
    for number, policy in enumerate(policies):
        here.element(b"wanted-%d" % number, identifier=2, policy=policy)
    for number in range(len(policies)):
        await here.until_listed(b"wanted-%d" % number, {2})
    for number, policy in enumerate(policies):
        here.element(b"wanted-%d" % number, identifier=1, policy=least_wanted(policy))
    for number, policy in enumerate(policies):
        view = await here.until_listed(b"wanted-%d" % number, {1, 2})
        if isinstance(policy, Priority | LeastUsed | PriorityLeastUsed):
            assert all(members and members[0].identifier == 2 for members in view.values()), (policy, view)


async def tools_find_it(here: PoolAtRegistrars) -> None:
    """rsplib's own programs see the element: hsdump over ENRP, rspterminal by talking to its service."""
    echo = SctpSocket(local_addresses=(here.address,), listens=True)

    def answer() -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                received = echo.receive()
                if isinstance(received, SctpMessage) and received.ppid != 11:
                    echo.send(received.association, received.ppid, received.data)

    asyncio.get_running_loop().add_reader(echo.fileno(), answer)
    service = Transport(Protocol.SCTP, echo.port, (ip_address(here.address),))
    here.element(b"EchoPool", transport=service)
    await here.until_listed(b"EchoPool", {IDENTIFIER})
    # hsdump plays a registrar: it reads the table of the one it asks, and prints it.
    dump = await output("hsdump", f"{here.address}:9901", until_text=f"{IDENTIFIER:08x}")
    assert "EchoPool" in dump
    terminal = await output(
        "rspterminal",
        "-poolhandle=EchoPool",
        f"-registrar={here.address}:3863",
        until_text="hello from a person",
        says=b"hello from a person\n",
    )
    assert f"from PE ${IDENTIFIER:08x}> hello from a person" in terminal
    asyncio.get_running_loop().remove_reader(echo.fileno())
    echo.close()


async def output(*command: str, until_text: str, says: bytes | None = None) -> str:
    """Run a program until its output holds `until_text` (at most 60 s), and return the output."""
    process = await asyncio.create_subprocess_exec(
        "stdbuf", "-o0", *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdin
    assert process.stdout
    text = ""
    try:
        async with asyncio.timeout(60):
            while until_text not in text:
                try:
                    async with asyncio.timeout(1):
                        data = await process.stdout.read(4096)
                except TimeoutError:
                    data = None
                if data == b"":
                    break
                text += (data or b"").decode(errors="replace")
                if says and not data:
                    process.stdin.write(says)
    except TimeoutError:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    print(text, flush=True)
    assert until_text in text, f"{command[0]} did not print {until_text!r}"
    return text


async def own_port(here: PoolAtRegistrars) -> None:
    """Port 0 of an SCTP transport becomes the port of the element's own socket."""
    transport = Transport(Protocol.SCTP, 0, (ip_address(here.address),))
    element = here.element(b"own-port", transport=transport)
    view = await here.until_listed(b"own-port", {IDENTIFIER})
    port = element.element.user_transport.port
    assert port > 0
    assert {each.user_transport.port for members in view.values() for each in members or []} == {port}


async def multihomed(here: PoolAtRegistrars) -> None:
    """An SCTP service with two addresses, both spoken from, is listed with both."""
    addresses = (here.address, SECOND_ADDRESS)
    transport = Transport(Protocol.SCTP, 0, tuple(map(ip_address, addresses)))
    here.element(b"multihomed", transport=transport, addresses=addresses)
    view = await here.until_listed(b"multihomed", {IDENTIFIER})
    for members in view.values():
        assert members
        assert {str(address) for address in members[0].user_transport.addresses} == set(addresses)


async def stranger(here: PoolAtRegistrars) -> None:
    """A stranger that sends garbage to the element's port, or claims to be its home, achieves nothing."""
    element = here.element(b"unmoved")
    await here.until_listed(b"unmoved", {IDENTIFIER})
    evil = SctpSocket(local_addresses=(here.address,))
    evil.connect((here.address, element._driver.port))

    found: list[int] = []

    def is_associated() -> bool:
        with contextlib.suppress(BlockingIOError):
            received = evil.receive()
            found.extend([received.association] if isinstance(received, AssociationUp) else [])
        return bool(found)

    await until_async(is_associated, 5)
    chance = random.Random(1)
    for length in range(0, 2000, 7):
        data = chance.randbytes(length + 1)
        for ppid, garbage in ((0, data), (11, data), (11, bytes([length % 15, 0]) + data), (12, data)):
            with contextlib.suppress(BlockingIOError):
                evil.send(found[0], ppid, garbage)
        await asyncio.sleep(0)
    takeover = EndpointKeepAlive(666, b"unmoved", IDENTIFIER, home=True)
    evil.send(found[0], 11, asap.encode(takeover))
    await until_async(lambda: ElementEventKind.TAKEOVER_REFUSED in here.kinds(), 5)
    evil.close()
    element.update_policy(LeastUsed(1.0))
    await asyncio.sleep(0.2)
    assert element.is_registered
    assert here.kinds() == [ElementEventKind.REGISTERED, ElementEventKind.TAKEOVER_REFUSED]


async def killed_element(here: PoolAtRegistrars) -> None:
    """An element whose process is killed is gone from every registrar at once."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __spec__.name, "hold", "asyncio", here.address, *map(str, here.pids)
    )
    try:
        await here.until_listed(b"killed", {IDENTIFIER}, within_s=10)
        child.kill()
        await here.until_listed(b"killed", set(), within_s=1)
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def hold(here: PoolAtRegistrars) -> None:
    """Stay registered until killed."""
    here.element(b"killed")
    await asyncio.sleep(60)


async def killed_registrar(here: PoolAtRegistrars) -> None:
    """The element's registrar is killed: it is at another at once, and never missing meanwhile."""
    element = here.element(b"survives")
    await here.until_listed(b"survives", {IDENTIFIER})
    first = element.registrar
    os.kill(here.pid(first), signal.SIGKILL)
    killed, killed_at_s = Mark.now(), time.monotonic()
    answers = 0
    while time.monotonic() < killed_at_s + 6:
        for registrar, members in (await here.view(b"survives")).items():
            if registrar != first:
                assert members, f"{registrar} does not list the element"
                answers += 1
        await asyncio.sleep(0.01)
    assert answers > 50
    registered = [event for event in here.events if event.kind is ElementEventKind.REGISTERED]
    assert len(registered) == 2
    assert registered[1].at_s - killed_at_s < 1 + killed.lacked_s()
    assert element.is_registered
    assert element.registrar not in (None, first)


async def frozen_registrar(here: PoolAtRegistrars) -> None:
    """A frozen registrar is left at the next renewal; a question it answers late never looks recent."""
    element = here.element(b"thaws", reregistration_ms=1000)
    await here.until_listed(b"thaws", {IDENTIFIER})
    first = element.registrar
    assert first is not None
    os.kill(here.pid(first), signal.SIGSTOP)
    try:
        try:
            await here.clients[first].resolve(b"thaws")
            raise AssertionError("a frozen registrar answered")
        except ResolutionTimeout:
            pass
        await until_async(lambda: element.is_registered and element.registrar != first, 5)
    finally:
        os.kill(here.pid(first), signal.SIGCONT)

    async def answers() -> bool:
        asked_at_s = time.monotonic()
        try:
            resolution: Resolution = await here.clients[first].resolve(b"thaws")
        except RSerPoolError:
            return False
        assert resolution.asked_at_s >= asked_at_s
        return True

    await until_async(answers, 10)


async def woken_registrar(here: PoolAtRegistrars) -> None:
    """A frozen registrar wakes after the element has moved, and may remove it everywhere: not for long."""
    element = here.element(b"stays", reregistration_ms=1000)
    await here.until_listed(b"stays", {IDENTIFIER})
    first = element.registrar
    os.kill(here.pid(first), signal.SIGSTOP)
    try:
        await until_async(lambda: element.is_registered and element.registrar != first, 5)
        await asyncio.sleep(4)
    finally:
        os.kill(here.pid(first), signal.SIGCONT)
    missing_at_s: list[float] = []
    woken, woken_at_s = Mark.now(), time.monotonic()
    while time.monotonic() < woken_at_s + 6:
        for registrar, members in (await here.view(b"stays")).items():
            if members == [] and registrar != first:
                missing_at_s.append(time.monotonic() - woken_at_s)
        await asyncio.sleep(0.002)
    print(f"missing in {len(missing_at_s)} answers: {missing_at_s}", flush=True)
    assert not missing_at_s or missing_at_s[-1] < 1 + woken.lacked_s()


async def taken_over(here: PoolAtRegistrars) -> None:
    """Its registrar falls silent, another takes over: the element follows, acknowledges, and stays listed."""
    element = here.element(b"follows", reregistration_ms=60_000)
    await here.until_listed(b"follows", {IDENTIFIER})
    first = element.registrar
    os.kill(here.pid(first), signal.SIGSTOP)
    try:
        await until_async(lambda: ElementEventKind.TAKEN_OVER in here.kinds(), 20)
        assert element.registrar not in (None, first)
        deadline_s = time.monotonic() + 3
        while time.monotonic() < deadline_s:
            for registrar, members in (await here.view(b"follows")).items():
                assert registrar == first or members, f"{registrar} does not list the element"
        assert element.is_registered
        assert element.home_registrar is not None
    finally:
        os.kill(here.pid(first), signal.SIGCONT)


async def pinned(here: PoolAtRegistrars) -> None:
    """A pinned element refuses the takeover, so the others drop it."""
    here.element(b"pinned", registrars=here.registrars[:1], reregistration_ms=60_000, pinned=True)
    await here.until_listed(b"pinned", {IDENTIFIER})
    os.kill(here.pids[0], signal.SIGSTOP)
    try:
        await until_async(lambda: ElementEventKind.TAKEOVER_REFUSED in here.kinds(), 20)
        await here.until_listed(b"pinned", set(), by=2, within_s=10)
    finally:
        os.kill(here.pids[0], signal.SIGCONT)


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        found_by_all,
        deregistered,
        rejected,
        least_wanted_elements,
        tools_find_it,
        own_port,
        multihomed,
        stranger,
        killed_element,
        hold,
        killed_registrar,
        frozen_registrar,
        woken_registrar,
        taken_over,
        pinned,
    )
}


async def main(scenario: str, address: str, pids: list[int]) -> None:
    async with stage_at(address, pids) as here:
        await SCENARIOS[scenario](here)


if __name__ == "__main__":
    if sys.argv[2] == "uvloop":
        import uvloop

        uvloop.install()
    asyncio.run(main(sys.argv[1], sys.argv[3], [int(pid) for pid in sys.argv[4:]]))
