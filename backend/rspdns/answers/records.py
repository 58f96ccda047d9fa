"""The records of one site: those of its pools, their targets, and the fixed records beside them.

Pure: chance comes in as a `random.Random`. It chooses which members of a pool an answer shows.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType
from typing import TypeVar

from pool_user import Weighted

from rspdns import fitting
from rspdns.answers.pool_state import PoolState
from rspdns.rrset import AddressData, Node, OtherData, Record, SrvData
from rspdns.zones.zone import Site

Key = TypeVar("Key")


def active(weights: Mapping[Key, Weighted]) -> dict[Key, Weighted]:
    """The members clients are sent to: all but the standbys, who come in when nobody else lives."""
    return {key: w for key, w in weights.items() if not w.standby} or dict(weights)


def in_order(weights: Mapping[Key, Weighted], draw: random.Random) -> list[Key]:
    """The active members in the order in which they are put into an SRV answer.

    The best SRV priority comes first; within one the first is drawn by weight, the rest follow in any order.
    A client chooses by weight among the members that it is shown (RFC 2782). So over many answers each member
    of the best priority is chosen exactly in proportion to its weight, however many of them an answer holds:
    samples for an unbiased ratio are drawn in this way (Midzuno, 1952). Were all positions drawn by weight,
    heavy members would be favoured twice.
    """
    shown = active(weights)
    order: list[Key] = []
    for priority in sorted({w.priority for w in shown.values()}):
        tier = {key: w.weight for key, w in shown.items() if w.priority == priority}
        first = in_drawn_order(tier, draw)[0]
        rest = [key for key in tier if key != first]
        draw.shuffle(rest)
        order += [first, *rest]
    return order


def first_tier(weights: Mapping[Key, Weighted], with_overloaded: bool = False) -> dict[Key, Weighted]:
    """The active members of the best priority only.

    For A and AAAA records, which can tell a client neither priority nor order: a standby or overloaded
    server must not be among them while a better one lives. `with_overloaded` leaves overloaded servers where
    they would be without load: a client that keeps a list must not lose a server by its load.
    """
    priorities = {
        key: w.priority - (w.overloaded if with_overloaded else 0) for key, w in active(weights).items()
    }
    best = min(priorities.values(), default=0)
    return {key: weights[key] for key, priority in priorities.items() if priority == best}


def in_drawn_order(weights: Mapping[Key, int], draw: random.Random) -> list[Key]:
    """All keys in the order of a draw by weight without replacement.

    Each gets an exponential waiting time with its weight as the rate; the order of arrival is such a draw
    (Efraimidis and Spirakis, 2006).
    """
    arrivals = {key: -math.log(1.0 - draw.random()) / weight for key, weight in weights.items()}
    return sorted(arrivals, key=arrivals.__getitem__)


FEWEST = 2
"""SRV records shown whenever that many live: a client whose first choice fails tries the next (RFC 3263)."""


def site_nodes(
    site: Site,
    states: Sequence[PoolState],
    ttl_s: int,
    draw: random.Random,
    kept: Mapping[str, Node] = MappingProxyType({}),
) -> tuple[dict[str, Node], bool]:
    """The nodes of a site, and whether chance had a part in them (so that another draw may give others).

    `kept` are nodes of before that chance need not draw again: those that show nobody who left or changed
    stay. So members that an answer does not show come and go without a purge.
    """
    nodes, drawn = _site_node(site, states, ttl_s, draw, kept.get(site.name, Node()))
    for state in states:
        owner, by_chance = _owner_node(site, state, ttl_s, draw, kept.get(state.pool.owner, Node()))
        nodes[state.pool.owner] = owner
        drawn = drawn or by_chance
        nodes[state.pool.targets] = Node(
            site.static.get(state.pool.targets, ()), failure=state.failure, below=bool(state.failure)
        )
        nodes |= state.targets
    return nodes, drawn


def transferred_nodes(site: Site, states: Sequence[PoolState], ttl_s: int) -> Mapping[str, Node]:
    """The nodes of a site in a zone transfer: SRV records of all members, however few an answer shows; A and
    AAAA records of all members with room. A secondary draws nothing, so chance has no part in them."""
    whole = [state._replace(is_transferred=True) for state in states]
    return site_nodes(site, whole, ttl_s, random.Random(0))[0]  # noqa: S311 - it draws only what can't fit


def _owner_node(
    site: Site, state: PoolState, ttl_s: int, draw: random.Random, kept: Node
) -> tuple[Node, bool]:
    """The node of a pool's SRV records."""
    owner = state.pool.owner
    static = site.static.get(owner, ())
    if not state.members:
        shown = _as_live(static, ttl_s, ("SRV",)) if state.static else _others(static, ("SRV",))
        return Node(shown, failure=state.failure), False
    labels, drawn = _shown(state, draw, kept)
    is_whole = _is_whole(state)
    ordered = sorted(labels, key=lambda label: (0 if is_whole else state.weights[label].priority, label))
    records = [Record(owner, "SRV", _srv(state, label), ttl_s) for label in ordered]
    return Node((*records, *_others(static, ("SRV",)))), drawn


