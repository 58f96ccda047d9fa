"""The demo's steps: a fault, watched from the client until the answers are right again."""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import APPLICATION_SERVERS, NAME_SERVERS
from rspdns_lab.observe.verdict import Observation, Verdict, is_wrong, judge

QUIET_S: Final = 1.0
"""The time for which answers must have been right before a step counts as over."""
POLL_S: Final = 0.05
MOST_UNANSWERED: Final = 0.02
"""A busy machine loses a datagram now and then; more than this share of the answers is a fault."""
MOST_UNANSWERED_WHEN_SLOW: Final = 0.5
PROBE_TIMEOUT_S: Final = 1.0


@dataclass(frozen=True)
class Undo:
    """Takes a fault back: `run` returns the monotonic time just before it; `what` says it in words."""

    what: str
    run: Callable[[Lab], float]


@dataclass(frozen=True)
class Step:
    """One fault. `bound_ms`: when answers must be right again; 0: they may never be wrong.

    `watch_s`: the least time to watch, in case something goes wrong late. `undo`: what takes the fault
    back before the next step, if anything does. `settle` waits until the next step can begin.
    """

    name: str
    title: str
    run: Callable[[Lab], "StepFault"]
    bound_ms: float
    watch_s: float = 2.0
    undo: Undo | None = None
    settle: Callable[[Lab], None] = Lab.wait_until_all_are_answered
    most_unanswered: float = MOST_UNANSWERED

    def slowed(self, slow: float) -> "Step":
        """Return the step for a machine that is `slow` times slower."""
        most = min(self.most_unanswered * slow, max(self.most_unanswered, MOST_UNANSWERED_WHEN_SLOW))
        return replace(self, bound_ms=self.bound_ms * slow, most_unanswered=most)

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f"{self.bound_ms:g} ms" if self.bound_ms else "never wrong"


@dataclass(frozen=True)
class StepFault:
    """The fault, its time (monotonic, s), and what the answers should hold from then on."""

    at_s: float
    what: str
    live: frozenset[str]
    dead: frozenset[str] = frozenset()
    servers: tuple[int, ...] = tuple(range(len(NAME_SERVERS)))
    started_at_s: float | None = None
    """When the doing began, if it took time."""


@dataclass(frozen=True)
class StepResult:
    """A step, its fault, and what the client saw."""

    step: Step
    fault: StepFault
    verdict: Verdict
    observations: list[Observation] = field(repr=False)
    ended_at_s: float = 0.0

    @property
    def problems(self) -> list[str]:
        """Return, in words, which bounds were broken."""
        verdict, bound_ms = self.verdict, self.step.bound_ms
        found = []
        if verdict.last_wrong_ms > bound_ms:
            found.append(f"wrong until {verdict.last_wrong_ms} ms, allowed are {bound_ms:g} ms")
        if verdict.wrong and not bound_ms:
            found.append(f"{verdict.wrong} wrong answers, none is allowed")
        for count, what in (
            (verdict.empty, "empty answers"),
            (verdict.servfail, "SERVFAIL"),
            (verdict.malformed, "malformed answers"),
        ):
            if count:
                found.append(f"{count} {what}")
        if not verdict.answers:
            found.append("no answers at all")
        elif verdict.timeouts > self.step.most_unanswered * verdict.answers:
            found.append(f"{verdict.timeouts} questions unanswered")
        return found

    def as_json(self) -> dict[str, object]:
        """Return the figures under the names that programs read."""
        verdict = self.verdict
        return {
            "name": self.step.name,
            "last_wrong_ms": verdict.last_wrong_ms,
            "wrong": verdict.wrong,
            "empty": verdict.empty,
            "servfail": verdict.servfail,
            "timeouts": verdict.timeouts,
            "answers": verdict.answers,
            "bound_ms": self.step.bound_ms,
            "problems": self.problems,
        }


def run_step(lab: Lab, step: Step) -> StepResult:
    """Do the fault, watch, judge. The fault stays."""
    fault = step.run(lab)
    _watch(lab, fault, step)
    ended_at_s = time.monotonic()
    time.sleep(PROBE_TIMEOUT_S + POLL_S)  # so that the last questions are answered or counted as unanswered
    since_s = min(fault.at_s, fault.started_at_s or fault.at_s)
    observations = [
        observation for observation in lab.recorder.since(since_s) if observation.asked_at_s <= ended_at_s
    ]
    verdict = judge(observations, fault.at_s, fault.live, fault.dead, fault.servers)
    return StepResult(step, fault, verdict, observations, ended_at_s)


