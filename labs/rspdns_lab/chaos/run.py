"""`rspdns-lab chaos`: every fault, many times, at random moments, asked from the client every millisecond."""

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import A_QUESTION, FOLLOWS, FollowMethod, LabSetting
from rspdns_lab.chaos.faults.cells import CELL_FAULTS
from rspdns_lab.chaos.faults.doubled import DOUBLE_FAULTS
from rspdns_lab.chaos.faults.fastpath import FASTPATH_FAULTS
from rspdns_lab.chaos.faults.hosts import HOST_FAULTS
from rspdns_lab.chaos.faults.registrars import CLOCK_FAULTS, REGISTRAR_FAULTS
from rspdns_lab.chaos.faults.servers import FAULTS, VERIFIED_FAULTS
from rspdns_lab.chaos.faults.sites import SITE_FAULTS, SITE_MEMBERS
from rspdns_lab.chaos.scene import ChaosFault, ChaosScene, Strike
from rspdns_lab.chaos.summary import FOLLOWED, Case, CaseTrial, ChaosRow, compared, summarize, trials_of
from rspdns_lab.chaos.verdict import ChaosTrial, judge_trial
from rspdns_lab.errors import LabError
from rspdns_lab.side_by_side import side_by_side

ALL_FAULTS: Final = (
    *FAULTS,
    *VERIFIED_FAULTS,
    *HOST_FAULTS,
    *REGISTRAR_FAULTS,
    *DOUBLE_FAULTS,
    *SITE_FAULTS,
    *CELL_FAULTS,
    *FASTPATH_FAULTS,
)
QUICK_FAULTS: Final = ("as-killed", "as-drained", "registrar-killed", "clock-stepped-forward")
QUICK_FASTPATH_FAULTS: Final = (
    *("as-killed", "backend-killed", "as-killed-while-backend-frozen"),
    *(fault.name for fault in FASTPATH_FAULTS),
)
SIZES: Final = (2, 3, SITE_MEMBERS, 12)
PHASE_S: Final = 2.0
"""A trial begins within this time: agents register again every 2 s."""
_QUIET_S: Final = 1.0
_LONGEST_S: Final = 15.0
"""Answers that are still wrong this time after the time to watch won't become right."""
_LAST_ANSWERS_S: Final = 0.3
_RECOVERY_S: Final = 60.0

Say = Callable[[str], object]


@dataclass(frozen=True)
class Order:
    """The trials to be run: each of `faults` `trials` times in pools of each of `sizes`, registrars
    followed in each of the ways of `follows`. `fastpath`: each without and with answers from the kernel.

    `slack` multiplies the time bounds: a busy machine is slower than the design reckons with.
    """

    faults: tuple[ChaosFault, ...] = ALL_FAULTS
    sizes: tuple[int, ...] = SIZES
    follows: tuple[FollowMethod, ...] = FOLLOWS
    trials: int = 10
    slack: float = 1.0
    fastpath: bool = False

    @property
    def chains(self) -> tuple[bool, ...]:
        """Whether kernels answer in each of the chains that are compared."""
        return (False, True) if self.fastpath else (False,)

    def cases(self) -> Iterator[tuple[Case, ChaosFault]]:
        """Yield every row of the table to be."""
        every = itertools.product(self.sizes, self.follows, self.faults, self.chains)
        for size, follow, fault, fastpath in every:
            if size in fault.sizes and (fastpath or not fault.fastpath):
                yield Case(fault.name, size, follow, fastpath), fault

    def rows(self, found: Sequence[CaseTrial]) -> list[ChaosRow]:
        """Return the table of what was found of it."""
        rows = [
            summarize(case, trials, fault.bounds_for(case.follow), self.slack)
            for case, fault in self.cases()
            if (trials := trials_of(case, found))
        ]
        return compared(rows, self.slack)


_POOLS: Final = (
    LabSetting(),
    LabSetting(verified=True),
    LabSetting(keyed=True),
    LabSetting(sites=True),
    LabSetting(cells=True),
)
"""Kinds of pools."""


def run_chaos(
    order: Order, earlier: Sequence[CaseTrial], say: Say, jobs: int = 1
) -> Iterator[Sequence[CaseTrial]]:
    """Run what was not found `earlier`; yield trials as they come. Raises LabError when the lab can't run.

    `jobs`: labs side by side, each of which runs every fault once.
    """
    done = Counter(trial.case for trial in earlier)
    while plan := _plan(order, done):
        before = done.total()
        for trials in _side_by_side(order, plan, jobs, say) if jobs > 1 else _in_turn(order, plan, say):
            done.update(trial.case for trial in trials)
            yield trials
        if done.total() == before:
            raise LabError("the lab came to no trial")


LabPlan = tuple[LabSetting, Sequence[tuple[int, Case, ChaosFault]]]
"""A lab, and the trials in it."""


def _plan(order: Order, done: Counter[Case]) -> list[LabPlan]:
    labs = itertools.product(order.sizes, order.follows, _POOLS, order.chains)
    settings = [
        replace(kind, members=size, follow=follow, fastpath=fastpath) for size, follow, kind, fastpath in labs
    ]
    return [(setting, left) for setting in settings if (left := list(_left(order, done, setting)))]


def _in_turn(order: Order, plan: Sequence[LabPlan], say: Say) -> Iterator[Sequence[CaseTrial]]:
    for setting, left in plan:
        for trial in _run_in_lab(order, setting, left, say):
            yield [trial]


