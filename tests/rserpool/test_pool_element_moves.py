"""A pool element and registrars that die, fall silent, wake, or take over."""

import itertools

import pytest
from rserpool.machine.base import Connect
from rserpool.machine.element import (
    LEAVE_AFTER_S,
    LEAVE_SILENT_AFTER_S,
    MAX_ASSOCIATIONS,
    PINNED_RESPONSE_TIMEOUT_S,
    RESPONSE_TIMEOUT_S,
    UNASKED_STAY_S,
    WARY_INTERVAL_S,
    Associations,
    EventKind,
    State,
)
from rserpool.machine.registrar_choice import DISTRUST_FIRST_S

from rserpool import asap
from tests.rserpool.paper_registrars import (
    ELEMENT,
    HANDLE,
    POLICY_MISMATCH,
    REGISTRARS,
    JoinedElement,
    keep_alive,
    others,
    registrations,
)


@pytest.fixture
def joined() -> JoinedElement:
    return JoinedElement().start()


def test_a_lost_registrar_is_replaced_in_the_same_instant(joined: JoinedElement) -> None:
    first = joined.machine.registrar
    joined.receive(joined.association_with(first), keep_alive(registrar=0x77))
    assert joined.machine.home_registrar == 0x77
    joined.run(0.7)
    joined.kill(first)
    assert joined.machine.home_registrar is None, "not known before the first keep-alive of the new one"
    assert joined.machine.state is State.REGISTERED
    assert joined.machine.registrar not in (None, first)
    assert ELEMENT.identifier in joined.at(joined.machine.registrar).pools[HANDLE]
    assert joined.kinds == [EventKind.REGISTERED, EventKind.REGISTRAR_LOST, EventKind.REGISTERED]
    assert registrations(joined)[-1][0] == joined.now


def test_a_registrar_that_is_left_may_not_take_over_for_a_while(joined: JoinedElement) -> None:
    first = joined.machine.registrar
    assert first
    for avoided_s in (DISTRUST_FIRST_S, 2 * DISTRUST_FIRST_S):
        assert joined.machine.registrar == first
        joined.machine.leave_registrar("nobody else lists it", joined.now)
        joined.settle()
        assert joined.kinds[-2:] == [EventKind.REGISTRAR_LEFT, EventKind.REGISTERED]
        second = joined.machine.registrar
        assert second not in (None, first)
        joined.run(avoided_s - 0.1)
        joined.receive(joined.associate(first.endpoint), keep_alive(home=True))
        assert joined.kinds[-1] is EventKind.TAKEOVER_REFUSED
        assert joined.events[-1].detail.endswith("wants to be home, but it was left a short time ago")
        assert joined.machine.registrar == second
        joined.run(0.11)
        joined.receive(joined.associate(first.endpoint), keep_alive(home=True))
        assert joined.machine.registrar == first


def test_a_rejected_element_tries_again_when_it_is_told_to() -> None:
    joined = JoinedElement(registrars=REGISTRARS[:1], pinned=True)
    registrar = joined.at(REGISTRARS[0])
    registrar.rejects = (POLICY_MISMATCH,)
    joined.start()
    assert joined.kinds == [EventKind.REJECTED]
    registrar.rejects = None
    joined.machine.retry(joined.now)
    joined.settle()
    assert joined.machine.is_registered
    sent = len(joined.sent)
    joined.machine.retry(joined.now)
    joined.settle()
    assert len(joined.sent) == sent


def test_what_is_not_registered_or_pinned_leaves_nobody() -> None:
    idle = JoinedElement()
    idle.machine.leave_registrar("nobody else lists it", idle.now)
    assert idle.machine.state is State.IDLE
    pinned = JoinedElement(registrars=REGISTRARS[:1], pinned=True).start()
    pinned.machine.leave_registrar("nobody else lists it", pinned.now)
    assert pinned.machine.is_registered


def test_dead_registrars_are_skipped_in_the_same_instant() -> None:
    joined = JoinedElement()
    for address in REGISTRARS[:2]:
        joined.at(address).dead = True
    joined.start()
    assert joined.machine.registrar == REGISTRARS[2]


