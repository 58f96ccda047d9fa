"""The order of a pool's sites: the first one that is enough gets the calls, the others stand behind it. Pure.

| a site | its rank |
|---|---|
| is enough | by the pool's order, 0 first |
| is the first one, and spills | the next one that is enough shares its rank |
| is not enough, or was not until a short while ago | behind all that are enough |

Each site has its own SRV priorities: a client goes on to the next one by itself. Within a rank the weights of
the members decide, so a site that spills hands on as much as the other has free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from pool_user import Member, Weighted, effective_load

from rspdns.zones.sites import SiteRules

Key = TypeVar("Key")


class SiteState(NamedTuple):
    """A site of a pool at one moment; times are monotonic seconds.

    `members` is how many are in. `is_enough`: it counts as enough. `enough_since_s`: since when it has enough
    members, None: it has not. `load` is the mean of its members' loads, None where they report none. If
    `is_hot`, it spills wherever it is first; `cool_since_s`: since when a hot site's load would end that.
    """

    rank: int
    members: int
    is_enough: bool
    enough_since_s: float | None
    is_spilling: bool = False
    load: float | None = None
    is_hot: bool = False
    cool_since_s: float | None = None


def site_states(
    rules: SiteRules, members: Mapping[Key, Member], before: Mapping[str, SiteState], now: float
) -> dict[str, SiteState]:
    """Return each site of the pool with its rank, `before` being what this function returned before.

    Members that an administrator drains do not count.
    """
    of_site: dict[str, list[Member]] = {name: [] for name in rules.names}
    for member in members.values():
        site = rules.site_of(member)
        if site is not None and member.share != 0:
            of_site[site].append(member)
    states = {name: _state(name, rules, found, before.get(name), now) for name, found in of_site.items()}
    return in_order(states, rules.names)


def in_order(states: Mapping[str, SiteState], names: Sequence[str]) -> dict[str, SiteState]:
    """Return the sites with the ranks that they have in the order of `names`."""
    enough = [name for name in names if states[name].is_enough]
    others = [name for name in names if not states[name].is_enough]
    ranks = {name: rank for rank, name in enumerate([*enough, *others])}
    first = (enough or others)[0]
    spills = len(enough) > 1 and states[first].is_hot
    if spills:  # the second one stands beside the first, and all others move up
        ranks = {name: max(0, rank - 1) for name, rank in ranks.items()}
    return {
        name: states[name]._replace(rank=ranks[name], is_spilling=spills and name == first) for name in names
    }


def _state(
    name: str, rules: SiteRules, members: list[Member], before: SiteState | None, now: float
) -> SiteState:
    since_s = None
    if len(members) >= rules.least[name]:
        since_s = now if before is None or before.enough_since_s is None else before.enough_since_s
    was_enough = before is None or before.is_enough
    is_enough = since_s is not None and (was_enough or now >= since_s + rules.back_after_s)
    loads = [load for member in members if (load := effective_load(member.policy)) is not None]
    load = sum(loads) / len(loads) if loads else None
    is_hot, cool_since_s = _heat(rules, load, before, now)
    return SiteState(0, len(members), is_enough, since_s, load=load, is_hot=is_hot, cool_since_s=cool_since_s)


def _heat(
    rules: SiteRules, load: float | None, before: SiteState | None, now: float
) -> tuple[bool, float | None]:
    """Whether a site is hot, and if so, since when its load would end that."""
    if rules.spill_at is None or rules.spill_back is None or load is None:
        return False, None
    if before is None or not before.is_hot:
        return load >= rules.spill_at, None
    if load > rules.spill_back:
        return True, None
    since_s = now if before.cool_since_s is None else before.cool_since_s
    is_hot = now < since_s + rules.back_after_s
    return is_hot, since_s if is_hot else None


def ranked(
    rules: SiteRules,
    states: Mapping[str, SiteState],
    members: Mapping[Key, Member],
    weighted: Mapping[Key, Weighted],
) -> dict[Key, Weighted]:
    """The members with the SRV priorities of their sites; those in no site come last."""
    step = 1 + max((each.priority for each in weighted.values()), default=0)
    last = 1 + max((state.rank for state in states.values()), default=0)

    def rank(member: Member) -> int:
        site = rules.site_of(member)
        return last if site is None else states[site].rank

    return {
        key: each._replace(priority=each.priority + step * rank(members[key]))
        for key, each in weighted.items()
    }


def next_change_s(rules: SiteRules, states: Mapping[str, SiteState]) -> float:
    """When time alone makes a site count again, or ends its spilling; infinite: never."""
    counts = (state.enough_since_s for state in states.values() if not state.is_enough)
    cools = (state.cool_since_s for state in states.values())
    since_s = min((each for each in (*counts, *cools) if each is not None), default=float("inf"))
    return since_s + rules.back_after_s
