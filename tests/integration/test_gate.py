"""The gate in front of rspregistrar: what one admitted host can do without it, and can't with it."""

import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from daemon_kit.control import request
from registrar_config import RegistrarSettings, SctpEndpoint, arguments
from rserpool.policies import WeightedRoundRobin

from rserpool import LeastUsed, PoolElement, Protocol, Transport, asap, enrp
from tests.support import attacks
from tests.support.asker import Asker
from tests.support.builds import runtime, sanitized_gate
from tests.support.members import Members
from tests.support.namespaces import Namespace, own_namespace
from tests.support.waiting import until

REGISTRAR, SERVER, OTHER_REGISTRAR, FOLLOWER, NEIGHBOUR, ADMITTED = (
    f"10.77.0.{last}" for last in range(1, 7)
)
OTHERS = (SERVER, OTHER_REGISTRAR, FOLLOWER, NEIGHBOUR, ADMITTED)
CLAIMED = "192.0.2.99"
ASAP, ENRP = (REGISTRAR, 3863), (REGISTRAR, 9901)
RULES = f"""\
registrar {REGISTRAR}
registrar {OTHER_REGISTRAR}
follower {FOLLOWER}
element {REGISTRAR} handles rspdns-sentinel-1
element {SERVER} handles pool*
element {NEIGHBOUR} handles pool*
element {ADMITTED} handles own addresses {ADMITTED},{CLAIMED} most 3
pool pool-policy,pool-transport policy 0x40000001 transport udp
end
"""
RULE_COUNT = 8
ATTACK_S = 1.5
"""How long the gate has to hold out against each attack."""
SOON_S = 10.0
"""How long an attack without the gate may take, or a server that is let in behind it."""
PATIENCE_S = 60.0
PEER_ID, FORGER_ID = 0x2222, 0x66


class Site:
    """A registrar's host, and one host with the addresses of all that speak to it."""

    def __init__(self, near: Namespace, far: Namespace, folder: Path, control: Path | None = None) -> None:
        near.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", far.name)
        for namespace, addresses in ((near, (REGISTRAR,)), (far, OTHERS)):
            namespace.ip("link", "set", "eth0", "up")
            for address in addresses:
                namespace.ip("address", "add", f"{address}/24", "dev", "eth0")
        far.ip("address", "add", f"{CLAIMED}/32", "dev", "lo")  # there is no route to it
        self.near = near
        self.folder = folder
        self.log = folder / "registrar.log"
        self.control = control
        self.attacker = attacks.Attacker(far, folder)
        self._asker = Asker(near, folder, f"{REGISTRAR}:3863")
        self._members = Members(far, folder, SERVER, [f"{REGISTRAR}:3863"])
        self._ports = itertools.count(5060)

    def start_bare(self) -> subprocess.Popen[str]:
        asap, port = SctpEndpoint.parse(REGISTRAR, 3863), SctpEndpoint.parse(REGISTRAR, 9901)
        settings = RegistrarSettings(asap, port, takes_reports=True)
        started = self.near.start(*arguments(settings), sctp=True, log=self.log)
        until(lambda: not self.is_dead(), told=self.log)
        return started

    def start_gated(self, **environment: str) -> None:
        rules = self.folder / "rules"
        rules.write_text(RULES)
        self.near.start(
            *(sys.executable, "-P", "-m", "registrar_config", "run", "--no-sentinel", "--number=1"),
            *(f"--address={REGISTRAR}", f"--gate={rules}", f"--control={self.control}", "--log-json"),
            sctp=True,
            log=self.log,
            environment=environment,
        )
        until(lambda: "gate_loaded" in self.log.read_text(), told=self.log)

    def listed(self, handle: str) -> dict[int, int]:
        """Home registrars by PE identifier, as the registrar answers now."""
        return {element["identifier"]: element["home"] for element in self._asker.pool_elements(handle)}

    def addresses(self, handle: str) -> list[str]:
        """Addresses of the elements, as the registrar answers now."""
        return [element["address"] for element in self._asker.pool_elements(handle)]

    def is_dead(self) -> bool:
        """Whether rspregistrar has ended at least once since its log began."""
        log = self.log.read_text() if self.log.exists() else ""
        return "registrar_died" in log or not self.registrar_pids()

    def registrar_pids(self) -> list[int]:
        """Return the processes of rspregistrar; others may end while they are looked at."""
        found = []
        for pid in self.near.pids():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text() == "rspregistrar\n":
                    found.append(pid)
        return found

    def begin_server(self, identifier: int, handle: str) -> None:
        """Begin to register a pool element of the server's host."""
        self._members.add(identifier, handle, next(self._ports))

    def server(self, identifier: int, handle: str) -> None:
        """Register a pool element of the server's host, and wait until it is listed."""
        self.begin_server(identifier, handle)
        until(lambda: identifier in self.listed(handle), told=self.log)

    def attack(self, source: str, target: tuple[str, int], *messages: bytes) -> None:
        self.attacker.attack(source, target, *messages)

    def under(
        self,
        source: str | list[str],
        target: tuple[str, int],
        messages: Sequence[bytes],
        harmed: Callable[[], bool],
    ) -> bool:
        """Whether these messages, sent again and again, do harm: soon without the gate, ever behind it."""
        attack = self.attacker.begin(source, target, messages)
        found = is_ever(harmed) if self.control else comes(harmed)
        attack.kill()
        return found

    def dropped(self) -> dict[tuple[str, str], int]:
        """The gate's own count of dropped messages by reason and host; empty without a gate."""
        status = (
            request(self.control, "status", timeout_s=PATIENCE_S)["gate"] if self.control else {"dropped": []}
        )
        return {(dropped["reason"], dropped["host"]): dropped["messages"] for dropped in status["dropped"]}

    def until_dropped(self, reason: str, host: str) -> None:
        """Wait until the gate tells of it, which it does when a message comes, at most once a second."""
        until(lambda: (self.listed("own"), (reason, host) in self.dropped())[1], told=self.log)


