"""A registrar whose keep-alives stop is registered at again, where somebody heeds it."""

import pytest
from rserpool.machine.element import EventKind

from tests.rserpool.paper_registrars import ELEMENT, HANDLE, JoinedElement, keep_alive, registrations

STEP_S = 0.3


@pytest.fixture
def joined() -> JoinedElement:
    return JoinedElement().start()


def keep_alives(joined: JoinedElement, seconds: float, step_s: float = STEP_S) -> None:
    """Let the registrar in charge send them for so long, each a step after the last one or registration."""
    association = joined.association_with(joined.machine.registrar)
    identifier = joined.at(joined.machine.registrar).identifier
    end_s = sent_s = joined.now
    end_s += seconds
    while joined.now < end_s:
        while joined.now < (due_s := max(sent_s, joined.machine.confirmed_at_s or 0.0) + step_s):
            joined.run(due_s - joined.now)
        sent_s = joined.now
        joined.receive(association, keep_alive(registrar=identifier))


def test_an_element_whose_keep_alives_stop_is_registered_again_within_a_second(joined: JoinedElement) -> None:
    joined.machine.silence.is_heeded = True
    keep_alives(joined, 1.5)
    joined.at(joined.machine.registrar).pools.clear()
    removed_s = joined.now
    joined.run(0.9)
    assert ELEMENT.identifier in joined.at(joined.machine.registrar).pools[HANDLE]
    assert joined.events[-1].kind is EventKind.RENEWING
    assert removed_s + 2 * STEP_S < joined.events[-1].at_s < removed_s + 3 * STEP_S


def test_silence_is_not_heeded_unless_told(joined: JoinedElement) -> None:
    keep_alives(joined, 1.2)
    joined.run(10)
    assert EventKind.RENEWING not in joined.kinds


def test_keep_alives_that_go_on_cost_nothing_also_while_the_load_changes(joined: JoinedElement) -> None:
    """A registration begins their step anew, so one right before a keep-alive makes that late."""
    joined.machine.silence.is_heeded = True
    for _ in range(10):
        keep_alives(joined, 0.3)
        joined.run(0.29)
        joined.machine.register_again("its load", joined.now)
        joined.settle()
    assert {event.detail for event in joined.events if event.kind is EventKind.RENEWING} == {"its load"}


def test_a_registrar_that_stays_silent_is_asked_once(joined: JoinedElement) -> None:
    joined.machine.silence.is_heeded = True
    keep_alives(joined, 0.6)
    before = len(registrations(joined))
    joined.run(1.9)
    assert len(registrations(joined)) == before + 1


def test_a_registrar_with_longer_steps_is_given_its_time(joined: JoinedElement) -> None:
    joined.machine.silence.is_heeded = True
    keep_alives(joined, 5.5, step_s=1.1)
    assert EventKind.RENEWING not in joined.kinds


def test_another_registrar_is_learnt_anew(joined: JoinedElement) -> None:
    joined.machine.silence.is_heeded = True
    keep_alives(joined, 0.6)
    joined.kill(joined.machine.registrar)
    joined.run(1.9)
    assert joined.machine.is_registered
    assert EventKind.RENEWING not in joined.kinds


def test_a_registration_in_between_does_not_make_the_steps_longer(joined: JoinedElement) -> None:
    joined.machine.silence.is_heeded = True
    keep_alives(joined, 1.5)
    joined.run(STEP_S - 0.01)
    joined.machine.register_again("its load", joined.now)
    joined.settle()
    keep_alives(joined, STEP_S)
    last_s = joined.now
    joined.run(3 * STEP_S)
    assert joined.events[-1].detail == "its keep-alives have stopped"
    assert joined.events[-1].at_s < last_s + 3 * STEP_S


def test_silence_while_a_renewal_is_awaited_is_told_by_its_timeout(joined: JoinedElement) -> None:
    joined.machine.silence.is_heeded = True
    registrar = joined.machine.registrar
    keep_alives(joined, 1.7)
    joined.at(registrar).frozen = True
    joined.run(1.0)
    assert joined.kinds == [EventKind.REGISTERED, EventKind.UNANSWERED, EventKind.REGISTERED]
