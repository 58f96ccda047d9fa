"""Cells and the handlespace above them on a virtual clock. Played in `python -m rspdns_lab.scale`.

That process reads a line of JSON, `{"size": ScaleSize, "costs": MessageCosts}`, and writes a `ScaleOutcome`.
The module `page` tells which parts are played and which are counted.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Final

from pool_user import BeliefChange

from rspdns_lab.scale.cells import READY_S, AggregatedCell, PlayedCell, set_news, upper_handle
from rspdns_lab.scale.figures import (
    CellRemoval,
    FullCell,
    MessageCosts,
    RegionCut,
    RegistrarLoad,
    ScaleOutcome,
    ScaleSize,
)
from rspdns_lab.scale.parts import (
    REGIONS,
    CostedRegistrarHost,
    Following,
    PlacedNetwork,
    PlayedNameServer,
    registrars_at,
)
from rspdns_lab.simulate import determinism, seams
from rspdns_lab.simulate.kernel import Kernel

BACK_S, CUT_S, HEAL_S = 8.0, 20.0, 30.0
WINDOW_S: Final = 10


class ScaleWorld:
    """Everything, and what is measured of it."""

    def __init__(self, kernel: Kernel, size: ScaleSize, costs: MessageCosts) -> None:
        self.kernel, self.size = kernel, size
        self.network = network = PlacedNetwork(kernel, size.places)
        seams.use(network)
        self._changes: Counter[int] = Counter()
        self._wrong: list[str] = []
        self._removals: list[CellRemoval] = []
        self._gone: dict[str, tuple[float, CellRemoval | None]] = {}
        """By the gateway's address: since when a cell is lost on purpose."""
        self._is_cut: set[str] = set()
        self._cut = RegionCut(0, CUT_S, [], 0.0)
        self._cut_s = self._healed_s = math.inf
        self._full: FullCell | None = None
        self._full_loads: list[RegistrarLoad] = []
        upper = [f"10.0.0.{number}" for number in range(1, REGIONS + 1)]
        places = [(2 * region + 1) * size.places // (2 * REGIONS) for region in range(REGIONS)]
        following = Following(costs, size.name_servers, size.sample)
        self.registrars = registrars_at(network, "r", upper, places, following)
        hosts = [
            network.place_host(f"g{number}", f"10.2.{number // 250}.{number % 250 + 1}", number)
            for number in range(size.cells)
        ]
        self.full = PlayedCell(size, costs, network, hosts.pop(0), upper) if size.full_s else None
        self.cells = [AggregatedCell(size, int(host.name[1:]), host, upper) for host in hosts]
        handles = sorted({upper_handle(number) for number in range(size.cells)})
        self.name_servers = [
            PlayedNameServer(
                network.place_host(
                    f"n{number}",
                    f"10.1.{number // 250}.{number % 250 + 1}",
                    number * size.places // size.sample,
                ),
                upper,
                handles,
                self._changed,
            )
            for number in range(size.sample)
        ]

    # The belief of the name servers above

    def _changed(self, name_server: PlayedNameServer, change: BeliefChange) -> None:
        now, before, pools = self.kernel.now, name_server.shown, change.pools.values()
        if name_server is self.name_servers[0]:
            self._changes[int(now)] += sum(
                len(each.joined) + len(each.left) + len(each.moved) for each in pools
            )
        left = {str(each.member.addresses[0]) for pool in pools for each in pool.left}
        joined = {str(each.addresses[0]) for pool in pools for each in pool.joined}
        name_server.shown = before - left | joined
        for address in sorted(before - name_server.shown):
            self._lost(name_server, address, now)
        if now > self._healed_s and not self._cut.back_ms and self._is_whole():
            self._cut = replace(self._cut, back_ms=round(1000 * (now - self._healed_s), 1))

    def _is_whole(self) -> bool:
        living = {cell.host.address for cell in self.cells} - self._gone.keys()
        return all(each.shown >= living for each in self.name_servers)

    def _lost(self, name_server: PlayedNameServer, address: str, now: float) -> None:
        host, asker = self.network.by_address[address], name_server.host
        if address in self._gone:
            since_s, removal = self._gone[address]
            if removal is not None:
                removal.seen_ms.append(round(1000 * (now - since_s), 1))
        elif (host.name in self._is_cut) is not (asker.name in self._is_cut):
            if host.name in self._is_cut:
                self._cut.gone_ms.append(round(1000 * (now - self._cut_s), 1))
        else:
            self._wrong.append(f"{now:.3f} s: {asker.name} lost {host.name}")

    # Faults, one after the other

    def play(self) -> list[tuple[float, str]]:
        """Let everything happen; return when each phase began."""
        size, kernel = self.size, self.kernel
        phases = [(0.0, "start")]
        kernel.run(READY_S)
        if self.full is not None:
            phases.append((kernel.now, "one cell in full"))
            self._play_full(self.full)
        phases.append((kernel.now, "steady"))
        kernel.run(kernel.now + size.steady_s)
        phases.append((kernel.now, "cells are lost"))
        spacing_s = max(2.0, 1.5 * BACK_S / len(self.cells))
        for number in range(size.removals):
            self._lose(self.cells[number % len(self.cells)], "silent" if number % 2 else "killed")
            kernel.run(kernel.now + spacing_s)
        kernel.run(kernel.now + 1.5 * BACK_S)
        phases.append((kernel.now, "a region is cut off"))
        self._cut_region()
        kernel.run(kernel.now + CUT_S)
        self.network.join(self._ways())
        self._healed_s = kernel.now
        phases.append((kernel.now, "it is back"))
        kernel.run(kernel.now + HEAL_S)
        if not self._is_whole():
            self._wrong.append("a name server lacks cells at the end")
        return phases

    def _play_full(self, cell: PlayedCell) -> None:
        kernel, seconds = self.kernel, self.size.full_s

        def counted() -> tuple[float, ...]:
            others = sum(each.element.reports for each in self.cells if each.element)
            reports = cell.gateway.element.reports
            return cell.registrations, reports, others, cell.process.cpu_s, cell.name_server.process.cpu_s

        before = counted()
        kernel.run(kernel.now + seconds)
        registrations, reports, others, *cpu_s = (
            now - was for now, was in zip(counted(), before, strict=True)
        )
        self._full = FullCell(
            self.size.servers,
            round(registrations / seconds, 1),
            list(cell.gone_ms),
            int(reports),
            round(others / len(self.cells), 2),
            *(round(100 * each / seconds, 1) for each in cpu_s),
        )
        window = int(READY_S), int(kernel.now)
        self._full_loads = [_load("in the cell", registrar, window) for registrar in cell.registrars]
        self._removals.append(CellRemoval(0, "its registrars are killed", []))
        self._gone[cell.host.address] = kernel.now, self._removals[-1]
        cell.lose_registrars()
        kernel.run(kernel.now + 4.0)
        self._gone[cell.host.address] = kernel.now, None
        cell.end()
        kernel.run(kernel.now + 4.0)

    def _lose(self, cell: AggregatedCell, fault: str) -> None:
        self._removals.append(CellRemoval(cell.number, fault, []))
        self._gone[cell.host.address] = self.kernel.now, self._removals[-1]
        if fault == "killed":
            cell.process.kill()
        else:
            cell.host.is_up = False
        self.kernel.after(BACK_S, self._bring_back, cell)

    def _bring_back(self, cell: AggregatedCell) -> None:
        del self._gone[cell.host.address]
        cell.host.is_up = True
        if not cell.process.is_alive:
            cell.start()

    def _cut_region(self) -> None:
        self._is_cut = self.network.in_region(0)
        self._cut_s = self.kernel.now
        self._cut = replace(self._cut, cells=sum(cell.host.name in self._is_cut for cell in self.cells))
        self.network.cut(self._ways())

    def _ways(self) -> Iterator[tuple[str, str]]:
        for inside in sorted(self._is_cut):
            for outside in self.network.hosts.keys() - self._is_cut:
                yield from ((inside, outside), (outside, inside))

    # Results

    def outcome(self, phases: list[tuple[float, str]], cpu_s: float) -> ScaleOutcome:
        """The figures. Raises RuntimeError when a process failed."""
        processes = [process for host in self.network.placed for process in host.processes.values()]
        if failures := [failure for process in processes for failure in process.failures]:
            raise RuntimeError("; ".join(failures[:5]))
        begin, end = next((int(a), int(b)) for (a, name), (b, _) in pairwise(phases) if name == "steady")
        changes = [self._changes[second] for second in range(begin, end)]
        whole = [registrar.process.busy(0, int(self.kernel.now)) for registrar in self.registrars]
        return ScaleOutcome(
            self.size,
            [*(_load("above", registrar, (begin, end)) for registrar in self.registrars), *self._full_loads],
            round(sum(changes) / len(changes), 2),
            round(_worst_window(changes), 2),
            self._removals,
            self._wrong,
            self._cut,
            self._full,
            round(self.kernel.now, 1),
            round(cpu_s, 1),
            [round(each, 4) for each in max(whole, key=max)],
            phases,
        )


def _load(where: str, registrar: CostedRegistrarHost, steady: tuple[int, int]) -> RegistrarLoad:
    busy = registrar.process.busy(*steady)
    worst = _worst_window(registrar.process.busy(steady[0], int(registrar.process.kernel.now)))
    return RegistrarLoad(
        where, int(registrar.host.name[-1]), round(sum(busy) / len(busy), 4), round(worst, 4)
    )


def _worst_window(values: Sequence[float]) -> float:
    """The highest mean of ten seconds."""
    starts = range(max(1, len(values) - WINDOW_S + 1))
    return max(sum(values[start : start + WINDOW_S]) / min(WINDOW_S, len(values)) for start in starts)


def run(size: ScaleSize, costs: MessageCosts) -> ScaleOutcome:
    """Play it all. Raises RuntimeError when a process failed."""
    seams.install()
    set_news(size.moved_by)
    began_s, kernel = determinism.real_s(), Kernel(size.seed)
    try:
        world = ScaleWorld(kernel, size, costs)
        phases = world.play()
        return world.outcome(phases, determinism.real_s() - began_s)
    finally:
        kernel.close()


def main() -> None:
    """Play what standard input says."""
    asked = json.loads(sys.stdin.read())
    print(json.dumps(asdict(run(ScaleSize(**asked["size"]), MessageCosts(**asked["costs"])))))