def is_ever(condition: Callable[[], bool]) -> bool:
    """Whether the condition holds at any time of an attack."""
    end_s = time.monotonic() + ATTACK_S
    while not (found := condition()) and time.monotonic() < end_s:
        time.sleep(0.02)
    return found


def comes(condition: Callable[[], bool]) -> bool:
    """Whether the condition holds soon."""
    with contextlib.suppress(AssertionError):
        until(condition, SOON_S)
        return True
    return False


@pytest.fixture(scope="module")
def bare_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with own_namespace() as near, own_namespace() as far:
        yield Site(near, far, tmp_path_factory.mktemp("bare"))


@pytest.fixture
def bare(bare_site: Site) -> Site:
    """rspregistrar as it is, which heeds reports; started again after an attack that ended it."""
    if bare_site.is_dead():
        bare_site.start_bare()
    return bare_site


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """rspregistrar behind the gate, for all attacks one after the other: none may harm it.

    The gate is built with AddressSanitizer and UBSan, which end rspregistrar at its first wrong step.
    """
    folder = tmp_path_factory.mktemp("gated")
    with own_namespace() as near, own_namespace() as far:
        site = Site(near, far, folder, folder / "control.sock")
        library = f"{runtime()}:{sanitized_gate() / 'librspdns-gate.so'}"
        site.start_gated(RSPDNS_GATE_LIBRARY=library, ASAN_OPTIONS="detect_leaks=0")
        [registrar] = site.registrar_pids()
        assert "libasan" in Path(f"/proc/{registrar}/maps").read_text()
        yield site


# The attacks: each returns whether it did harm


def reports(site: Site) -> bool:
    site.server(0x1, "pool-reports")
    messages = attacks.reports(b"pool-reports", 0x1)
    return site.under(ADMITTED, ASAP, messages, lambda: 0x1 not in site.listed("pool-reports"))


def keeps_others_out(site: Site, handle: str, registered: PoolElement) -> bool:
    """A host that may join a pool does so while it is empty, in a way that keeps out everybody else."""
    own, others = registered.identifier, registered.identifier + 1
    attack = site.attacker.begin(NEIGHBOUR, ASAP, attacks.registration(handle.encode(), registered))
    entered = (is_ever if site.control else comes)(lambda: own in site.listed(handle))
    site.begin_server(others, handle)
    joined = (comes if site.control else is_ever)(lambda: others in site.listed(handle))
    attack.kill()
    return entered or not joined


def another_policy(site: Site) -> bool:
    return keeps_others_out(
        site, "pool-policy", attacks.element(0x20, NEIGHBOUR, policy=WeightedRoundRobin(7))
    )


def another_transport(site: Site) -> bool:
    transport = Transport(Protocol.TCP, 5060, (IPv4Address(NEIGHBOUR),))
    own = replace(attacks.element(0x30, NEIGHBOUR, policy=LeastUsed(0.0)), user_transport=transport)
    return keeps_others_out(site, "pool-transport", own)


