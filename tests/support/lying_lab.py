"""A chain whose third registrar lies: three hosts, with or without the gate and a key.

| host | what runs there |
|---|---|
| REGISTRARS | two true registrars, and the liar in the place of the third |
| ADDRESS | three SIP servers with their sidecar, backend and PowerDNS, a pool user that polls |
| NEIGHBOUR, FOLLOWER | attackers: a host that may register in the pool, a host that may follow |
"""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon_kit.files import replace_file
from rserpool.policies import LeastUsed

from rserpool import PoolElement, asap, enrp
from tests.support import attacks
from tests.support.backend import ADDRESS, HANDLE, OWNER, POOL
from tests.support.chain import SIP_PORTS, Chain
from tests.support.dns_watch import Answer, DnsWatch
from tests.support.keyed import configure_keyed_sidecar
from tests.support.namespaces import Namespace, own_namespace
from tests.support.polling_user import PollingUser
from tests.support.registrars import Registrars
from tests.support.waiting import until

REGISTRARS, NEIGHBOUR, FOLLOWER = "10.99.0.11", "10.99.0.66", "10.99.0.67"
NETWORK = "10.99.0.0/24"
LIAR = 3
LIAR_ID = 0x0BADBAD3
STRANGER_PORT = 7066
LIVE = frozenset(SIP_PORTS)
KNOWN_AFTER_S = 10.5
"""A registrar keeps its identifier, whatever others do to its sentinel, when it has had it for this time."""
REREGISTRATION_MS = 2000
RULES = f"""\
registrar {REGISTRARS}
element {REGISTRARS} handles rspdns-sentinel-* most 100
follower {ADDRESS}
follower {FOLLOWER}
element {ADDRESS} handles {HANDLE}
element {NEIGHBOUR} handles {HANDLE} addresses {NEIGHBOUR} most 3
end
"""
DROPPED = (
    ("report", NEIGHBOUR),
    ("not-its-own", NEIGHBOUR),
    ("address-not-allowed", NEIGHBOUR),
    ("handle-not-allowed", NEIGHBOUR),
    ("handle-too-long", NEIGHBOUR),
    ("enrp-change", FOLLOWER),
    ("sender-taken", FOLLOWER),
    ("zero-identifier", FOLLOWER),
)
"""Why the gate drops what the attackers send."""


@dataclass(frozen=True)
class Seen:
    """The answers of the readers while the registrar lied."""

    answers: list[Answer]
    polled_gaps_s: dict[int, list[float]]
    """How long the pool user lacked each port each time."""
    polled_strangers: set[int]
    lasted_s: float

    def strangers(self) -> set[int]:
        """The ports of no server, at any reader."""
        return {port for answer in self.answers for port in answer.ports - LIVE} | self.polled_strangers

    def missing_s(self, port: int) -> float:
        """The longest time between two answers that name the port."""
        named = [answer.asked_at_s for answer in self.answers if port in answer.ports]
        began_s = self.answers[0].asked_at_s
        moments = [began_s, *named, began_s + self.lasted_s]
        return max(after - before for before, after in itertools.pairwise(moments))

    def lacking(self, port: int) -> float:
        """The part of all answers that lack the port."""
        return sum(port not in answer.ports for answer in self.answers) / len(self.answers)

    def summary(self) -> str:
        """The longest gap of each port, and the part of the time that it lacks."""
        return json.dumps(
            {
                port: {
                    "followed": [round(self.missing_s(port), 2), round(self.lacking(port), 2)],
                    "polled": [round(max(gaps_s), 2), round(sum(gaps_s) / self.lasted_s, 2)],
                }
                for port, gaps_s in self.polled_gaps_s.items()
            }
        )