def undo_step(lab: Lab, undo: Undo) -> float:
    """Take a fault back, wait until DNS names all again, and return how long that took, in ms."""
    at_s = undo.run(lab)
    lab.wait_until_all_are_answered()
    return all_named_ms(lab.recorder.since(at_s), at_s, lab.addresses)


def all_named_ms(observations: Iterable[Observation], since_s: float, addresses: frozenset[str]) -> float:
    """Return, in ms, how long after `since_s` the slowest name server first named all `addresses`."""
    first_s: dict[int, float] = {}
    for observation in observations:
        if (
            observation.complete
            and observation.names == addresses
            and observation.answered_at_s
            and observation.asked_at_s >= since_s
        ):
            first_s[observation.server] = min(
                observation.answered_at_s, first_s.get(observation.server, observation.answered_at_s)
            )
    return round((max(first_s.values(), default=since_s) - since_s) * 1000, 1)


def _watch(lab: Lab, fault: StepFault, step: Step) -> None:
    """Return when the answers have been right for a while, or their time is up."""
    longest_s = max(step.watch_s, step.bound_ms / 1000 + QUIET_S)
    checked_to_s = last_wrong_s = fault.at_s
    while (now := time.monotonic()) < fault.at_s + longest_s:
        if now >= fault.at_s + step.watch_s and now >= last_wrong_s + QUIET_S:
            return
        time.sleep(POLL_S)
        for observation in lab.recorder.since(checked_to_s):
            if (
                observation.server in fault.servers
                and observation.answered_at_s
                and is_wrong(observation, fault.live, fault.dead)
            ):
                last_wrong_s = max(last_wrong_s, observation.answered_at_s)
        checked_to_s = max(checked_to_s, now - PROBE_TIMEOUT_S)


def _without(names: Collection[str]) -> frozenset[str]:
    return frozenset(address for name, address in APPLICATION_SERVERS.items() if name not in names)


def _kill_as(lab: Lab) -> StepFault:
    at_s = lab.application_servers["as1"].sip.kill()
    return StepFault(at_s, "as1: SIP server killed with SIGKILL", _without(["as1"]), _addresses("as1"))


def _start_as(lab: Lab) -> StepFault:
    started_at_s = time.monotonic()
    at_s = lab.application_servers["as1"].start_sip(lab.start_timeout_s)
    return StepFault(at_s, "as1: SIP server answers again", _without([]), started_at_s=started_at_s)


def _drain_as(lab: Lab) -> StepFault:
    at_s = lab.application_servers["as2"].drain()
    return StepFault(at_s, "as2: drained, its calls go on", _without(["as2"]), _addresses("as2"))


def _undrain_as(lab: Lab) -> float:
    return lab.application_servers["as2"].undrain()


def _cut_link(lab: Lab) -> StepFault:
    at_s = time.monotonic()
    lab.network.cut(lab.network.hosts["as3"])
    return StepFault(at_s, "as3: network cable pulled", _without(["as3"]), _addresses("as3"))


def _restore_link(lab: Lab) -> float:
    at_s = time.monotonic()
    lab.network.restore(lab.network.hosts["as3"])
    return at_s


def _kill_registrar(lab: Lab) -> StepFault:
    name = lab.busiest_registrar()
    at_s = lab.registrars[name].kill_registrar()
    return StepFault(at_s, f"{name}: rspregistrar killed with SIGKILL", _without([]))


def _kill_name_server(lab: Lab) -> StepFault:
    first, *others = range(len(NAME_SERVERS))
    name = list(NAME_SERVERS)[first]
    at_s = lab.name_servers[name].kill()
    what = f"{name}: PowerDNS and its backend killed with SIGKILL"
    return StepFault(at_s, what, _without([]), servers=tuple(others))


def _at_once(_lab: Lab) -> None:
    """There is nothing to wait for: what was broken stays broken."""


def _addresses(*names: str) -> frozenset[str]:
    return frozenset(APPLICATION_SERVERS[name] for name in names)


STEPS: Final = (
    Step("as-killed", "An application server is killed", _kill_as, 500, settle=_at_once),
    Step("as-back", "It comes back", _start_as, 5000),
    Step(
        "as-drained",
        "Another one is drained for maintenance",
        _drain_as,
        500,
        undo=Undo("as2 undrained", _undrain_as),
    ),
    Step(
        "as-link-cut",
        "The third one's network cable is pulled",
        _cut_link,
        3000,
        undo=Undo("as3's network cable plugged in again", _restore_link),
    ),
    Step(
        "registrar-killed",
        "A registrar is killed",
        _kill_registrar,
        0,
        watch_s=8.0,
        settle=Lab.wait_until_settled,
    ),
    Step(
        "name-server-killed",
        "A name server is killed; the other one is asked",
        _kill_name_server,
        0,
        settle=_at_once,
    ),
)
