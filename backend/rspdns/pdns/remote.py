"""PowerDNS's remote-backend protocol, answered from a snapshot. Pure: a request in, a reply out.

    {"method": "lookup", "parameters": {"qname": "as.ims.example.net.", "qtype": "ANY", "zone-id": 1}}
    {"result": [{"qname": ..., "qtype": ..., "content": ..., "ttl": ...}]}

`{"result": false}` says "nothing" (NXDOMAIN, NODATA, or a method that is not supported). A reply without
`result` is a failure: PowerDNS answers SERVFAIL. Source: "Remote Backend" in the PowerDNS documentation.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Literal

import dns.exception
import dns.name

from rspdns import names
from rspdns.answers.snapshot import ANY, LIVE_TYPES, NODATA, Failure, Found, Snapshot, ZoneAnswers
from rspdns.rrset import Node, OtherData, Record

RequestParameters = Mapping[str, Any]
Reply = dict[str, Any]

EMPTY_NON_TERMINAL = "ENT"
_PLAIN_NAME = re.compile(r"[a-z0-9_.*/-]*")
_MAX_TEXT = 1100
"""A name of 255 bytes, every byte written as \\ddd, and a little more."""


class RequestError(Exception):
    """The request is not one that PowerDNS sends; the message says why."""


class NoAnswer(Exception):  # noqa: N818 - not an error of the program
    """The truth is not known: SERVFAIL."""


def split(request: object) -> tuple[str, RequestParameters]:
    """Return method and parameters. Raises RequestError."""
    if not isinstance(request, dict):
        raise RequestError("a request is a JSON object")
    method, parameters = request.get("method"), request.get("parameters", {})
    if not isinstance(method, str) or not isinstance(parameters, dict):
        raise RequestError('a request has a text "method" and an object "parameters"')
    return method, parameters


def name_of(parameters: RequestParameters, key: str) -> str:
    """Return a name in the form of the snapshot: lower case, no final dot. Raises RequestError."""
    text = text_of(parameters, key).lower()
    if len(text) > _MAX_TEXT:
        raise RequestError(f"{key} is longer than a name can be")
    if _PLAIN_NAME.fullmatch(text):
        return text.removesuffix(".")
    try:  # PowerDNS and dnspython escape different characters
        return names.to_text(dns.name.from_text(text))
    except (dns.exception.DNSException, UnicodeError):
        raise RequestError(f"{key} is no DNS name") from None


def lookup(parameters: RequestParameters, snapshot: Snapshot) -> list[Reply] | Literal[False]:
    """Answer one question from the zone that its `zone-id` stands for. Raises NoAnswer, RequestError."""
    zone = snapshot.numbers.zone(parameters.get("zone-id"))
    return lookup_in(zone, parameters, snapshot, snapshot.numbers.of)


def lookup_in(
    zone: str | None,
    parameters: RequestParameters,
    snapshot: Snapshot,
    number_of: Callable[[str], int],
    node: Node | None = None,
    scope: int = 0,
) -> list[Reply] | Literal[False]:
    """Answer one question from `zone`; False for nothing. Raises NoAnswer for SERVFAIL, RequestError.

    PowerDNS asks the outer zone about the apex of an inner one, too: for the DS record there, and for the
    delegation. Without a zone (None) the innermost one answers: PowerDNS asks so for an SOA before it knows
    the zones' numbers, and with a number that it has from before a restart. `number_of` tells the number of
    a zone. `node` stands for that of the snapshot, and `scope` is that of its records, if these depend on the
    asker.
    """
    name, qtype = name_of(parameters, "qname"), text_of(parameters, "qtype").upper()
    zone = zone if zone is not None else snapshot.zone_of(name)
    outcome = snapshot.lookup(name, qtype, zone, node)
    if isinstance(outcome, Failure):
        raise NoAnswer(outcome.reason)
    if isinstance(outcome, Found):
        number = number_of(zone) if zone is not None else -1
        replies = [as_reply(record, number if record.type == "SOA" else None) for record in outcome.records]
        for reply in replies if scope else ():
            if reply["qtype"] in LIVE_TYPES:
                reply["scopeMask"] = scope
        return replies
    if outcome == NODATA and qtype == ANY:
        return [as_reply(Record(name, EMPTY_NON_TERMINAL, OtherData(EMPTY_NON_TERMINAL, ""), 0))]
    return False


def as_reply(record: Record, number: int | None = None) -> Reply:
    """A record, with its zone's `number` where PowerDNS looks at it: in SOA records, and in what a search
    finds. It spends more time on reading replies than we do on writing them."""
    reply: Reply = {"qname": record.name, "qtype": record.type, "content": record.content, "ttl": record.ttl}
    if number is not None:
        reply["domain_id"] = number
    if not record.auth:
        reply["auth"] = 0
    return reply


def _list(parameters: RequestParameters, snapshot: Snapshot) -> list[Reply] | bool:
    """A zone transfer: everything, or a failure; a part must not look like the whole."""
    zone = snapshot.zone_answers.get(name_of(parameters, "zonename"))
    if zone is None:
        return False
    for name, node in zone.nodes():
        if node.failure:
            raise NoAnswer(f"{name}: {node.failure}")
    # Without the zone's number, which PowerDNS knows here: it parses the growing reply again and again, so
    # that its size decides how large a zone can be transferred.
    return [as_reply(record) for record in zone.transferred_records()]


def _domain_info(zone: ZoneAnswers, snapshot: Snapshot) -> Reply:
    return {
        "id": snapshot.numbers.of(zone.name),
        "zone": zone.name,
        "kind": "native",
        "serial": zone.serial % 2**32,
        "notified_serial": 0,
        "last_check": 0,
        "masters": [],
    }


def _get_domain_info(parameters: RequestParameters, snapshot: Snapshot) -> Reply | bool:
    zone = snapshot.zone_answers.get(name_of(parameters, "name"))
    return _domain_info(zone, snapshot) if zone is not None else False


def _get_all_domains(parameters: RequestParameters, snapshot: Snapshot) -> list[Reply]:
    return [_domain_info(zone, snapshot) for zone in snapshot.zones()]


def _search_records(parameters: RequestParameters, snapshot: Snapshot) -> list[Reply]:
    """Records whose name or content matches a pattern with `*` and `?`, at most `maxResults`."""
    pattern, most = text_of(parameters, "pattern"), parameters.get("maxResults")
    if len(pattern) > _MAX_TEXT:
        raise RequestError("the pattern is too long")
    if not isinstance(most, int) or isinstance(most, bool):
        raise RequestError("the number 'maxResults' is missing")
    matches = re.compile(fnmatch.translate(pattern.lower().replace("[", "[[]"))).fullmatch
    replies = (
        as_reply(record, snapshot.numbers.of(zone.name))
        for zone in snapshot.zones()
        for record in snapshot.zone_records(zone.name)
        if matches(record.name) or matches(record.content.lower())
    )
    return list(islice(replies, max(0, most)))


def _direct_backend_command(parameters: RequestParameters, snapshot: Snapshot) -> str:
    return "the backend takes no commands here; see the command rspdns"


def _yes(parameters: RequestParameters, snapshot: Snapshot) -> bool:
    return True


def text_of(parameters: RequestParameters, key: str) -> str:
    """Return a text. Raises RequestError when it is missing."""
    value = parameters.get(key)
    if not isinstance(value, str):
        raise RequestError(f"the text {key!r} is missing")
    return value


METHODS: Mapping[str, Callable[[RequestParameters, Snapshot], object]] = {
    "initialize": _yes,
    "lookup": lookup,
    "APILookup": lookup,
    "list": _list,
    "getDomainInfo": _get_domain_info,
    "getAllDomains": _get_all_domains,
    "searchRecords": _search_records,
    "directBackendCmd": _direct_backend_command,
    "setNotified": _yes,
}
"""The methods that a snapshot alone answers."""
UNSUPPORTED = frozenset(
    {
        *("createSlaveDomain", "superMasterBackend", "getUnfreshSlaveInfos", "getUpdatedMasters"),
        *("setStale", "setFresh", "startTransaction", "commitTransaction", "abortTransaction"),
        *("replaceRRSet", "feedRecord", "feedEnts", "feedEnts3"),
    }
)
"""Methods of a backend whose zones are written or transferred in: `{"result": false}`, as unknown ones."""
