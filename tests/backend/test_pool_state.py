"""The state of a pool, made by what changed, and made anew."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from pool_user import BeliefChange, PoolView
from rserpool.policies import Priority, WeightedRoundRobin
from rspdns.answers.pool_state import PoolState, state_of
from rspdns.zones.zone import Pool

from rserpool import LeastUsed, Policy, Protocol
from tests.backend.making import NOW, UDP, Believed, member, view, views, zone

HANDLE = "sip-udp"
(POOL,) = zone().sites[0].pools
(WIDE_POOL,) = zone(UDP + 'weights = "wide"\n').sites[0].pools
MOST_STALE_S = 3600.0

policies = st.one_of(
    st.sampled_from((0.0, 0.3, 0.32, 0.9, 0.96)).map(LeastUsed),
    st.sampled_from((1, 2)).map(Priority),
    st.sampled_from((0, 5, 100_000)).map(WeightedRoundRobin),
)
loads = st.sampled_from((0.0, 0.3, 0.32, 0.9, 0.96)).map(LeastUsed)
one_pool = st.dictionaries(
    st.integers(1, 5),
    st.tuples(
        st.sampled_from(("10.0.0.1", "10.0.0.2")),
        st.sampled_from((5060, 5061)),
        st.sampled_from((Protocol.UDP, Protocol.UDP, Protocol.TCP)),
        st.one_of(loads, policies),
        st.booleans(),
        st.sampled_from((None, None, 0.05, 0.4)),
    ),
    max_size=5,
)
pauses = st.sampled_from((0.0, 0.1, 1.5, 11.0))


def state(believed: BeliefChange, before: PoolState | None, now: float, pool: Pool = POOL) -> PoolState:
    return state_of(pool, believed, before, now, MOST_STALE_S, 1)


Told = tuple[str, int, Protocol, Policy, bool, float | None]


def seen(members: dict[int, Told], now: float) -> PoolView:
    return view(
        *(
            replace(
                member(
                    identifier,
                    address,
                    port=port,
                    protocol=protocol,
                    policy=policy,
                    since_s=now if is_new else NOW - 100,
                ),
                share=share,
            )
            for identifier, (address, port, protocol, policy, is_new, share) in sorted(members.items())
        )
    )


@given(st.sampled_from((POOL, WIDE_POOL)), st.lists(st.tuples(one_pool, pauses), min_size=1, max_size=8))
def test_state_by_what_changed_is_the_state_made_anew(
    pool: Pool,
    steps: Sequence[tuple[dict[int, Told], float]],
) -> None:
    believed, now = Believed(), NOW
    by_change: PoolState | None = None
    anew: PoolState | None = None
    for members, pause_s in steps:
        now += pause_s
        change = believed.to(views(seen(members, now)))
        by_change = state(change, by_change, now, pool)
        anew = state(BeliefChange({}, change.views), anew, now, pool)
        for name in ("members", "weights", "targets", "live", "weighed_at_s", "rebuild_at_s", "unsettled"):
            assert getattr(by_change, name) == getattr(anew, name), name


def test_a_change_weighs_the_members_that_it_concerns() -> None:
    believed = Believed()
    many = [member(number, f"10.0.{number // 250}.{number % 250 + 1}") for number in range(1, 901)]
    before = state(believed.to(views(view(*many))), None, NOW)
    after = state(believed.to(views(view(*many[1:]))), before, NOW + 60)
    assert after.changed == frozenset({"00000001"})
    assert all(after.weights[label] is before.weights[label] for label in after.members)
    assert all(after.targets[name] is before.targets[name] for name in after.targets)
