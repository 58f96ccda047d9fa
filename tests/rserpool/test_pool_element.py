"""A pool element's registration, with paper registrars: joining, renewing, silence, leaving; its table."""

import itertools
from collections.abc import Callable

import pytest
from rserpool.errors import Cause, CauseCode
from rserpool.machine.element import (
    TRANSITIONS,
    UNASKED_STAY_S,
    Associations,
    EventKind,
    Input,
    PoolElementMachine,
    State,
)
from rserpool.machine.registrar_choice import preference

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


STEP_S = 0.3


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


ORDER = preference(REGISTRARS, HANDLE, ELEMENT.identifier)
FIRST, SECOND = 1, 2
"""Associations with the first registrar of the order, and with the second (set up by that)."""

ACCEPTED = asap.RegistrationResponse(HANDLE, ELEMENT.identifier)
REJECTED = asap.RegistrationResponse(HANDLE, ELEMENT.identifier, True, (Cause(CauseCode.LACK_OF_RESOURCES),))


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


WAYS: dict[State, list[Callable[[Observed], None]]] = {
    State.IDLE: [],
    State.CONNECTING: [start],
    State.REGISTERING: [start, associate],
    State.REGISTERED: [start, associate, accept],
    State.RENEWING: [start, associate, accept, renew],
    State.WAITING: [start, associate, reject],
    State.DEREGISTERING: [start, associate, accept, deregister],
    State.STOPPED: [start, associate, lambda machine: machine.stop(0.0)],
}


def lose(machine: Observed) -> None:
    if machine.state is State.CONNECTING:
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


def give(machine: Observed, what: Input) -> None:
    match what:
        case Input.START:
            start(machine)
        case Input.ASSOCIATED:
            associate(machine)
        case Input.LOST:
            lose(machine)
        case Input.ACCEPTED:
            accept(machine)
        case Input.REJECTED:
            reject(machine)
        case Input.TIMEOUT | Input.RETRY:
            let_time_pass(machine)
        case Input.RENEW:
            renew(machine)
        case Input.TAKEN_OVER:
            take_over(machine)
        case Input.DEREGISTER:
            deregister(machine)
        case Input.DEREGISTERED:
            machine.received(FIRST, asap.DeregistrationResponse(HANDLE, ELEMENT.identifier), 0.0)
        case Input.STOP:
            machine.stop(0.0)


def in_state(state: State) -> Observed:
    machine = Observed()
    for step in WAYS[state]:
        step(machine)
    machine.take_actions()
    assert machine.state is state
    machine.__dict__["entered"].clear()
    return machine


def is_time(what: Input) -> bool:
    return what in (Input.TIMEOUT, Input.RETRY)


@pytest.mark.parametrize("what", Input)
@pytest.mark.parametrize("state", State)
def test_transition(state: State, what: Input) -> None:
    machine = in_state(state)
    give(machine, what)
    entered = machine.__dict__["entered"]
    expected = TRANSITIONS[state].get(what)
    if is_time(what) and expected is None:
        # What time does in this state, if anything, has another name.
        names = (Input.TIMEOUT, Input.RETRY, Input.RENEW)
        expected = next((TRANSITIONS[state][name] for name in names if name in TRANSITIONS[state]), None)
    if expected is None:
        assert entered == []
        assert machine.state is state
    else:
        assert entered[0] is expected


@pytest.mark.parametrize("state", State)
def test_every_state_can_be_left_but_the_last(state: State) -> None:
    assert bool(TRANSITIONS[state]) is (state is not State.STOPPED)


def test_whatever_happens_in_any_state_the_machine_stays_in_its_states() -> None:
    """Pairs of inputs: no exception, no state outside the table, and the end is the end."""
    for state in State:
        for first in Input:
            for second in Input:
                machine = in_state(state)
                give(machine, first)
                give(machine, second)
                machine.stop(1.0)
                assert machine.state is (State.STOPPED)
                assert machine.next_deadline_s is None
