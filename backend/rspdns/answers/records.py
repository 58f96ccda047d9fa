"""The records of one site: those of its pools, their targets, and the fixed records beside them.

Pure: chance comes in as a `random.Random`. It chooses which members of a pool an answer shows.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from pool_user import Weighted

from rspdns import fitting
from rspdns.answers.pool_state import PoolState
from rspdns.names import join
from rspdns.rrset import AddressData, Node, OtherData, Record, SrvData, SvcbData
from rspdns.zones.svcb import SvcbConfig
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
    nodes, drawn = live_nodes(site, states, ttl_s, draw, kept)
    for state in states:
        nodes[state.pool.targets] = Node(
            site.static.get(state.pool.targets, ()), failure=state.failure, below=bool(state.failure)
        )
        nodes |= state.targets
    return nodes, drawn


def live_nodes(
    site: Site,
    states: Sequence[PoolState],
    ttl_s: int,
    draw: random.Random,
    kept: Mapping[str, Node] = MappingProxyType({}),
) -> tuple[dict[str, Node], bool]:
    """Those of `site_nodes` that show members: all but the targets."""
    nodes, drawn = _site_node(site, states, ttl_s, draw, kept.get(site.name, Node()))
    for state in states:
        owner, by_chance = _owner_node(site, state, ttl_s, draw, kept.get(state.pool.owner, Node()))
        nodes[state.pool.owner] = owner
        drawn = drawn or by_chance
        svcb_owner = state.pool.svcb_owner
        if svcb_owner is not None and svcb_owner != site.name:
            addresses = _own_addresses(state, _speaking(states), nodes[site.name].records)
            kept_node = kept.get(svcb_owner, Node())
            nodes[svcb_owner], by_chance = _svcb_node(site, state, ttl_s, draw, kept_node, addresses)
            drawn = drawn or by_chance
    return nodes, drawn


def transferred_nodes(site: Site, states: Sequence[PoolState], ttl_s: int) -> Mapping[str, Node]:
    """The nodes of a site in a zone transfer: SRV, HTTPS and SVCB records of all members, however few an
    answer shows; A and AAAA records of all members with room. A secondary draws nothing, so chance has no
    part in them."""
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
    labels, drawn = _shown(_MemberRecords(state, owner, _srv, _srv_size, in_order), draw, kept)
    records = [Record(owner, "SRV", _srv(state, label), ttl_s) for label in _sorted(state, labels)]
    return Node((*records, *_others(static, ("SRV",)))), drawn


def _sorted(state: PoolState, labels: Iterable[str]) -> list[str]:
    is_whole = _is_whole(state)
    return sorted(labels, key=lambda label: (0 if is_whole else state.weights[label].priority, label))


def _srv(state: PoolState, label: str) -> SrvData:
    weighted = state.weights[label]
    port, target = state.members[label].port, state.pool.target(label)
    return SrvData(weighted.priority, weighted.weight, port, target)


class _MemberRecords(NamedTuple):
    """The records of one type that name the members of a pool, in an answer about `owner`.

    `data` gives the data of a member's record and `size` its bytes, addresses included. `order` draws the
    members in the order in which they are put into the answer. `taken` bytes are for other records.
    """

    state: PoolState
    owner: str
    data: Callable[[PoolState, str], SrvData | SvcbData]
    size: Callable[[PoolState, str], int]
    order: Callable[[Mapping[str, Weighted], random.Random], list[str]]
    taken: int = 0


def _shown(answer: _MemberRecords, draw: random.Random, kept: Node) -> tuple[list[str], bool]:
    """The labels of the members an answer shows, and whether they were drawn: not when all fit."""
    state = answer.state
    everyone = active(state.weights)
    if len(everyone) <= _most_records(state) and _that_fit(answer, everyone) == len(everyone):
        return list(everyone), False
    still = _still_right(kept, answer, everyone)
    others = (label for label in everyone if label not in still)
    if still and len(still) == _most_shown(answer, itertools.chain(still, others)):
        return still, True
    order = answer.order(state.weights, draw)
    return order[: _most_shown(answer, order)], True


def _still_right(kept: Node, answer: _MemberRecords, everyone: Mapping[str, Weighted]) -> list[str]:
    """The labels that the records of before show, if each would be the same now and nobody has a better
    priority than all of them; else none."""
    labels = []
    for record in kept.records:
        data = record.data
        label = answer.state.pool.label_of(data.target) if isinstance(data, SrvData | SvcbData) else None
        if label is not None:
            if label not in everyone or data != answer.data(answer.state, label):
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


def _most_shown(answer: _MemberRecords, labels: Iterable[str]) -> int:
    """How many of the members an answer holds."""
    fewest = min(FEWEST, len(answer.state.members))
    return max(fewest, min(_most_records(answer.state), _that_fit(answer, labels)))


def _that_fit(answer: _MemberRecords, labels: Iterable[str]) -> int:
    sizes = (answer.size(answer.state, label) for label in labels)
    return fitting.how_many(answer.owner, sizes, _limit(answer.state) - answer.taken)


def _limit(state: PoolState) -> int:
    """The bytes of an answer, at most."""
    return fitting.LIMIT_TCP if state.is_transferred or _is_whole(state) else fitting.LIMIT


def _srv_size(state: PoolState, label: str) -> int:
    """Bytes that a member takes in an SRV answer, at most."""
    target = state.pool.target(label)
    if state.pool.config.cells:  # PowerDNS adds no addresses of a name that is another zone's
        return fitting.srv_size(target, 0, 0)
    addresses = fitting.addresses_beside(state.pool.owner, target, state.members[label].addresses)
    ipv4 = sum(isinstance(address, IPv4Address) for address in addresses)
    size = fitting.srv_size(target, ipv4, len(addresses) - ipv4)
    return size + fitting.beyond_pointers(label, len(addresses)) if _is_whole(state) else size


def _svcb_node(
    site: Site,
    state: PoolState,
    ttl_s: int,
    draw: random.Random,
    kept: Node,
    own_addresses: Sequence[Record],
) -> tuple[Node, bool]:
    """The node of a pool's SVCB or HTTPS records, where these do not stand at the pool's name."""
    static = site.static.get(state.pool.svcb_owner or "", ())
    given = _svcb_types((state,), state.pool.svcb_owner)
    if not state.members:
        shown = _as_live(static, ttl_s, given) if state.static else _others(static, given)
        return Node(shown, failure=state.failure), False
    records, drawn = _svcb_records(site, state, ttl_s, draw, kept, own_addresses)
    return Node((*records, *_others(static, given))), drawn


def _svcb_types(states: Iterable[PoolState], owner: str | None) -> tuple[str, ...]:
    """The types, HTTPS or SVCB, that these pools give at a name."""
    pools = (state.pool for state in states)
    return tuple(pool.config.svcb.type for pool in pools if pool.config.svcb and pool.svcb_owner == owner)


def _own_addresses(
    state: PoolState, speaking: Sequence[PoolState], records: Iterable[Record]
) -> tuple[Record, ...]:
    """The addresses at the pool's name if each of them serves the port of the URL; else none.

    A record may then name the pool itself. Chromium reads no record of another target, nor of another port.
    """
    svcb = state.pool.config.svcb
    if svcb is None or svcb.assumed_port is None or len(speaking) != 1 or speaking[0] is not state:
        return ()
    if any(state.members[label].port != svcb.assumed_port for label in active(state.weights)):
        return ()
    return tuple(record for record in records if isinstance(record.data, AddressData))


def _svcb_records(
    site: Site,
    state: PoolState,
    ttl_s: int,
    draw: random.Random,
    kept: Node,
    own_addresses: Sequence[Record],
) -> tuple[list[Record], bool]:
    """The SVCB or HTTPS records of a pool with members, and whether chance chose these. The last record is
    that of the pool's own name, if it has addresses and there is room."""
    owner, svcb = state.pool.svcb_owner, state.pool.config.svcb
    if owner is None or svcb is None:
        return [], False
    taken = fitting.svcb_alias_size(owner) if state.pool.svcb_alias is not None else 0
    data_of, size_of = partial(_svcb, svcb), partial(svcb_size, svcb)
    answer = _MemberRecords(state, owner, data_of, size_of, _in_drawn_tiers, taken)
    own = "." if owner == site.name else site.name
    own_size = fitting.svcb_own_size(own.rstrip("."), svcb.alpn)
    own_size += sum(fitting.RECORD + len(record.data.wire) for record in own_addresses)
    with_own = answer._replace(taken=taken + own_size)
    has_own = bool(own_addresses) and _has_room_for_fewest(with_own, svcb)
    labels, drawn = _shown(with_own if has_own else answer, draw, kept)
    data = [_svcb(svcb, state, label) for label in _sorted(state, labels)]
    if has_own:
        data.append(SvcbData(1 + max(each.priority for each in data), own, svcb.alpn))
    return [Record(owner, svcb.type, each, ttl_s) for each in data], drawn


