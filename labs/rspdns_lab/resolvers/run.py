"""Drains a server and lets it back, at moments of chance, while a client asks every resolver for its pool."""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import CLIENT, NAME_SERVERS, QUESTIONS, SRV_QUESTION, ZONE
from rspdns_lab.net.preconditions import check_programs
from rspdns_lab.net.processes import Program
from rspdns_lab.observe.observations import start_prober
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.observe.verdict import Kind, Observation
from rspdns_lab.resolvers.programs import RESOLVERS

NAME_SERVER: Final = "name-server"
"""The key of the first name server's own answers: what no resolver can be faster than."""
TOLD_TTL_S: Final = 30
_DRAINED: Final = "as2"
_BEAT_MS: Final = 20.0
_LONGEST_PAUSE_S: Final = 6.0
"""Longer than any of them keeps an answer, so that a change falls into every part of its time."""
_SETTLED_S: Final = 1.0
_PATIENCE_S: Final = 60.0


@dataclass(frozen=True)
class Delay:
    """One change, seen through one resolver.

    `gone_ms`: from the drain to the last answer that named the server; `back_ms`: from its return to the last
    answer without it. `is_told`: the TTL is `TOLD_TTL_S`, and the backends have the resolver forget what
    changed; otherwise the TTL is 1 s. `asked_per_s`, of the name server: questions of all resolvers while
    nothing changed.
    """

    resolver: str
    trial: int
    is_told: bool
    gone_ms: float
    back_ms: float
    asked_per_s: float | None = None


def summed_up(found: Sequence[Delay], *, is_told: bool) -> dict[str, dict[str, float]]:
    """Return, for each resolver that was measured, median and maximum of both delays in ms."""
    sums = {}
    for key in (NAME_SERVER, *RESOLVERS):
        own = [delay for delay in found if delay.resolver == key and delay.is_told == is_told]
        if own:
            gone, back = [delay.gone_ms for delay in own], [delay.back_ms for delay in own]
            sums[key] = {
                "changes": float(len(own)),
                "gone_p50_ms": percentile(gone, 50),
                "gone_max_ms": max(gone),
                "back_p50_ms": percentile(back, 50),
                "back_max_ms": max(back),
            }
    return sums


def asked_per_s(found: Sequence[Delay], *, is_told: bool) -> float | None:
    """Return the questions of all resolvers a second, the median of the trials; None: none was measured."""
    rates = [each.asked_per_s for each in found if each.is_told == is_told and each.asked_per_s is not None]
    return percentile(rates, 50) if rates else None


class ResolverLab(Lab):
    """The chain, and a host with each resolver; `is_told` as in `Delay`."""

    def __init__(self, keys: Sequence[str], *, is_told: bool) -> None:
        check_programs({RESOLVERS[key].program: RESOLVERS[key].package for key in keys})
        super().__init__()
        self.keys = list(keys)
        self.is_told = is_told
        self._resolvers: list[Program] = []
        self._asking: Program | None = None

    def build(self) -> None:
        """Make all hosts with their files."""
        super().build()
        for index, key in enumerate(self.keys):
            resolver, address = RESOLVERS[key], self.address(index)
            host, folder = self.network.add_host(f"dns{index}", address), self.folder / key
            folder.mkdir()
            file = folder / resolver.file
            file.write_text(resolver.configured(address, list(NAME_SERVERS.values()), folder))
            command = resolver.command(file, folder)
            self._resolvers.append(Program(key, host, command, Path(folder / "log")))
            if self.is_told:
                self._tell(key, resolver.told(address, folder))

    def _tell(self, name: str, keys: Mapping[str, str]) -> None:
        """Have both backends tell this resolver, and the zone a TTL for that."""
        table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in {"name": name, **keys}.items())
        for server in self.name_servers.values():
            with (server.folder / "rspdns.toml").open("a") as file:
                file.write(f"\n[[resolver]]\n{table}")
            zone = server.folder / "zones.d" / f"{ZONE}.toml"
            zone.write_text(zone.read_text().replace("\nttl = 1\n", f"\nttl = {TOLD_TTL_S}\n"))

    def questions(self) -> int:
        """Return how many questions came to both name servers by UDP. Raises LabError."""
        return sum(server.questions() for server in self.name_servers.values())

    @staticmethod
    def address(index: int) -> str:
        """Return the address of the resolver at this index."""
        return f"10.53.0.{71 + index}"

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        if self._asking is not None:
            yield self._asking
        yield from self._resolvers
        yield from super().programs()

    def start_name_servers(self) -> None:
        """Start backends, PowerDNS and resolvers, and the client that asks them all."""
        for server in self.name_servers.values():
            server.start()
        for server in self.name_servers.values():
            server.wait(self.start_timeout_s)
        for resolver in self._resolvers:
            resolver.start()
        asked = [*NAME_SERVERS.values(), *(self.address(index) for index in range(len(self.keys)))]
        client = self.network.hosts[CLIENT[0]]
        self._asking = start_prober(client, asked, QUESTIONS, self.recorder, self.folder, _BEAT_MS)

    def wait_until_all_name(self, count: int) -> None:
        """Wait until name servers and resolvers name this number of servers. Raises LabError."""

        def all_do() -> bool:
            latest = self.recorder.latest
            indexes = range(len(NAME_SERVERS) + len(self.keys))
            found = [latest.get((index, SRV_QUESTION)) for index in indexes]
            return all(latest is not None and len(latest.names) == count for latest in found)

        wait_until(all_do, f"{count} servers in every answer", _PATIENCE_S, *self.programs())


