"""`rspdns-lab compare`: how long a voice is gone when its server is handed over, or loses its power."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from rspdns_lab.chain.plan import APPLICATION_SERVERS
from rspdns_lab.chain.side_by_side.lab import at_once
from rspdns_lab.compare.lab import FIRST, CompareLab
from rspdns_lab.compare.voip import PACKETS_PER_S, Quality, ReceivedPacket, SentPacket, judge
from rspdns_lab.errors import LabError
from rspdns_lab.report.trials import each_undone

CALM_S: Final = 3.0
_WRITTEN_S: Final = 0.2
"""By then listeners have written down what came."""
FAULTS: Final = {
    "administered": "an operator hands the server's work to another one",
    "power-cut": "the server's host falls silent",
}


@dataclass(frozen=True)
class StreamTrial:
    """One trial. `quality`: of the stream after the fault.

    `converged_ms`: from the fault to the first of the DNS answers that no longer name the server; where an
    address moves: to the last lost packet. None: not within the trial.
    """

    fault: str
    approach: str
    trial: int
    converged_ms: float | None
    quality: Quality


def run_compare(
    keys: Sequence[str],
    plan: Sequence[tuple[str, int]],
    seconds: int,
    say: Callable[[str], None],
) -> Iterator[Sequence[StreamTrial]]:
    """Run these trials by the approaches `keys` in one lab; yield what each found. Raises LabError."""
    say(f"starting the lab: {', '.join(keys)}; {len(plan)} faults to go")
    with CompareLab(keys) as lab:

        def do(fault: str, trial: int) -> Sequence[StreamTrial]:
            return run_fault(lab, fault, trial, seconds, say)

        lab.start()
        yield from each_undone(plan, do, partial(undo_fault, lab))


def run_fault(
    lab: CompareLab,
    fault: str,
    trial: int,
    seconds: int,
    say: Callable[[str], None],
) -> list[StreamTrial]:
    """Let streams flow, do the fault to the server of every one of them, judge. The fault stays.

    Raises LabError when a stream did not flow before, or ended by itself.
    """
    lab.talk()
    time.sleep(CALM_S)
    say(f"{fault}, trial {trial}: {FAULTS[fault]}; watching for {seconds} s")
    at_ns = time.monotonic_ns()
    _do(lab, fault)
    time.sleep(seconds)
    for talker in lab.talkers.values():
        talker.expect_running()  # who fell silent would count as one who lost nothing
    lab.hush()
    time.sleep(_WRITTEN_S)
    received = lab.received()
    found = []
    for number, key in enumerate(lab.keys):
        sent, answers = lab.sent(key)
        began_ns = min((packet.at_ns for packet in sent), default=at_ns)
        arrived = [packet for packet in received.get(number, []) if packet.sent_ns >= began_ns]
        expect_flow(key, sent, arrived, at_ns)
        after = [packet for packet in sent if packet.at_ns >= at_ns]
        here = [packet for packet in arrived if packet.sent_ns >= at_ns]
        dead = APPLICATION_SERVERS[FIRST]
        converged_ms = (
            converged_by_dns_ms(answers, at_ns, dead)
            if key in lab.approaches
            else converged_by_takeover_ms(after, here, at_ns)
        )
        found.append(StreamTrial(fault, key, trial, converged_ms, judge(after, here)))
    return found


def converged_by_dns_ms(answers: Sequence[tuple[int, frozenset[str]]], at_ns: int, dead: str) -> float | None:
    """Return when, after the fault, DNS first gave an answer without `dead` and kept to it; None: never."""
    gone_ns: int | None = None
    for asked_ns, addresses in answers:
        if asked_ns >= at_ns:
            gone_ns = None if dead in addresses else (asked_ns if gone_ns is None else gone_ns)
    return None if gone_ns is None else round((gone_ns - at_ns) / 1e6, 1)


def converged_by_takeover_ms(
    sent: Sequence[SentPacket], received: Sequence[ReceivedPacket], at_ns: int
) -> float | None:
    """Return when, after the fault, the last packet was lost; None when the stream never came back."""
    arrived = {(packet.call, packet.sequence) for packet in received}
    lost_ns = [packet.at_ns for packet in sent if (packet.call, packet.sequence) not in arrived]
    last_ns = max((packet.at_ns for packet in sent), default=at_ns)
    if lost_ns and last_ns - max(lost_ns) < 5e9 / PACKETS_PER_S:
        return None
    return round((max(lost_ns, default=at_ns) - at_ns) / 1e6, 1)


def expect_flow(key: str, sent: Sequence[SentPacket], arrived: Sequence[ReceivedPacket], at_ns: int) -> None:
    """Raise LabError when nothing, or little, came through before the fault at `at_ns`."""
    before = sum(packet.at_ns < at_ns for packet in sent)
    if not before or sum(packet.sent_ns < at_ns for packet in arrived) < before * 0.8:
        raise LabError(f"{key}: the stream did not flow before the fault: nothing can be measured")


def _do(lab: CompareLab, fault: str) -> None:
    if fault == "administered":
        drains = [partial(approach.drain, FIRST) for approach in lab.approaches.values()]
        at_once([*drains, *(first.step_down for first, _ in lab.pairs.values())])
        return
    if FIRST in lab.servers:
        lab.network.cut(lab.servers[FIRST].host)
    for first, _ in lab.pairs.values():
        lab.network.cut(first.host)


def undo_fault(lab: CompareLab, fault: str) -> None:
    """Take a fault back, and wait until all is as before. Raises LabError."""
    if fault == "administered":
        for approach in lab.approaches.values():
            approach.undrain(FIRST)
        for first, _ in lab.pairs.values():
            first.step_up()
    else:
        if FIRST in lab.servers:
            lab.network.restore(lab.servers[FIRST].host)
        for first, _ in lab.pairs.values():
            lab.network.restore(first.host)
    lab.wait_until_all_are_named()
    lab.wait_until_first_hosts_serve()
