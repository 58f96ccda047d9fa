"""Handlespaces side by side: each member is believed by the registrars of its own."""

from __future__ import annotations

from dataclasses import replace

from pool_user import Handlespace, HandlespaceBeliefs, PoolProbing, ProbePlan, Prober
from pool_user.belief import Belief

from rserpool import Update
from tests.pool_user.belief_support import POOL, R1, RULES, Play, pe

EU, US = f"eu/{POOL}", f"us/{POOL}"
SPACES = (
    Handlespace("eu", ("10.9.0.1", "10.9.0.2", "10.9.0.3")),
    Handlespace("us", ("10.9.0.1:4863", "10.9.0.2:4863", "10.9.0.3:4863")),
)


class Cell(Play):
    """One of the beliefs, played by its registrars, which know the pool by its handle."""

    def __init__(self, belief: Belief) -> None:
        super().__init__()
        self.belief = belief

    def settled(self, *identifiers: int) -> None:
        self.settle(0, 1, 2)
        for index in (0, 1, 2):
            self.answer(index, *(pe(identifier, R1) for identifier in identifiers))


def cells() -> tuple[HandlespaceBeliefs, Cell, Cell]:
    """Two handlespaces in which the same identifier is in use for two servers."""
    beliefs = HandlespaceBeliefs(SPACES, {EU: RULES, US: RULES})
    eu, us = Cell(beliefs.by_name["eu"]), Cell(beliefs.by_name["us"])
    eu.settled(1, 2)
    us.settled(1, 3)
    return beliefs, eu, us


def shown(beliefs: HandlespaceBeliefs, pool: str) -> list[int]:
    return [member.identifier for member in beliefs.views[pool].members]


def test_identifiers_of_two_handlespaces_do_not_meet() -> None:
    beliefs, eu, _ = cells()
    assert (shown(beliefs, EU), shown(beliefs, US)) == ([1, 2], [1, 3])
    eu.answer(0, pe(2, R1))
    assert (shown(beliefs, EU), shown(beliefs, US)) == ([2], [1, 3])
    assert beliefs.listed_by(US, 1) == [1, 2, 3]


def test_a_lost_handlespace_leaves_the_other_vouched_for() -> None:
    beliefs, eu, us = cells()
    eu.down(0, 1, 2)
    eu.evaluate()
    lost, other = beliefs.views[EU], beliefs.views[US]
    assert lost.stale_since_s is not None
    assert other.stale_since_s is None
    assert (shown(beliefs, EU), shown(beliefs, US)) == ([1, 2], [1, 3]), "from memory"
    assert beliefs.probe_targets().keys() == {EU}
    us.answer(0, pe(1, R1))
    assert (shown(beliefs, EU), shown(beliefs, US)) == ([1, 2], [1])
    assert beliefs.views[EU] is lost, "what happens in one handlespace costs nothing in the other"


def test_registrars_are_told_with_their_handlespace() -> None:
    beliefs, _, _ = cells()
    called = [(state.handlespace, state.number) for state in beliefs.registrar_states(200.0)]
    assert called == [("eu", 1), ("eu", 2), ("eu", 3), ("us", 1), ("us", 2), ("us", 3)]
    assert beliefs.registrar_states(200.0)[4].called == "us 2 (10.9.0.2:4863)"


def test_a_push_reaches_the_pool_of_their_own_handlespace() -> None:
    beliefs, _, us = cells()
    us.follow(0)
    assert us.belief.updated(0, Update(R1, POOL.encode(), pe(9, R1), False, us.now))
    us.evaluate()
    assert (shown(beliefs, EU), shown(beliefs, US)) == ([1, 2], [1, 3, 9])
    assert [member.identifier for member in beliefs.views[EU].members] == [1, 2]


def test_views_are_the_same_mapping_until_one_changes() -> None:
    beliefs, eu, _ = cells()
    before = beliefs.views
    assert beliefs.views is before
    eu.answer(0, pe(1, R1))
    assert beliefs.views is not before
    assert beliefs.views[US] is before[US]


def test_a_handlespace_comes_and_goes() -> None:
    beliefs, _, us = cells()
    north = Handlespace("north", ("10.9.2.1",))
    pool = f"north/{POOL}"
    beliefs.set_handlespaces((SPACES[1], north), {US: RULES, pool: RULES}, us.now)
    us.evaluate()
    assert beliefs.views.keys() == {US, pool}
    assert shown(beliefs, US) == [1, 3], "what is known of a handlespace that stays is kept"
    assert not beliefs.views[pool].known
    assert beliefs.listed_by(EU, 1) == []


def test_a_single_handlespace_without_a_name_is_as_before() -> None:
    beliefs = HandlespaceBeliefs([Handlespace("", ("10.9.0.1", "10.9.0.2", "10.9.0.3"))], {"a/b": RULES})
    play = Play(pools=("a/b",))
    play.belief = beliefs.by_name[""]
    play.settle(0, 1)
    play.answer(0, pe(1, R1), handle="a/b")
    assert shown(beliefs, "a/b") == [1]
    assert beliefs.registrar_states(play.now)[0].called == "1 (10.9.0.1)"


def test_members_elsewhere_are_probed_as_witnesses_while_a_handlespace_is_lost() -> None:
    beliefs, eu, _ = cells()
    plan = PoolProbing(ProbePlan("sip-options"), EU)
    prober = Prober(beliefs, {EU: plan, US: plan}, lambda: None)
    assert not prober._witnesses(beliefs.probe_targets(), beliefs.views)
    eu.down(0, 1, 2)
    eu.evaluate()
    witnesses = prober._witnesses(beliefs.probe_targets(), beliefs.views)
    assert {pool: [each.identifier for each in some] for pool, some in witnesses.items()} == {US: [1, 3]}
    alone = Prober(beliefs, {EU: plan, US: replace(plan, group=US)}, lambda: None)
    assert not alone._witnesses(beliefs.probe_targets(), beliefs.views), "another pool is no witness"


def test_a_witness_that_does_not_answer_stays_in_by_the_word_of_its_registrars() -> None:
    beliefs, eu, us = cells()
    eu.down(0, 1, 2)
    member = beliefs.views[US].members[0]
    beliefs.probed(US, member, False, us.now)
    us.evaluate()
    assert shown(beliefs, US) == [1, 3]