class LyingLab:
    """Everything runs, and the liar is quiet. `guarded`: with gate, key and attackers; and the liar is the
    home of all servers until it lies."""

    def __init__(self, near: Namespace, host: Namespace, far: Namespace, folder: Path, *, guarded: bool):
        _connect(near, {host: (ADDRESS,), far: (NEIGHBOUR, FOLLOWER)})
        rules = RULES if guarded else None
        self._near, self._far, self.guarded = near, far, guarded
        self.registrars = Registrars(
            near,
            folder,
            REGISTRARS,
            supervised=True,
            started=False,
            reregistration_ms=REREGISTRATION_MS,
            gate=rules,
        )
        self._lie = folder / "lie"
        self._start_liar(folder / "liar.log")
        self.chain = chain = Chain(host, folder, registrars=self.registrars)
        for port in SIP_PORTS:
            chain.start_sip(port)
        pools = POOL.replace(f"{ADDRESS}/32", NETWORK)
        self.key = ""
        if guarded:
            self.key = str(configure_keyed_sidecar(chain))
            pools += f'key = "{self.key}"\n'
            chain.sidecar.start()
            self.until_homes(honest=False)
        else:
            chain.start_sidecar()
        self.registrars.start(*range(1, LIAR))
        chain.backend.write_zone(pools)
        chain.start()
        self.polling = self.new_polling_user("polling")
        self.watch = DnsWatch(host, OWNER, folder / "watch.txt")
        self.until_right()
        time.sleep(KNOWN_AFTER_S)

    def until_homes(self, *, honest: bool) -> None:
        """Wait until all servers are registered at honest registrars, or at the liar."""
        liar = self.registrars.addresses[-1]

        def is_right(status: dict[str, Any]) -> bool:
            homes = [server["registrar"] for server in status["as"]]
            return None not in homes and (liar not in homes if honest else set(homes) == {liar})

        self.chain.sidecar.until(is_right)

    def _start_liar(self, log: Path) -> None:
        self.lie("home" if self.guarded else "quiet")
        own, *honest = reversed(self.registrars.addresses_with_enrp)
        words = (f"@{self._lie}", own, str(LIAR), HANDLE, ADDRESS, *honest)
        self._near.start(
            *(sys.executable, "-m", "rspdns_lab.chain.lying_registrar", *words), sctp=True, log=log
        )
        self.liar_log = log

    def new_polling_user(self, name: str, *, is_probed: bool = True) -> PollingUser:
        """Start one more pool user that polls, and wait until it shows all servers."""
        chain = self.chain
        words = (HANDLE, NETWORK, self.key, *self.registrars.addresses_with_enrp)
        made = PollingUser(chain.namespace, words, chain.folder / f"{name}.log", is_probed=is_probed)
        until(lambda: made.ports == LIVE, told=made.log)
        return made

    def until_right(self) -> None:
        """Wait until all registrars, the liar too, are settled, and all readers show the servers."""
        backend = self.chain.backend
        until(lambda: self.is_believed() and backend.is_known(), told=backend.log)
        until(lambda: self.chain.targets_at(OWNER) == LIVE, told=backend.log)
        until(lambda: self.polling.ports == LIVE, told=self.polling.log)

    def is_believed(self) -> bool:
        """Whether the backend takes the liar for a settled registrar."""
        status = self.chain.backend.status() or {"registrars": []}
        return any(
            registrar["number"] == LIAR
            and registrar["standing"] == "settled"
            and registrar["identifier"] == f"{LIAR_ID:08x}"
            for registrar in status["registrars"]
        )

    def lie(self, kind: str) -> None:
        """Have the liar lie so from now on: a word of `lying_registrar`."""
        replace_file(self._lie, kind.encode())

    def lied(self, kind: str, for_s: float, polling: PollingUser) -> Seen:
        """Have it lie for a time; return what the readers, of those that poll this one, showed meanwhile."""
        began_s = time.monotonic()
        self.lie(kind)
        time.sleep(for_s)
        ended_s = time.monotonic()
        self.lie("quiet")
        return Seen(
            self.watch.since(began_s, ended_s),
            {port: [0.0, *polling.gaps_s(port, began_s, ended_s)] for port in SIP_PORTS},
            polling.strangers(LIVE, began_s),
            ended_s - began_s,
        )

    @contextmanager
    def attackers(self) -> Iterator[None]:
        """Let the neighbour and the follower attack the first registrar all the time."""
        status = self.chain.backend.status()
        assert status is not None
        members = self.chain.targets()
        assert isinstance(members, set)
        honest = int(status["registrars"][1]["identifier"], 16)
        attacker = attacks.Attacker(self._far, self.chain.folder)
        for source, port, messages in (
            (NEIGHBOUR, 3863, _of_neighbour(members)),
            (FOLLOWER, 9901, _of_follower(members, honest)),
        ):
            attacker.begin(source, (REGISTRARS, port), messages, for_s=600)
        yield

    def start_at_neighbour(self, module: str, log: Path) -> subprocess.Popen[str]:
        """Start a program of the labs at NEIGHBOUR; its words: that address, the pool, the registrars."""
        words = (NEIGHBOUR, HANDLE, *self.registrars.addresses_with_enrp)
        return self._far.start(sys.executable, "-m", module, *words, sctp=True, log=log)

    def drops(self) -> set[tuple[str, str]]:
        """Why the first registrar's gate dropped messages, and of which host."""
        lines = [json.loads(line) for line in self.registrars.said(1).splitlines() if "gate_dropped" in line]
        return {(line["reason"], line["host"]) for line in lines}


