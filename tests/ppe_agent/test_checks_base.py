"""Rise and fall: when attempts change what a check believes."""

import asyncio
import contextlib
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ppe_agent.checks.base import (
    CheckResult,
    CheckState,
    PeriodicCheck,
    RiseFall,
    Timing,
    Verdict,
    alive,
    pause_ms,
)
from ppe_agent.checks.configuration import SipOptionsConfig

VERDICTS = {"+": Verdict.ALIVE, "-": Verdict.FAILED, "x": Verdict.DEAD}
STATES = {"?": CheckState.UNKNOWN, "U": CheckState.UP, "D": CheckState.DOWN}


@pytest.mark.parametrize(
    ("attempts", "states"),
    [
        ("++", "?U"),
        ("--", "?D"),
        ("+-+-", "????"),
        ("x", "D"),
        ("++--", "?UUD"),
        ("++-+-+", "?UUUUU"),
        ("++x", "?UD"),
        ("++x+", "?UDD"),
        ("++x++", "?UDDU"),
        ("++x+x++", "?UDDDDU"),
        ("++--+-++", "?UUDDDDU"),
        ("++-x", "?UUD"),
    ],
)
def test_states_after_attempts_with_fall_2_and_rise_2(attempts: str, states: str) -> None:
    machine = RiseFall(fall=2, rise=2)
    for verdict, state in zip(attempts, states, strict=True):
        before = machine.state
        assert machine.report(VERDICTS[verdict]) == (before is not STATES[state])
        assert machine.state is STATES[state]


@given(st.integers(1, 5), st.integers(1, 5), st.text("+-x", max_size=40))
def test_agrees_with_the_words_of_the_rule(fall: int, rise: int, attempts: str) -> None:
    machine = RiseFall(fall, rise)
    for at, verdict in enumerate(attempts, 1):
        machine.report(VERDICTS[verdict])
        so_far = attempts[:at]
        if verdict == "x":
            assert machine.state is CheckState.DOWN
        if so_far.endswith("+" * rise):
            assert machine.state is CheckState.UP
        if so_far[-fall:].count("+") == 0 and len(so_far) >= fall:
            assert machine.state is CheckState.DOWN
        if machine.state is CheckState.UP:
            assert "+" * rise in so_far


def test_the_pause_is_short_when_the_next_attempt_should_come_soon() -> None:
    timing = Timing(interval_ms=1000, timeout_ms=250, fall=2, rise=2)
    assert (pause_ms(timing, soon=False), pause_ms(timing, soon=True)) == (1000, 50)
    timing = Timing(interval_ms=20, timeout_ms=250, fall=2, rise=2)
    assert (pause_ms(timing, soon=False), pause_ms(timing, soon=True)) == (20, 20)


class AlwaysWell(PeriodicCheck):
    """Takes no time, and keeps what it was to wait instead of waiting."""

    kind = "fake"
    waits_s: ClassVar[list[float]] = []

    async def attempt(self) -> CheckResult:
        return alive("it is a fake")

    async def _pause(self, time_s: float) -> None:
        self.waits_s.append(time_s)
        if len(self.waits_s) == 100:
            raise asyncio.CancelledError


async def test_jitter_shortens_each_interval_by_another_share() -> None:
    timing = SipOptionsConfig(type="sip-options", interval_ms=10_000, jitter=0.25).timing
    assert pause_ms(timing, soon=False, draw=1) == 7_500
    with contextlib.suppress(asyncio.CancelledError):
        await AlwaysWell("here", timing).run(lambda _: False)
    assert 7 < min(AlwaysWell.waits_s) < 8.5 < 9 < max(AlwaysWell.waits_s) <= 10
    assert len(set(AlwaysWell.waits_s)) > 90


def test_a_check_tries_soon_while_attempts_contradict_its_state() -> None:
    machine = RiseFall(fall=2, rise=2)
    assert machine.try_soon
    for verdict, soon in zip(
        "++-+x-+-x", [True, False, True, False, True, False, True, False, True], strict=True
    ):
        machine.report(VERDICTS[verdict])
        assert machine.try_soon is soon
