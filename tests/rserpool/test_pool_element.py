"""A pool element's registration, with paper registrars: joining, renewing, silence, leaving; its table."""

import itertools
from collections.abc import Callable

import pytest
from rserpool.element import (
    LEAVE_AFTER_S,
    LEAVE_SILENT_AFTER_S,
    MAX_ASSOCIATIONS,
    PINNED_RESPONSE_TIMEOUT_S,
    REJOIN_EVERY_S,
    REOPEN_AFTER_S,
    RESPONSE_TIMEOUT_S,
    TRANSITIONS,
    UNASKED_STAY_S,
    WARY_INTERVAL_S,
    Associations,
    ElementEventKind,
    ElementInput,
    ElementState,
    PoolElementMachine,
)
from rserpool.errors import CauseCode, ErrorCause
from rserpool.machine.base import Connect
from rserpool.machine.registrar_choice import DISTRUST_FIRST_S, preference

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
    assert joined.machine.state is ElementState.REGISTERED
    assert joined.kinds == [ElementEventKind.REGISTERED]
    assert joined.at(joined.machine.registrar).pools == {HANDLE: {ELEMENT.identifier: ELEMENT}}
    assert len(joined.associations) == 1


def test_an_element_renews_its_registration_at_the_interval(joined: JoinedElement) -> None:
    joined.run(6.5)
    assert [at_s for at_s, _ in registrations(joined)] == [100.0, 102.0, 104.0, 106.0]
    assert joined.kinds == [ElementEventKind.REGISTERED]


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
    assert (joined.events[-1].kind, joined.events[-1].detail) == (
        ElementEventKind.RENEWING,
        "missing at 10.0.0.2",
    )


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
    assert joined.machine.state is ElementState.REGISTERED
    assert len(joined.sent) == before


def test_a_rejection_is_explained_and_retried_with_growing_pauses() -> None:
    joined = JoinedElement()
    for registrar in joined.registrars.values():
        registrar.rejects = (POLICY_MISMATCH,)
    joined.start()
    assert joined.machine.state is ElementState.WAITING
    assert joined.events[0].kind is ElementEventKind.REJECTED
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
    joined.receive(association, asap.AsapError((ErrorCause(CauseCode.INVALID_VALUES),)))
    assert joined.machine.state is ElementState.WAITING
    assert "invalid" in joined.events[0].detail


def test_a_rejected_renewal_keeps_the_association_that_holds_the_registration(joined: JoinedElement) -> None:
    first = joined.machine.registrar
    for registrar in joined.registrars.values():
        registrar.rejects = (POLICY_MISMATCH,)
    joined.run(20)
    assert joined.association_with(first)


def test_an_element_that_deregisters_is_gone_and_its_machine_is_idle_again(joined: JoinedElement) -> None:
    registrar = joined.at(joined.machine.registrar)
    joined.machine.deregister(joined.now)
    joined.settle()
    assert registrar.pools == {HANDLE: {}}
    assert joined.kinds == [ElementEventKind.REGISTERED, ElementEventKind.DEREGISTERED]
    assert joined.machine.state is ElementState.IDLE
    assert joined.is_closed
    assert joined.machine.next_deadline_s is None
    joined.start()
    assert registrar.pools == {HANDLE: {ELEMENT.identifier: ELEMENT}}
    assert joined.kinds == [
        ElementEventKind.REGISTERED,
        ElementEventKind.DEREGISTERED,
        ElementEventKind.REGISTERED,
    ]


def test_deregistration_ends_without_an_answer_too(joined: JoinedElement) -> None:
    joined.at(joined.machine.registrar).frozen = True
    joined.machine.deregister(joined.now, 0.3)
    joined.settle()
    assert not joined.is_closed
    joined.run(0.31)
    assert joined.is_closed
    assert ElementEventKind.DEREGISTERED not in joined.kinds


def test_deregistration_ends_when_the_registrar_goes(joined: JoinedElement) -> None:
    joined.at(joined.machine.registrar).frozen = True
    joined.machine.deregister(joined.now)
    joined.settle()
    joined.kill(joined.machine._chosen)
    assert joined.machine.state is ElementState.IDLE
    assert joined.is_closed