def test_all_dead_tries_on_with_pauses_and_registers_when_one_returns(joined: JoinedElement) -> None:
    for address in REGISTRARS:
        joined.kill(address)
    assert joined.machine.state is State.WAITING
    assert not joined.machine.is_registered
    joined.run(10)
    tries = [event.at_s for event in joined.events if event.kind is EventKind.UNREACHABLE]
    pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert max(pauses) <= 1.001
    assert sum(pause > 0 for pause in pauses) * 3 >= len(pauses) - 3, "a pause after every round of three"
    joined.at(REGISTRARS[1]).dead = False
    joined.run(1.1)
    assert joined.machine.registrar == REGISTRARS[1]


def test_a_silent_registrar_is_left_after_the_timeout(joined: JoinedElement) -> None:
    first = joined.machine.registrar
    old = joined.association_with(first)
    joined.at(first).frozen = True
    joined.run(2.0 + RESPONSE_TIMEOUT_S - 0.01)
    assert joined.machine.registrar == first
    joined.run(0.02)
    moved_at_s = registrations(joined)[-1][0]
    assert joined.machine.registrar not in (None, first)
    joined.run(LEAVE_SILENT_AFTER_S - 0.1)
    assert old in joined.associations, "closing could make a registrar that wakes delete the element"
    joined.run(0.2)
    ((closed_at_s, closed),) = joined.closed
    assert closed == old
    assert closed_at_s == pytest.approx(moved_at_s + LEAVE_SILENT_AFTER_S)


def test_a_frozen_registrar_that_wakes_is_countered_by_renewals_and_then_left(joined: JoinedElement) -> None:
    first = joined.machine.registrar
    old = joined.association_with(first)
    joined.at(first).frozen = True
    joined.run(7.0)
    assert asap.HandleResolution(HANDLE, 1) in joined.at(first).unread, "its answer is the sign of waking"
    woken_at_s = joined.now
    for reply in joined.at(first).thaw():
        joined.receive(old, reply)
    joined.run(3.0)
    soon = [at_s for at_s, number in registrations(joined) if number != old and at_s >= woken_at_s]
    assert soon[0] == woken_at_s
    assert len([at_s for at_s in soon if at_s < woken_at_s + LEAVE_AFTER_S]) >= 10
    assert len([at_s for at_s in soon if at_s > woken_at_s + LEAVE_AFTER_S + WARY_INTERVAL_S]) <= 2
    ((closed_at_s, closed),) = joined.closed
    assert closed == old
    assert closed_at_s == pytest.approx(woken_at_s + LEAVE_AFTER_S)


def test_keep_alives_of_the_old_registrar_are_answered_while_its_association_lasts(
    joined: JoinedElement,
) -> None:
    first = joined.machine.registrar
    joined.at(first).frozen = True
    joined.run(2.6)
    joined.at(first).frozen = False
    joined.receive(joined.association_with(first), keep_alive(registrar=0x77))
    assert joined.at(first).acknowledged
    assert joined.machine.registrar != first
    assert joined.machine.home_registrar != 0x77


def test_a_late_acceptance_by_the_old_registrar_moves_nothing(joined: JoinedElement) -> None:
    first = joined.machine.registrar
    old = joined.association_with(first)
    joined.at(first).frozen = True
    joined.run(2.6)
    second = joined.machine.registrar
    for reply in joined.at(first).thaw():
        joined.receive(old, reply)
    assert joined.machine.registrar == second


def test_follows_a_takeover_and_answers_on_the_association_it_came_on(joined: JoinedElement) -> None:
    new_home = REGISTRARS[others(joined)[0]]
    old = joined.association_with(joined.machine.registrar)
    new = joined.associate(new_home.endpoint)
    joined.receive(new, keep_alive(home=True, registrar=0x222))
    acknowledgement, registration = [each for each in joined.sent if each[1] == new][:2]
    assert acknowledgement[1:] == (new, asap.EndpointKeepAliveAck(HANDLE, ELEMENT.identifier))
    assert registration[1] == new
    assert isinstance(registration[2], asap.Registration)
    assert joined.machine.registrar == new_home
    assert joined.machine.home_registrar == 0x222
    assert joined.kinds == [EventKind.REGISTERED, EventKind.TAKEN_OVER, EventKind.REGISTERED]
    joined.run(UNASKED_STAY_S + 1)
    ((closed_at_s, closed),) = joined.closed
    assert closed == old
    assert closed_at_s == pytest.approx(100.0 + LEAVE_AFTER_S)


