"""One scenario: a seed, a length, faults. It runs the same at every time and on every machine."""

import gc
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rspdns_lab.simulate import determinism, faults, seams
from rspdns_lab.simulate.faults import PlannedFault
from rspdns_lab.simulate.invariants import Broken, Watch
from rspdns_lab.simulate.kernel import EndlessLoopError, Kernel
from rspdns_lab.simulate.world import World, WorldSetting, WorldSize, chosen_setting

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the folder in it is made anew, for this user alone
"""The state files stand there: a disk would make every scenario wait for it."""
_STEP_S: Final = 1.0
"""A scenario that ends when a promise breaks looks so often, in its own time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a scenario. `left_out` are the faults of the plan that did not come, by index."""

    seed: int
    minutes: float
    faults: list[str]
    left_out: list[int]
    answers: int
    events: int
    cpu_s: float
    worst_s: dict[str, float]
    broken: list[Broken]
    digest: str
    """The hash of the trace."""
    lines: list[str] = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        """The same for other programs, without the trace."""
        values = asdict(self)
        del values["lines"]
        return values


def run(
    seed: int,
    minutes: float,
    *,
    names: Collection[str] = (),
    alone: bool = False,
    left_out: Collection[int] = (),
    size: WorldSize | None = None,
    setting: WorldSetting | None = None,
    until_broken: str = "",
    is_folding: bool = True,
) -> Outcome:
    """Run a scenario. `names` are the only fault kinds, `left_out` the faults that do not come.

    The seed chooses the `setting` where none is given. `alone`: see `faults.plan`. It ends soon after the
    promise `until_broken` is broken. `is_folding`: what can't but be answered is one event.
    """
    seams.install()
    began_s = determinism.real_s()
    folder = Path(tempfile.mkdtemp(prefix="rspdns-simulate-", dir=MEMORY if MEMORY.is_dir() else None))
    gc.disable()  # a collector at a moment of its own choice ends what nobody holds any more
    try:
        kernel = Kernel(seed)
        world = World(kernel, folder, size or WorldSize(), setting or chosen_setting(seed))
        world.network.is_folding = is_folding
        watch = Watch(world)
        planned = [
            each for each in faults.plan(seed, minutes * 60, names, alone=alone) if each.index not in left_out
        ]
        faults.schedule(world, seed, planned)
        world.start()
        try:
            while kernel.now < minutes * 60 and not watch.has_broken(until_broken):
                kernel.run(min(kernel.now + _STEP_S, minutes * 60))
            if kernel.now >= minutes * 60:
                watch.end()
        except EndlessLoopError as problem:
            watch.broken.append(Broken(kernel.now, "time_passes", str(problem)))
        cpu_s = determinism.real_s() - began_s
        return Outcome(
            seed,
            minutes,
            _words(planned),
            sorted(left_out),
            world.answers,
            kernel.events,
            round(cpu_s, 3),
            {kind: round(worst_s, 3) for kind, worst_s in sorted(watch.worst_s.items())},
            watch.broken,
            hashlib.sha256("\n".join(world.lines).encode()).hexdigest()[:16],
            world.lines,
        )
    finally:
        world.end()
        kernel.close()
        shutil.rmtree(folder, ignore_errors=True)
        _drop_what_was_killed()
        gc.enable()


def _drop_what_was_killed() -> None:
    """Free the coroutines of killed processes, which complain that they can't do what they would do last."""
    complain, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = complain


def _words(planned: Sequence[PlannedFault]) -> list[str]:
    return [str(fault) for fault in planned]


def shrink(
    outcome: Outcome,
    names: Collection[str] = (),
    size: WorldSize | None = None,
    setting: WorldSetting | None = None,
) -> Outcome:
    """Leave out faults for as long as the same promise is broken: first the half of them, at last each alone.
    Return the last such outcome, which ends soon after its promise broke.

    It takes about 2n scenarios for n faults.
    """
    promise, broken_s = outcome.broken[0].promise, outcome.broken[0].at_s
    everything = faults.plan(outcome.seed, outcome.minutes * 60, names)
    kept = [fault.index for fault in everything if fault.index not in outcome.left_out]
    later = {fault.index for fault in everything if fault.at_s >= broken_s}

    def attempt(fewer: Collection[int]) -> Outcome | None:
        left_out = [fault.index for fault in everything if fault.index not in fewer]
        tried = run(
            outcome.seed,
            outcome.minutes,
            names=names,
            left_out=left_out,
            size=size,
            setting=setting,
            until_broken=promise,
        )
        return tried if any(broken.promise == promise for broken in tried.broken) else None

    if later.intersection(kept) and (tried := attempt([index for index in kept if index not in later])):
        kept, outcome = [index for index in kept if index not in later], tried
    count = max(1, len(kept) // 2)
    while True:
        position, before = 0, len(kept)
        while position < len(kept):
            fewer = kept[:position] + kept[position + count :]
            if tried := attempt(fewer):
                kept, outcome = fewer, tried
            else:
                position += count
        if count == 1 and len(kept) == before:
            return outcome
        count = max(1, count // 2)