def test_an_element_that_leaves_answers_no_keep_alive_any_more(joined: JoinedElement) -> None:
    registrar = joined.at(joined.machine.registrar)
    association = joined.association_with(joined.machine.registrar)
    registrar.frozen = True
    joined.machine.deregister(joined.now)
    joined.settle()
    joined.receive(association, keep_alive())
    assert not any(isinstance(message, asap.EndpointKeepAliveAck) for message in registrar.unread)


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
    assert idle.events == []
    for address in REGISTRARS:
        joined.kill(address)
    joined.machine.deregister(joined.now)
    joined.settle()
    assert joined.machine.state is ElementState.IDLE
    assert joined.kinds[-1] is ElementEventKind.UNCONFIRMED
    assert joined.events[-1].detail == "there is no registrar to tell"


def test_a_takeover_does_not_stop_a_deregistration(joined: JoinedElement) -> None:
    new_home = REGISTRARS[others(joined)[0]]
    joined.at(joined.machine.registrar).frozen = True
    joined.machine.deregister(joined.now)
    joined.settle()
    before = len(joined.sent)
    joined.receive(joined.associate(new_home.endpoint), keep_alive(home=True))
    assert joined.machine.state is ElementState.DEREGISTERING
    assert len(joined.sent) == before


def test_deregisters_at_the_old_registrar_while_it_moves(joined: JoinedElement) -> None:
    """The registration that stands is at the registrar that fell silent; it may have woken since."""
    first = joined.machine.registrar
    for address in REGISTRARS:
        joined.at(address).dead = address != first
    joined.at(first).frozen = True
    joined.run(2.52)
    assert joined.machine.state is ElementState.WAITING
    joined.machine.deregister(joined.now)
    joined.settle()
    assert any(isinstance(message, asap.Deregistration) for message in joined.at(first).unread)


def test_no_registrars_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one registrar"):
        JoinedElement(registrars=[]).machine  # noqa: B018 - raises


def test_a_registrar_that_confirms_again_after_it_did_not_answer_is_told_of() -> None:
    """The only registrar there is: nothing else says that the trouble is over."""
    joined = JoinedElement(registrars=REGISTRARS[:1])
    joined.start()
    registrar = next(iter(joined.registrars.values()))
    registrar.frozen = True
    joined.run(4)
    assert joined.kinds[:2] == [ElementEventKind.REGISTERED, ElementEventKind.UNANSWERED]
    registrar.frozen = False
    joined.run(5)
    assert joined.machine.is_registered
    assert joined.kinds[-1] is ElementEventKind.REGISTERED


STEP_S = 0.3


def keep_alives(joined: JoinedElement, seconds: float, step_s: float = STEP_S) -> None:
    """Let the registrar in charge send them for this time, each a step after the last one or registration."""
    association = joined.association_with(joined.machine.registrar)
    identifier = joined.at(joined.machine.registrar).identifier
    end_s = sent_s = joined.now
    end_s += seconds
    while joined.now < end_s:
        while joined.now < (due_s := max(sent_s, registrations(joined)[-1][0]) + step_s):
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
    assert joined.events[-1].kind is ElementEventKind.RENEWING
    assert removed_s + 2 * STEP_S < joined.events[-1].at_s < removed_s + 3 * STEP_S


def test_silence_is_not_heeded_unless_told(joined: JoinedElement) -> None:
    keep_alives(joined, 1.2)
    joined.run(10)
    assert ElementEventKind.RENEWING not in joined.kinds


def test_keep_alives_that_go_on_cost_nothing_also_while_the_load_changes(joined: JoinedElement) -> None:
    """A registration begins their step anew, so one right before a keep-alive makes that late."""
    joined.machine.silence.is_heeded = True
    for _ in range(10):
        keep_alives(joined, 0.3)
        joined.run(0.29)
        joined.machine.register_again("its load", joined.now)
        joined.settle()
    assert {event.detail for event in joined.events if event.kind is ElementEventKind.RENEWING} == {
        "its load"
    }


def test_a_registrar_that_stays_silent_is_asked_once(joined: JoinedElement) -> None:
    joined.machine.silence.is_heeded = True
    keep_alives(joined, 0.6)
    before = len(registrations(joined))
    joined.run(1.9)
    assert len(registrations(joined)) == before + 1


def test_a_registrar_with_longer_steps_is_given_its_time(joined: JoinedElement) -> None:
    joined.machine.silence.is_heeded = True
    keep_alives(joined, 5.5, step_s=1.1)
    assert ElementEventKind.RENEWING not in joined.kinds


