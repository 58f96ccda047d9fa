"""Members that joined, left and moved: the values that a belief returns."""

import itertools
from dataclasses import replace
from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st
from pool_user import Cause, Code, Member, PoolChange, PoolView

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