def deletion_by_follower(site: Site) -> bool:
    site.server(0x3, "pool-delete")
    forged = attacks.element(0x3, SERVER, home=FORGER_ID)
    update = attacks.update(FORGER_ID, enrp.UpdateAction.DELETE, b"pool-delete", forged)
    messages = [attacks.presence(FORGER_ID, FOLLOWER), update]
    return site.under(FOLLOWER, ENRP, messages, lambda: 0x3 not in site.listed("pool-delete"))


def addition_by_follower(site: Site) -> bool:
    forged = attacks.element(0x4, ADMITTED, home=FORGER_ID)
    update = attacks.update(FORGER_ID, enrp.UpdateAction.ADD, b"pool-add", forged)
    site.attack(FOLLOWER, ENRP, attacks.presence(FORGER_ID, FOLLOWER), update)
    return 0x4 in site.listed("pool-add")


def told_by_other_registrar(site: Site, identifier: int, handle: str) -> None:
    """A true registrar tells of an element that it is home to."""
    told = attacks.element(identifier, SERVER, home=PEER_ID)
    update = attacks.update(PEER_ID, enrp.UpdateAction.ADD, handle.encode(), told)
    site.attack(OTHER_REGISTRAR, ENRP, attacks.presence(PEER_ID, OTHER_REGISTRAR), update)
    assert site.listed(handle) == {identifier: PEER_ID}


def takeover_by_follower(site: Site) -> bool:
    told_by_other_registrar(site, 0x5, "pool-takeover")
    forged = attacks.takeover(FORGER_ID, PEER_ID)
    site.attack(FOLLOWER, ENRP, attacks.presence(FORGER_ID, FOLLOWER), forged)
    return site.listed("pool-takeover") != {0x5: PEER_ID}


def presence_of_another(site: Site) -> bool:
    """A follower speaks as a registrar, and answers the question for its handle table: it has none."""
    told_by_other_registrar(site, 0x6, "pool-presence")
    lie = enrp.encode(enrp.HandleTableResponse(PEER_ID, 0, ()))
    messages = [attacks.presence(PEER_ID, FOLLOWER, checksum=7), lie]
    return site.under(FOLLOWER, ENRP, messages, lambda: site.listed("pool-presence") != {0x6: PEER_ID})


def claimed_address(site: Site) -> bool:
    message = attacks.registration(b"own", attacks.element(0x7, CLAIMED))
    return site.under([ADMITTED, CLAIMED], ASAP, message, lambda: 0x7 in site.listed("own"))


def deregistration_by_neighbour(site: Site) -> bool:
    site.server(0x8, "pool-deregister")
    message = asap.encode(asap.Deregistration(b"pool-deregister", 0x8))
    return site.under(NEIGHBOUR, ASAP, [message], lambda: 0x8 not in site.listed("pool-deregister"))


def identifier_of_neighbour(site: Site) -> bool:
    site.server(0x9, "pool-identifier")
    stolen = attacks.registration(
        b"pool-identifier", attacks.element(0x9, NEIGHBOUR, 7, policy=LeastUsed(0.0))
    )
    return site.under(NEIGHBOUR, ASAP, stolen, lambda: site.addresses("pool-identifier") == [NEIGHBOUR])


def identifier_of_element_that_left(site: Site) -> bool:
    """A server's host lost its association: its element is gone, and comes back under its identifier."""
    own = attacks.element(0xB, SERVER, policy=LeastUsed(0.0))
    server = site.attacker.begin(SERVER, ASAP, attacks.registration(b"pool-left", own))
    until(lambda: 0xB in site.listed("pool-left"), told=site.log)
    server.kill()
    until(lambda: 0xB not in site.listed("pool-left"), told=site.log)
    stolen = attacks.registration(b"pool-left", attacks.element(0xB, NEIGHBOUR, policy=LeastUsed(0.0)))
    return site.under(NEIGHBOUR, ASAP, stolen, lambda: site.addresses("pool-left") == [NEIGHBOUR])


def identifier_of_element_elsewhere(site: Site) -> bool:
    told_by_other_registrar(site, 0xA, "pool-elsewhere")
    stolen = attacks.registration(b"pool-elsewhere", attacks.element(0xA, NEIGHBOUR))
    site.attack(NEIGHBOUR, ASAP, *stolen)
    return site.listed("pool-elsewhere") != {0xA: PEER_ID}


def handle_of_33_bytes(site: Site) -> bool:
    site.attack(ADMITTED, ASAP, attacks.long_handle())
    return site.is_dead()


def identifier_zero(site: Site) -> bool:
    site.attack(FOLLOWER, ENRP, attacks.presence(0, FOLLOWER))
    return site.is_dead()


