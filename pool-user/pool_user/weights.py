"""From the load and policy a pool element registers to its SRV priority and weight. Pure: no clock, no state.

| policy (RFC 5356)             | SRV priority                | SRV weight                             |
|-------------------------------|-----------------------------|----------------------------------------|
| Least Used and its relatives  | 0, or 1 when overloaded     | 1000 x (1 - load), a fifth at first    |
| Least Used with Degradation   | the same                    | the same, times the element's capacity |
| Weighted round robin, random  | 0                           | the registered weight; 0 means standby |
| Priority                      | rank, largest PE priority 0 | 1000                                   |
| Round robin, random, unknown  | 0                           | 1000                                   |

Wide weights have the same ratios on the whole scale of SRV: the largest possible weight is 65535, not 1000.

The capacity of an element that says by how much a request degrades it is the inverse of that, compared with
the largest of its pool: a gateway that stands for 300 servers gets three times as much as one for 100.

A weight is never 0 (RFC 2782 gives such a target next to nothing): a live element always gets work.

A member with a `share` has the weight with which draws by RFC 2782 choose it for that part of the calls,
among the members of its priority. All weights of this priority are wide then.
With a share of 0 it is a standby.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeVar

from pool_user.views import Member
from rserpool import policies

FULL_WEIGHT = 1000
"""The weight of an idle element, and of every element where the policy makes them equal."""
MAX_WEIGHT = 65535
"""The largest SRV weight (RFC 2782)."""
THRESHOLD = 50
"""A weight made from load moves only by this much or more; less is noise and would cost a purge."""
OVERLOADED_AT = 0.95
"""The load from which on an element is one SRV priority back."""
RELIEVED_AT = 0.85
"""The load at which, or below which, it returns to the first priority."""
SLOW_START_FROM = 0.2
"""The part of its weight an element starts with when it comes in."""
SLOW_START_S = 10.0
"""How long it takes to grow to its whole weight, in seconds."""
TOGETHER_S = 1.0
"""Members that came within this time after a pool's first member have no slow start: no
others had the work before them."""

_LOAD = (
    policies.LeastUsed,
    policies.LeastUsedDegradation,
    policies.RandomizedLeastUsed,
    policies.RandomizedLeastUsedDegradation,
    policies.LeastUsedDPF,
    policies.LeastUsedDegradationDPF,
)
_LOAD_AND_INCREMENT = (
    policies.PriorityLeastUsed,
    policies.PriorityLeastUsedDegradation,
    policies.RandomizedPriorityLeastUsed,
    policies.RandomizedPriorityLeastUsedDegradation,
)
_WEIGHT = (policies.WeightedRoundRobin, policies.WeightedRandom, policies.WeightedRandomDPF)

Key = TypeVar("Key")


class Weighted(NamedTuple):
    """The values of one member in the answers.

    `priority` 0.. and `weight` 1..65535 are those of the SRV record. `standby` members are shown only when
    nothing else lives. `base` is the weight before slow start and scaling, with which the next one is
    compared; `overloaded` remembers the tier.
    """

    priority: int
    weight: int
    standby: bool = False
    base: int = FULL_WEIGHT
    overloaded: bool = False


def weigh(
    members: Mapping[Key, Member],
    previous: Mapping[Key, Weighted],
    now: float,
    slow_start_s: float = SLOW_START_S,
    due: Collection[Key] | None = None,
    wide: bool = False,
) -> dict[Key, Weighted]:
    """Priority and weight of every member of one pool.

    `previous` is what this function gave for the pool the time before (empty at first), `now` monotonic
    seconds; `slow_start_s` 0 switches slow start off. `due` are the members whose weights may be others than
    in `previous`, None: all may. A member whose policy `is_relative` makes all others due, too. `wide` scales
    all weights alike, so that the largest possible is `MAX_WEIGHT`. `with_shares` comes after it.
    """
    if due is None or has_shares(members):
        due = members.keys()
    newcomers = _newcomers(members, now, slow_start_s, due)
    ranks: Mapping[int, int] | None = None
    is_scaled = wide or any(_registered_weight(members[key].policy) is not None for key in due)
    scale = _scale(members, wide) if is_scaled else 1.0
    least = min((each for member in members.values() if (each := _degradation(member.policy))), default=0.0)
    of_full = scale if wide else 1.0
    equal = max(1, round(FULL_WEIGHT * of_full))
    weighted = {key: previous[key] for key in members if key in previous}
    for key in due:
        policy = members[key].policy
        load = effective_load(policy)
        if load is not None:
            elapsed_s = now - members[key].since_s if key in newcomers else slow_start_s
            capacity = least / degradation if (degradation := _degradation(policy)) else 1.0
            factor = grown(elapsed_s, slow_start_s) * of_full * capacity
            weighted[key] = _by_load(load, previous.get(key), factor)
        elif isinstance(policy, policies.Priority):
            ranks = _ranks(members) if ranks is None else ranks
            weighted[key] = Weighted(ranks[policy.priority], equal)
        elif (registered := _registered_weight(policy)) is not None:
            weight = min(MAX_WEIGHT, max(1, round(registered * scale)))
            weighted[key] = Weighted(0, weight, standby=registered == 0, base=weight)
        else:
            weighted[key] = Weighted(0, equal)
    return weighted


def has_shares(members: Mapping[Key, Member]) -> bool:
    """Whether an administrator gives one of the members a share."""
    return any(member.share is not None for member in members.values())


def shares(weighted: Mapping[Key, Weighted]) -> dict[Key, float]:
    """The part of the calls, 0..1, that draws by RFC 2782 give to each of these members."""
    active = {key: each for key, each in weighted.items() if not each.standby} or weighted
    first = min((each.priority for each in active.values()), default=0)
    total = sum(each.weight for each in active.values() if each.priority == first)
    return {
        key: each.weight / total if key in active and each.priority == first else 0.0
        for key, each in weighted.items()
    }


def with_shares(members: Mapping[Key, Member], weighted: Mapping[Key, Weighted]) -> dict[Key, Weighted]:
    """Return the weights, those of members with a share made from it. Standby members keep theirs.

    The priorities are those of the answers, also where something else than load makes them.
    """
    result = dict(weighted)
    if not has_shares(members):
        return result
    for key in result:
        if members[key].share == 0:
            result[key] = result[key]._replace(standby=True)
    weighted = dict(result)
    for priority in {each.priority for each in weighted.values()}:
        of_tier = [key for key, each in weighted.items() if each.priority == priority and not each.standby]
        given = {key: share for key in of_tier if (share := members[key].share) is not None}
        if not given:
            continue
        others = [key for key in of_tier if key not in given]
        # If there are no others, or nothing is left for them, the shares are weights among themselves.
        left = max(0.0, 1 - sum(given.values())) if others else 0.0
        of_others = sum(weighted[key].weight for key in others)
        parts = given | {key: left * weighted[key].weight / of_others for key in others}
        largest = max(parts.values())
        for key, part in parts.items():
            weight = max(1, round(MAX_WEIGHT * part / largest))
            result[key] = weighted[key]._replace(weight=weight)
    return result


def effective_load(policy: policies.Policy) -> float | None:
    """The load 0..1 a policy speaks of, None for policies without one.

    The priority kinds of Least Used pick by load plus the element's own increment (RFC 5356 section 5.3): in
    spite of the name they have no tiers.
    """
    if isinstance(policy, _LOAD_AND_INCREMENT):
        return min(1.0, policy.load + policy.degradation)
    if isinstance(policy, _LOAD):
        return policy.load
    return None


def grown(elapsed_s: float, slow_start_s: float) -> float:
    """The part of its weight, 0.2..1, that a member has `elapsed_s` after it came in; grows in whole seconds.

    Whole seconds keep the answers still between steps: each step is a purge.
    """
    if elapsed_s >= slow_start_s:
        return 1.0
    return SLOW_START_FROM + (1 - SLOW_START_FROM) * max(0, int(elapsed_s)) / slow_start_s


def is_relative(policy: policies.Policy) -> bool:
    """Whether a member with this policy has a weight or priority that depends on the other members."""
    return isinstance(policy, (policies.Priority, *_WEIGHT)) or _degradation(policy) is not None


def growing(members: Mapping[Key, Member], now: float, slow_start_s: float, due: Collection[Key]) -> set[Key]:
    """Those of the members that are `due` whose weights will grow by time alone."""
    newcomers = _newcomers(members, now, slow_start_s, due)
    return {key for key in newcomers if effective_load(members[key].policy) is not None}


def _newcomers(
    members: Mapping[Key, Member], now: float, slow_start_s: float, due: Collection[Key]
) -> set[Key]:
    """Those of the members that are `due` that came lately, when others were there already: these alone start
    slowly.

    A backend that starts sees every member come in at once. Were all to grow alike, they would share the work
    as with their whole weights, but each second would cost a purge.
    """
    young = {key for key in due if now - members[key].since_s < slow_start_s}
    if not young:
        return young
    first_s = min(member.since_s for member in members.values())
    return {key for key in young if members[key].since_s > first_s + TOGETHER_S}


def _by_load(load: float, before: Weighted | None, factor: float) -> Weighted:
    # 95 % is not exactly that after the way over the wire.
    load = round(min(1.0, max(0.0, load)) * 1e6) / 1e6
    base = max(1, round(FULL_WEIGHT * (1 - load)))
    overloaded = load >= OVERLOADED_AT
    if before is not None:
        overloaded = load > RELIEVED_AT if before.overloaded else overloaded
        if abs(base - before.base) < THRESHOLD:
            base = before.base
    weight = max(1, round(base * factor))
    return Weighted(int(overloaded), weight, base=base, overloaded=overloaded)


def _ranks(members: Mapping[Key, Member]) -> dict[int, int]:
    """PE priority -> SRV priority: in RSerPool the larger is preferred, in SRV the smaller."""
    values = {m.policy.priority for m in members.values() if isinstance(m.policy, policies.Priority)}
    return {value: rank for rank, value in enumerate(sorted(values, reverse=True))}


def _scale(members: Mapping[Key, Member], wide: bool) -> float:
    """The factor by which weights are multiplied to fit SRV's 16 bits: registered weights have 32.

    1 when all fit as they are and need not be `wide`.
    """
    of_others = FULL_WEIGHT if wide else 0
    registered = (_registered_weight(member.policy) for member in members.values())
    largest = max((of_others if weight is None else weight for weight in registered), default=0)
    return MAX_WEIGHT / max(1, largest) if wide or largest > MAX_WEIGHT else 1.0


def _degradation(policy: policies.Policy) -> float | None:
    """The load that each request adds, if the policy says any."""
    return (policy.degradation or None) if isinstance(policy, policies.LeastUsedDegradation) else None


def _registered_weight(policy: policies.Policy) -> int | None:
    return policy.weight if isinstance(policy, _WEIGHT) else None
