"""Changes reach every PowerDNS's answers by purges of its caches, whatever happens to it meanwhile."""

import json
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pool_user import PoolView

from tests.backend.making import UDP, ZONE, member, view, views, zone
from tests.support.meanwhile import meanwhile
from tests.support.namespaces import Namespace, own_namespace
from tests.support.pdns import Pdns
from tests.support.served import ScriptedBackend, SlowConnector, served, status
from tests.support.waiting import until

OWNER = f"_sip._udp.as.{ZONE}"
POOLS, MEMBERS = 100, 10
ADDRESSES = ("127.0.0.1", "127.0.0.2")
LONG = "ttl = 60\nnegative_ttl = 1"
"""Without purges an old answer is given for 20 s (`cache-ttl`) with it."""
SOON_S = 10.0
STORM_S, STUCK_S = 5.0, 10.0
"""The bounds of steps that take a tenth of a second, and 1.3 s, on a machine with nothing else to do."""
FIXED = "$TTL 3600\n@ SOA ns1 hostmaster 1 7200 900 1209600 300\n@ NS ns1\nns1 A 10.0.1.1\n"
POOL_TEXTS = [
    UDP.replace("sip-udp", f"p{number}").replace('"as"', f'"as{number}"') for number in range(POOLS)
]
OWNERS = [f"_sip._udp.as{number}.{ZONE}" for number in range(POOLS)]


def everyone(generation: int) -> dict[str, PoolView]:
    """A thousand members; those of one generation have nothing in common with those of another."""
    first = generation * 0x1000
    return views(
        view(member(generation)),
        *(
            view(
                *(member(first + index, f"10.0.{number}.{index + 1}") for index in range(10)),
                handle=f"p{number}",
            )
            for number in range(POOLS)
        ),
    )


ASKING = f"""
import json, socket, sys, time
import dns.message, dns.rdatatype
questions = [dns.message.make_query(owner, "SRV", flags=0).to_wire() for owner in sys.argv[1:]]
clients = []
for address in {ADDRESSES!r}:
    client = socket.socket(type=socket.SOCK_DGRAM)
    client.connect((address, 53))
    client.settimeout(0.5)
    clients.append(client)
while True:
    for index, client in enumerate(clients):
        told = {{}}
        for question in questions:
            asked_s = time.monotonic()
            try:
                client.send(question)
                while (data := client.recv(4096))[:2] != question[:2]:
                    pass
                answer = dns.message.from_wire(data)
                found = {{int(str(one.target).partition(".")[0], 16) // 0x1000
                         for rrset in answer.answer for one in rrset}}
                what = found.pop() if len(found) == 1 else -1
            except OSError:
                what = -2
            first, _ = told.get(what, (asked_s, None))
            told[what] = first, asked_s
        print(json.dumps([index, [[what, *when] for what, when in told.items()]]), flush=True)
"""


@dataclass
class Asking:
    """A client that asks both PowerDNS for all pools, again and again."""

    log: Path
    rounds: list[tuple[int, dict[int, tuple[float, float]]]] = field(default_factory=list)
    """For each PowerDNS: when each generation was answered first and last; -2: no answer, -1: another."""

    def read(self) -> None:
        """Take what it told so far."""
        lines = self.log.read_text().split("\n")[:-1] if self.log.exists() else []
        self.rounds = [
            (index, {what: (first, last) for what, first, last in told})
            for index, told in map(json.loads, lines)
        ]

    def is_right(self, generation: int, indexes: Sequence[int] = (0, 1)) -> bool:
        """Whether in their latest rounds these said nothing else."""
        self.read()
        latest = dict(self.rounds)
        return all(latest.get(index, {}).keys() == {generation} for index in indexes)

    def last_wrong_s(self, generation: int, since_s: float) -> float:
        """How long after `since_s` (monotonic) something else was said for the last time."""
        wrong = [last for _, told in self.rounds for what, (_, last) in told.items() if what != generation]
        return max([0.0, *(last - since_s for last in wrong)])


@dataclass
class Pair:
    """Two PowerDNS, and the backend that serves both."""

    namespace: Namespace
    backend: ScriptedBackend
    both: tuple[Pdns, Pdns]
    asking: Asking
    generation: int = 1

    def change(self) -> int:
        """Change everybody; return the new generation."""
        self.generation += 1
        self.backend.publish(everyone(self.generation))
        return self.generation


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    with own_namespace() as namespace:
        both = Pdns(namespace, folder), Pdns(namespace, folder, "pdns2", ADDRESSES[1])
        zones = [zone("".join([UDP, *POOL_TEXTS]), FIXED, head=LONG)]
        backend = ScriptedBackend(zones, folder, [pdns.control for pdns in both])
        backend.start(everyone(1))
        try:
            for pdns in both:
                pdns.start(ZONE)
            log = folder / "asking.log"
            namespace.start(sys.executable, "-c", ASKING, *OWNERS, log=log)
            made = Pair(namespace, backend, both, Asking(log))
            until(lambda: made.asking.is_right(1))
            yield made
        finally:
            backend.stop()


def test_a_change_is_served_soon_and_the_serial_moves(pair: Pair) -> None:
    serials = [int(pdns.short(ZONE, "SOA")[0].split()[2]) for pdns in pair.both]
    (before,) = pair.both[0].short(OWNER, "SRV")
    pair.backend.publish({**everyone(pair.generation), **views(view(member(0x77)))})
    for pdns, serial in zip(pair.both, serials, strict=True):
        until(lambda pdns=pdns: pdns.short(OWNER, "SRV") == [f"0 1000 5060 00000077.u.as.{ZONE}."], SOON_S)  # type: ignore[misc]
        until(lambda pdns=pdns, serial=serial: int(pdns.short(ZONE, "SOA")[0].split()[2]) > serial)  # type: ignore[misc]
        until(lambda pdns=pdns: pdns.short(before.split()[3], "A") == [], SOON_S)  # type: ignore[misc]


