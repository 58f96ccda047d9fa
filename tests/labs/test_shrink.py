"""A scenario that breaks a promise is shrunk to the faults that it takes."""

from collections.abc import Collection
from typing import Any

import pytest
from rspdns_lab.simulate import faults, scenario
from rspdns_lab.simulate.invariants import Broken
from rspdns_lab.simulate.scenario import Outcome
from rspdns_lab.simulate.world import WorldSetting, WorldSize

SEED, MINUTES = 2, 2.0
SMALL = WorldSize(3, 3, 2)
PROMISE = "serials_grow"


class Scenarios:
    """In place of scenarios: the promise breaks at 90 s if all of `needed` come, another without `needed`."""

    def __init__(self, needed: Collection[int]) -> None:
        self.needed = frozenset(needed)
        self.sizes: list[WorldSize | None] = []

    def run(
        self,
        seed: int,
        minutes: float,
        *,
        names: Collection[str] = (),
        left_out: Collection[int] = (),
        size: WorldSize | None = None,
        setting: WorldSetting | None = None,
        until_broken: str = "",
    ) -> Outcome:
        self.sizes.append(size)
        came = [fault for fault in faults.plan(seed, minutes * 60, names) if fault.index not in left_out]
        is_broken = self.needed <= {fault.index for fault in came}
        promise = PROMISE if is_broken else "everything_converges"
        words: dict[str, Any] = {"answers": 0, "events": 0, "cpu_s": 0.0, "worst_s": {}, "digest": ""}
        return Outcome(
            seed,
            minutes,
            [str(fault) for fault in came],
            sorted(left_out),
            broken=[Broken(90.0, promise, "")],
            lines=[],
            **words,
        )


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_faults_that_are_left_are_those_that_it_takes(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    planned = [fault.index for fault in faults.plan(SEED, MINUTES * 60) if fault.at_s < 90]
    assert len(planned) > 10
    needed = planned[1 :: len(planned) // 3][:count]
    scenarios = Scenarios(needed)
    monkeypatch.setattr(scenario, "run", scenarios.run)
    found = scenario.shrink(scenarios.run(SEED, MINUTES, size=SMALL), (), SMALL)
    assert [int(fault.split(":")[0]) for fault in found.faults] == needed
    assert found.broken[0].promise == PROMISE
    assert set(scenarios.sizes) == {SMALL}
    assert len(scenarios.sizes) < 3 * len(planned)