def _srv(state: PoolState, label: str) -> SrvData:
    weighted = state.weights[label]
    port, target = state.members[label].port, state.pool.target(label)
    return SrvData(weighted.priority, weighted.weight, port, target)


def _shown(state: PoolState, draw: random.Random, kept: Node) -> tuple[list[str], bool]:
    """The labels of the members an SRV answer shows, and whether they were drawn: not when all fit."""
    everyone = active(state.weights)
    if len(everyone) <= _most_records(state) and _that_fit(state, everyone) == len(everyone):
        return list(everyone), False
    still = _still_right(kept, state, everyone)
    others = (label for label in everyone if label not in still)
    if still and len(still) == _most_shown(state, itertools.chain(still, others)):
        return still, True
    order = in_order(state.weights, draw)
    return order[: _most_shown(state, order)], True


def _still_right(kept: Node, state: PoolState, everyone: Mapping[str, Weighted]) -> list[str]:
    """The labels that SRV records of before show, if each would be the same now and nobody has a better
    priority than all of them; else none."""
    labels = []
    for record in kept.records:
        if isinstance(record.data, SrvData):
            label = record.data.target.partition(".")[0]
            if label not in everyone or record.data != _srv(state, label):
                return []
            labels.append(label)
    best = min(weighted.priority for weighted in everyone.values())
    return labels if any(everyone[label].priority == best for label in labels) else []


def _is_whole(state: PoolState) -> bool:
    """Whether the answers hold the whole pool, over TCP if need be."""
    return state.pool.config.answers == "all"


def _most_records(state: PoolState) -> int:
    """The most SRV records in an answer, whatever their size."""
    is_whole = state.is_transferred or _is_whole(state)
    return len(state.members) if is_whole else state.pool.config.max_answers


def _most_shown(state: PoolState, labels: Iterable[str]) -> int:
    """How many of the members an SRV answer holds."""
    fewest = min(FEWEST, len(state.members))
    return max(fewest, min(_most_records(state), _that_fit(state, labels)))


def _that_fit(state: PoolState, labels: Iterable[str]) -> int:
    sizes = (_size(state, label) for label in labels)
    limit = fitting.LIMIT_TCP if state.is_transferred or _is_whole(state) else fitting.LIMIT
    return fitting.how_many(state.pool.owner, sizes, limit)


def _size(state: PoolState, label: str) -> int:
    """Bytes that a member takes in an SRV answer, at most."""
    target = state.pool.target(label)
    addresses = fitting.addresses_beside(state.pool.owner, target, state.members[label].addresses)
    ipv4 = sum(isinstance(address, IPv4Address) for address in addresses)
    size = fitting.srv_size(target, ipv4, len(addresses) - ipv4)
    return size + fitting.beyond_pointers(label, len(addresses)) if _is_whole(state) else size


