"""A pool element's registration, joined to paper registrars: joining, renewing, being refused, leaving."""

import itertools

import pytest
from rserpool.errors import Cause, CauseCode
from rserpool.machine.element import (
    UNASKED_STAY_S,
    Associations,
    EventKind,
    State,
)

from rserpool import asap
from tests.rserpool.paper_registrars import (
    ELEMENT,
    HANDLE,
    POLICY_MISMATCH,
    REGISTRARS,
    JoinedElement,
    keep_alive,
    least_used,
    others,
    registrations,
)


@pytest.fixture
def joined() -> JoinedElement:
    return JoinedElement().start()


def test_registers_at_one_registrar(joined: JoinedElement) -> None:
    assert joined.machine.state is State.REGISTERED
    assert joined.kinds == [EventKind.REGISTERED]
    assert joined.at(joined.machine.registrar).pools == {HANDLE: {ELEMENT.identifier: ELEMENT}}
    assert len(joined.associations) == 1


def test_renews_at_the_interval(joined: JoinedElement) -> None:
    joined.run(6.5)
    assert [at_s for at_s, _ in registrations(joined)] == [100.0, 102.0, 104.0, 106.0]
    assert joined.machine.confirmed_at_s == 106.0
    assert joined.kinds == [EventKind.REGISTERED]


def test_a_new_policy_is_told_at_once(joined: JoinedElement) -> None:
    joined.run(0.5)
    joined.machine.update_policy(least_used(0.75), joined.now)
    joined.settle()
    assert joined.at(joined.machine.registrar).pools[HANDLE][ELEMENT.identifier].policy == least_used(0.75)
    joined.machine.update_policy(least_used(0.75), joined.now)
    joined.settle()
    assert len(registrations(joined)) == 2, "the same policy again is no news"


def test_policies_that_change_while_an_answer_is_awaited_are_told_once_afterwards(
    joined: JoinedElement,
) -> None:
    registrar = joined.at(joined.machine.registrar)
    association = joined.association_with(joined.machine.registrar)
    registrar.frozen = True
    for load in (0.25 + 0.125 * i for i in range(1, 6)):
        joined.machine.update_policy(least_used(load), joined.now)
        joined.settle()
    assert len(registrations(joined)) == 2
    for reply in registrar.thaw():
        joined.receive(association, reply)
    assert len(registrations(joined)) == 3
    assert registrar.pools[HANDLE][ELEMENT.identifier].policy == least_used(0.875)


def test_registers_again_when_asked(joined: JoinedElement) -> None:
    joined.at(joined.machine.registrar).pools.clear()
    joined.machine.register_again("missing at 10.0.0.2", joined.now)
    joined.settle()
    assert ELEMENT.identifier in joined.at(joined.machine.registrar).pools[HANDLE]
    assert (joined.events[-1].kind, joined.events[-1].detail) == (EventKind.RENEWING, "missing at 10.0.0.2")


def test_answers_keep_alives_and_learns_who_is_home(joined: JoinedElement) -> None:
    assert joined.machine.home_registrar is None
    association = joined.association_with(joined.machine.registrar)
    joined.receive(association, keep_alive(registrar=0x77))
    assert joined.at(joined.machine.registrar).acknowledged == [
        asap.EndpointKeepAliveAck(HANDLE, ELEMENT.identifier)
    ]
    assert joined.machine.home_registrar == 0x77