def _svcb(svcb: SvcbConfig, state: PoolState, label: str) -> SvcbData:
    """The data of a member's record. Hints are the addresses of its target: both come and go together."""
    port, target = state.members[label].port, state.pool.target(label)
    packed = [record.data.wire for record in state.targets[target].records]
    return SvcbData(
        1 + state.weights[label].priority,  # 0 is AliasMode
        target,
        svcb.alpn,
        None if port == svcb.assumed_port else port,
        tuple(address for address in packed if len(address) == fitting.A_DATA),
        tuple(address for address in packed if len(address) == fitting.AAAA_DATA),
    )


def svcb_size(svcb: SvcbConfig, state: PoolState, label: str) -> int:
    """Bytes that a member takes in an SVCB answer."""
    data = _svcb(svcb, state, label)
    ipv4, ipv6 = len(data.ipv4hint), len(data.ipv6hint)
    size = fitting.svcb_size(data.target, data.alpn, with_port=data.port is not None, ipv4=ipv4, ipv6=ipv6)
    return size + fitting.beyond_pointers(label, ipv4 + ipv6) if _is_whole(state) else size


def _has_room_for_fewest(answer: _MemberRecords, svcb: SvcbConfig) -> bool:
    """Whether the records of two members fit, with an address of each family."""
    target = answer.state.pool.target("00000000")
    size = fitting.svcb_size(target, svcb.alpn, with_port=True, ipv4=1, ipv6=1)
    return fitting.how_many(answer.owner, [size] * FEWEST, _limit(answer.state) - answer.taken) == FEWEST