def test_the_keep_alive_interval_of_another_registrar_is_learnt_anew(joined: JoinedElement) -> None:
    joined.machine.silence.is_heeded = True
    keep_alives(joined, 0.6)
    joined.kill(joined.machine.registrar)
    joined.run(1.9)
    assert joined.machine.is_registered
    assert ElementEventKind.RENEWING not in joined.kinds


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
    assert joined.kinds == [
        ElementEventKind.REGISTERED,
        ElementEventKind.UNANSWERED,
        ElementEventKind.REGISTERED,
    ]


ORDER = preference(REGISTRARS, HANDLE, ELEMENT.identifier)
FIRST, SECOND = 1, 2
"""Associations with the first registrar of the order, and with the second (set up by that)."""

ACCEPTED = asap.RegistrationResponse(HANDLE, ELEMENT.identifier)
REJECTED = asap.RegistrationResponse(
    HANDLE, ELEMENT.identifier, True, (ErrorCause(CauseCode.LACK_OF_RESOURCES),)
)


class Observed(PoolElementMachine):
    """Writes down each state it enters: an input may lead through several."""

    def __init__(self) -> None:
        self.__dict__["entered"] = []
        super().__init__(REGISTRARS, HANDLE, ELEMENT)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "state":
            self.__dict__["entered"].append(value)
        super().__setattr__(name, value)


def start(machine: Observed) -> None:
    machine.start(0.0)


def associate(machine: Observed) -> None:
    machine.associated(FIRST, ORDER[0].endpoint, 0.0)


def accept(machine: Observed) -> None:
    machine.received(FIRST, ACCEPTED, 0.0)


def reject(machine: Observed) -> None:
    machine.received(FIRST, REJECTED, 0.0)


def renew(machine: Observed) -> None:
    machine.register_again("", 0.0)


def deregister(machine: Observed) -> None:
    machine.deregister(0.0)


def take_identifier(machine: Observed) -> None:
    machine.identifier_taken(0.0, is_certain=True)


WAYS: dict[ElementState, list[Callable[[Observed], None]]] = {
    ElementState.IDLE: [],
    ElementState.CONNECTING: [start],
    ElementState.REGISTERING: [start, associate],
    ElementState.REGISTERED: [start, associate, accept],
    ElementState.RENEWING: [start, associate, accept, renew],
    ElementState.WAITING: [start, associate, reject],
    ElementState.DEREGISTERING: [start, associate, accept, deregister],
    ElementState.RETURNING: [start, associate, accept, deregister, start],
    ElementState.PAUSED: [start, associate, accept, take_identifier],
}


def lose(machine: Observed) -> None:
    if machine.state is ElementState.CONNECTING:
        machine.connect_failed(ORDER[0].endpoint, 0.0, "refused")
    else:
        machine.lost(FIRST, 0.0)


def take_over(machine: Observed) -> None:
    machine.associated(SECOND, ORDER[1].endpoint, 0.0)
    machine.received(SECOND, asap.EndpointKeepAlive(7, HANDLE, ELEMENT.identifier, True), 0.0)


def let_time_pass(machine: Observed) -> None:
    deadline = machine.next_deadline_s
    if deadline is not None:
        machine.advance(deadline)


def give(machine: Observed, what: ElementInput) -> None:
    match what:
        case ElementInput.START:
            start(machine)
        case ElementInput.ASSOCIATED:
            associate(machine)
        case ElementInput.LOST:
            lose(machine)
        case ElementInput.ACCEPTED:
            accept(machine)
        case ElementInput.REJECTED:
            reject(machine)
        case ElementInput.TIMEOUT | ElementInput.RETRY:
            let_time_pass(machine)
        case ElementInput.RENEW:
            renew(machine)
        case ElementInput.TAKEN_OVER:
            take_over(machine)
        case ElementInput.IDENTIFIER_TAKEN:
            take_identifier(machine)
        case ElementInput.DEREGISTER:
            deregister(machine)
        case ElementInput.DEREGISTERED:
            machine.received(FIRST, asap.DeregistrationResponse(HANDLE, ELEMENT.identifier), 0.0)
        case ElementInput.STOP:
            machine.stop(0.0)


def in_state(state: ElementState) -> Observed:
    machine = Observed()
    for step in WAYS[state]:
        step(machine)
    machine.take_actions()
    assert machine.state is state
    machine.__dict__["entered"].clear()
    return machine


def is_time(what: ElementInput) -> bool:
    return what in (ElementInput.TIMEOUT, ElementInput.RETRY)


