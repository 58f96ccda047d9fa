"""The gate in front of rspregistrar: what one admitted host can do without it, and can't with it."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from daemon_kit.control import request
from registrar_config import Endpoint, RegistrarSettings, arguments
from rserpool.policies import WeightedRoundRobin

from rserpool import LeastUsed, asap, enrp
from tests.support import attacks
from tests.support.members import Members
from tests.support.namespaces import REPOSITORY, Namespace, kill, own_namespace
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
"""
PEER_ID, FORGER_ID = 0x2222, 0x66


@dataclass
class Site:
    """A registrar's host, and one host with the addresses of all that speak to it."""

    near: Namespace
    far: Namespace
    folder: Path
    log: Path
    control: Path | None = None
    servers: int = 0

    def listed(self, handle: str) -> dict[int, int]:
        """Home registrars by PE identifier, as the registrar answers now."""
        return {one["identifier"]: one["home"] for one in self._ask(handle)}

    def addresses(self, handle: str) -> list[str]:
        """Addresses of the elements, as the registrar answers now."""
        return [one["address"] for one in self._ask(handle)]

    def _ask(self, handle: str) -> list[dict[str, Any]]:
        ask = str(REPOSITORY / "tests/support/ask_registrar.py")
        asked = self.near.run(sys.executable, ask, REGISTRAR, handle, sctp=True)
        found: list[dict[str, Any]] = json.loads(asked.stdout)["pool_elements"] if asked.stdout else []
        return found

    def is_dead(self) -> bool:
        """Whether rspregistrar has ended at least once."""
        return "registrar_died" in self.log.read_text() or not any(
            Path(f"/proc/{pid}/comm").read_text() == "rspregistrar\n" for pid in self.near.pids()
        )

    def members(self, identifier: int, handle: str) -> Members:
        """Begin to register a pool element of the server's host."""
        self.servers += 1
        members = Members(self.far, self.folder, SERVER, [f"{REGISTRAR}:3863"], name=f"server-{self.servers}")
        members.add(identifier, handle, 5060 + self.servers)
        return members

    def server(self, identifier: int, handle: str) -> None:
        """Register a pool element of the server's host, and wait until it is listed."""
        self.members(identifier, handle)
        until(lambda: identifier in self.listed(handle), told=self.log)

    def attack(self, source: str | list[str], target: tuple[str, int], *messages: bytes) -> None:
        attacks.attack(self.far, source, target, messages)

    def under(
        self, source: str, target: tuple[str, int], messages: Sequence[bytes], harmed: Callable[[], bool]
    ) -> bool:
        """Whether these messages, sent again and again, do harm soon, or before the gate drops some."""
        before = self.dropped() if self.control else {}
        attack = attacks.begin_attack(self.far, source, target, messages, 60)
        with contextlib.suppress(AssertionError):
            until(lambda: harmed() or (self.control and self.dropped() != before), 10)
        found = harmed()
        assert attack.poll() is None, attack.communicate()
        kill(attack)
        return found

    def dropped(self) -> dict[tuple[str, str], int]:
        """What the gate tells of itself: dropped messages by reason and host."""
        assert self.control
        status = request(self.control, "status")["gate"]
        return {(one["reason"], one["host"]): one["messages"] for one in status["dropped"]}

    def until_dropped(self, reason: str, host: str, at_least: int = 1) -> None:
        until(lambda: self.dropped().get((reason, host), 0) >= at_least, told=self.log)


def joined(near: Namespace, far: Namespace) -> None:
    near.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", far.name)
    for namespace, addresses in ((near, (REGISTRAR,)), (far, OTHERS)):
        namespace.ip("link", "set", "eth0", "up")
        for address in addresses:
            namespace.ip("address", "add", f"{address}/24", "dev", "eth0")
    far.ip("address", "add", f"{CLAIMED}/32", "dev", "lo")  # there is no route to it


