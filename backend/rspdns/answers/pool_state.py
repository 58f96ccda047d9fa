"""The state that a pool's answers are made from: its members or their substitutes, and their weights.
Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType
from typing import NamedTuple

from pool_user import BeliefChange, Member, PoolChange, PoolView, Weighted, weights

from rserpool import Protocol
from rspdns import fitting
from rspdns.answers.site_order import SiteState, in_order, next_change_s, ranked, site_states
from rspdns.rrset import AddressData, Node, Record
from rspdns.zones.cells import Cell, cell_at
from rspdns.zones.zone import Pool

WEIGHTS_HOLD_S = 1.0
"""Weights move at most this often, in seconds: each move is a purge. Members come in and go out at once."""


class PoolState(NamedTuple):
    """One pool at one moment. `members` and `weights` by target label, `targets` the nodes by target name.

    `live` tells members that are in from the last good ones of an empty pool. With none, `failure` says
    why the answer is SERVFAIL, `static` that the zone file's records stand in; without both it is NODATA.
    `weighed_at_s` (monotonic) is when the weights moved last, `rebuild_at_s` when time alone changes the
    state. `own_weights` are the weights before sites and shares. `unsettled` are the labels whose weights
    time alone may move, `first_s` is when the oldest of the members came in.

    `view` is that of the `members`, None where they are of several shards, or not live. `changed` are the
    labels that differ from the state before; None: any may. `sites` are those of a pool with an order.
    `is_transferred`: the records are for a zone transfer, which holds the whole pool.
    """

    pool: Pool
    members: Mapping[str, Member] = MappingProxyType({})
    weights: Mapping[str, Weighted] = MappingProxyType({})
    own_weights: Mapping[str, Weighted] = MappingProxyType({})
    targets: Mapping[str, Node] = MappingProxyType({})
    live: bool = False
    static: bool = False
    failure: str = ""
    weighed_at_s: float | None = None
    rebuild_at_s: float = float("inf")
    unsettled: frozenset[str] = frozenset()
    first_s: float = float("inf")
    view: PoolView | None = None
    sites: Mapping[str, SiteState] = MappingProxyType({})
    changed: frozenset[str] | None = None
    is_transferred: bool = False

    def gives_the_records_of(self, other: PoolState) -> bool:
        """Whether the records made from this state and from `other`, the one before, are the same, chance
        apart: a load that moves no weight has no part in them."""
        return (
            (self.live, self.static, self.failure) == (other.live, other.static, other.failure)
            and self.pool == other.pool
            and self.weights == other.weights
            and self.targets == other.targets
            and all(
                self.members[label].port == other.members[label].port
                for label in (self.members if self.changed is None else self.changed & self.members.keys())
            )
        )

    def gives_the_orders_of(self, other: PoolState) -> bool:
        """Whether also the records with other orders of its sites are the same."""
        return self.own_weights == other.own_weights and self._standing == other._standing

    @property
    def _standing(self) -> dict[str, tuple[bool, bool]]:
        return {name: (site.is_enough, site.is_hot) for name, site in self.sites.items()}


def state_of(
    pool: Pool,
    believed: BeliefChange,
    before: PoolState | None,
    now: float,
    max_stale_s: float,
    ttl_s: int,
) -> PoolState:
    """The state of a pool after a change of the belief, `before` being its state in the build before.

    `ttl_s` is that of its targets' addresses; `before` had the same, or has no `view` and no `targets`.
    """
    views = [believed.views.get(handle) or PoolView(handle) for handle in pool.config.shards]
    usable, stale_at_s = [], float("inf")
    for view in views:
        until_s = float("inf") if view.stale_since_s is None else view.stale_since_s + max_stale_s
        if view.known and now < until_s:
            usable.append(view)
            stale_at_s = min(stale_at_s, until_s)
    if not usable:
        return PoolState(pool, failure=_why_unknown(pool, views))
    if before is not None and len(views) == 1 and not pool.config.cells:
        step = _step(pool, views[0], before, believed.pools.get(views[0].handle))
        if step is not None and step.members:
            return _weighed(step, before, now, stale_at_s, ttl_s)
    members = by_label(pool, [(view.handle, view.members) for view in usable])
    if members:
        view_of_all = views[0] if len(views) == 1 else None
        return _weighed(PoolState(pool, members, live=True, view=view_of_all), before, now, stale_at_s, ttl_s)
    if len(usable) < len(views):  # members may well live in the shard that nobody tells of
        return PoolState(pool, failure=_why_unknown(pool, [view for view in views if view not in usable]))
    unreachable = by_label(pool, [(view.handle, view.unreachable) for view in usable])
    if unreachable:  # by the backend's own probe: a fault on its way must not empty a pool
        return _weighed(PoolState(pool, unreachable), before, now, stale_at_s, ttl_s)
    match pool.config.when_empty:
        case "last-good":
            recent = by_label(pool, [(view.handle, view.recent) for view in usable])
            return _weighed(PoolState(pool, recent), before, now, stale_at_s, ttl_s)
        case "static":
            return PoolState(pool, static=True, rebuild_at_s=stale_at_s)
        case "servfail":
            return PoolState(pool, failure=f"the pool {_handles(pool)} is empty", rebuild_at_s=stale_at_s)
        case "nodata":
            return PoolState(pool, rebuild_at_s=stale_at_s)


def _step(pool: Pool, view: PoolView, before: PoolState, change: PoolChange | None) -> PoolState | None:
    """The members of a view by what changed since the state before; None where that is of another view."""
    if before.view is view:
        return PoolState(pool, before.members, live=True, view=view, changed=frozenset())
    if change is None or before.view is not change.before or change.after is not view:
        return None
    members, changed = dict(before.members), set()
    for departure in change.left:
        label = _label(departure.member)
        if members.pop(label, None) is not None:
            changed.add(label)
    for member in (*change.joined, *(new for _, new in change.moved)):
        label = _label(member)
        if member.protocol == pool.config.protocol:
            members[label] = member
        elif members.pop(label, None) is None:
            continue
        changed.add(label)
    return PoolState(pool, members, live=True, view=view, changed=frozenset(changed))


def _why_unknown(pool: Pool, views: Sequence[PoolView]) -> str:
    if any(view.known for view in views):
        return f"for too long no registrar could vouch for the pool {_handles(pool)}"
    return f"no registrar has told of the pool {_handles(pool)} yet"


def _handles(pool: Pool) -> str:
    return ", ".join(pool.config.shards)


def by_label(pool: Pool, shards: Sequence[tuple[str, Sequence[Member]]]) -> dict[str, Member]:
    """The members of these shards by target label, those of another transport protocol left out.

    PE identifiers are unique within a handle only: where two shards have the same, the later gets a number.
    Two handlespaces have no label in common. The first of a cell's gateways stands for it.
    """
    labelled: dict[str, Member] = {}
    protocol = pool.config.protocol
    if pool.config.cells:
        return _by_cell(pool.config.cells, (each for _, of_shard in shards for each in of_shard), protocol)
    for number, (shard, members) in enumerate(shards, start=1):
        for member in members:
            if member.protocol == protocol:
                label = pool.config.member_label(member.identifier, shard)
                if label in labelled:
                    label = f"{label[:8]}-{number}{label[8:]}"
                labelled[label] = member
    return labelled


def _by_cell(cells: Sequence[Cell], gateways: Iterable[Member], protocol: Protocol) -> dict[str, Member]:
    labelled: dict[str, Member] = {}
    for gateway in gateways:
        cell = cell_at(cells, gateway.addresses[0])
        if cell is not None and gateway.protocol == protocol:
            labelled.setdefault(cell, gateway)
    return labelled


def _label(member: Member) -> str:
    return f"{member.identifier:08x}"


def _held(fresh: Weighted, old: Weighted | None) -> Weighted:
    """The weight of before, unless the priority is another one."""
    is_same = old is not None and (old.priority, old.standby) == (fresh.priority, fresh.standby)
    return old if old is not None and is_same else fresh


def _weighed(
    state: PoolState, before: PoolState | None, now: float, rebuild_at_s: float, ttl_s: int
) -> PoolState:
    """The state with the weights of its members, those of before while they may not move yet, and with the
    nodes of their targets."""
    slow_start_s = state.pool.config.slow_start_s
    old: Mapping[str, Weighted] = before.own_weights if before is not None else {}
    old_s = before.weighed_at_s if before is not None else None
    first_s = min((member.since_s for member in state.members.values()), default=float("inf"))
    due = _due(state, before, now, first_s)
    wide = state.pool.config.weights == "wide"
    fresh = weights.weigh(state.members, old, now, slow_start_s, due, wide)
    given, weighed_at_s = fresh, now
    if old_s is not None and fresh == old:
        weighed_at_s = old_s
    elif old_s is not None and now - old_s < WEIGHTS_HOLD_S:
        if fresh.keys() == old.keys():
            given = dict(old)
        else:
            given = fresh | {label: _held(fresh[label], old.get(label)) for label in due}
        weighed_at_s, rebuild_at_s = old_s, min(rebuild_at_s, old_s + WEIGHTS_HOLD_S)
    growing = weights.growing(state.members, now, slow_start_s, due)
    if growing:
        rebuild_at_s = min(rebuild_at_s, now + WEIGHTS_HOLD_S)
    rules, sites = state.pool.sites, before.sites if before is not None else {}
    if rules is not None:
        sites = site_states(rules, state.members, sites, now)
        rebuild_at_s = min(rebuild_at_s, next_change_s(rules, sites))
    return state._replace(
        weights=_shown_weights(state, given, sites),
        own_weights=given,
        targets=_targets(state, before, ttl_s),
        weighed_at_s=weighed_at_s,
        rebuild_at_s=rebuild_at_s,
        first_s=first_s,
        sites=sites,
        unsettled=frozenset(growing | {label for label in due if given.get(label) != fresh.get(label)}),
    )


def _shown_weights(
    state: PoolState, own: Mapping[str, Weighted], sites: Mapping[str, SiteState]
) -> dict[str, Weighted]:
    """The weights of the answers, made of the members' own ones by sites and shares."""
    rules = state.pool.sites
    at_sites = own if rules is None else ranked(rules, sites, state.members, own)
    return weights.with_shares(state.members, at_sites)