@pytest.mark.parametrize("what", ElementInput)
@pytest.mark.parametrize("state", ElementState)
def test_every_state_takes_every_input_as_its_table_says(state: ElementState, what: ElementInput) -> None:
    machine = in_state(state)
    give(machine, what)
    entered = machine.__dict__["entered"]
    expected = TRANSITIONS[state].get(what)
    if is_time(what) and expected is None:
        # The time's effect in this state, if any, has another name.
        names = (ElementInput.TIMEOUT, ElementInput.RETRY, ElementInput.RENEW)
        expected = next((TRANSITIONS[state][name] for name in names if name in TRANSITIONS[state]), None)
    if expected is None:
        assert entered == []
        assert machine.state is state
    else:
        assert entered[0] is expected


@pytest.mark.parametrize("state", ElementState)
def test_from_every_state_it_is_idle_after_a_stop_and_registers_after_a_start(state: ElementState) -> None:
    machine = in_state(state)
    machine.stop(0.0)
    assert machine.state is ElementState.IDLE
    for step in WAYS[ElementState.REGISTERED]:
        step(machine)
    assert machine.is_registered


def test_any_two_inputs_leave_the_machine_in_its_states() -> None:
    """Pairs of inputs: no exception, no state outside the table, and the end is the end."""
    for state in ElementState:
        for first in ElementInput:
            for second in ElementInput:
                machine = in_state(state)
                give(machine, first)
                give(machine, second)
                machine.stop(1.0)
                assert machine.state is ElementState.IDLE
                assert machine.next_deadline_s is None


def test_an_element_wanted_again_while_it_leaves_registers_when_it_has_left(
    joined: JoinedElement,
) -> None:
    registrar = joined.at(joined.machine.registrar)
    association = joined.association_with(joined.machine.registrar)
    registrar.frozen = True
    joined.machine.deregister(joined.now)
    joined.machine.start(joined.now)
    joined.settle()
    assert joined.machine.state is ElementState.RETURNING
    assert [type(message) for message in registrar.unread] == [asap.Deregistration]
    for reply in registrar.thaw():
        joined.receive(association, reply)
    assert joined.is_closed
    joined.run(0)
    assert joined.machine.is_registered
    assert joined.kinds == [
        ElementEventKind.REGISTERED,
        ElementEventKind.DEREGISTERED,
        ElementEventKind.REGISTERED,
    ]


def test_an_element_no_longer_wanted_while_it_returns_stays_out(joined: JoinedElement) -> None:
    joined.at(joined.machine.registrar).frozen = True
    joined.machine.deregister(joined.now)
    joined.machine.start(joined.now)
    joined.machine.deregister(joined.now)
    joined.settle()
    joined.run(10)
    assert joined.machine.state is ElementState.IDLE
    assert joined.kinds == [ElementEventKind.REGISTERED, ElementEventKind.UNCONFIRMED]


def taken_from(joined: JoinedElement) -> None:
    joined.machine.identifier_taken(joined.now, is_certain=True)
    joined.settle()
    joined.run(0)


def test_a_taken_identifier_is_replaced_without_a_word_at_a_bounded_rate() -> None:
    """At once after the first time, then once a second: the host that takes them must not win."""
    fresh = itertools.count(0xB001)
    joined = JoinedElement(new_identifier=lambda: next(fresh)).start()
    taken_from(joined)
    assert joined.machine.element.identifier == 0xB001
    assert joined.machine.is_registered
    assert not any(isinstance(message, asap.Deregistration) for _, _, message in joined.sent)
    assert joined.kinds == [
        ElementEventKind.REGISTERED,
        ElementEventKind.STOPPED,
        ElementEventKind.REGISTERED,
    ]
    for _ in range(3):
        taken_from(joined)
        assert joined.machine.state is ElementState.PAUSED
        joined.machine.deregister(joined.now)
        assert (joined.machine.state, joined.machine.next_deadline_s) == (ElementState.IDLE, None)
        joined.start()  # it does not shorten the pause
        joined.run(REJOIN_EVERY_S - 0.01)
        assert joined.machine.state is ElementState.PAUSED
        joined.run(0.01)
        assert joined.machine.is_registered
    assert joined.machine.element.identifier == 0xB004
    joined.run(10 * REJOIN_EVERY_S)
    taken_from(joined)
    assert joined.machine.state is ElementState.REGISTERED


def test_an_element_that_is_closed_before_its_next_stay_ends_no_stay(joined: JoinedElement) -> None:
    for _ in range(2):
        taken_from(joined)
    assert joined.machine.state is ElementState.PAUSED
    before = len(joined.events)
    joined.machine.stop(joined.now)
    joined.run(10 * REJOIN_EVERY_S)
    assert (joined.machine.state, joined.machine.next_deadline_s) == (ElementState.IDLE, None)
    assert len(joined.events) == before