def test_the_registrar_in_charge_may_say_again_that_it_is_home(joined: JoinedElement) -> None:
    association = joined.association_with(joined.machine.registrar)
    joined.receive(association, keep_alive(home=True))
    assert joined.at(joined.machine.registrar).acknowledged
    assert joined.kinds == [EventKind.REGISTERED]
    assert len(registrations(joined)) == 1


def test_a_takeover_may_come_some_time_after_its_association(joined: JoinedElement) -> None:
    new_home = REGISTRARS[others(joined)[0]]
    new = joined.associate(new_home.endpoint)
    joined.run(UNASKED_STAY_S - 0.1)
    joined.receive(new, keep_alive(home=True))
    assert joined.machine.registrar == new_home
    joined.run(UNASKED_STAY_S)
    assert new in joined.associations


def test_a_registrar_that_was_left_and_is_returned_to_keeps_its_association(joined: JoinedElement) -> None:
    first = joined.machine.registrar
    old = joined.association_with(first)
    joined.at(first).frozen = True
    joined.run(2.6)
    assert joined.machine.registrar not in (None, first)
    joined.at(first).frozen = False
    for address in REGISTRARS:
        joined.at(address).dead = address != first
    joined.kill(joined.machine.registrar)
    joined.run(2 * LEAVE_AFTER_S)
    assert joined.machine.registrar == first
    assert not joined.closed
    assert old in joined.associations
    assert len(joined.associations) == 1


def test_an_association_whose_number_another_one_had_is_not_left() -> None:
    associations = Associations()
    for number, address in enumerate(REGISTRARS[:2]):
        associations.add(number, address.endpoint, 100.0)
        associations.keep(number)
    assert associations.leave_others(1, 101.0) == [0]
    associations.remove(0)
    associations.add(0, REGISTRARS[2].endpoint, 102.0)
    assert not associations.heard(0, 102.1)


def test_an_attempt_given_up_does_not_end_the_next_one() -> None:
    """The word that no association could be set up may come late."""
    joined = JoinedElement()
    joined.machine.start(joined.now)
    (connect,) = joined.machine.take_actions()
    assert isinstance(connect, Connect)
    late = next(one for one in REGISTRARS if one.endpoint != connect.peer)
    joined.machine.connect_failed(late.endpoint, joined.now, "refused")
    assert joined.machine.state is State.CONNECTING
    assert joined.machine.take_actions() == []


def test_a_registrar_that_is_not_configured_any_more_is_left_at_once(joined: JoinedElement) -> None:
    first = joined.machine.registrar
    staying = [one for one in REGISTRARS if one != first]
    joined.machine.update_registrars(staying, joined.now)
    joined.settle()
    assert joined.machine.registrar in staying
    assert joined.kinds[1:] == [EventKind.REGISTRAR_LOST, EventKind.REGISTERED]
    assert joined.events[1].detail == "it is no longer configured"
    joined.machine.update_registrars(REGISTRARS, joined.now)
    joined.settle()
    assert joined.machine.registrar in staying, "nothing is wrong with it"
    assert len(joined.kinds) == 3
    with pytest.raises(ValueError, match="at least one registrar"):
        joined.machine.update_registrars([], joined.now)


def test_other_registrars_before_the_start_and_after_the_end(joined: JoinedElement) -> None:
    idle = JoinedElement()
    idle.machine.update_registrars(REGISTRARS[2:], idle.now)
    assert idle.machine.state is State.IDLE
    assert idle.start().machine.registrar == REGISTRARS[2]
    first = joined.machine.registrar
    joined.at(first).frozen = True
    joined.machine.deregister(joined.now)
    joined.machine.update_registrars([one for one in REGISTRARS if one != first], joined.now)
    assert joined.machine.state is State.DEREGISTERING