def _side_by_side(
    order: Order, plan: Sequence[LabPlan], jobs: int, say: Say
) -> Iterator[Sequence[CaseTrial]]:
    """Yield the trials of a lab when it has ended."""
    labs = [
        (setting, list(trials))
        for setting, left in plan
        for _, trials in itertools.groupby(left, key=lambda each: each[0])
    ]
    for found in side_by_side(lambda lab: list(_run_in_lab(order, *lab, say)), labs, jobs):
        if isinstance(found, LabError):
            say(f"a lab ended: {found}")
        else:
            yield found


def _left(order: Order, done: Counter[Case], setting: LabSetting) -> Iterator[tuple[int, Case, ChaosFault]]:
    """Yield the trials still to be done in such a lab, one of each fault and then the next round."""
    kind = (setting.verified, setting.keyed, setting.sites, setting.cells)
    wanted = (setting.members, setting.follow, kind, setting.fastpath)
    for trial in range(order.trials):
        for case, fault in order.cases():
            of_fault = (fault.verified, fault.keyed, fault.sites, fault.cells)
            is_here = (case.members, case.follow, of_fault, case.fastpath) == wanted
            if is_here and trial >= done[case]:
                yield trial, case, fault


def _run_in_lab(
    order: Order, setting: LabSetting, left: Sequence[tuple[int, Case, ChaosFault]], say: Say
) -> Iterator[CaseTrial]:
    """Run trials until all are done, or one after which the lab does not recover: that ends this lab."""
    clocks = not CLOCK_FAULTS.isdisjoint(fault.name for _, _, fault in left)
    probed = ", each probed by the name servers" if setting.verified else ""
    probed += ", in a keyed pool" if setting.keyed else ""
    probed += ", at two sites" if setting.sites else ""
    probed += ", in two handlespaces" if setting.cells else ""
    followed = FOLLOWED[setting.follow]
    by_kernel = ", answered by the kernel" if setting.fastpath else ""
    say(f"a lab with {setting.members} application servers{probed}, registrars {followed}{by_kernel}")
    with Lab(replace(setting, clocks=clocks)) as lab:
        lab.start_registrars()
        lab.start_application_servers()
        lab.start_name_servers()
        _recover(lab)
        for number, (trial, case, fault) in enumerate(left, start=1):
            draw = random.Random(f"{case} {trial}")  # noqa: S311 - chance, not a secret
            scene = ChaosScene(lab, trial, draw)
            result = _run_trial(scene, fault)
            say(f"  {number} of {len(left)}: {describe(fault.name, result)}")
            yield CaseTrial(case, result)
            if result.problem:
                return


def _run_trial(scene: ChaosScene, fault: ChaosFault) -> ChaosTrial:
    lab = scene.lab
    scene.pause(PHASE_S)
    lab.recorder.forget(time.monotonic())
    result = ChaosTrial()
    try:
        strike = fault.strike(scene)
        _watch(lab, strike, fault.watch_s)
        lab.expect_asked()
        result = replace(_judge(lab, strike), report_off=strike.report_off)
        fault.undo(scene)
        _recover(lab)
    except LabError as error:
        return replace(result, problem=f"the lab did not recover: {str(error).splitlines()[0]}")
    return result


def _recover(lab: Lab) -> None:
    lab.wait_until_all_are_answered(_RECOVERY_S)
    lab.wait_until_settled(_RECOVERY_S)
    lab.wait_until_kernels_answer(_RECOVERY_S)
    for site in itertools.islice(lab.setting.at_site, 1):
        lab.wait_until_first(site, _RECOVERY_S)


def _watch(lab: Lab, strike: Strike, watch_s: float) -> None:
    """Watch for `watch_s`, and then until the answers have been right for a while."""
    time.sleep(watch_s)
    end_s = time.monotonic() + _LONGEST_S
    while time.monotonic() < end_s and _judge(lab, strike, time.monotonic() - _QUIET_S).last_wrong_ms:
        time.sleep(0.2)
    time.sleep(_LAST_ANSWERS_S)


def _judge(lab: Lab, strike: Strike, since_s: float | None = None) -> ChaosTrial:
    """Judge all that came since the fault, or only what was asked since `since_s`."""
    at_s = strike.at_s if since_s is None else max(strike.at_s, since_s)
    counted_from_s = strike.counted_from_s if since_s is None else None
    observations = lab.recorder.since(at_s if counted_from_s is None else counted_from_s)
    return judge_trial(
        [each for each in observations if each.question == A_QUESTION]
        if strike.of_addresses
        else observations,
        at_s,
        strike.live,
        strike.dead,
        strike.servers,
        lab.most_shown,
        counted_from_s,
    )


def describe(name: str, trial: ChaosTrial) -> str:
    """Return a trial in a line."""
    return (
        f"{name}: last wrong after {trial.last_wrong_ms:.0f} ms, live one missing for "
        f"{trial.longest_missing_ms:.0f} ms, {trial.empty} empty, {trial.servfail} SERVFAIL, "
        f"{trial.timeouts} unanswered of {trial.answers + trial.timeouts}"
        + ("" if trial.report_off is None else f"; report off by {trial.report_off:.2%}")
        + (f"; {trial.problem}" if trial.problem else "")
    )