def _site_node(
    site: Site, states: Sequence[PoolState], ttl_s: int, draw: random.Random, kept: Node
) -> tuple[dict[str, Node], bool]:
    """The node of A, AAAA and NAPTR.

    While any pool of the name is live, those that are not have no part in it: their last good members may
    well be dead.
    """
    speaking = (
        [state for state in states if state.live]
        or [state for state in states if state.members]
        or [state for state in states if state.static]
    )
    static = site.static.get(site.name, ())
    failure = "" if speaking else next((state.failure for state in states if state.failure), "")
    if any(state.members for state in speaking):
        addresses, drawn = _addresses(site, speaking, ttl_s, draw, kept)
        fixed = _others(static, ("A", "AAAA"))
    else:
        addresses, drawn = [], False
        fixed = _as_live(static, ttl_s, ("A", "AAAA")) if speaking else _others(static, ("A", "AAAA"))
    naptr = [
        Record(site.name, "NAPTR", OtherData("NAPTR", _naptr(state)), ttl_s)
        for state in speaking
        if state.pool.naptr_service is not None
    ]
    fixed = _as_live(fixed, ttl_s, ("NAPTR",)) if naptr else fixed
    return {site.name: Node((*addresses, *naptr, *fixed), failure=failure)}, drawn


def _addresses(
    site: Site, states: Sequence[PoolState], ttl_s: int, draw: random.Random, kept: Node
) -> tuple[list[Record], bool]:
    """A and AAAA records: of the best members of all pools, `max_addresses` of each kind drawn by weight;
    where a pool answers with all members, each of them."""
    if any(state.is_transferred or _is_whole(state) for state in states):
        most, limit_bytes = sum(len(state.members) for state in states), fitting.LIMIT_TCP
    else:
        most, limit_bytes = max(state.pool.config.max_addresses for state in states), fitting.LIMIT
    drawn = False
    records = []
    best = [
        (state.members[label].addresses, weighted.weight)
        for state in states
        for label, weighted in first_tier(state.weights, with_overloaded=_is_whole(state)).items()
    ]
    for family, kind, data_size in (
        (IPv4Address, "A", fitting.A_DATA),
        (IPv6Address, "AAAA", fitting.AAAA_DATA),
    ):
        candidates = _candidates(best, family)
        if not candidates:
            continue
        shown = list(candidates)
        limit = min(most, fitting.addresses_that_fit(site.name, data_size, limit_bytes))
        if len(candidates) > limit:
            before = (record.data for record in kept.records if record.type == kind)
            shown = [data.packed for data in before if isinstance(data, AddressData)]
            if len(shown) != limit or not candidates.keys() >= set(shown):
                shown = in_drawn_order(candidates, draw)[:limit]
            drawn = True
        records += [Record(site.name, kind, AddressData(packed), ttl_s) for packed in sorted(shown)]
    return records, drawn


def _candidates(
    members: Iterable[tuple[Iterable[IPv4Address | IPv6Address], int]],
    family: type[IPv4Address] | type[IPv6Address],
) -> dict[bytes, int]:
    """The weight of each member by the bytes of its first address, since addresses themselves are slow keys.
    A server that is in two pools counts once."""
    weights: dict[bytes, int] = {}
    for addresses, weight in members:
        for address in addresses:
            if isinstance(address, family):
                packed = address.packed
                weights[packed] = max(weight, weights.get(packed, 0))
                break
    return weights


def _naptr(state: PoolState) -> str:
    config = state.pool.config
    service = state.pool.naptr_service
    return f'{config.naptr_order} {config.naptr_preference} "s" "{service}" "" {state.pool.owner}'


def _others(records: Iterable[Record], types: Sequence[str]) -> tuple[Record, ...]:
    return tuple(record for record in records if record.type not in types)


def _as_live(records: Iterable[Record], ttl_s: int, types: Sequence[str]) -> tuple[Record, ...]:
    """Fixed records that stand in for live ones, or beside them, live no longer than those."""
    return tuple(
        record._replace(ttl=min(record.ttl, ttl_s)) if record.type in types else record for record in records
    )
