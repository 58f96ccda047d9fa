"""The answers that depend on the asker: sites by nearness, and the servers of an asker first (`affinity`).

PowerDNS must not keep these: each record carries its scope, the length of the prefix that the answer is for.

Affinity is weighted rendezvous hashing (Thaler and Ravishankar, 1998; Schindelhauer and Schomaker, 2005):
each server gets a number from the asker's prefix and its own address, and the best number comes first. So a
server that leaves moves its own askers alone, and shares are those of the weights.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from pool_user import Member, Weighted

from rspdns.answers.pool_state import PoolState, with_site_order
from rspdns.answers.records import first_tier, live_nodes
from rspdns.answers.snapshot import NodeByAsker
from rspdns.rrset import Node
from rspdns.zones.near import AskerPrefix
from rspdns.zones.zone import Pool, Site

MOST_KEPT = 512
"""The most answers of a site that are kept, and orders of its sites."""
REDRAW_S = 1.0
"""Records chosen by chance are chosen anew after this time, in seconds."""
LONGEST = {4: 32, 6: 64}
"""The bits of an asker's address that affinity looks at: a host has many addresses in its IPv6 network."""
_HASHES = 2**64


class _KeptNodes(NamedTuple):
    nodes: Mapping[str, Node]
    until_s: float


class AskerAnswers:
    """The answers of one site that depend on the asker, for as long as the state of its pools is the same.

    Nodes are made when they are asked for, and a few are kept.
    """

    def __init__(self, site: Site, states: Sequence[PoolState], ttl_s: int, draw: random.Random) -> None:
        self.replies: dict[Hashable, tuple[Node | None, bytes]] = {}
        self._site = site
        self._states = states
        self._ttl_s = ttl_s
        self._draw = draw
        self._kept: dict[object, _KeptNodes] = {}
        self._orders: dict[tuple[int, tuple[str, ...]], PoolState] = {}
        """By position of a pool and order of its sites, the state with this order."""

    def answer(self, name: str, asker: AskerPrefix, now: float) -> NodeByAsker:
        """The node of a name of the site for this asker."""
        prefix, states, key = b"", [], []
        for position, state in enumerate(self._states):
            order = _order(state.pool, asker)
            ordered = state if order is None else self._ordered(position, order)
            first: tuple[str, ...] = ()
            if state.pool.config.affinity is not None:
                prefix = prefix or _of_affinity(asker).packed
                first = first_for(prefix, ordered.members, ordered.weights)
            states.append(ordered)
            key.append((order, first))
        kept = self._kept.get(tuple(key))
        if kept is None or now >= kept.until_s:
            kept = self._make(
                [with_first(state, first) for state, (_, first) in zip(states, key, strict=True)], now
            )
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[tuple(key)] = kept
        return NodeByAsker(kept.nodes.get(name), self._scope(asker))

    def of_class(
        self, orders: Sequence[Sequence[str] | None], draw: random.Random
    ) -> tuple[Mapping[str, Node], bool]:
        """The nodes for askers whose `near` orders these are, pool by pool, and whether chance chose them."""
        states = [
            state if order is None else self._ordered(position, _whole_order(state.pool, order))
            for position, (state, order) in enumerate(zip(self._states, orders, strict=True))
        ]
        return live_nodes(self._site, states, self._ttl_s, draw)

    def _scope(self, asker: AskerPrefix) -> int:
        """The length of the prefix that all answers of the site to this asker are for.

        It is never 0: PowerDNS would keep the answer for everybody.
        """
        scopes = [1]
        for pool in self._site.pools:
            if pool.near is not None:
                scopes.append(pool.near.scope(asker))
            if pool.config.affinity is not None:
                scopes.append(_of_affinity(asker).length)
        return max(scopes)

    def _make(self, states: Sequence[PoolState], now: float) -> _KeptNodes:
        nodes, drawn = live_nodes(self._site, states, self._ttl_s, self._draw)
        return _KeptNodes(nodes, now + max(REDRAW_S, self._ttl_s) if drawn else float("inf"))

    def _ordered(self, position: int, order: tuple[str, ...]) -> PoolState:
        key = position, order
        if key not in self._orders:
            if len(self._orders) >= MOST_KEPT:
                self._orders.clear()
            self._orders[key] = with_site_order(self._states[position], order)
        return self._orders[key]


def depends_on_asker(site: Site) -> bool:
    """Whether the answers of a site are not the same for all."""
    return any(pool.depends_on_asker for pool in site.pools)


def _order(pool: Pool, asker: AskerPrefix) -> tuple[str, ...] | None:
    """The order of a pool's sites for an asker; None: that of the pool."""
    order = pool.near.order(asker) if pool.near is not None else None
    return _whole_order(pool, order) if order is not None and pool.sites is not None else None


def _whole_order(pool: Pool, order: Sequence[str]) -> tuple[str, ...]:
    """All sites of a pool: those that `order` names first."""
    names = pool.sites.names if pool.sites is not None else ()
    return (*(name for name in order if name in names), *(name for name in names if name not in order))


def _of_affinity(asker: AskerPrefix) -> AskerPrefix:
    """The part of an asker's prefix that affinity looks at."""
    longest = LONGEST[asker.version]
    if asker.length <= longest:
        return asker
    unused = (32 if asker.version == 4 else 128) - longest
    return asker._replace(address=asker.address >> unused << unused, length=longest)


def first_for(
    prefix: bytes, members: Mapping[str, Member], weighted: Mapping[str, Weighted]
) -> tuple[str, ...]:
    """The first server of an asker and its second, among those of the best priority."""
    arrivals = [
        (_arrival(prefix, members[label], each.weight), label) for label, each in first_tier(weighted).items()
    ]
    return tuple(label for _, label in sorted(arrivals)[:2])


def with_first(state: PoolState, first: Sequence[str]) -> PoolState:
    """The state with these members before all others, each with a priority of its own.

    The others keep theirs behind them. So few answers differ, however many askers there are.
    """
    if not first:
        return state
    best = state.weights[first[0]].priority
    behind = {
        label: each._replace(priority=each.priority + len(first)) for label, each in state.weights.items()
    }
    before = {label: state.weights[label]._replace(priority=best + n) for n, label in enumerate(first)}
    return state._replace(weights=behind | before)


def _arrival(prefix: bytes, member: Member, weight: int) -> float:
    """The time at which a member arrives at an asker: exponential with its weight as the rate, so that it is
    the first one as often as its weight says. Its address counts, not its identifier, which a restart
    changes."""
    address, port = member.server_address
    digest = blake2b(prefix, digest_size=8, key=address.packed + port.to_bytes(2, "big")).digest()
    return -math.log((int.from_bytes(digest, "big") + 0.5) / _HASHES) / weight