def test_an_identifier_that_cannot_change_is_kept_unless_another_host_is_seen_to_have_it(
    joined: JoinedElement,
) -> None:
    assert not joined.machine.identifier_taken(joined.now, is_certain=False)
    assert joined.machine.is_registered
    taken_from(joined)
    assert joined.kinds == [
        ElementEventKind.REGISTERED,
        ElementEventKind.STOPPED,
        ElementEventKind.REGISTERED,
    ]
    assert joined.machine.element == ELEMENT


def test_in_a_keyed_pool_no_two_stays_have_the_same_identifier() -> None:
    fresh = itertools.count(0xB001)
    joined = JoinedElement(new_identifier=lambda: next(fresh), is_keyed=True).start()
    assert joined.machine.element.identifier == 0xB001, "an earlier run may have had the one it was made with"
    joined.machine.deregister(joined.now)
    joined.settle()
    assert joined.machine.element.identifier == 0xB001, "it is looked up until it is gone"
    joined.start()
    assert joined.machine.element.identifier == 0xB002
    taken_from(joined)
    assert joined.machine.element.identifier == 0xB003, "the fresh one is used first"


def test_a_socket_that_cannot_be_opened_is_tried_again_and_no_registrar_is_blamed() -> None:
    joined = JoinedElement()
    joined.machine.start(joined.now)
    (connect,) = joined.machine.take_actions()
    joined.machine.unopened(joined.now, "Cannot assign requested address")
    joined.settle()
    assert [(event.kind, event.registrar) for event in joined.events] == [(ElementEventKind.UNOPENED, None)]
    joined.machine.advance(joined.now + REOPEN_AFTER_S)
    assert joined.machine.take_actions() == [connect]


def test_a_lost_registrar_is_replaced_in_the_same_instant(joined: JoinedElement) -> None:
    first = joined.machine.registrar
    joined.receive(joined.association_with(first), keep_alive(registrar=0x77))
    assert joined.machine.home_registrar == 0x77
    joined.run(0.7)
    joined.kill(first)
    assert joined.machine.home_registrar is None, "not known before the first keep-alive of the new one"
    assert joined.machine.state is ElementState.REGISTERED
    assert joined.machine.registrar not in (None, first)
    assert ELEMENT.identifier in joined.at(joined.machine.registrar).pools[HANDLE]
    assert joined.kinds == [
        ElementEventKind.REGISTERED,
        ElementEventKind.REGISTRAR_LOST,
        ElementEventKind.REGISTERED,
    ]
    assert registrations(joined)[-1][0] == joined.now


def test_a_registrar_that_is_left_may_not_take_over_for_a_while(joined: JoinedElement) -> None:
    first = joined.machine.registrar
    assert first
    for avoided_s in (DISTRUST_FIRST_S, 2 * DISTRUST_FIRST_S):
        assert joined.machine.registrar == first
        joined.machine.leave_registrar("nobody else lists it", joined.now)
        joined.settle()
        assert joined.kinds[-2:] == [ElementEventKind.REGISTRAR_LEFT, ElementEventKind.REGISTERED]
        second = joined.machine.registrar
        assert second not in (None, first)
        joined.run(avoided_s - 0.1)
        joined.receive(joined.associate(first.endpoint), keep_alive(home=True))
        assert joined.kinds[-1] is ElementEventKind.TAKEOVER_REFUSED
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
    assert joined.kinds == [ElementEventKind.REJECTED]
    registrar.rejects = None
    joined.machine.retry(joined.now)
    joined.settle()
    assert joined.machine.is_registered
    sent = len(joined.sent)
    joined.machine.retry(joined.now)
    joined.settle()
    assert len(joined.sent) == sent


def test_an_element_that_is_idle_or_pinned_does_not_leave_its_registrar() -> None:
    idle = JoinedElement()
    idle.machine.leave_registrar("nobody else lists it", idle.now)
    assert idle.machine.state is ElementState.IDLE
    pinned = JoinedElement(registrars=REGISTRARS[:1], pinned=True).start()
    pinned.machine.leave_registrar("nobody else lists it", pinned.now)
    assert pinned.machine.is_registered


def test_dead_registrars_are_skipped_in_the_same_instant() -> None:
    joined = JoinedElement()
    for address in REGISTRARS[:2]:
        joined.at(address).dead = True
    joined.start()
    assert joined.machine.registrar == REGISTRARS[2]


