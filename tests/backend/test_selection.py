"""Which members an answer shows."""

import random
from collections import Counter
from collections.abc import Mapping
from typing import cast

import dns.rdata
import dns.rdataset
import pytest
from dns.rdtypes.IN.SRV import SRV
from hypothesis import given
from hypothesis import strategies as st
from pool_user import Weighted
from pool_user.weights import weigh
from rspdns.answers.records import active, first_tier, in_drawn_order, in_order

from rserpool import LeastUsed
from tests.backend.making import NOW, member

DRAWS = 10_000

weighted = st.builds(Weighted, st.integers(0, 3), st.integers(1, 65535), st.booleans())


def chi_square(seen: Counter[str], expected: Mapping[str, float]) -> float:
    total = sum(expected.values())
    return sum(
        (seen[key] - sum(seen.values()) * share / total) ** 2 / (sum(seen.values()) * share / total)
        for key, share in expected.items()
    )


@given(st.dictionaries(st.integers(), weighted, max_size=20), st.integers())
def test_all_active_members_are_listed_better_priorities_first(pool: dict[int, Weighted], seed: int) -> None:
    order = in_order(pool, random.Random(seed))
    assert sorted(order) == sorted(active(pool))
    assert [pool[key].priority for key in order] == sorted(pool[key].priority for key in order)


@given(st.dictionaries(st.integers(), weighted, min_size=1, max_size=20))
def test_standbys_come_in_only_when_nothing_else_lives(pool: dict[int, Weighted]) -> None:
    shown = active(pool)
    assert shown
    assert all(w.standby for w in shown.values()) == all(w.standby for w in pool.values())
    best = first_tier(pool)
    assert best
    assert {w.priority for w in best.values()} == {min(w.priority for w in shown.values())}


def test_the_first_record_is_drawn_by_weight() -> None:
    weights = {"a": 1000, "b": 500, "c": 250, "d": 10}
    draw = random.Random(7)
    seen = Counter(in_drawn_order(weights, draw)[0] for _ in range(DRAWS))
    assert chi_square(seen, weights) < 16.27  # 3 degrees of freedom, 0.1 %


def test_the_second_record_is_drawn_by_weight_among_the_rest() -> None:
    weights = {"a": 600, "b": 300, "c": 100}
    draw = random.Random(11)
    seen = Counter("".join(in_drawn_order(weights, draw)[:2]) for _ in range(DRAWS))
    expected = {
        key + other: weights[key] / 1000 * weights[other] / (1000 - weights[key])
        for key in weights
        for other in weights
        if key != other
    }
    assert chi_square(seen, expected) < 20.52  # 5 degrees of freedom, 0.1 %


@pytest.mark.parametrize("shown", [2, 7])
def test_clients_spread_as_the_weights_say_however_few_an_answer_shows(shown: int) -> None:
    loads = [index / 20 for index in range(19)] + [0.94]
    weights = weigh({str(n): member(n, policy=LeastUsed(load)) for n, load in enumerate(loads)}, {}, NOW)
    srv = {
        key: dns.rdata.from_text("IN", "SRV", f"{w.priority} {w.weight} 5060 {key}.")
        for key, w in weights.items()
    }
    draw = random.Random(19)
    random.seed(23)  # dnspython draws from the global generator
    seen: Counter[str] = Counter()
    for _ in range(DRAWS):
        answer = dns.rdataset.from_rdata_list(1, [srv[key] for key in in_order(weights, draw)[:shown]])
        seen[str(cast(SRV, answer.processing_order()[0]).target).rstrip(".")] += 1
    expected = {key: float(w.weight) for key, w in weights.items()}
    assert chi_square(seen, expected) < 43.82  # 19 degrees of freedom, 0.1 %


def test_clients_spread_as_the_srv_weights_say() -> None:
    weights = {"a": 1000, "b": 600, "c": 200, "d": 200}
    srv = dns.rdataset.from_text(
        "IN", "SRV", 1, *(f"0 {weight} 5060 {key}." for key, weight in weights.items())
    )
    random.seed(3)  # dnspython draws from the global generator
    seen = Counter(str(cast(SRV, srv.processing_order()[0]).target).rstrip(".") for _ in range(DRAWS))
    assert chi_square(seen, weights) < 16.27