ATTACKS: dict[Callable[[Site], bool], tuple[str, str] | None] = {
    reports: ("report", ADMITTED),
    another_policy: ("policy", NEIGHBOUR),
    another_transport: ("transport", NEIGHBOUR),
    deletion_by_follower: ("enrp-change", FOLLOWER),
    addition_by_follower: ("enrp-change", FOLLOWER),
    takeover_by_follower: ("enrp-change", FOLLOWER),
    presence_of_another: ("sender-taken", FOLLOWER),
    claimed_address: None,  # rspregistrar itself refuses it, when it is not told of the claim
    deregistration_by_neighbour: ("not-its-own", NEIGHBOUR),
    identifier_of_neighbour: ("not-its-own", NEIGHBOUR),
    identifier_of_element_that_left: ("not-its-own", NEIGHBOUR),
    identifier_of_element_elsewhere: ("not-its-own", NEIGHBOUR),
    handle_of_33_bytes: ("handle-too-long", ADMITTED),
    identifier_zero: ("zero-identifier", FOLLOWER),
}
"""Each with the reason by which the gate drops it, and the host it counts it for."""


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_attack_harms_without_gate(bare: Site, attack: Callable[[Site], bool]) -> None:
    assert attack(bare)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_attack_harms_nothing_behind_gate(gated: Site, attack: Callable[[Site], bool]) -> None:
    assert not attack(gated)
    assert not gated.is_dead()
    if (counted := ATTACKS[attack]) is not None:
        gated.until_dropped(*counted)


def test_lying_registrar_keeps_no_server_out_behind_gate(gated: Site) -> None:
    """A registrar says that a server's element is its own, or a neighbour's, and that it ended."""
    gated.server(0xC, "pool-lies")
    own = attacks.element(0xC, SERVER, home=PEER_ID, policy=LeastUsed(0.0))
    stolen = replace(own, asap_transport=Transport(Protocol.SCTP, 5999, (IPv4Address(OTHER_REGISTRAR),)))
    moved = attacks.element(0xC, NEIGHBOUR, home=PEER_ID, policy=LeastUsed(0.0))
    lies = [
        attacks.update(PEER_ID, action, b"pool-lies", lie)
        for lie in (moved, stolen)
        for action in (enrp.UpdateAction.ADD, enrp.UpdateAction.DELETE)
    ]
    messages = [attacks.presence(PEER_ID, OTHER_REGISTRAR), *lies]
    assert gated.under(OTHER_REGISTRAR, ENRP, messages, lambda: 0xC not in gated.listed("pool-lies"))
    until(lambda: gated.addresses("pool-lies") == [SERVER], told=gated.log)
    assert ("not-its-own", SERVER) not in gated.dropped()


# The gate's own limits


def test_gate_bounds_registrations_of_host_and_their_life(gated: Site) -> None:
    many = [attacks.registration(b"own", attacks.element(0x100 + n, ADMITTED)) for n in range(5)]
    endless = replace(attacks.element(0x200, ADMITTED), life_ms=2**31)
    messages = [message for answer in many for message in answer] + attacks.registration(b"own", endless)
    attack = gated.attacker.begin(ADMITTED, ASAP, messages)
    gated.until_dropped("too-many", ADMITTED)
    gated.until_dropped("life", ADMITTED)
    assert set(gated.listed("own")) == {0x100, 0x101, 0x102}
    attack.kill()


def until_rules_read(gated: Site, rules: int) -> None:
    until_logged(gated, f'"rules": {rules}, "event": "gate_rules_read"')


def until_logged(gated: Site, text: str) -> None:
    """Wait for a line; the gate looks at its file when a message comes, as a sentinel's does each second."""
    until(lambda: (gated.listed("own"), text in gated.log.read_text())[1], told=gated.log)


def test_gate_reads_changed_rules_and_keeps_those_of_before_when_they_are_wrong(gated: Site) -> None:
    rules = gated.folder / "rules"
    rules.write_text(RULES.replace("end\n", f"user {ADMITTED} reports x\nend\n"))
    until_logged(gated, "gate_rules_wrong")
    status = request(gated.control or "", "status")["gate"]
    assert status["problem"] == f"line {RULE_COUNT + 1}: reports needs a number from 0 to 1000"
    rules.write_text(RULES.replace("end\n", f"user {ADMITTED} reports 1\nend\n"))
    until_rules_read(gated, RULE_COUNT + 1)
    rules.write_text(RULES)
    until_rules_read(gated, RULE_COUNT)