@contextmanager
def lying_lab(folder: Path, *, guarded: bool) -> Iterator[LyingLab]:
    """Make one; with attackers, if it is guarded."""
    with ExitStack() as stack:
        near, host, far = (stack.enter_context(own_namespace()) for _ in range(3))
        lab = LyingLab(near, host, far, folder, guarded=guarded)
        if guarded:
            stack.enter_context(lab.attackers())
        yield lab


def _connect(near: Namespace, others: dict[Namespace, tuple[str, ...]]) -> None:
    """Put the hosts on one Ethernet, which is a bridge of the first."""
    near.ip("link", "add", "eth0", "type", "bridge", "forward_delay", "0")
    near.ip("link", "set", "eth0", "up")
    near.ip("address", "add", f"{REGISTRARS}/24", "dev", "eth0")
    for number, (host, addresses) in enumerate(others.items()):
        port = f"port{number}"
        near.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        near.ip("link", "set", port, "up", "master", "eth0")
        host.ip("link", "set", "eth0", "up")
        for address in addresses:
            host.ip("address", "add", f"{address}/24", "dev", "eth0")


def _stranger(identifier: int, address: str) -> PoolElement:
    return attacks.element(identifier, address, STRANGER_PORT, policy=LeastUsed(0.0))


def _of_neighbour(members: set[int]) -> list[bytes]:
    """Reports, deregistrations and registrations of others' elements, and what it may not register."""
    handle = HANDLE.encode()
    messages = [*attacks.reports(handle, *members), attacks.long_handle()]
    messages += [asap.encode(asap.Deregistration(handle, member)) for member in members]
    taken = [_stranger(member, NEIGHBOUR) for member in members]
    for element in (*taken, _stranger(0x66, NEIGHBOUR), _stranger(0x67, ADDRESS)):
        messages += attacks.registration(handle, element)
    return messages + attacks.registration(b"rspdns-sentinel-1", _stranger(0x68, NEIGHBOUR))


def _of_follower(members: set[int], honest: int) -> list[bytes]:
    """Changes by ENRP, under its own identifier and under that of an honest registrar."""
    own, handle = 0x77, HANDLE.encode()
    gone = [
        attacks.update(own, enrp.UpdateAction.DELETE, handle, attacks.element(member, ADDRESS, home=own))
        for member in members
    ]
    added = attacks.update(
        own, enrp.UpdateAction.ADD, handle, attacks.element(0x69, FOLLOWER, STRANGER_PORT, home=own)
    )
    return [
        attacks.presence(own, FOLLOWER),
        *gone,
        added,
        attacks.takeover(own, honest),
        attacks.presence(honest, FOLLOWER),
        attacks.presence(0, FOLLOWER),
    ]
