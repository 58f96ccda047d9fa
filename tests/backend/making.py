"""Zones and views for the backend's tests."""

import time
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from random import Random
from typing import Any

from daemon_kit.config_file import parse
from pool_user import BeliefChange, BeliefEvent, Cause, Code, Member, PoolView
from rspdns.answers.building import build
from rspdns.answers.change import Change, difference
from rspdns.answers.snapshot import Found, Snapshot
from rspdns.pdns.responder import PdnsResponder
from rspdns.rrset import Record
from rspdns.zones.configuration import ZoneConfig
from rspdns.zones.file import parse_zone_file
from rspdns.zones.sites import Sites
from rspdns.zones.zone import Zone, make_zone

from rserpool import LeastUsed, Policy, Protocol

ZONE = "ims.example.net"
FIXED = """
$TTL 3600
@    SOA  ns1 hostmaster 1 7200 900 1209600 300
@    NS   ns1
ns1  A    10.0.1.1
"""
UDP = """
[[pool]]
handle = "sip-udp"
label = "u"
service = "_sip._udp"
name = "as"
accept = ["10.0.0.0/8"]
"""
TCP = UDP.replace("udp", "tcp").replace('"u"', '"t"')
NOW = 1000.0
LONG_AGO = 0.0


def zone(pools: str = UDP, fixed: str = FIXED, head: str = "ttl = 1", name: str = ZONE) -> Zone:
    config = parse(f'zone = "{name}"\nstatic = "file"\n{head}\n{pools}', "zone.toml", ZoneConfig)
    return make_zone(config, parse_zone_file(fixed, "zone.zone", name))


def member(
    identifier: int,
    *addresses: str,
    policy: Policy = LeastUsed(0.0),  # noqa: B008 - frozen
    protocol: Protocol = Protocol.UDP,
    since_s: float = LONG_AGO,
    port: int = 5060,
) -> Member:
    own = addresses or (f"10.0.0.{identifier}",)
    return Member(identifier, 1, tuple(map(ip_address, own)), port, protocol, policy, since_s)


def view(*members: Member, handle: str = "sip-udp", **more: Any) -> PoolView:
    return PoolView(handle, members, known=True, **more)


def views(*of_pools: PoolView) -> dict[str, PoolView]:
    return {view_of_pool.handle: view_of_pool for view_of_pool in of_pools}


class Believed:
    """The changes of a belief: from the views that were given last to those that are given."""

    def __init__(self) -> None:
        self._views: Mapping[str, PoolView] = {}

    def to(self, of_pools: Mapping[str, PoolView]) -> BeliefChange:
        before, self._views = self._views, dict(of_pools)
        return BeliefChange.between(before, self._views)


_BUILT: dict[int, tuple[Snapshot, Mapping[str, PoolView]]] = {}
"""By the snapshot's address, what it was built from."""


def built(
    zones: Sequence[Zone],
    of_pools: Mapping[str, PoolView],
    previous: Snapshot | None,
    now: float,
    serial: int,
    draw: Random,
    **options: Any,
) -> Change:
    """The change from `previous` by these views."""
    _, before = _BUILT.get(id(previous), (None, {}))
    change = build(
        zones, BeliefChange.between(before, dict(of_pools)), previous, now, serial, draw, **options
    )
    _BUILT[id(change.after)] = change.after, dict(of_pools)
    return change


def answered(
    zones: Zone | Sequence[Zone],
    of_pools: Mapping[str, PoolView],
    previous: Snapshot | None = None,
    now: float = NOW,
    serial: int = 1,
    seed: int = 1,
) -> Snapshot:
    own = [zones] if isinstance(zones, Zone) else zones
    return built(own, of_pools, previous, now, serial, Random(seed)).after


def swap(responder: PdnsResponder, snapshot: Snapshot) -> Sequence[str]:
    """Have it answer from this snapshot; return the names to purge first."""
    return responder.swap(difference(responder.snapshot, snapshot))


def records(snapshot: Snapshot, name: str, qtype: str) -> list[Record]:
    """The records of an answer; fails when there are none."""
    outcome = snapshot.lookup(name, qtype)
    assert isinstance(outcome, Found), outcome
    return list(outcome.records)


def contents(snapshot: Snapshot, name: str, qtype: str) -> list[str]:
    return [record.content for record in records(snapshot, name, qtype)]


def event(kind: str = "left") -> BeliefEvent:
    return BeliefEvent(time.monotonic(), kind, "sip-udp", 7, Cause(Code.REMOVED))


NETWORK_OF_SITE = {"eu": 1, "us": 2, "ap": 3, "nowhere": 9}


def server(site: str, number: int, load: float = 0.0) -> Member:
    """A member at a site."""
    network = NETWORK_OF_SITE[site]
    return member(network * 100 + number, f"10.{network}.0.{number}", policy=LeastUsed(load))


BASE = 'registrars = ["10.0.0.1"]\n'
EU = '[[site]]\nname = "eu"\nnetworks = ["10.1.0.0/16"]\n'
US = '[[site]]\nname = "us"\nnetworks = ["10.2.0.0/16"]\n'
SITES = Sites({"eu": (ip_network("10.1.0.0/16"),), "us": (ip_network("10.2.0.0/16"),)})
