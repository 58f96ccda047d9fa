"""Every state of an AS towards its pool and every input: the table's step, or nothing at all."""

from collections.abc import Callable

import pytest
from ppe_agent.registration import (
    HAS_LEFT,
    IS_LEAVING,
    STEPS,
    Input,
    Job,
    Membership,
    RegistrationMachine,
    ReportUnreachable,
)

from rserpool import Cause, RegistrationEvent, RegistrationEventKind
from tests.ppe_agent.fakes import ELEMENT, REGISTRAR

NOW = 1000.0


def tell(machine: RegistrationMachine, kind: RegistrationEventKind, *causes: Cause) -> None:
    machine.happened(RegistrationEvent(kind, NOW, REGISTRAR, "", causes))


DO: dict[Input, Callable[[RegistrationMachine], None]] = {
    Input.WANT: lambda machine: machine.want(True, NOW),
    Input.UNWANT: lambda machine: machine.want(False, NOW),
    Input.RESUME: lambda machine: machine.advance(NOW + 100),
    Input.CONFIRMED: lambda machine: tell(machine, RegistrationEventKind.REGISTERED),
    Input.LOST: lambda machine: tell(machine, RegistrationEventKind.REGISTRAR_LOST),
    Input.COLLISION: lambda machine: tell(machine, RegistrationEventKind.REJECTED, Cause(0x0004)),
    Input.FAILED: lambda machine: machine.failed("no such address", NOW),
    Input.LEFT: lambda machine: machine.left(confirmed=True, now=NOW),
}
WAYS: dict[Membership, tuple[Input, ...]] = {
    Membership.OUT: (),
    Membership.WAITING: (Input.WANT, Input.FAILED),
    Membership.JOINING: (Input.WANT,),
    Membership.IN: (Input.WANT, Input.CONFIRMED),
    Membership.LEAVING: (Input.WANT, Input.CONFIRMED, Input.UNWANT),
    Membership.RETURNING: (Input.WANT, Input.CONFIRMED, Input.UNWANT, Input.WANT),
}


def jobs(machine: RegistrationMachine) -> list[Job]:
    return [action for action in machine.take_actions() if isinstance(action, Job)]


def state_of(machine: RegistrationMachine) -> Membership:
    return machine.state


def brought_to(state: Membership) -> RegistrationMachine:
    machine = RegistrationMachine(ELEMENT, lambda: 8)
    for each in WAYS[state]:
        DO[each](machine)
    assert machine.state is state
    machine.take_actions()
    return machine


@pytest.mark.parametrize("state", Membership)
@pytest.mark.parametrize("what", Input)
def test_each_input_takes_each_state_where_the_table_says(state: Membership, what: Input) -> None:
    machine = brought_to(state)
    step = STEPS[state].get(what)
    DO[what](machine)
    if step is None and what is Input.COLLISION:  # refused, it is no longer registered
        step = STEPS[state].get(Input.LOST)
    to, done = (state, []) if step is None else (step.to, [step.job] if step.job else [])
    if to is Membership.WAITING and what not in (Input.UNWANT, Input.FAILED) and state is not to:
        to, done = Membership.JOINING, [*done, Job.BEGIN]  # no pause is due
    assert machine.state is to
    assert jobs(machine) == done


@pytest.mark.parametrize("state", Membership)
def test_server_comes_in_and_out_again_from_any_state(state: Membership) -> None:
    machine = brought_to(state)
    for _ in range(2):
        machine.want(True, NOW)
        machine.left(confirmed=True, now=NOW)
        machine.advance(NOW + 100)
        tell(machine, RegistrationEventKind.REGISTERED)
        assert state_of(machine) is Membership.IN
        machine.want(False, NOW)
        assert machine.state in IS_LEAVING
        machine.left(confirmed=True, now=NOW)
        assert state_of(machine) is Membership.OUT


def test_a_server_that_was_in_and_left_unconfirmed_is_doubted_and_all_registrars_are_told() -> None:
    for way, doubted in (((Input.WANT,), False), ((Input.WANT, Input.CONFIRMED), True)):
        machine = RegistrationMachine(ELEMENT, lambda: 8)
        for each in (*way, Input.UNWANT):
            DO[each](machine)
        machine.left(confirmed=False, now=NOW)
        assert ReportUnreachable() in machine.take_actions()
        assert machine.state in HAS_LEFT
        assert machine.is_unconfirmed(NOW) is doubted
        assert not machine.is_unconfirmed(NOW + 2 * ELEMENT.life_ms / 1000)


def test_a_client_that_cannot_be_started_is_tried_again_a_second_later_with_the_reason_told() -> None:
    machine = brought_to(Membership.JOINING)
    machine.failed("Cannot assign requested address", NOW)
    assert machine.problem == "can't register: Cannot assign requested address"
    assert machine.next_deadline_s == NOW + 1
    machine.advance(NOW + 1)
    assert machine.state is Membership.JOINING


def test_a_takeover_counts_as_being_in_and_names_the_registrar_in_charge() -> None:
    machine = brought_to(Membership.JOINING)
    tell(machine, RegistrationEventKind.TAKEN_OVER)
    assert (machine.state, machine.registrar) == (Membership.IN, REGISTRAR)
