"""The results of the calls: read from the logs of callers and S-CSCFs, summed up. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rspdns_lab.observe.percentiles import percentile

SENT_MARK: Final = "SENT"
"""How a line in an S-CSCF's log begins that tells of an INVITE on its way: SENT time address."""
TIMER_B_MS: Final = 32_000
"""64 x T1: how long RFC 3261 has a client wait for an answer to INVITE over UDP."""


@dataclass(frozen=True)
class Call:
    """One call. Times are wall-clock seconds; `server` answered it. A call without an answer failed.

    `rang_at`: the server that let it ring (180) before.
    """

    started_at_s: float
    answered_at_s: float | None = None
    server: str = ""
    rang_at: str = ""

    @property
    def set_up_ms(self) -> float | None:
        """From the caller's INVITE to its 200."""
        return None if self.answered_at_s is None else (self.answered_at_s - self.started_at_s) * 1000


@dataclass(frozen=True)
class Invite:
    """One INVITE on its way from the S-CSCF to `address`, at a wall-clock time in seconds."""

    at_s: float
    address: str


@dataclass(frozen=True)
class CallTrial:
    """The measurement of one trial of a fault under one approach. Times are seconds after the fault,
    negative before.

    `calls`: start, set-up delay in ms (None: failed), who answered. `to_dead_s`: when INVITEs were sent to
    the server that was gone; None where the fault leaves every server alive. `rang`: so many of the failed
    calls had rung at a server that died: RFC 3261 has a client repeat nothing after a provisional response.
    """

    fault: str
    approach: str
    trial: int
    calls: Sequence[tuple[float, float | None, str]] = field(repr=False)
    to_dead_s: Sequence[float] | None
    rang: int = 0


@dataclass(frozen=True)
class Figures:
    """The sum over the calls that began after a fault. Delays in ms, `last_to_dead_s` from the fault on.

    `slow` counts calls that were set up after more than a second: somebody listened to silence. `to_dead`
    counts INVITEs sent to a server after it was gone, `last_to_dead_s` is the last of them in any trial.
    Shares, 0 to 1, are of the calls that were answered; `share_settled` of those that began SETTLED_S or
    more after the fault.
    """

    fault: str
    approach: str
    trials: int
    calls: int
    failed: int
    slow: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    to_dead: int | None
    last_to_dead_s: float | None
    share_before: dict[str, float]
    share_after: dict[str, float]
    share_settled: dict[str, float]


SLOW_MS: Final = 1000.0
SETTLED_S: Final = 6.0
"""Weights have followed by then: an agent smooths its load with a time constant of 1 s, so that 20 % need
about 4 s to reach 95 %."""


def read_calls(lines: Iterable[str]) -> list[Call]:
    """Return the calls of a caller's log, in the order of their starts. Other lines are passed over."""
    calls: dict[str, Call] = {}
    for line in lines:
        match line.split():
            case ["start", number, seconds, microseconds]:
                calls[number] = Call(_time_s(seconds, microseconds))
            case ["rang", number, server] if number in calls:
                calls[number] = replace(calls[number], rang_at=server)
            case ["answer", number, seconds, microseconds, server] if number in calls:
                answered_at_s = _time_s(seconds, microseconds)
                calls[number] = replace(calls[number], answered_at_s=answered_at_s, server=server)
    return sorted(calls.values(), key=lambda call: call.started_at_s)


def read_sent(lines: Iterable[str]) -> list[Invite]:
    """Return the INVITEs of an S-CSCF's log."""
    found = []
    for line in lines:
        _, mark, rest = line.partition(f"{SENT_MARK} ")
        fields = rest.split()
        if mark and len(fields) == 2:
            found.append(Invite(float(fields[0]), fields[1]))
    return found


def measure(
    fault: str,
    approach: str,
    trial: int,
    calls: Iterable[Call],
    sent: Iterable[Invite],
    fault_at_s: float,
    dead: Collection[str] | None,
    died: Collection[str] = (),
) -> CallTrial:
    """Return one trial. `dead`: addresses no call should go to after the fault; None when all live. `died`:
    the servers that answer nothing after it."""
    calls = list(calls)
    found = [
        (
            round(call.started_at_s - fault_at_s, 3),
            None if call.set_up_ms is None else round(call.set_up_ms, 1),
            call.server,
        )
        for call in calls
    ]
    after = [invite for invite in sent if invite.at_s >= fault_at_s]
    to_dead_s = (
        None
        if dead is None
        else [round(invite.at_s - fault_at_s, 3) for invite in after if invite.address in dead]
    )
    rang = sum(call.answered_at_s is None and call.rang_at in died for call in calls)
    return CallTrial(fault, approach, trial, found, to_dead_s, rang)


def sum_up(trials: Sequence[CallTrial]) -> Figures:
    """Return the figures of all trials of one fault under one approach; at least one trial."""
    calls = [call for trial in trials for call in trial.calls]
    after = [call for call in calls if call[0] >= 0]
    delays = [delay for _, delay, _ in after if delay is not None]
    to_dead_s = [at_s for trial in trials for at_s in trial.to_dead_s or ()]
    knows_dead = trials[0].to_dead_s is not None
    return Figures(
        fault=trials[0].fault,
        approach=trials[0].approach,
        trials=len(trials),
        calls=len(after),
        failed=len(after) - len(delays),
        slow=sum(delay > SLOW_MS for delay in delays),
        p50_ms=round(percentile(delays, 50), 1),
        p95_ms=round(percentile(delays, 95), 1),
        p99_ms=round(percentile(delays, 99), 1),
        max_ms=round(percentile(delays, 100), 1),
        to_dead=len(to_dead_s) if knows_dead else None,
        last_to_dead_s=max(to_dead_s, default=0.0) if knows_dead else None,
        share_before=_shares(server for start_s, _, server in calls if start_s < 0),
        share_after=_shares(server for _, _, server in after),
        share_settled=_shares(server for start_s, _, server in after if start_s >= SETTLED_S),
    )


def _shares(servers: Iterable[str]) -> dict[str, float]:
    counts = Counter(server for server in servers if server)
    return {server: round(count / counts.total(), 3) for server, count in sorted(counts.items())}


def _time_s(seconds: str, microseconds: str) -> float:
    return float(seconds) + float(microseconds) / 1e6
