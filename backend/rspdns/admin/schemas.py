"""The values that the admin API gives and takes, as JSON Schema; field names are those of the files."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def _object(description: str, **properties: Schema) -> Schema:
    """An object with at least these fields: more may come within /v1/."""
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(properties),
    }


def _list(of: str) -> Schema:
    return {"type": "array", "items": _ref(of)}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _text(description: str = "") -> Schema:
    return {"type": "string", **({"description": description} if description else {})}


def _number(description: str = "", kind: str = "number") -> Schema:
    return {"type": kind, "minimum": 0, **({"description": description} if description else {})}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


_TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
_COUNT = _number(kind="integer")
_HEX = {"type": "string", "pattern": "^[0-9a-f]{8}$"}

_NAME = _or_null(_text("what `expect` calls the server; null: no name"))
_MEMBER = _object(
    "A pool element that is in: clients are sent to it.",
    name=_NAME,
    handle=_text("the pool handle it is registered under"),
    identifier={**_HEX, "description": "PE identifier, as in its target name"},
    addresses=_TEXTS,
    port=_COUNT,
    protocol=_text("udp, tcp or sctp"),
    home_registrar={**_HEX, "description": "identifier of the registrar it registered at"},
    policy=_text("its policy (RFC 5356)"),
    load=_or_null(_number("0..1; null where its policy has none")),
    priority=_or_null(_number("of its SRV record; null: not shown in this pool", "integer")),
    weight=_or_null(_number("of its SRV record", "integer")),
    since_s=_number("how long it has been in"),
    stale={"type": "boolean", "description": "in from memory: no registrar vouches for it at present"},
)
_OUT = _object(
    "A server that is known or expected, and not shown.",
    name=_NAME,
    handle=_text("the pool handle it is registered under"),
    identifier=_or_null(_HEX),
    address=_or_null(_text()),
    port=_COUNT,
    reason=_text("why it is out"),
    look_at=_text("what to look at next; empty: nothing helps but waiting"),
    missing={"type": "boolean", "description": "it should be in"},
    since_s=_or_null(_number("how long it has been out; null: never seen")),
)
_POOL: dict[str, Schema] = {
    "handles": {**_TEXTS, "description": "pool handles: one, or the shards of one pool"},
    "name": _text("where its A, AAAA and NAPTR records stand"),
    "owner": _text("where its SRV records stand"),
    "when_empty": {"enum": ["last-good", "static", "nodata", "servfail"]},
    "verify": _or_null(_text("how the backend itself probes the members; null: it does not")),
    "known": {"type": "boolean", "description": "false: no registrar has told of it yet, SERVFAIL"},
    "stale_s": _or_null(_number("since when no registrar can be believed; null while one can")),
    "answered_instead": _or_null(_text("what is answered since nobody lives")),
    "expected": _number("servers that should be in", "integer"),
    "missing": _number("of these, those that are not", "integer"),
    "members": _list("Member"),
    "out": _list("Out"),
    "refused": _object(
        "Registrations refused before anything about them was stored, since the start.",
        foreign=_number("outside accept, beyond the few that are shown", "integer"),
        too_many=_number("beyond max_members", "integer"),
    ),
}
_REGISTRAR = _object(
    "A registrar.",
    number=_COUNT,
    address=_text(),
    standing={"enum": ["down", "silent", "starting", "waking", "settled"]},
    why=_text("what that means"),
    identifier=_or_null(_HEX),
    since_s=_or_null(_number("how long it has this standing")),
    round_trip_ms=_or_null(_number("of the last question")),
    follow=_text("enrp: it pushes every change; poll: it is asked"),
    follow_problem=_or_null(_text("why it pushes nothing although it should")),
)
_EVENT = _object(
    "Something that happened.",
    number=_number("rises by one with each event since the start", "integer"),
    at_s=_number("wall clock, seconds since 1970"),
    kind=_text("joined, left, moved, examined, refused, questioned, registrar or misplaced"),
    handle=_text("the pool; empty for registrars"),
    identifier=_or_null(_HEX),
    address=_or_null(_text("address and port of the server")),
    name=_NAME,
    words=_text("why"),
    converged_ms=_or_null(
        _number("from the event until every PowerDNS had purged the answers it changed; null: not (yet)")
    ),
)
_PDNS = _object(
    "A control socket of PowerDNS.",
    control=_text("its path"),
    commands=_COUNT,
    names=_number("names purged", "integer"),
    repeats=_number("of these, those purged again", "integer"),
    failures=_COUNT,
    waiting=_number("names that wait for a purge", "integer"),
    problem=_or_null(_text("why the last command did not get through")),
)
_ZONE: dict[str, Schema] = {"zone": _text(), "serial": _or_null(_COUNT), "pools": _list("Pool")}

SCHEMAS: dict[str, Schema] = {
    "Member": _MEMBER,
    "Out": _OUT,
    "Pool": _object("A pool of a zone.", **_POOL),
    "PoolOfZone": _object("A pool, with the zone it is in.", zone=_text(), serial=_or_null(_COUNT), **_POOL),
    "Pools": _object("All pools.", pools=_list("PoolOfZone")),
    "Zone": _object("A zone with its pools.", **_ZONE),
    "Zones": _object("All zones.", zones=_list("Zone")),
    "Registrar": _REGISTRAR,
    "Registrars": _object("All registrars.", registrars=_list("Registrar")),
    "Event": _EVENT,
    "Events": _object("The last events.", events=_list("Event")),
    "Pdns": _PDNS,
    "Connector": _object(
        "PowerDNS's questions.",
        connections=_COUNT,
        queries={"type": "object", "additionalProperties": _COUNT, "description": "by method"},
        failures=_COUNT,
    ),
    "Snapshot": _object("The answers.", builds=_COUNT, age_s=_or_null(_number("since they were built"))),
    "Status": _object(
        "Everything.",
        host=_text("the name of this name server's host"),
        version=_text("of rspdns"),
        uptime_s=_number(),
        registrars=_list("Registrar"),
        zones=_list("Zone"),
        pdns=_list("Pdns"),
        connector=_ref("Connector"),
        snapshot=_ref("Snapshot"),
        reload=_or_null(
            _object(
                "The reload that runs, or the last one.",
                state=_text("running, done or refused"),
                since_s=_number("since it began, or ended"),
                files=_COUNT,
                of_files=_COUNT,
                records=_COUNT,
                problem=_or_null(_text()),
            )
        ),
        problems=_TEXTS,
        events=_list("Event"),
    ),
    "Reloaded": _object(
        "What is served now.",
        zones=_TEXTS,
        going={**_TEXTS, "description": "pools that lost members by it, with the members and reasons"},
        needs_restart={**_TEXTS, "description": "keys that changed and count only after a restart"},
    ),
    "Purge": _object(
        "What to purge: names of our zones; one that ends in $ means all below it too.",
        names={**_TEXTS, "minItems": 1, "maxItems": 1000},
    ),
    "Purged": _object("What is being purged.", names=_TEXTS),
    "Error": _object("What was wrong.", error=_text()),
    "Description": {"type": "object", "description": "An OpenAPI document."},
    "Text": {"type": "string"},
}
