"""`rspdns-lab ims`: calls through an S-CSCF while application servers fail, by every way to serve DNS."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pool_user import SLOW_START_S

from rspdns_lab.errors import LabError
from rspdns_lab.ims.calls import TIMER_B_MS, CallTrial, measure, read_calls, read_sent
from rspdns_lab.ims.faults import VICTIM, ImsFault
from rspdns_lab.ims.lab import ImsLab
from rspdns_lab.report.trials import each_undone

CALM_S: Final = 5
"""Calls are placed for this time before the fault."""
_TAIL_S: Final = 1.5 * TIMER_B_MS / 1000 + 5


def run_ims(
    ims_lab: ImsLab,
    plan: Sequence[tuple[ImsFault, int]],
    rate_per_s: int,
    seconds: int,
    say: Callable[[str], None],
) -> Iterator[Sequence[CallTrial]]:
    """Run these trials in a lab, which is started for them; yield what each found. Raises LabError."""
    say(f"starting the lab: {', '.join(ims_lab.keys)}; {len(plan)} faults to go")
    with ims_lab as lab:

        def undo(fault: ImsFault) -> None:
            fault.undo(lab)
            lab.wait_until_all_are_named()
            time.sleep(SLOW_START_S)

        def do(fault: ImsFault, trial: int) -> Sequence[CallTrial]:
            return run_fault(lab, fault, trial, rate_per_s, seconds, say)

        lab.start()
        yield from each_undone(plan, do, undo)


def run_fault(
    lab: ImsLab, fault: ImsFault, trial: int, rate_per_s: int, seconds: int, say: Callable[[str], None]
) -> list[CallTrial]:
    """Place calls, do the fault, go on for `seconds`, wait for the last call. The fault stays.

    Raises LabError when no call came through before, or when a caller did not place all its calls.
    """
    seconds = max(seconds, fault.least_s)
    sent_before = {key: len(read_sent(_log(lab, key))) for key in lab.callers}
    for caller in lab.callers.values():
        caller.start(rate_per_s, rate_per_s * (CALM_S + seconds))
    time.sleep(CALM_S)
    for key in lab.callers:
        _expect_calls(lab, key)
    say(f"{fault.name}, trial {trial}: {fault.title}")
    at_s = time.time()
    fault.do(lab)
    time.sleep(seconds)
    for caller in lab.callers.values():
        caller.check()
    say(f"{fault.name}, trial {trial}: no more new calls; waiting for the last to end")
    end_s = time.monotonic() + _TAIL_S
    for caller in lab.callers.values():
        caller.wait(max(0.0, end_s - time.monotonic()))
    found = []
    for key, caller in lab.callers.items():
        sent = read_sent(_log(lab, key))[sent_before[key] :]
        calls = read_calls(caller.lines())
        died = (VICTIM,) if fault.dies else ()
        found.append(measure(fault.name, key, trial, calls, sent, at_s, fault.dead_addresses, died))
    return found


def _expect_calls(lab: ImsLab, key: str) -> None:
    """Raise LabError when no call came through before anything was broken: then nothing could be measured."""
    if key in lab.cscfs:
        lab.cscfs[key].expect_running()
    lab.callers[key].check()
    if not any(call.server for call in read_calls(lab.callers[key].lines())):
        words = lab.cscfs[key].log_end() if key in lab.cscfs else ""
        raise LabError(f"{key}: no call came through before the fault\n{words}")


def _log(lab: ImsLab, key: str) -> Sequence[str]:
    """The log of its S-CSCF; callers of the lab with ppu-agent may have none."""
    return lab.cscfs[key].log.read_text(errors="replace").splitlines() if key in lab.cscfs else ()