def run_resolvers(
    keys: Sequence[str], trials: Sequence[int], say: Callable[[str], object], *, is_told: bool
) -> Iterator[Sequence[Delay]]:
    """Measure each trial; yield what it found for each resolver. Raises LabError."""
    draw = random.Random()  # noqa: S311 - chance, not a secret
    say(f"starting the lab with {', '.join(keys)}: {'told' if is_told else 'not told'}")
    with ResolverLab(keys, is_told=is_told) as lab:
        lab.start_registrars()
        lab.start_application_servers()
        lab.start_name_servers()
        lab.wait_until_all_are_answered()
        everyone = len(lab.addresses)
        lab.wait_until_all_name(everyone)
        for trial in trials:
            found = _change(lab, trial, everyone, draw)
            slowest = max(found, key=lambda delay: delay.gone_ms)
            say(f"change {trial}: gone everywhere after {slowest.gone_ms:.0f} ms, last at {slowest.resolver}")
            yield found


def _change(lab: ResolverLab, trial: int, everyone: int, draw: random.Random) -> list[Delay]:
    server = lab.application_servers[_DRAINED]
    marks = (server.host.address, server.identifier)
    lab.recorder.forget(time.monotonic() - _SETTLED_S)
    time.sleep(_SETTLED_S)
    quiet_since_s, asked_before = time.monotonic(), lab.questions()
    time.sleep(_SETTLED_S + draw.uniform(0, _LONGEST_PAUSE_S))
    quiet_s, asked = time.monotonic() - quiet_since_s, lab.questions() - asked_before
    direct = [each for each in lab.recorder.since(quiet_since_s) if each.server < len(NAME_SERVERS)]
    drained_s = server.drain()
    lab.wait_until_all_name(everyone - 1)
    time.sleep(_SETTLED_S + draw.uniform(0, _LONGEST_PAUSE_S))
    back_s = server.undrain()
    lab.wait_until_all_name(everyone)
    time.sleep(_SETTLED_S)
    answers = [answer for answer in lab.recorder.since(drained_s) if answer.question == SRV_QUESTION]
    while_out = [answer for answer in answers if answer.asked_at_s < back_s]
    after = [answer for answer in answers if answer.asked_at_s >= back_s]
    return [
        Delay(
            key,
            trial,
            lab.is_told,
            last_ms([answer for answer in while_out if answer.server == index], drained_s, marks, named=True),
            last_ms([answer for answer in after if answer.server == index], back_s, marks, named=False),
            round(max(0, asked - len(direct)) / quiet_s, 1) if key == NAME_SERVER else None,
        )
        for key, index in _answerers(lab.keys)
    ]


def _answerers(keys: Sequence[str]) -> Iterator[tuple[str, int]]:
    yield NAME_SERVER, 0
    for index, key in enumerate(keys, start=len(NAME_SERVERS)):
        yield key, index


def last_ms(answers: Sequence[Observation], since_s: float, marks: Sequence[str], *, named: bool) -> float:
    """Return how many ms after `since_s` the last answer came that names a server, or does not.

    `marks`: the server's address, and what its target begins with where an answer brings no addresses.
    """
    times = [
        answer.answered_at_s
        for answer in answers
        if answer.kind is Kind.ANSWER
        and answer.answered_at_s is not None
        and any(name.startswith(tuple(marks)) for name in answer.names) == named
    ]
    return round(1000 * (max(times) - since_s), 1) if times else 0.0
