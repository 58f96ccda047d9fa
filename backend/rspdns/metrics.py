"""The backend's Prometheus metrics, made out of its status and its counters when somebody asks for them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from ipaddress import ip_address
from typing import Any

from daemon_kit.addresses import endpoint
from pool_user import OverrideAction, Standing
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rspdns.event_log import EventLog
from rspdns.member_counts import MemberCounts
from rspdns.status.model import (
    FastPathStatus,
    HookStatus,
    MemberStatus,
    OutStatus,
    PdnsStatus,
    PeerStatus,
    PoolStatus,
    PublicationStatus,
    RegistrarStatus,
    ResolverStatus,
    SecondaryStatus,
    Status,
)

MOST_MEMBERS = 2000
"""Members with series of their own; of more, pools are counted only."""


class BackendMetrics(Collector):
    """`status` gives what `rspdns status` tells.

    `refused` gives the admin API's refusals by reason, `streams` how many listen to events.
    """

    def __init__(
        self,
        status: Callable[[], Status],
        log: EventLog,
        refused: Callable[[], Mapping[str, int]],
        streams: Callable[[], int],
        counts: MemberCounts | None = None,
    ) -> None:
        self._status = status
        self._log = log
        self._refused = refused
        self._streams = streams
        self._counts = counts or MemberCounts()

    def collect(self) -> Iterator[Metric]:
        """Make every family."""
        status = self._status()
        pools = [pool for zone in status.zones for pool in zone.pools]
        yield _gauge("rspdns_uptime_seconds", "Seconds since the backend started", {(): status.uptime_s})
        yield from _pools(pools)
        yield from _sites(pools)
        yield from _members(pools, self._counts)
        yield from _registrars(status.registrars)
        yield from _answers(status)
        yield from _purges(status.pdns)
        yield from _hooks(status.hooks)
        yield from _peers(status.peers)
        yield from _resolvers(status.resolvers)
        yield from _secondaries(status.secondaries)
        yield from _publications(status.publications)
        if status.fastpath is not None:
            yield from _fastpath(status.fastpath)
        # It is there from the start: Prometheus sees no increase in a series that begins at 1.
        counts = {"vanished": 0} | self._log.counts
        yield _counter("rspdns_changes_total", "Events, by kind (joined, left, moved, ...)", counts, "kind")
        left = {"removed": 0} | self._log.departures
        yield _counter("rspdns_departures_total", "Members that left, by cause", left, "cause")
        refused = {"accept": self._log.counts["refused"]}
        help_text = "Refusals by reason: `accept`, a registration; `admin_...`, a request to the admin API"
        refused |= {f"admin_{why}": count for why, count in self._refused().items()}
        yield _counter("rspdns_refusals_total", help_text, refused, "reason")
        help_text = "From a change until every PowerDNS had purged the answers that it changed"
        convergence = HistogramMetricFamily("rspdns_convergence_seconds", help_text)
        self._log.convergence.add_to(convergence)
        yield convergence
        yield _gauge("rspdns_event_streams", "Clients that listen to the event stream", {(): self._streams()})


def _pools(pools: Iterable[PoolStatus]) -> Iterator[Metric]:
    labels: tuple[str, ...] = ("owner",)
    pools = list(pools)
    states = {
        (pool.owner, state): len(servers)
        for pool in pools
        for state, servers in (("in", pool.members), ("out", pool.out))
    }
    yield _gauge("rspdns_pool_members", "Members of a pool, by state", states, "owner", "state")
    expected = {(pool.owner,): pool.expected for pool in pools}
    help_text = "Servers that should be in: `expect`, or all of the last day"
    yield _gauge("rspdns_pool_expected_members", help_text, expected, *labels)
    lacking = {(pool.owner,): pool.missing for pool in pools}
    yield _gauge("rspdns_pool_missing_members", "Expected servers that are not in the pool", lacking, *labels)
    planned = {(pool.owner,): pool.planned for pool in pools}
    help_text = "Servers that a person took out, by an override or a drain; they are not missing"
    yield _gauge("rspdns_pool_planned_members", help_text, planned, *labels)
    known = {(pool.owner,): int(pool.known) for pool in pools}
    yield _gauge(
        "rspdns_pool_known",
        "1 once a registrar told of the pool; before that the answer is SERVFAIL",
        known,
        *labels,
    )
    refused = {
        (pool.owner, reason): count for pool in pools for reason, count in asdict(pool.refused).items()
    }
    help_text = "Registrations refused before anything about them was stored"
    yield _counter("rspdns_pool_refused_total", help_text, refused, "owner", "reason")
    stale: dict[tuple[str, ...], float] = {(pool.owner,): pool.stale_s or 0 for pool in pools}
    yield _gauge(
        "rspdns_pool_stale_seconds",
        "Seconds since no registrar can be believed; 0 while one can",
        stale,
        *labels,
    )
    parts = {(pool.owner, part.name): part for pool in pools for part in pool.handlespaces}
    labels = ("owner", "handlespace")
    inside = {key: part.members for key, part in parts.items()}
    help_text = "Members of a pool that are in, of one handlespace; only where handlespaces have names"
    yield _gauge("rspdns_pool_handlespace_members", help_text, inside, *labels)
    stale = {key: part.stale_s or 0 for key, part in parts.items()}
    help_text = "Seconds since no registrar of the handlespace can be believed; 0 while one can"
    yield _gauge("rspdns_pool_handlespace_stale_seconds", help_text, stale, *labels)


def _sites(pools: Sequence[PoolStatus]) -> Iterator[Metric]:
    sites = {(pool.owner, site.name): site for pool in pools for site in pool.sites}
    ranks = {key: site.rank for key, site in sites.items()}
    help_text = "0 for the site that gets the calls of a pool with `order`; 1, 2, ... for those behind it"
    yield _gauge("rspdns_site_rank", help_text, ranks, "owner", "site")
    members = {key: site.members for key, site in sites.items()}
    yield _gauge("rspdns_site_members", "Members of a pool that are in at the site", members, "owner", "site")


def _members(pools: Sequence[PoolStatus], counts: MemberCounts) -> Iterator[Metric]:
    is_named = any(pool.handlespaces for pool in pools)
    named = ("handlespace",) if is_named else ()
    of_server, labels = ("owner", "address", "name", *named), ("owner", "member", "address", "name", *named)
    state = GaugeMetricFamily(
        "rspdns_member_in",
        "1 while the server is in the answers; 0 while it is out or missing",
        labels=labels,
    )
    weight = GaugeMetricFamily("rspdns_member_weight", "Weight of the server's SRV record", labels=labels)
    priority = GaugeMetricFamily(
        "rspdns_member_priority", "Priority of the server's SRV record", labels=labels
    )
    load = GaugeMetricFamily(
        "rspdns_member_load_ratio", "Load that the server reports, 0 to 1", labels=labels
    )
    changes = CounterMetricFamily(
        "rspdns_member_changes_total", "How often the server came or went", labels=of_server
    )
    down = CounterMetricFamily(
        "rspdns_member_down_seconds_total",
        "Seconds that the server was down; planned time is none",
        labels=of_server,
    )
    now = time.monotonic()
    seen: set[tuple[str, ...]] = set()
    listed: set[tuple[str, ...]] = set()
    for pool in pools:
        servers: list[MemberStatus | OutStatus] = [*pool.members, *pool.out]
        for member in servers:
            address = member.addresses[0] if isinstance(member, MemberStatus) else member.address or ""
            where = endpoint(address, member.port)
            place = (pool.owner, where, *((member.handlespace or "",) if is_named else ()))
            values = pool.owner, member.identifier or "", where, member.name or "", *place[2:]
            # A member that went over to another handle of its pool is out under the old one and in under
            # the new one; a server that registered anew is out under its former identifier.
            is_former = isinstance(member, OutStatus) and address and place in listed
            if values in seen or is_former or len(seen) == MOST_MEMBERS:
                continue
            seen.add(values)
            if place not in listed and address:
                server = pool.owner, where, member.name or "", *place[2:]
                changed, down_s = counts.of(member.handle, (ip_address(address), member.port), now)
                changes.add_metric(server, changed)
                down.add_metric(server, round(down_s, 3))
            listed.add(place)
            state.add_metric(values, int(isinstance(member, MemberStatus)))
            if isinstance(member, MemberStatus):
                shown = ((weight, member.weight), (priority, member.priority), (load, member.load))
                for family, value in shown:
                    if value is not None:
                        family.add_metric(values, value)
    yield from (state, weight, priority, load, changes, down)
    total = sum(len(pool.members) + len(pool.out) for pool in pools)
    help_text = "Members without series of their own, since there are too many"
    yield _gauge("rspdns_members_not_shown", help_text, {(): max(0, total - MOST_MEMBERS)})


def _registrars(registrars: Iterable[RegistrarStatus]) -> Iterator[Metric]:
    registrars = list(registrars)
    is_named = any(registrar.handlespace for registrar in registrars)
    labels = ("number", "address", *(("handlespace",) if is_named else ()))
    by_labels = {
        (str(each.number), each.address, *((each.handlespace or "",) if is_named else ())): each
        for each in registrars
    }
    up = {key: int(registrar.standing is not Standing.DOWN) for key, registrar in by_labels.items()}
    yield _gauge("rspdns_registrar_link_up", "1 while the association with the registrar is up", up, *labels)
    pushing = {key: int(registrar.follow == "enrp") for key, registrar in by_labels.items()}
    yield _gauge(
        "rspdns_registrar_pushes",
        "1 while the registrar pushes its changes (ENRP); 0 while it is polled",
        pushing,
        *labels,
    )
    standings = {
        (*key, standing.value): int(registrar.standing is standing)
        for key, registrar in by_labels.items()
        for standing in Standing
    }
    yield _gauge(
        "rspdns_registrar_standing",
        "1 for the standing that the registrar has: how far it is believed",
        standings,
        *labels,
        "standing",
    )
    trips = {
        key: registrar.round_trip_ms / 1000
        for key, registrar in by_labels.items()
        if registrar.round_trip_ms is not None
    }
    yield _gauge(
        "rspdns_registrar_round_trip_seconds",
        "Round trip of the last question to the registrar",
        trips,
        *labels,
    )


def _answers(status: Status) -> Iterator[Metric]:
    connector, snapshot = status.connector, status.snapshot
    yield _counter("rspdns_queries_total", "Look-ups of PowerDNS, by method", connector.queries, "method")
    yield _counter(
        "rspdns_query_failures_total", "Look-ups of PowerDNS that failed", {(): connector.failures}
    )
    help_text = "Connections that PowerDNS has open"
    yield _gauge("rspdns_connector_connections", help_text, {(): connector.connections})
    yield _counter(
        "rspdns_snapshot_builds_total",
        "Snapshots (all answers of one moment) that were built",
        {(): snapshot.builds},
    )
    if snapshot.age_s is not None:
        yield _gauge(
            "rspdns_snapshot_age_seconds", "Seconds since the last snapshot was built", {(): snapshot.age_s}
        )
    serials = {(zone.zone,): zone.serial for zone in status.zones if zone.serial is not None}
    yield _gauge("rspdns_zone_serial", "SOA serial of the zone", serials, "zone")
    held = Counter((override.action.value,) for override in status.overrides if override.holds)
    yield _gauge(
        "rspdns_overrides",
        "Overrides that hold",
        {(action,): held[(action,)] for action in OverrideAction},
        "action",
    )
    yield _gauge("rspdns_problems", "Problems that `rspdns status` reports", {(): len(status.problems)})


def _purges(sockets: Iterable[PdnsStatus]) -> Iterator[Metric]:
    sockets = list(sockets)
    for name, key, help_text in (
        ("rspdns_purge_commands_total", "commands", "Purge commands sent to PowerDNS"),
        ("rspdns_purged_names_total", "names", "Names that were purged"),
        (
            "rspdns_purge_repeats_total",
            "repeats",
            "Names that were purged once more, a moment after the first time",
        ),
        ("rspdns_purge_failures_total", "failures", "Purge commands that did not reach PowerDNS"),
    ):
        yield _counter(
            name, help_text, {(socket.control,): getattr(socket, key) for socket in sockets}, "control"
        )
    waiting = {(socket.control,): socket.waiting for socket in sockets}
    yield _gauge("rspdns_purge_waiting", "Names that wait for a purge", waiting, "control")
    works = {(socket.control,): int(socket.problem is None) for socket in sockets}
    yield _gauge("rspdns_purge_works", "1 while purge commands reach PowerDNS", works, "control")


def _hooks(hooks: Sequence[HookStatus]) -> Iterator[Metric]:
    works = {(hook.name,): int(hook.problem is None) for hook in hooks}
    yield _gauge("rspdns_hook_works", "1 while messages reach the hook", works, "hook")
    pending = {(hook.name,): hook.pending for hook in hooks}
    yield _gauge("rspdns_hook_pending", "Changes that wait for the hook, at most", pending, "hook")
    for name, key, help_text in (
        ("rspdns_hook_delivered_total", "delivered", "Events that the hook took"),
        ("rspdns_hook_failures_total", "failed", "Tries to reach the hook that failed"),
        ("rspdns_hook_lost_total", "lost", "Changes that the hook will never be told of, at most"),
    ):
        yield _counter(name, help_text, {(hook.name,): getattr(hook, key) for hook in hooks}, "hook")


def _peers(peers: Sequence[PeerStatus]) -> Iterator[Metric]:
    works = {(peer.name,): int(peer.problem is None) for peer in peers}
    yield _gauge("rspdns_peer_works", "1 while the other name server can be asked", works, "peer")
    differing = {(peer.name,): len(peer.differences) for peer in peers}
    help_text = "Overrides that differ between the other name server and this one"
    yield _gauge("rspdns_peer_differences", help_text, differing, "peer")


def _resolvers(resolvers: Sequence[ResolverStatus]) -> Iterator[Metric]:
    works = {(each.name,): int(each.problem is None) for each in resolvers}
    yield _gauge("rspdns_resolver_works", "1 while the resolver can be told of changes", works, "resolver")
    waiting = {(each.name,): each.waiting for each in resolvers}
    yield _gauge("rspdns_resolver_waiting", "Names that the resolver must be told yet", waiting, "resolver")
    for name, key, help_text in (
        ("rspdns_resolver_flushes_total", "flushes", "Times that the resolver was told of changes"),
        ("rspdns_resolver_flushed_names_total", "names", "Names that it was told, each twice"),
        ("rspdns_resolver_failures_total", "failed", "Times that it could not be told"),
    ):
        yield _counter(name, help_text, {(each.name,): getattr(each, key) for each in resolvers}, "resolver")


def _secondaries(secondaries: Sequence[SecondaryStatus]) -> Iterator[Metric]:
    works = {(each.name,): int(each.problem is None) for each in secondaries}
    yield _gauge("rspdns_secondary_works", "1 while the secondary follows all its zones", works, "secondary")
    lacking = {(each.name,): each.of_zones - each.right for each in secondaries}
    help_text = "Zones of the secondary that were not right when it was asked last"
    yield _gauge("rspdns_secondary_zones_behind", help_text, lacking, "secondary")
    for name, key, help_text in (
        ("rspdns_secondary_notifies_total", "notifies", "NOTIFYs that were sent to the secondary"),
        ("rspdns_secondary_repeats_total", "repeats", "Those of them that were for the same serial again"),
    ):
        yield _counter(
            name, help_text, {(each.name,): getattr(each, key) for each in secondaries}, "secondary"
        )


def _publications(publications: Sequence[PublicationStatus]) -> Iterator[Metric]:
    states = {(each.name,): int(each.state == "right") for each in publications}
    help_text = "1 while the name server has all that it is to be sent by DNS UPDATE"
    yield _gauge("rspdns_publication_right", help_text, states, "publication")
    works = {(each.name,): int(each.problem is None) for each in publications}
    yield _gauge("rspdns_publication_works", "1 while the name server takes updates", works, "publication")
    waiting = {(each.name,): each.waiting for each in publications}
    yield _gauge("rspdns_publication_waiting", "RRsets that are to be changed there", waiting, "publication")
    for name, key, help_text in (
        ("rspdns_publication_sent_total", "sent", "Messages by which the name server changed something"),
        ("rspdns_publication_failures_total", "failed", "Messages to the name server that failed"),
        ("rspdns_publication_edits_total", "edits", "RRsets that somebody else had changed there"),
    ):
        values = {(each.name,): getattr(each, key) for each in publications}
        yield _counter(name, help_text, values, "publication")


def _fastpath(fast: FastPathStatus) -> Iterator[Metric]:
    yield _gauge("rspdns_fastpath_up", "1 while the kernel answers", {(): int(fast.problem is None)})
    yield _gauge("rspdns_fastpath_names", "Questions with ready answers", {(): fast.names})
    help_text = "Names for which rspdns-fastpath had no room"
    yield _counter("rspdns_fastpath_refused_names_total", help_text, {(): fast.refused})
    help_text = "Questions at the fast path, by what became of them"
    yield _counter("rspdns_fastpath_decisions_total", help_text, fast.decisions, "decision")
    attached = {(interface.name,): int(interface.attached) for interface in fast.interfaces}
    yield _gauge("rspdns_fastpath_attached", "1 while attached to the interface", attached, "interface")
    answered = {(asked.name, asked.type): asked.answered for asked in fast.asked}
    help_text = "Questions that the kernel answered, of the names asked about most"
    yield _counter("rspdns_fastpath_answered_total", help_text, answered, "name", "type")
    passed = {(asked.name, asked.type): asked.passed for asked in fast.asked}
    help_text = "Questions about these names that were passed on to PowerDNS"
    yield _counter("rspdns_fastpath_passed_total", help_text, passed, "name", "type")
    failed = {(asked.name, asked.type): asked.failed for asked in fast.asked}
    help_text = "Answers to questions about these names that the kernel could not write into their packet"
    yield _counter("rspdns_fastpath_failed_total", help_text, failed, "name", "type")


def _gauge(name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _counter(name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
    """A counter; with one label, its values may be the keys."""
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric([key] if isinstance(key, str) else list(key), value)
    return family
