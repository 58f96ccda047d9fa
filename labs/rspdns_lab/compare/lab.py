"""The lab that compares: VoIP streams to servers found by DNS, and to addresses that move between hosts."""

import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.chain.plan import APPLICATION_SERVERS
from rspdns_lab.chain.side_by_side.approaches import TITLES as DNS_TITLES
from rspdns_lab.chain.side_by_side.lab import SideBySideLab
from rspdns_lab.compare.takeover import PAIRS, Pair, TakeoverHost, has_address
from rspdns_lab.compare.voip import ReceivedPacket, SentPacket
from rspdns_lab.net.network import Host
from rspdns_lab.net.processes import Program

TITLES: Final = DNS_TITLES | {pair.key: pair.title for pair in PAIRS}
TALKER: Final = ("talker", "10.53.0.82")
PORT: Final = 4000
FIRST: Final = "as1"
"""The host of every stream at first: the lowest address, since talkers take the first one named."""
_TAKEOVER_TIMEOUT_S: Final = 30.0
_TALK_TIMEOUT_S: Final = 60.0


class CompareLab(SideBySideLab):
    """A running lab for some of DNS_TITLES and of PAIRS, by their keys; see SideBySideLab."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._pairs = [pair for pair in PAIRS if pair.key in keys]
        needed = {"ucarp": "ucarp"} if any(pair.key == "carp" for pair in self._pairs) else {}
        if any(pair.key != "carp" for pair in self._pairs):
            needed["keepalived"] = "keepalived"
        super().__init__([key for key in keys if key in DNS_TITLES], needed)
        self.pairs: dict[str, tuple[TakeoverHost, TakeoverHost]] = {}
        self.talkers: dict[str, Program] = {}
        self._listeners: list[Program] = []

    @property
    def keys(self) -> list[str]:
        """The keys of the compared approaches and pairs."""
        return [*self.approaches, *self.pairs]

    def start(self) -> None:
        """Start every part; wait until DNS names all servers and each pair's first host has the address."""
        for listener in self._listeners:
            listener.start()
        for first, second in self.pairs.values():
            first.start()
            second.start()
        super().start()
        self.wait_until_first_hosts_serve()

    def wait_until_first_hosts_serve(self) -> None:
        """Wait until the first host of each pair, and it alone, has the shared address."""
        for pair in self._pairs:
            first, second = self.pairs[pair.key]
            wait_until(
                functools.partial(_serves, pair, first.host, second.host),
                f"{pair.key}: {first.host.name} has {pair.shared}",
                _TAKEOVER_TIMEOUT_S,
                *first.programs,
            )

    def talk(self) -> None:
        """Start a stream for everything that is compared, and wait until all flow. Raises LabError."""
        for number, key in enumerate(self.keys):
            command = [sys.executable, "-m", "rspdns_lab.compare.talker", f"--port={PORT}"]
            command.append(f"--stream={number}")
            if key in self.approaches:
                command.append(f"--dns={self.approaches[key].host.address}")
            else:
                command.append(f"--to={next(pair.shared for pair in self._pairs if pair.key == key)}")
            log = self.folder / f"talker-{key}.log"
            log.unlink(missing_ok=True)
            self.talkers[key] = Program(f"talker-{key}", self.network.hosts[TALKER[0]], command, log)
            self.talkers[key].start()
        for key, talker in self.talkers.items():
            wait_until(
                functools.partial(_has_spoken, talker), f"{key}: a first packet", _TALK_TIMEOUT_S, talker
            )

    def hush(self) -> None:
        """End the streams."""
        for talker in self.talkers.values():
            talker.stop()

    def sent(self, key: str) -> tuple[list[SentPacket], list[tuple[int, frozenset[str]]]]:
        """Return what a talker sent, and what DNS told it: (asked at, ns; addresses)."""
        sent, answers = [], []
        for line in (self.folder / f"talker-{key}.log").read_text().splitlines():
            match line.split():
                case ["S", call, sequence, at_ns]:
                    sent.append(SentPacket(int(call), int(sequence), int(at_ns)))
                case ["A", at_ns, *addresses]:
                    answers.append((int(at_ns), frozenset(addresses)))
        return sent, answers

    def received(self) -> dict[int, list[ReceivedPacket]]:
        """Return all packets that arrived anywhere, by the number of their stream."""
        found: dict[int, list[ReceivedPacket]] = {}
        for listener in self._listeners:
            for line in listener.log.read_text().splitlines():
                fields = line.split()
                if len(fields) == 5 and all(field.isdecimal() for field in fields):
                    packet = ReceivedPacket(*map(int, fields))
                    found.setdefault(packet.stream, []).append(packet)
        return found

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        yield from self.talkers.values()
        yield from self._listeners
        for hosts in self.pairs.values():
            for host in hosts:
                yield from host.programs
        yield from super().programs()

    def build(self) -> None:
        """Make all hosts with their files."""
        super().build()
        self.network.add_host(*TALKER)
        for index, pair in enumerate(self._pairs):
            first, second = (
                self._takeover_host(pair, f"pair{index}{letter}", address, first=letter == "a")
                for letter, address in zip("ab", pair.addresses, strict=True)
            )
            self.pairs[pair.key] = (first, second)
        names = [name for name in APPLICATION_SERVERS if name in self.servers]
        for host in [self.network.hosts[name] for name in names]:
            self._listen(host, self.folder / host.name)

    def _takeover_host(self, pair: Pair, name: str, address: str, *, first: bool) -> TakeoverHost:
        host = self.network.add_host(name, address)
        folder = self.made(name)
        self._listen(host, folder)
        return TakeoverHost(pair, host, folder, first=first)

    def _listen(self, host: Host, folder: Path) -> None:
        command = [sys.executable, "-m", "rspdns_lab.compare.listener", str(PORT)]
        self._listeners.append(Program("listener", host, command, folder / "listener.log"))


def _has_spoken(talker: Program) -> bool:
    return talker.log.exists() and talker.log.stat().st_size > 0


def _serves(pair: Pair, first: Host, second: Host) -> bool:
    return has_address(first, pair.shared) and not has_address(second, pair.shared)