def test_all_dead_tries_on_with_pauses_and_registers_when_a_registrar_returns(joined: JoinedElement) -> None:
    for address in REGISTRARS:
        joined.kill(address)
    assert joined.machine.state is ElementState.WAITING
    assert not joined.machine.is_registered
    joined.run(10)
    tries = [event.at_s for event in joined.events if event.kind is ElementEventKind.UNREACHABLE]
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
    assert joined.kinds == [
        ElementEventKind.REGISTERED,
        ElementEventKind.TAKEN_OVER,
        ElementEventKind.REGISTERED,
    ]
    joined.run(UNASKED_STAY_S + 1)
    ((closed_at_s, closed),) = joined.closed
    assert closed == old
    assert closed_at_s == pytest.approx(100.0 + LEAVE_AFTER_S)


def test_the_registrar_in_charge_may_say_again_that_it_is_home(joined: JoinedElement) -> None:
    association = joined.association_with(joined.machine.registrar)
    joined.receive(association, keep_alive(home=True))
    assert joined.at(joined.machine.registrar).acknowledged
    assert joined.kinds == [ElementEventKind.REGISTERED]
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


def test_an_association_whose_number_another_association_had_is_not_left() -> None:
    associations = Associations()
    for number, address in enumerate(REGISTRARS[:2]):
        associations.add(number, address.endpoint, 100.0)
        associations.keep(number)
    assert associations.leave_others(1, 101.0) == [0]
    associations.remove(0)
    associations.add(0, REGISTRARS[2].endpoint, 102.0)
    assert not associations.woke(0, 102.1)


def test_an_attempt_given_up_does_not_end_the_next_attempt() -> None:
    """The word that no association could be set up may come late."""
    joined = JoinedElement()
    joined.machine.start(joined.now)
    (connect,) = joined.machine.take_actions()
    assert isinstance(connect, Connect)
    late = next(registrar for registrar in REGISTRARS if registrar.endpoint != connect.peer)
    joined.machine.connect_failed(late.endpoint, joined.now, "refused")
    assert joined.machine.state is ElementState.CONNECTING
    assert joined.machine.take_actions() == []


def test_a_registrar_that_is_not_configured_any_more_is_left_at_once(joined: JoinedElement) -> None:
    first = joined.machine.registrar
    staying = [registrar for registrar in REGISTRARS if registrar != first]
    joined.machine.update_registrars(staying, joined.now)
    joined.settle()
    assert joined.machine.registrar in staying
    assert joined.kinds[1:] == [ElementEventKind.REGISTRAR_LOST, ElementEventKind.REGISTERED]
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
    assert idle.machine.state is ElementState.IDLE
    assert idle.start().machine.registrar == REGISTRARS[2]
    first = joined.machine.registrar
    joined.at(first).frozen = True
    joined.machine.deregister(joined.now)
    joined.machine.update_registrars(
        [registrar for registrar in REGISTRARS if registrar != first], joined.now
    )
    assert joined.machine.state is ElementState.DEREGISTERING


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
    assert joined.events[-1].kind is ElementEventKind.TAKEOVER_REFUSED
    refused = "192.0.2.66 port 3863 wants to be home, but it is none of the configured registrars"
    assert joined.events[-1].detail == refused
    joined.run(UNASKED_STAY_S)
    assert stranger not in joined.associations


def test_a_stranger_that_connects_and_leaves_changes_nothing(joined: JoinedElement) -> None:
    joined.lose(joined.associate(("192.0.2.66", 3863)))
    joined.run(2.1)
    assert joined.kinds == [ElementEventKind.REGISTERED]


def test_strangers_cannot_pile_up_associations(joined: JoinedElement) -> None:
    for i in range(3 * MAX_ASSOCIATIONS):
        joined.associate(("192.0.2.66", 1024 + i))
    assert len(joined.associations) <= MAX_ASSOCIATIONS


def test_strangers_cannot_keep_it_from_its_registrars(joined: JoinedElement) -> None:
    for i in range(3 * MAX_ASSOCIATIONS):
        joined.associate(("192.0.2.66", 1024 + i))
    first = joined.machine.registrar
    joined.kill(first)
    assert joined.machine.state is ElementState.REGISTERED
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
    assert joined.events[-1].kind is ElementEventKind.TAKEOVER_REFUSED
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
    assert joined.machine.state is ElementState.IDLE
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
