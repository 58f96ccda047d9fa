"""Members that joined, left and moved: the values that a belief returns."""

import itertools
from dataclasses import replace
from ipaddress import IPv4Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_user import Cause, Code, Member, PoolChange, PoolView
from pool_user.belief.rules import MOVED_UNPROBED_S
from pool_user.departures import MOST_DEPARTURES, Departures

from rserpool import LeastUsed, Protocol
from tests.pool_user.belief_support import POOL, R1, R2, pe, push, settled


def view(members: dict[int, int]) -> PoolView:
    """A view of these members, by identifier: each at this port."""
    address = (ip_address("10.0.0.1"),)
    return PoolView(
        "pool",
        tuple(
            Member(identifier, 1, address, port, Protocol.UDP, LeastUsed(0.0), 0.0)
            for identifier, port in sorted(members.items())
        ),
    )


views = st.dictionaries(st.integers(1, 4), st.integers(1, 2), max_size=4).map(view)


def members(of: PoolView) -> dict[int, Member]:
    return {member.identifier: member for member in of.members}


@given(st.lists(views, min_size=2, max_size=5))
def test_steps_one_after_the_other_lead_from_the_first_view_to_the_last(seen: list[PoolView]) -> None:
    change = PoolChange.between(seen[0], seen[1])
    for before, after in itertools.pairwise(seen[1:]):
        change = change.then(PoolChange.between(before, after))
    old, new = members(seen[0]), members(seen[-1])
    assert {member.identifier for member in change.joined} == new.keys() - old.keys()
    assert {departure.member.identifier: departure.member for departure in change.left} == {
        identifier: old[identifier] for identifier in old.keys() - new.keys()
    }
    assert all(old[member.identifier] == member for member, _ in change.moved)
    told = {member.identifier: member for member in (*change.joined, *(member for _, member in change.moved))}
    differing = {identifier for identifier in old.keys() & new.keys() if old[identifier] != new[identifier]}
    assert differing <= told.keys()
    assert all(new[identifier] == member for identifier, member in told.items())


def test_an_evaluation_returns_what_joined_left_and_moved_with_the_cause() -> None:
    play = settled()
    play.evaluate()
    push(play, 0, pe(3, R1))
    push(play, 0, pe(1, R1), gone=True)
    push(play, 1, replace(pe(2, R2), policy=LeastUsed(0.5)))
    play.wait(0.1)
    change = play.evaluate().pools[POOL]
    assert [member.identifier for member in change.joined] == [3]
    assert [(gone.member.identifier, gone.cause) for gone in change.left] == [(1, Cause(Code.REMOVED))]
    assert change.left == play.belief.views[POOL].departures, "as the ledger has it"
    assert [(old.policy, new.policy) for old, new in change.moved] == [(LeastUsed(0.0), LeastUsed(0.5))]
    assert change.after is play.belief.views[POOL]
    assert play.evaluate().pools == {}, "each change is told once"


def test_server_that_takes_a_fresh_identifier_is_not_among_the_departures() -> None:
    play = settled()
    play.evaluate()
    for index in (0, 1, 2):
        play.answer(index, pe(7, R1, "10.0.0.1"), pe(2, R2))
    play.wait(3)
    assert play.members() == [2, 7]
    assert play.view().departures == ()
    for index in (0, 1, 2):
        play.answer(index, pe(2, R2))
    play.wait(3)
    assert [departure.member.identifier for departure in play.view().departures] == [7]


def test_member_that_moves_to_the_place_of_a_departed_server_takes_it_out_of_the_ledger() -> None:
    play = settled()
    play.evaluate()
    push(play, 0, pe(1, R1), gone=True)
    play.wait(0.1)
    assert [departure.member.identifier for departure in play.view().departures] == [1]
    push(play, 1, pe(2, R2, "10.0.0.1"))
    play.evaluate()
    play.wait(MOVED_UNPROBED_S)
    assert [str(member.addresses[0]) for member in play.view().members] == ["10.0.0.1"]
    assert play.view().departures == ()


def test_change_tells_the_cause_of_a_departure_that_a_full_ledger_drops() -> None:
    ledger = Departures()
    many = {
        number: Member(
            number, 1, (IPv4Address(0x0A010000 + number),), 5060, Protocol.UDP, LeastUsed(0.0), 0.0
        )
        for number in range(1, MOST_DEPARTURES + 1)
    }
    ledger.note(many, {}, {}, set(many), 5000.0)
    late = Member(5000, 1, (IPv4Address("10.0.0.9"),), 5060, Protocol.UDP, LeastUsed(0.0), 5000.0)
    before = PoolView("p", members=(late,), departures=ledger.all)
    cause = Cause(Code.WITHDRAWN)
    departed = ledger.note({5000: late}, {}, {5000: cause}, {5000}, 8000.0)
    change = PoolChange.between(before, PoolView("p", departures=ledger.all), departed)
    assert [(gone.cause, gone.left_s, gone.is_confirmed) for gone in change.left] == [(cause, 8000.0, True)]
    assert len(ledger.all) == MOST_DEPARTURES


def test_stranger_that_takes_the_identifier_of_a_departed_server_leaves_it_in_the_ledger() -> None:
    play = settled()
    play.evaluate()
    push(play, 0, pe(1, R1), gone=True)
    assert play.members() == [2]
    play.wait(5)
    push(play, 0, pe(1, R1, "10.0.0.66"))
    play.wait(5)
    assert play.members() == [1, 2]
    assert [str(gone.member.addresses[0]) for gone in play.view().departures] == ["10.0.0.1"]
    push(play, 0, pe(1, R1, "10.0.0.66"), gone=True)
    assert [str(gone.member.addresses[0]) for gone in play.view().departures] == ["10.0.0.1", "10.0.0.66"]


def test_all_members_that_the_registrars_removed_are_taken_in_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger, changes = Departures(), list[int]()
    former = members(view(dict.fromkeys(range(1, 101), 1)))
    former = {number: replace(member, port=number) for number, member in former.items()}
    ledger.note(former, {}, dict.fromkeys(former, Cause(Code.UNREACHED)), (), 1.0)
    plain = ledger._changed

    def changed() -> None:
        changes.append(1)
        plain()

    monkeypatch.setattr(ledger, "_changed", changed)
    ledger.removed(former, {})
    assert len(changes) == 1
    assert {departure.cause.code for departure in ledger.all} == {Code.GONE}