def test_a_takeover_helps_while_no_registrar_could_be_reached(joined: JoinedElement) -> None:
    for address in REGISTRARS:
        joined.kill(address)
    joined.at(REGISTRARS[0]).dead = False
    joined.receive(joined.associate(REGISTRARS[0].endpoint), keep_alive(home=True))
    assert joined.machine.registrar == REGISTRARS[0]


def test_a_stranger_cannot_take_over(joined: JoinedElement) -> None:
    first = joined.machine.registrar
    stranger = joined.associate(("192.0.2.66", 3863))
    before = len(joined.sent)
    joined.receive(stranger, keep_alive(home=True))
    assert joined.machine.registrar == first
    assert len(joined.sent) == before
    assert joined.events[-1].kind is EventKind.TAKEOVER_REFUSED
    refused = "192.0.2.66 port 3863 wants to be home, but it is none of the configured registrars"
    assert joined.events[-1].detail == refused
    joined.run(UNASKED_STAY_S)
    assert stranger not in joined.associations


def test_who_comes_and_goes_changes_nothing(joined: JoinedElement) -> None:
    joined.lose(joined.associate(("192.0.2.66", 3863)))
    joined.run(2.1)
    assert joined.kinds == [EventKind.REGISTERED]


def test_strangers_cannot_pile_up_associations(joined: JoinedElement) -> None:
    for i in range(3 * MAX_ASSOCIATIONS):
        joined.associate(("192.0.2.66", 1024 + i))
    assert len(joined.associations) <= MAX_ASSOCIATIONS


def test_strangers_cannot_keep_it_from_its_registrars(joined: JoinedElement) -> None:
    for i in range(3 * MAX_ASSOCIATIONS):
        joined.associate(("192.0.2.66", 1024 + i))
    first = joined.machine.registrar
    joined.kill(first)
    assert joined.machine.state is State.REGISTERED
    assert joined.machine.registrar not in (None, first)


def test_pinned_refuses_a_takeover() -> None:
    joined = JoinedElement(pinned=True).start()
    home = joined.machine.registrar
    new = joined.associate(REGISTRARS[others(joined)[0]].endpoint)
    before = len(joined.sent)
    joined.receive(new, keep_alive(home=True))
    joined.receive(new, keep_alive())
    assert joined.machine.registrar == home
    assert len(joined.sent) == before
    assert joined.events[-1].kind is EventKind.TAKEOVER_REFUSED
    assert joined.events[-1].detail.endswith("wants to be home, but the element is pinned")


def test_pinned_answers_the_keep_alives_of_its_registrar() -> None:
    joined = JoinedElement(registrars=REGISTRARS[:1], pinned=True).start()
    joined.receive(joined.association_with(REGISTRARS[0]), keep_alive())
    assert joined.at(REGISTRARS[0]).acknowledged, "else its registrar removes it"


@pytest.mark.parametrize("silently", [False, True])
def test_pinned_ends_with_its_registrar(silently: bool) -> None:
    joined = JoinedElement(registrars=REGISTRARS[:1], pinned=True).start()
    if silently:
        joined.at(REGISTRARS[0]).frozen = True
        joined.run(2.0 + PINNED_RESPONSE_TIMEOUT_S - 0.1)
        assert joined.machine.is_registered
        joined.run(0.2)
    else:
        joined.kill(REGISTRARS[0])
    assert joined.machine.state is State.STOPPED
    assert joined.is_closed
    joined.run(60)
    assert len(registrations(joined)) == (2 if silently else 1)


def test_pinned_waits_for_a_registrar_that_is_not_there_yet() -> None:
    joined = JoinedElement(registrars=REGISTRARS[:1], pinned=True)
    joined.at(REGISTRARS[0]).dead = True
    joined.start()
    joined.run(5)
    joined.at(REGISTRARS[0]).dead = False
    joined.run(1.1)
    assert joined.machine.is_registered
