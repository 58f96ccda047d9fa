"""Every state of a registration and every input: the table's transition, or nothing at all."""

from collections.abc import Callable

import pytest
from rserpool.errors import Cause, CauseCode
from rserpool.machine.element import TRANSITIONS, Input, PoolElementMachine, State
from rserpool.machine.registrar_choice import preference

from rserpool import asap
from tests.rserpool.paper_registrars import ELEMENT, HANDLE, REGISTRARS

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
