"""Drains a server and lets it back, at moments of chance, while a client asks every resolver for its pool."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import CLIENT, NAME_SERVERS, QUESTIONS, SRV_QUESTION
from rspdns_lab.net.preconditions import check_programs
from rspdns_lab.net.processes import Program
from rspdns_lab.observe.observations import start_prober
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.observe.verdict import Kind, Observation
from rspdns_lab.resolvers.programs import RESOLVERS

NAME_SERVER: Final = "name-server"
"""The key of the first name server's own answers: what no resolver can be faster than."""
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
    answer without it.
    """

    resolver: str
    trial: int
    gone_ms: float
    back_ms: float


def summed_up(found: Sequence[Delay]) -> dict[str, dict[str, float]]:
    """Return, for each resolver that was measured, median and maximum of both delays in ms."""
    sums = {}
    for key in (NAME_SERVER, *RESOLVERS):
        own = [delay for delay in found if delay.resolver == key]
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


class ResolverLab(Lab):
    """The chain, and a host with each resolver."""

    def __init__(self, keys: Sequence[str]) -> None:
        check_programs({RESOLVERS[key].program: RESOLVERS[key].package for key in keys})
        super().__init__()
        self.keys = list(keys)
        self._resolvers: list[Program] = []
        self._asking: Program | None = None

    def build(self) -> None:
        """Make all hosts with their files."""
        super().build()
        for index, key in enumerate(self.keys):
            resolver, address = RESOLVERS[key], self.address(index)
            host, folder = self.network.add_host(f"dns{index}", address), self.folder / key
            folder.mkdir()
            file = folder / "configuration"
            file.write_text(resolver.configured(address, list(NAME_SERVERS.values()), folder))
            command = resolver.command(file, folder)
            self._resolvers.append(Program(key, host, command, Path(folder / "log")))

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
    keys: Sequence[str], trials: Sequence[int], say: Callable[[str], object]
) -> Iterator[Sequence[Delay]]:
    """Measure each trial; yield what it found for each resolver. Raises LabError."""
    draw = random.Random()  # noqa: S311 - chance, not a secret
    say(f"starting the lab with {', '.join(keys)}")
    with ResolverLab(keys) as lab:
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
    time.sleep(_SETTLED_S + draw.uniform(0, _LONGEST_PAUSE_S))
    drained_s = server.drain()
    lab.wait_until_all_name(everyone - 1)
    time.sleep(_SETTLED_S + draw.uniform(0, _LONGEST_PAUSE_S))
    back_s = server.undrain()
    lab.wait_until_all_name(everyone)
    time.sleep(_SETTLED_S)
    asked = [answer for answer in lab.recorder.since(drained_s) if answer.question == SRV_QUESTION]
    while_out = [answer for answer in asked if answer.asked_at_s < back_s]
    after = [answer for answer in asked if answer.asked_at_s >= back_s]
    return [
        Delay(
            key,
            trial,
            last_ms([answer for answer in while_out if answer.server == index], drained_s, marks, named=True),
            last_ms([answer for answer in after if answer.server == index], back_s, marks, named=False),
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
