"""Load and policy to SRV priority and weight."""

from collections.abc import Sequence
from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st
from pool_user.weights import (
    FULL_WEIGHT,
    MAX_WEIGHT,
    SLOW_START_S,
    THRESHOLD,
    TOGETHER_S,
    Weighted,
    effective_load,
    growing,
    weigh,
)

from rserpool import LeastUsed, Policy, policies
from tests.backend.making import LONG_AGO, NOW, member

loads = st.integers(0, 0xFFFFFFFF).map(lambda wire: wire / 0xFFFFFFFF)
uint32 = st.integers(0, 0xFFFFFFFF)
any_policy: st.SearchStrategy[Policy] = st.one_of(
    st.builds(policies.RoundRobin),
    st.builds(policies.Random),
    st.builds(policies.WeightedRoundRobin, uint32),
    st.builds(policies.WeightedRandom, uint32),
    st.builds(policies.Priority, uint32),
    st.builds(policies.LeastUsed, loads),
    st.builds(policies.LeastUsedDegradation, loads, loads),
    st.builds(policies.PriorityLeastUsed, loads, loads),
    st.builds(policies.RandomizedLeastUsed, loads),
    st.builds(policies.RandomizedPriorityLeastUsedDegradation, loads, loads),
    st.builds(policies.WeightedRandomDPF, uint32, loads, uint32),
    st.builds(policies.LeastUsedDPF, loads, loads, uint32),
    st.builds(policies.UnknownPolicy, uint32, st.binary(max_size=8)),
)


def of(*of_members: Policy, since_s: float = LONG_AGO, now: float = NOW) -> list[Weighted]:
    """Weights of members with these policies that have long been in."""
    members = {
        number: member(number, policy=policy, since_s=since_s) for number, policy in enumerate(of_members)
    }
    return list(weigh(members, {}, now).values())


def after(load: float, before: Weighted | None) -> Weighted:
    """The new weight of one member when its load is now `load`."""
    return weigh({1: member(1, policy=LeastUsed(load))}, {1: before} if before else {}, NOW)[1]


@given(st.lists(st.tuples(any_policy, st.floats(0, 2 * SLOW_START_S)), max_size=20))
def test_every_weight_and_priority_fits_srv_and_none_is_zero(pool: Sequence[tuple[Policy, float]]) -> None:
    members = {i: member(i, policy=policy, since_s=NOW - ago) for i, (policy, ago) in enumerate(pool)}
    weighted = weigh(members, {}, NOW)
    assert weighted.keys() == members.keys()
    assert all(1 <= w.weight <= MAX_WEIGHT and 0 <= w.priority <= 65535 for w in weighted.values())


@given(st.lists(any_policy, max_size=20))
def test_weighing_again_changes_nothing(pool: list[Policy]) -> None:
    members = {i: member(i, policy=policy) for i, policy in enumerate(pool)}
    once = weigh(members, {}, NOW)
    assert weigh(members, once, NOW + 100) == once


@given(loads, loads)
def test_the_busier_never_weighs_more(load: float, other: float) -> None:
    less, more = sorted((load, other))
    idle, busy = of(LeastUsed(less), LeastUsed(more))
    assert idle.weight >= busy.weight
    if FULL_WEIGHT * (more - less) > 1:
        assert idle.weight > busy.weight or busy.weight == 1


@given(st.lists(loads, min_size=1, max_size=50))
def test_a_weight_moves_by_the_threshold_or_not_at_all(history: list[float]) -> None:
    before = after(history[0], None)
    for load in history[1:]:
        now = after(load, before)
        assert now.weight == before.weight or abs(now.weight - before.weight) >= THRESHOLD
        assert abs(now.weight - max(1, FULL_WEIGHT * (1 - load))) <= THRESHOLD
        before = now


def test_weight_is_what_is_free() -> None:
    assert [w.weight for w in of(LeastUsed(0.0), LeastUsed(0.25), LeastUsed(1.0))] == [1000, 750, 1]


def test_small_changes_of_load_change_nothing_large_ones_do() -> None:
    before = after(0.30, None)
    assert after(0.34, before).weight == 700
    assert after(0.26, before).weight == 700
    assert after(0.35, before).weight == 650


def test_an_overloaded_element_moves_back_at_95_percent_and_returns_at_85() -> None:
    on_the_wire = round(0.95 * 0xFFFFFFFF) / 0xFFFFFFFF
    calm = after(0.94, None)
    overloaded = after(on_the_wire, calm)
    recovering = after(0.86, overloaded)
    assert (calm.priority, overloaded.priority, recovering.priority) == (0, 1, 1)
    assert after(0.85, recovering).priority == 0
    assert after(0.94, after(0.85, recovering)).priority == 0


@given(loads, st.lists(st.floats(0, 2 * SLOW_START_S), min_size=2))
def test_a_newcomer_starts_at_a_fifth_and_only_grows(load: float, ages: list[float]) -> None:
    def aged(age: float) -> int:
        own = {"old": member(1), "new": member(2, policy=LeastUsed(load), since_s=NOW - age)}
        return weigh(own, {}, NOW)["new"].weight

    weights = [aged(age) for age in sorted(ages)]
    assert weights == sorted(weights)
    full = of(LeastUsed(load))[0].weight
    assert aged(0.0) == max(1, round(full / 5))
    assert aged(SLOW_START_S) == full


@given(st.lists(st.floats(0, 2 * SLOW_START_S), min_size=1), st.floats(0, SLOW_START_S))
def test_the_first_members_of_a_pool_start_at_full_weight(ages: list[float], passed_s: float) -> None:
    own = {index: member(index, since_s=NOW - age) for index, age in enumerate(ages)}
    for now in (NOW, NOW + passed_s):
        weighed = weigh(own, {}, now)
        for index, age in enumerate(ages):
            if age >= max(ages) - TOGETHER_S / 2:
                assert weighed[index].weight == FULL_WEIGHT


