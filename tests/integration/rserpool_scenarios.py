"""What the asyncio clients do with real registrars: run by test_rserpool_registrar.py where SCTP works.

    python -m tests.integration.rserpool_scenarios SCENARIO asyncio|uvloop ADDRESS PID...

ADDRESS is where the registrars are (ASAP ports 3863 and up, ENRP ports 9901 and up), PID their process
identifiers in the same order. Exit status 0: the scenario went as it must.
"""

import asyncio
import contextlib
import random
import subprocess
import sys
from ipaddress import ip_address

from rserpool.aio.element import EventKind, State
from rserpool.aio.sctp import AssociationUp, Message, SctpSocket
from rserpool.asap import EndpointKeepAlive
from rserpool.parameters import Protocol, Transport
from rserpool.policies import LeastUsed, RoundRobin

from rserpool import asap
from tests.integration import rserpool_faults
from tests.integration.rserpool_host import IDENTIFIER, SECOND_ADDRESS, Host, host
from tests.support.waiting import until_async


async def found_by_all(here: Host) -> None:
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
    assert here.kinds() == [EventKind.REGISTERED]
    assert all(client.round_trip_ms is not None for client in here.clients.values())


async def deregistered(here: Host) -> None:
    """After a deregistration no registrar lists the element."""
    element = here.element(b"leaves")
    await here.until_listed(b"leaves", {IDENTIFIER})
    assert await element.deregister(10_000)
    assert element.state is State.STOPPED
    await here.until_listed(b"leaves", set(), within_s=1)


async def rejected(here: Host) -> None:
    """An element whose policy differs from its pool's is refused, with the reason in words."""
    here.element(b"picky")
    await here.until_listed(b"picky", {IDENTIFIER})
    other = here.element(b"picky", identifier=0xB002, policy=RoundRobin())
    await until_async(lambda: EventKind.REJECTED in here.kinds(), 3)
    event = next(event for event in here.events if event.kind is EventKind.REJECTED)
    assert "policy" in event.detail
    assert event.causes
    assert not other.is_registered


async def tools_find_it(here: Host) -> None:
    """rsplib's own programs see the element: hsdump over ENRP, rspterminal by talking to its service."""
    echo = SctpSocket(local_addresses=(here.address,), listens=True)

    def answer() -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                received = echo.receive()
                if isinstance(received, Message) and received.ppid != 11:
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


async def own_port(here: Host) -> None:
    """Port 0 of an SCTP transport becomes the port of the element's own socket."""
    transport = Transport(Protocol.SCTP, 0, (ip_address(here.address),))
    element = here.element(b"own-port", transport=transport)
    view = await here.until_listed(b"own-port", {IDENTIFIER})
    assert element.local_port > 0
    assert {each.user_transport.port for members in view.values() for each in members or []} == {
        element.local_port
    }


async def multihomed(here: Host) -> None:
    """An SCTP service with two addresses, both spoken from, is listed with both."""
    addresses = (here.address, SECOND_ADDRESS)
    transport = Transport(Protocol.SCTP, 0, tuple(map(ip_address, addresses)))
    here.element(b"multihomed", transport=transport, addresses=addresses)
    view = await here.until_listed(b"multihomed", {IDENTIFIER})
    for members in view.values():
        assert members
        assert {str(address) for address in members[0].user_transport.addresses} == set(addresses)


async def stranger(here: Host) -> None:
    """Whoever sends garbage to the element's port, or claims to be its home, achieves nothing."""
    element = here.element(b"unmoved")
    await here.until_listed(b"unmoved", {IDENTIFIER})
    evil = SctpSocket(local_addresses=(here.address,))
    evil.connect((here.address, element.local_port))

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
    await until_async(lambda: EventKind.TAKEOVER_REFUSED in here.kinds(), 5)
    evil.close()
    element.update_policy(LeastUsed(1.0))
    await asyncio.sleep(0.2)
    assert element.is_registered
    assert here.kinds() == [EventKind.REGISTERED, EventKind.TAKEOVER_REFUSED]


async def killed_element(here: Host) -> None:
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


async def hold(here: Host) -> None:
    """Stay registered until killed."""
    here.element(b"killed")
    await asyncio.sleep(60)


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        found_by_all,
        deregistered,
        rejected,
        tools_find_it,
        own_port,
        multihomed,
        stranger,
        killed_element,
        hold,
        rserpool_faults.killed_registrar,
        rserpool_faults.frozen_registrar,
        rserpool_faults.woken_registrar,
        rserpool_faults.taken_over,
        rserpool_faults.pinned,
    )
}


async def main(scenario: str, address: str, pids: list[int]) -> None:
    async with host(address, pids) as here:
        await SCENARIOS[scenario](here)


if __name__ == "__main__":
    if sys.argv[2] == "uvloop":
        import uvloop

        uvloop.install()
    asyncio.run(main(sys.argv[1], sys.argv[3], [int(pid) for pid in sys.argv[4:]]))