def with_site_order(state: PoolState, names: Sequence[str]) -> PoolState:
    """The state as if the sites of the pool had this order; the same state if it has no sites: a pool that is
    empty or unknown."""
    if not state.sites:
        return state
    sites = in_order(state.sites, names)
    return state._replace(weights=_shown_weights(state, state.own_weights, sites), sites=sites)


def _due(state: PoolState, before: PoolState | None, now: float, first_s: float) -> Collection[str]:
    """The labels whose weights may be others than before: all, where the weight of a member depends on
    others that changed."""
    if state.changed is None or before is None or state.pool.config.weights == "wide":
        return state.members.keys()
    labels = state.changed | before.unsettled
    concerned = [
        member
        for members in (before.members, state.members)
        for label in labels
        if (member := members.get(label)) is not None
    ]
    if any(member.share is not None or weights.is_relative(member.policy) for member in concerned):
        return state.members.keys()
    if first_s != before.first_s:  # slow start depends on it
        since_s = now - state.pool.config.slow_start_s
        labels |= {label for label, member in state.members.items() if member.since_s > since_s}
    return labels & state.members.keys()


def _targets(state: PoolState, before: PoolState | None, ttl_s: int) -> Mapping[str, Node]:
    """The nodes of the members' targets by name; those of before where the addresses are the same. The names
    of cells are not ours."""
    if state.pool.config.cells:
        return {}
    old: Mapping[str, Node] = before.targets if before is not None else {}
    if before is None or state.changed is None:
        labels: Iterable[str] = state.members
        targets: dict[str, Node] = {}
    elif not state.changed:
        return old
    else:
        labels, targets = state.changed, dict(old)
    for label in labels:
        name, member = state.pool.target(label), state.members.get(label)
        known = before.members.get(label) if before is not None else None
        if member is None:
            targets.pop(name, None)
        elif known is not None and known.addresses == member.addresses and name in old:
            targets[name] = old[name]
        else:
            shown = fitting.addresses_beside(state.pool.owner, name, member.addresses)
            targets[name] = Node(tuple(_address(name, address, ttl_s) for address in shown))
    return targets


def _address(name: str, address: IPv4Address | IPv6Address, ttl_s: int) -> Record:
    return Record(name, "A" if address.version == 4 else "AAAA", AddressData(address.packed), ttl_s)