def test_slow_start_is_over_when_nothing_grows_any_more() -> None:
    young = {1: member(1), 2: member(2, since_s=NOW - 9.9)}
    assert growing(young, NOW, SLOW_START_S, young) == {2}
    assert not growing(young, NOW + 0.2, SLOW_START_S, young)
    assert not growing(young, NOW, 0.0, young)
    assert not growing({2: young[2]}, NOW, SLOW_START_S, {2: young[2]}), "alone"
    equal = {1: member(1), 2: member(2, since_s=NOW, policy=policies.RoundRobin())}
    assert not growing(equal, NOW, SLOW_START_S, equal)


def test_registered_weights_are_taken_as_they_are_while_they_fit() -> None:
    weighted = of(policies.WeightedRandom(1), policies.WeightedRandom(3), policies.WeightedRandom(65535))
    assert [w.weight for w in weighted] == [1, 3, 65535]


@given(st.lists(st.integers(1, 0xFFFFFFFF), min_size=1, max_size=20))
def test_large_registered_weights_keep_their_proportion(registered: list[int]) -> None:
    weighted = of(*map(policies.WeightedRoundRobin, registered))
    scale = min(1.0, MAX_WEIGHT / max(registered))
    for weight, own in zip(weighted, registered, strict=True):
        assert weight.weight == 1 or abs(weight.weight - own * scale) <= 0.5
        assert not weight.standby


def haproxy_weight(weight: int) -> int:
    """The weight of a server in HAProxy, 0..256, by that of its SRV record (`resolvers.c`)."""
    return (weight + 255) // 256


def test_wide_weights_give_haproxy_twenty_steps_and_narrow_weights_four() -> None:
    members = {step: member(1, policy=LeastUsed(step / 20)) for step in range(20)}
    steps = {
        wide: {haproxy_weight(w.weight) for w in weigh(members, {}, NOW, wide=wide).values()}
        for wide in (False, True)
    }
    assert (len(steps[False]), len(steps[True])) == (4, 20)
    assert max(steps[True]) == 256


small_weight = st.builds(policies.WeightedRandom, st.integers(1, MAX_WEIGHT))


@given(st.lists(st.one_of(small_weight, st.builds(LeastUsed, loads)), min_size=1, max_size=20))
def test_wide_weights_have_the_ratios_of_narrow_weights(pool: list[Policy]) -> None:
    members = {index: member(index, policy=policy) for index, policy in enumerate(pool)}
    narrow, wide = weigh(members, {}, NOW), weigh(members, {}, NOW, wide=True)
    largest = [p.weight if isinstance(p, policies.WeightedRandom) else FULL_WEIGHT for p in pool]
    factor = MAX_WEIGHT / max(largest)
    for index, weighted in wide.items():
        assert 1 <= weighted.weight <= MAX_WEIGHT
        assert weighted.priority == narrow[index].priority
        assert abs(weighted.weight - narrow[index].weight * factor) <= 0.5 + 1e-6


def test_wide_weights_of_loads_depend_on_no_other_member() -> None:
    busy = member(1, policy=LeastUsed(0.5))
    alone = weigh({1: busy}, {}, NOW, wide=True)
    beside = weigh({1: busy, 2: member(2, policy=LeastUsed(0.0))}, {}, NOW, wide=True)
    assert alone[1] == beside[1] == Weighted(0, round(MAX_WEIGHT / 2), base=500)


@given(st.lists(any_policy, max_size=20))
def test_weighing_widely_again_changes_nothing(pool: list[Policy]) -> None:
    members = {index: member(index, policy=policy) for index, policy in enumerate(pool)}
    once = weigh(members, {}, NOW, wide=True)
    assert weigh(members, once, NOW + 100, wide=True) == once


def test_weight_zero_means_standby() -> None:
    assert [w.standby for w in of(policies.WeightedRandom(0), policies.WeightedRandom(5))] == [True, False]


@given(st.lists(uint32, min_size=1, max_size=20))
def test_a_larger_pe_priority_is_a_smaller_srv_priority(priorities: list[int]) -> None:
    weighted = of(*map(policies.Priority, priorities))
    ranks = [w.priority for w in weighted]
    assert set(ranks) == set(range(len(set(priorities))))
    for priority, rank in zip(priorities, ranks, strict=True):
        assert all((priority > other) == (rank < own) for other, own in zip(priorities, ranks, strict=True))


def test_priority_least_used_has_no_tiers_but_an_increment() -> None:
    light, heavy = of(policies.PriorityLeastUsed(0.2, 0.1), policies.PriorityLeastUsed(0.2, 0.4))
    assert (light.priority, light.weight, heavy.priority, heavy.weight) == (0, 700, 0, 400)
    assert effective_load(policies.PriorityLeastUsed(0.8, 0.8)) == 1.0


def test_round_robin_random_and_unknown_policies_are_equal() -> None:
    weighted = of(policies.RoundRobin(), policies.Random(), policies.UnknownPolicy(77))
    assert {(w.priority, w.weight) for w in weighted} == {(0, FULL_WEIGHT)}


def test_every_known_policy_is_weighed_on_purpose() -> None:
    """A policy with a load or a weight must not fall through to "equal"."""
    for policy in policies.KnownPolicy.__args__:
        names = [field.name for field in fields(policy)]
        full = policy(**dict.fromkeys(names, 0))
        half = policy(**{name: 0 if name in ("degradation", "penalty_factor") else 0.5 for name in names})
        if "load" in names:
            assert [w.weight for w in of(full, half)] == [1000, 500], policy
        elif "weight" in names:
            assert of(full)[0].standby, policy