def test_soa_is_new_as_soon_as_the_zone_changed(tmp_path: Path) -> None:
    """A secondary that is told of a change asks for the SOA first. An old one makes it ignore the change."""
    with served(
        [zone(UDP, FIXED, head="ttl = 60\nnegative_ttl = 60")], views(view(member(1))), tmp_path
    ) as now:

        def serial() -> int:
            return int(now.pdns.short(ZONE, "SOA")[0].split()[2])

        for number in (2, 3, 4):
            until(lambda: serial() == serial())  # PowerDNS keeps it in its caches for 20 s
            before = serial()
            now.backend.publish(views(view(member(number))))
            until(lambda before=before: serial() > before, SOON_S)  # type: ignore[misc]


def everyone_changes(pair: Pair, what: str) -> None:
    """All members change; both PowerDNS are right before their caches run out."""
    changed_s = time.monotonic()
    now = pair.change()
    until(lambda: pair.asking.is_right(now))
    took_s = pair.asking.last_wrong_s(now, changed_s)
    print(f"\n{what}: last wrong answer after {1000 * took_s:.0f} ms")
    assert took_s < STORM_S


def test_a_thousand_members_change_at_once(pair: Pair) -> None:
    everyone_changes(pair, f"{POOLS * MEMBERS} members at two PowerDNS")


def test_powerdns_restarts_in_a_storm_of_changes(pair: Pair) -> None:
    """A change while it starts is not left in its caches; the other one goes on meanwhile."""
    second = pair.both[1]
    second.stop()
    now = pair.change()
    until(lambda: pair.asking.is_right(now, indexes=[0]), SOON_S)
    with meanwhile(pair.change, lambda: 0.1):
        second.start(ZONE)
        time.sleep(0.5)
    everyone_changes(pair, "after a restart in a storm")


def test_a_stuck_control_socket_holds_up_only_its_own(pair: Pair) -> None:
    """PowerDNS reads one control client after the other; one that says nothing holds up all."""
    first = pair.both[0]
    with socket.socket(socket.AF_UNIX) as idle:
        idle.connect(str(first.control))
        time.sleep(0.1)
        changed_s = time.monotonic()
        now = pair.change()
        until(lambda: pair.asking.is_right(now, indexes=[1]), SOON_S)
        until(lambda: pair.backend.purger.sockets[0].problem)
        assert pair.backend.purger.sockets[1].problem is None
    until(lambda: pair.asking.is_right(now), SOON_S)
    took_s = pair.asking.last_wrong_s(now, changed_s)
    print(f"\nafter a stuck control socket: last wrong answer after {1000 * took_s:.0f} ms")
    assert took_s < STUCK_S
    until(lambda: pair.backend.purger.sockets[0].problem is None)


def test_a_new_zone_is_served_at_once(pair: Pair) -> None:
    zones = [pair.backend.zones[0], zone("", FIXED, name="new.example")]
    for pdns in pair.both:
        assert status(pdns.dig("new.example", "SOA")) == "REFUSED"
    pair.backend.set_zones(zones, everyone(pair.generation))
    for pdns in pair.both:
        until(lambda pdns=pdns: status(pdns.dig("new.example", "SOA")) == "NOERROR")  # type: ignore[misc]
        assert pdns.short("ns1.new.example", "A") == ["10.0.1.1"]


LOAD = """
import socket, sys, time
import dns.message
questions = [dns.message.make_query(name, "SRV").to_wire() for name in sys.argv[1:]]
client = socket.socket(type=socket.SOCK_DGRAM)
client.connect(("127.0.0.1", 53))
client.settimeout(1)
while True:
    for question in questions:
        for _ in range(20):
            client.send(question)
    try:
        for _ in range(20 * len(questions)):
            client.recv(4096)
    except OSError:
        pass
    time.sleep(0.002)
"""


@pytest.mark.parametrize("signed", [False, True])
def test_no_old_answer_outlives_the_last_purge(namespace: Namespace, tmp_path: Path, signed: bool) -> None:
    """A look-up under way during a purge puts the old answer back; the repeats must remove it.

    If the zone is signed it may be the SOA, by which PowerDNS goes on asking for what was.
    """
    backend = ScriptedBackend([zone(UDP, FIXED)], tmp_path, [tmp_path / "pdns" / "pdns.controlsocket"])
    backend.start(views(view(member(1))))
    slow = SlowConnector(tmp_path / "slow.sock", tmp_path / "remote.sock", delay_s=0.002)
    pdns = Pdns(namespace, tmp_path, remote="slow.sock", signed=signed)
    try:
        pdns.start(ZONE)
        if signed:
            pdns.sign(ZONE)
        namespace.start(sys.executable, "-c", LOAD, OWNER)
        time.sleep(0.5)
        for change in range(25):
            backend.publish(views(view(member(1))))
            time.sleep(0.003 + change % 10 / 1000)  # the look-ups that this change brings are under way
            backend.publish(views(view(member(100 + change))))
            time.sleep(0.2)
            now = [f"0 1000 5060 {100 + change:08x}.u.as.{ZONE}."]
            until(lambda now=now: pdns.short(OWNER, "SRV") == now, 0.3)  # type: ignore[misc]
    finally:
        slow.close()
        backend.stop()