@pytest.mark.parametrize(
    "message",
    [
        asap.EndpointKeepAlive(0x100, b"other-pool", ELEMENT.identifier),
        asap.EndpointKeepAlive(0x100, HANDLE, 0xBAD),
        asap.EndpointKeepAlive(0x100, b"other-pool", ELEMENT.identifier, True),
        asap.RegistrationResponse(HANDLE, ELEMENT.identifier),
        asap.RegistrationResponse(HANDLE, ELEMENT.identifier, True, (POLICY_MISMATCH,)),
        asap.DeregistrationResponse(HANDLE, ELEMENT.identifier),
        asap.AsapError((POLICY_MISMATCH,)),
        asap.HandleResolutionResponse(HANDLE),
        asap.ServerAnnounce(7),
    ],
    ids=lambda message: type(message).__name__,
)
def test_ignores_what_is_late_foreign_or_out_of_place(
    joined: JoinedElement, message: asap.AsapMessage
) -> None:
    before = len(joined.sent)
    joined.receive(joined.association_with(joined.machine.registrar), message)
    assert joined.machine.state is State.REGISTERED
    assert joined.machine.ignored == 1
    assert len(joined.sent) == before


def test_a_rejection_is_explained_and_retried_with_growing_pauses() -> None:
    joined = JoinedElement()
    for registrar in joined.registrars.values():
        registrar.rejects = (POLICY_MISMATCH,)
    joined.start()
    assert joined.machine.state is State.WAITING
    assert joined.events[0].kind is EventKind.REJECTED
    assert joined.events[0].causes == (POLICY_MISMATCH,)
    assert "policy differs" in joined.events[0].detail
    joined.run(200)
    tries = [at_s for at_s, _ in registrations(joined)]
    pauses = [round(later - earlier, 3) for earlier, later in itertools.pairwise(tries)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 30]
    assert set(pauses[6:]) == {30}
    assert len({number for _, number in registrations(joined)}) == 3, "every registrar is asked in turn"
    for registrar in joined.registrars.values():
        registrar.rejects = None
    joined.run(31)
    assert joined.machine.is_registered


def test_a_success_forgets_earlier_failures_and_rejections(joined: JoinedElement) -> None:
    for address in REGISTRARS:
        joined.kill(address)
    for registrar in joined.registrars.values():
        registrar.dead = False
    joined.run(1.1)
    lost_at_s = joined.now
    joined.lose(joined.association_with(joined.machine.registrar))
    assert registrations(joined)[-1][0] == lost_at_s
    for _ in range(2):
        for registrar in joined.registrars.values():
            registrar.rejects = (POLICY_MISMATCH,)
        joined.machine.register_again("", joined.now)
        joined.settle()
        assert "next attempt in 1 s" in joined.events[-1].detail
        for registrar in joined.registrars.values():
            registrar.rejects = None
        joined.run(1.1)
        assert joined.machine.is_registered


def test_an_association_to_be_closed_is_not_used_again() -> None:
    associations = Associations()
    associations.add(1, REGISTRARS[0].endpoint, 100.0)
    assert associations.to(REGISTRARS[0].endpoint) == 1
    assert associations.due(100.0 + UNASKED_STAY_S - 0.1) == []
    assert associations.due(100.0 + UNASKED_STAY_S) == [1]
    assert associations.to(REGISTRARS[0].endpoint) is None


def test_an_error_in_reply_to_a_registration_is_a_rejection() -> None:
    joined = JoinedElement()
    for registrar in joined.registrars.values():
        registrar.frozen = True
    joined.start()
    (association,) = joined.associations
    joined.receive(association, asap.AsapError((Cause(CauseCode.INVALID_VALUES),)))
    assert joined.machine.state is State.WAITING
    assert "invalid" in joined.events[0].detail


def test_a_rejected_renewal_keeps_the_association_that_holds_the_registration(joined: JoinedElement) -> None:
    first = joined.machine.registrar
    for registrar in joined.registrars.values():
        registrar.rejects = (POLICY_MISMATCH,)
    joined.run(20)
    assert joined.association_with(first)


def test_deregisters(joined: JoinedElement) -> None:
    registrar = joined.at(joined.machine.registrar)
    joined.machine.deregister(joined.now)
    joined.settle()
    assert registrar.pools == {HANDLE: {}}
    assert joined.kinds[-2:] == [EventKind.DEREGISTERED, EventKind.STOPPED]
    assert joined.is_closed
    assert joined.machine.next_deadline_s is None