def _in_drawn_tiers(weights: Mapping[Key, Weighted], draw: random.Random) -> list[Key]:
    """The active members, the best priority first, each priority in the order of a draw by weight.

    A client takes each of the records of a priority equally often (RFC 9460 section 2.4.1), so that weights
    count only by which of them it is shown.
    """
    shown = active(weights)
    tiers = sorted({w.priority for w in shown.values()})
    by_tier = ({key: w.weight for key, w in shown.items() if w.priority == tier} for tier in tiers)
    return [key for tier in by_tier for key in in_drawn_order(tier, draw)]


def _speaking(states: Sequence[PoolState]) -> list[PoolState]:
    """The pools that have a part in the records of their name: while any is live, the live ones."""
    return (
        [state for state in states if state.live]
        or [state for state in states if state.members]
        or [state for state in states if state.static]
    )


def _site_node(
    site: Site, states: Sequence[PoolState], ttl_s: int, draw: random.Random, kept: Node
) -> tuple[dict[str, Node], bool]:
    """The node of A, AAAA and NAPTR, and of the HTTPS records of URLs without a port.

    While any pool of the name is live, those that are not have no part in it: their last good members may
    well be dead.
    """
    speaking = _speaking(states)
    of_svcb = _svcb_types(states, site.name)
    static = site.static.get(site.name, ())
    failure = "" if speaking else next((state.failure for state in states if state.failure), "")
    if any(state.members for state in speaking):
        addresses, drawn = _addresses(site, speaking, ttl_s, draw, kept)
        fixed = _others(static, ("A", "AAAA", *of_svcb))
    else:
        given = ("A", "AAAA", *of_svcb)
        addresses, drawn = [], False
        fixed = _as_live(static, ttl_s, given) if speaking else _others(static, given)
    services: list[Record] = []
    for state in speaking:
        if state.members and state.pool.svcb_owner == site.name:
            own_addresses = _own_addresses(state, speaking, addresses)
            services, by_chance = _svcb_records(site, state, ttl_s, draw, kept, own_addresses)
            drawn = drawn or by_chance
    naptr: list[Record] = []
    for state in speaking:
        if state.pool.naptr_service is not None:
            texts, by_chance = _naptr(site, state, draw, kept, fitting.room(site.name) // len(speaking))
            drawn = drawn or by_chance
            naptr += [Record(site.name, "NAPTR", OtherData("NAPTR", text), ttl_s) for text in texts]
    fixed = _as_live(fixed, ttl_s, ("NAPTR",)) if naptr else fixed
    return {site.name: Node((*addresses, *naptr, *services, *fixed), failure=failure)}, drawn


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
        if not state.pool.config.cells
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


def _naptr(
    site: Site, state: PoolState, draw: random.Random, kept: Node, room_bytes: int
) -> tuple[list[str], bool]:
    """The data of a pool's NAPTR records, and whether chance chose these: one, or one for each cell shown.

    A NAPTR record has no weight, and clients take the one of the lowest preference. So the cells get their
    preferences in the order of a draw by weight; the pool's own is the first. `room_bytes` are for all.
    """
    config, service = state.pool.config, state.pool.naptr_service
    words = f'{config.naptr_order} {{}} "s" "{service}" "" {{}}'
    if not config.cells or not state.members:
        return [words.format(config.naptr_preference, state.pool.owner)], False
    everyone = active(state.weights)
    owners = {join(config.service, cell): cell for cell in everyone}
    largest = max(fitting.naptr_size("s", service or "", owner) for owner in owners)
    count = min(len(owners), config.max_answers, max(1, room_bytes // largest))
    texts = (record.content for record in kept.records if record.type == "NAPTR")
    shown = [owner for text in texts if (owner := text.rpartition(" ")[2].rstrip(".")) in owners]
    tiers = [everyone[owners[owner]].priority for owner in shown]
    best = min(weighted.priority for weighted in everyone.values())
    if len(shown) != count or tiers != sorted(tiers) or tiers[0] != best:
        shown = [join(config.service, cell) for cell in _in_drawn_tiers(state.weights, draw)[:count]]
    last = 65_535
    preferences = (min(last, config.naptr_preference + place) for place in itertools.count())
    return [words.format(*of_cell) for of_cell in zip(preferences, shown, strict=False)], len(owners) > 1


def _others(records: Iterable[Record], types: Sequence[str]) -> tuple[Record, ...]:
    return tuple(record for record in records if record.type not in types)


def _as_live(records: Iterable[Record], ttl_s: int, types: Sequence[str]) -> tuple[Record, ...]:
    """Fixed records that stand in for live ones, or beside them, live no longer than those."""
    return tuple(
        record._replace(ttl=min(record.ttl, ttl_s)) if record.type in types else record for record in records
    )