@pytest.fixture
def bare(namespaces: Callable[[], Namespace], tmp_path: Path) -> Site:
    """rspregistrar as it is, which heeds reports."""
    near, far = namespaces(), namespaces()
    joined(near, far)
    asap, port = Endpoint.parse(REGISTRAR, 3863), Endpoint.parse(REGISTRAR, 9901)
    log = tmp_path / "registrar.log"
    settings = RegistrarSettings(asap, port, takes_reports=True)
    near.start(*arguments(settings), sctp=True, log=log)
    return Site(near, far, tmp_path, log)


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """rspregistrar behind the gate, for all attacks one after the other: none may harm it."""
    folder = tmp_path_factory.mktemp("gated")
    with own_namespace() as near, own_namespace() as far:
        joined(near, far)
        (folder / "rules").write_text(RULES)
        log, control = folder / "registrar.log", folder / "control.sock"
        near.start(
            *(sys.executable, "-P", "-m", "registrar_config", "run", "--no-sentinel", "--number=1"),
            *(f"--address={REGISTRAR}", f"--gate={folder / 'rules'}", f"--control={control}", "--log-json"),
            sctp=True,
            log=log,
        )
        until(lambda: "gate_loaded" in log.read_text(), told=log)
        yield Site(near, far, folder, log, control)


# The attacks: each returns whether it did harm


def reports(site: Site) -> bool:
    site.server(0x1, "pool-reports")
    messages = attacks.reports(b"pool-reports", 0x1)
    return site.under(ADMITTED, ASAP, messages, lambda: 0x1 not in site.listed("pool-reports"))


def another_policy(site: Site) -> bool:
    """A pool that is empty is entered with another policy, which then keeps out everybody else."""
    own = attacks.element(0x666, ADMITTED, policy=WeightedRoundRobin(7))
    message = attacks.registration(b"pool-policy", own)
    attack = attacks.begin_attack(site.far, ADMITTED, ASAP, message, 20)
    until(lambda: 0x666 in site.listed("pool-policy") or (site.control and site.dropped()), told=site.log)
    members = site.members(0x2, "pool-policy")
    with contextlib.suppress(AssertionError):
        until(lambda: 0x2 in site.listed("pool-policy"), 1.5)
    harmed = 0x2 not in site.listed("pool-policy")
    members.kill()
    kill(attack)
    return harmed


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
    attack = attacks.begin_attack(site.far, [ADMITTED, CLAIMED], ASAP, message, 20)
    with contextlib.suppress(AssertionError):
        until(lambda: site.listed("own"), 1.5)
    harmed = 0x7 in site.listed("own")
    assert attack.poll() is None, attack.communicate()
    kill(attack)
    return harmed


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
    another_policy: ("handle-not-allowed", ADMITTED),
    deletion_by_follower: ("enrp-change", FOLLOWER),
    addition_by_follower: ("enrp-change", FOLLOWER),
    takeover_by_follower: ("enrp-change", FOLLOWER),
    presence_of_another: ("sender-taken", FOLLOWER),
    claimed_address: None,  # rspregistrar itself refuses it, when it is not told of the claim
    deregistration_by_neighbour: ("not-its-own", NEIGHBOUR),
    identifier_of_neighbour: ("not-its-own", NEIGHBOUR),
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


# What the gate itself does


def test_gate_bounds_registrations_of_host_and_their_life(gated: Site) -> None:
    many = [attacks.registration(b"own", attacks.element(0x100 + n, ADMITTED)) for n in range(5)]
    endless = replace(attacks.element(0x200, ADMITTED), life_ms=2**31)
    messages = [message for one in many for message in one] + attacks.registration(b"own", endless)
    attack = attacks.begin_attack(gated.far, ADMITTED, ASAP, messages, 60)
    gated.until_dropped("too-many", ADMITTED)
    gated.until_dropped("life", ADMITTED)
    assert set(gated.listed("own")) == {0x100, 0x101, 0x102}
    kill(attack)


def until_logged(gated: Site, text: str) -> None:
    """Wait for a line; the gate looks at its file when a message comes, as a sentinel's does each second."""
    until(lambda: (gated.listed("own"), text in gated.log.read_text())[1], told=gated.log)


def test_gate_reads_changed_rules_and_keeps_those_of_before_when_they_are_wrong(gated: Site) -> None:
    rules = gated.folder / "rules"
    rules.write_text(RULES + f"user {ADMITTED} reports x\n")
    until_logged(gated, "gate_rules_wrong")
    status = request(gated.control or "", "status")["gate"]
    assert status["problem"] == "line 8: reports needs a number from 0 to 1000"
    rules.write_text(RULES + f"user {ADMITTED} reports 1\n")
    until_logged(gated, '"rules": 8, "event": "gate_rules_read"')
    rules.write_text(RULES)
    until_logged(gated, '"rules": 7, "event": "gate_rules_read"')