def test_deregistration_ends_without_an_answer_too(joined: JoinedElement) -> None:
    joined.at(joined.machine.registrar).frozen = True
    joined.machine.deregister(joined.now, 0.3)
    joined.settle()
    assert not joined.is_closed
    joined.run(0.31)
    assert joined.is_closed
    assert EventKind.DEREGISTERED not in joined.kinds


def test_deregistration_ends_when_the_registrar_goes(joined: JoinedElement) -> None:
    joined.at(joined.machine.registrar).frozen = True
    joined.machine.deregister(joined.now)
    joined.settle()
    joined.kill(joined.machine._chosen)
    assert joined.machine.state is State.STOPPED
    assert joined.is_closed


def test_what_leaves_does_not_say_any_more_that_it_lives(joined: JoinedElement) -> None:
    registrar = joined.at(joined.machine.registrar)
    association = joined.association_with(joined.machine.registrar)
    registrar.frozen = True
    joined.machine.deregister(joined.now)
    joined.settle()
    joined.receive(association, keep_alive())
    assert not any(isinstance(one, asap.EndpointKeepAliveAck) for one in registrar.unread)
    assert joined.machine.ignored == 1


def test_deregisters_also_where_it_is_not_confirmed_yet() -> None:
    """The registrar may have taken the registration, though its answer is not here."""
    joined = JoinedElement()
    for registrar in joined.registrars.values():
        registrar.frozen = True
    joined.start()
    joined.machine.deregister(joined.now)
    joined.settle()
    unread = [message for registrar in joined.registrars.values() for message in registrar.unread]
    assert [type(message) for message in unread] == [asap.Registration, asap.Deregistration]


def test_deregistration_ends_at_once_when_there_is_no_registrar(joined: JoinedElement) -> None:
    idle = JoinedElement()
    idle.machine.deregister(idle.now)
    idle.settle()
    assert [event.detail for event in idle.events] == ["it was never registered"]
    for address in REGISTRARS:
        joined.kill(address)
    joined.machine.deregister(joined.now)
    joined.settle()
    assert joined.machine.state is State.STOPPED
    assert joined.events[-1].detail == "there is no registrar to tell"


def test_a_takeover_does_not_stop_a_deregistration(joined: JoinedElement) -> None:
    new_home = REGISTRARS[others(joined)[0]]
    joined.at(joined.machine.registrar).frozen = True
    joined.machine.deregister(joined.now)
    joined.settle()
    before = len(joined.sent)
    joined.receive(joined.associate(new_home.endpoint), keep_alive(home=True))
    assert joined.machine.state is State.DEREGISTERING
    assert len(joined.sent) == before


def test_deregisters_at_the_old_registrar_while_it_moves(joined: JoinedElement) -> None:
    """The registration that stands is at the registrar that fell silent; it may have woken since."""
    first = joined.machine.registrar
    for address in REGISTRARS:
        joined.at(address).dead = address != first
    joined.at(first).frozen = True
    joined.run(2.52)
    assert joined.machine.state is State.WAITING
    joined.machine.deregister(joined.now)
    joined.settle()
    assert any(isinstance(message, asap.Deregistration) for message in joined.at(first).unread)


def test_no_registrars_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one registrar"):
        JoinedElement(registrars=[]).machine  # noqa: B018


def test_a_registrar_that_confirms_again_after_it_did_not_answer_is_told_of() -> None:
    """The only registrar there is: nothing else says that the trouble is over."""
    joined = JoinedElement(registrars=REGISTRARS[:1])
    joined.start()
    registrar = next(iter(joined.registrars.values()))
    registrar.frozen = True
    joined.run(4)
    assert joined.kinds[:2] == [EventKind.REGISTERED, EventKind.UNANSWERED]
    registrar.frozen = False
    joined.run(5)
    assert joined.machine.is_registered
    assert joined.kinds[-1] is EventKind.REGISTERED
