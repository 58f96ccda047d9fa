"""Statuses on paper, whole and right: each value can be given another one."""

from typing import Any

from pool_user import Code, Standing
from rspdns.status.model import (
    ConnectorStatus,
    EventStatus,
    MemberStatus,
    OutStatus,
    PdnsStatus,
    PoolStatus,
    PublicationStatus,
    RefusedStatus,
    RegistrarStatus,
    ResolverStatus,
    SecondaryStatus,
    SecondaryZoneStatus,
    SnapshotStatus,
    Status,
    ZoneStatus,
    dumped,
    read,
)

OWNER = "_sip._udp.as.ims.example.net"
HANDLE = "sip-as-udp"
SERIAL = 1795379901


def member_status(number: int = 1, **other: Any) -> MemberStatus:
    values: dict[str, Any] = {
        "handle": HANDLE,
        "name": None,
        "identifier": f"{number:08x}",
        "addresses": [f"10.20.0.{number}"],
        "port": 5060,
        "protocol": "udp",
        "home_registrar": "0000000a",
        "policy": "LeastUsed",
        "load": 0.25,
        "priority": 0,
        "weight": 1000,
        "since_s": 4030.6,
        "stale": False,
        "share": None,
        "site": None,
    }
    return MemberStatus(**values | other)


def out_status(**other: Any) -> OutStatus:
    values: dict[str, Any] = {
        "handle": HANDLE,
        "name": None,
        "identifier": "000000ff",
        "address": "10.20.0.99",
        "port": 5060,
        "reason": "left",
        "cause": Code.GONE,
        "look_at": "",
        "missing": False,
        "planned": False,
        "planned_s": None,
        "since_s": 12.0,
    }
    return OutStatus(**values | other)


def pool_status(**other: Any) -> PoolStatus:
    values: dict[str, Any] = {
        "handles": [HANDLE],
        "name": "as.ims.example.net",
        "owner": OWNER,
        "svcb_owner": None,
        "when_empty": "last-good",
        "verify": None,
        "known": True,
        "stale_s": None,
        "answered_instead": None,
        "members": [],
        "out": [],
        "missing": 0,
        "planned": 0,
        "refused": RefusedStatus(0, 0, 0),
        "sites": [],
        "handlespaces": [],
    }
    values |= other
    values.setdefault("expected", len(values["members"]))
    return PoolStatus(**values)


def registrar_status(number: int = 1, **other: Any) -> RegistrarStatus:
    values: dict[str, Any] = {
        "number": number,
        "address": f"10.0.0.{number}",
        "standing": Standing.SETTLED,
        "why": "it is settled",
        "identifier": f"{number + 9:08x}",
        "since_s": 60.0,
        "follow": "enrp",
        "follow_problem": None,
        "round_trip_ms": 1.234,
    }
    return RegistrarStatus(**values | other)


def event_status(**other: Any) -> EventStatus:
    values: dict[str, Any] = {
        "number": 1,
        "at_s": 1.5,
        "kind": "joined",
        "handle": HANDLE,
        "identifier": "00000001",
        "address": None,
        "name": None,
        "words": "registered at registrar 1 (10.0.0.11)",
        "cause": Code.REGISTERED,
        "converged_ms": 7.25,
    }
    return EventStatus(**values | other)


def pdns_status(**other: Any) -> PdnsStatus:
    values: dict[str, Any] = {
        "control": "/run/pdns/pdns.controlsocket",
        "commands": 12,
        "names": 24,
        "repeats": 12,
        "failures": 0,
        "waiting": 0,
        "problem": None,
    }
    return PdnsStatus(**values | other)


def secondary_status(problem: str | None = None, **other: Any) -> SecondaryStatus:
    zone = SecondaryZoneStatus("ims.example.net", SERIAL, 0, 1.5, problem)
    values: dict[str, Any] = {
        "name": "nsd-1",
        "address": "192.0.2.53",
        "notifies": 9,
        "repeats": 1,
        "right": 0 if problem else 1,
        "of_zones": 1,
        "zones": [zone],
    }
    return SecondaryStatus(**values | other)


def resolver_status(**other: Any) -> ResolverStatus:
    values: dict[str, Any] = {"flushes": 4, "names": 12, "failed": 0, "waiting": 0, "problem": None}
    return ResolverStatus("cache-1", "unbound", "192.0.2.1:8953", **values | other)


def publication_status(**other: Any) -> PublicationStatus:
    values: dict[str, Any] = {
        "name": "primary",
        "server": "192.0.2.54:53",
        "zone": "ims.example.net",
        "state": "right",
        "rrsets": 5,
        "waiting": 0,
        "waiting_names": [],
        "sent": 3,
        "failed": 0,
        "edits": 0,
        "right_s": 0.0,
        "silent": None,
        "problem": None,
    }
    return PublicationStatus(**values | other)


def status(*pools: PoolStatus, **other: Any) -> Status:
    values: dict[str, Any] = {
        "host": "ns1",
        "version": "1.0",
        "uptime_s": 4030.6,
        "registrars": [],
        "zones": [ZoneStatus("ims.example.net", SERIAL, list(pools))] if pools else [],
        "pdns": [],
        "connector": ConnectorStatus(1, {"lookup": 3}, 0),
        "snapshot": SnapshotStatus(1, 0.5),
        "reload": None,
        "problems": [],
        "events": [],
        "overrides": [],
        "hooks": [],
        "peers": [],
        "resolvers": [],
        "secondaries": [],
        "publications": [],
        "fastpath": None,
    }
    return Status(**values | other)


def valid(told: Status) -> Status:
    """The same after its way over the control socket: what is no status fails."""
    return read(dumped(told))
