"""The messages of a publication on the wire, and the words for all that can go wrong.

Signatures and answers are dnspython's. The records of an UPDATE are put together here: RRsets are bytes
already. dnspython takes 13 times as long (18 ms for 100 members, as GenericRdata), and answers of the backend
wait for it, in a thread too. Both are done outside the event loop.
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.tsig
from dns.rdtypes.ANY.TSIG import TSIG

from rspdns.fitting import LIMIT_TCP
from rspdns.publish.configuration import UpdateKey
from rspdns.publish.publication import CheckStep, SendStep
from rspdns.publish.rrsets import ABSENT, Rrset, RrsetKey
from rspdns.rrset import wire_name

CONTRADICTIONS = frozenset({dns.rcode.NXRRSET, dns.rcode.YXRRSET, dns.rcode.NXDOMAIN, dns.rcode.YXDOMAIN})
"""The answers to an UPDATE whose prerequisites failed (RFC 2136 section 2.2)."""
_HEADER_FIELDS = struct.Struct("!HHHHHH")
_RECORD_FIELDS = struct.Struct("!HHIH")
_POINTER = 0xC000
_FIRST_UNREACHABLE = 0x4000
"""A compression pointer reaches below it (RFC 1035 section 4.1.4)."""
_FUDGE_S = 300
EXPIRE_LABEL = "_rspdns-expire"
EXPIRE_TTL_S = 1
_HEADER = 12
_REFUSALS: Mapping[int, str] = {
    dns.rcode.REFUSED: "it refuses: the key, or this host, may not change these names there",
    dns.rcode.NOTAUTH: "it is not the primary of the zone, or does not take the key",
    dns.rcode.NOTZONE: "it says that the names are not in the zone",
    dns.rcode.NOTIMP: "it takes no DNS UPDATE",
    dns.rcode.SERVFAIL: "it failed (SERVFAIL): its log says why",
    dns.rcode.FORMERR: "it does not understand the message (FORMERR)",
}
BLIND = "one of the names is an alias (CNAME) there, beside which it takes no other records: delete the alias"
"""The words for a contradiction of an UPDATE that requires nothing but that there are no aliases."""
_UNSIGNED = "its answer is not signed: it may not know the key, have another secret, or another time"


class PublishError(Exception):
    """A message was refused, or its answer is none; the words are for people."""


@dataclass(frozen=True, slots=True)
class SignedMessage:
    """A message as it is sent, and what its answer is proved with."""

    wire: bytes
    key: dns.tsig.Key | None
    mac: bytes


class _Records:
    """The records of one section of an UPDATE, for a message in which they begin at `offset`."""

    def __init__(self, offset: int) -> None:
        self.count = 0
        self.wire = bytearray()
        self._offset = offset

    def put(self, key: RrsetKey, of_class: int, ttl: int = 0, data: Iterable[bytes] = (b"",)) -> None:
        """Add an RRset. Its name stands there once."""
        kind = dns.rdatatype.from_text(key.type)
        owner = wire_name(key.name)
        for each in data:
            at = self._offset + len(self.wire)
            self.wire += owner + _RECORD_FIELDS.pack(kind, of_class, ttl, len(each)) + each
            self.count += 1
            if len(owner) > 2 and at < _FIRST_UNREACHABLE:
                owner = (_POINTER | at).to_bytes(2, "big")


def update(
    zone: str, key: UpdateKey | None, step: CheckStep | SendStep, expire_s: int, wall_s: float
) -> SignedMessage:
    """Return the UPDATE of a step (RFC 2136 section 2).

    `wall_s` is the time of day, in seconds since 1970. Raises PublishError.
    """
    question = wire_name(zone) + struct.pack("!HH", dns.rdatatype.SOA, dns.rdataclass.IN)
    required = _Records(_HEADER + len(question))
    if isinstance(step, CheckStep):
        expected = list(step.expected.items())
    else:
        expected = [(move.key, move.before) for move in step.moves if move.before is not None]
    for rrset_key, rrset in expected:
        if rrset.data:
            required.put(rrset_key, dns.rdataclass.IN, data=sorted(rrset.data))
        else:
            required.put(rrset_key, dns.rdataclass.NONE)
    if isinstance(step, SendStep):
        # Beside an alias a server ignores what is added, and answers NOERROR (RFC 2136 section 3.4.2.2).
        for name in dict.fromkeys(move.key.name for move in step.moves if move.is_new):
            required.put(RrsetKey(name, "CNAME"), dns.rdataclass.NONE)
    changed = _Records(_HEADER + len(question) + len(required.wire))
    if isinstance(step, SendStep):
        for move in step.moves:
            _replace(changed, move.key, move.after)
        if step.vouches:
            text = until(wall_s + expire_s).encode()
            ends = Rrset(EXPIRE_TTL_S, frozenset({bytes([len(text)]) + text}))
            _replace(changed, RrsetKey(f"{EXPIRE_LABEL}.{zone}", "TXT"), ends)
    flags = dns.opcode.to_flags(dns.opcode.UPDATE)
    header = _HEADER_FIELDS.pack(secrets.randbits(16), flags, 1, required.count, changed.count, 0)
    return _signed(header + question + required.wire + changed.wire, key, wall_s)


def _replace(records: _Records, key: RrsetKey, rrset: Rrset) -> None:
    """Delete an RRset, and add it as it should be."""
    records.put(key, dns.rdataclass.ANY)
    if rrset.data:
        records.put(key, dns.rdataclass.IN, rrset.ttl, sorted(rrset.data))


def _signed(wire: bytes, key: UpdateKey | None, wall_s: float) -> SignedMessage:
    """Return the message with its signature (RFC 8945). Raises PublishError."""
    tsig_key, mac = None, b""
    if key is not None:
        tsig_key = dns.tsig.Key(dns.name.from_text(key.name), key.secret, key.algorithm)
        identifier = int.from_bytes(wire[:2], "big")
        unsigned = TSIG(  # type: ignore[no-untyped-call]
            *(dns.rdataclass.ANY, dns.rdatatype.TSIG, tsig_key.algorithm, int(wall_s), _FUDGE_S),
            *(b"", identifier, 0, b""),
        )
        signature, _ = dns.tsig.sign(  # type: ignore[no-untyped-call]
            wire, tsig_key, unsigned, int(wall_s)
        )
        mac, data = signature.mac, signature.to_wire() or b""
        fields = _RECORD_FIELDS.pack(dns.rdatatype.TSIG, dns.rdataclass.ANY, 0, len(data))
        wire = wire[:10] + (1).to_bytes(2, "big") + wire[12:] + wire_name(key.name) + fields + data
    if len(wire) > LIMIT_TCP:
        raise PublishError("the records of a name do not fit into a message of 65,535 bytes")
    return SignedMessage(wire, tsig_key, mac)


def until(wall_s: float) -> str:
    """A time as the TXT record of `withdraw = "expire"` holds it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_s))


def questions(rrsets: Iterable[RrsetKey], key: UpdateKey | None, wall_s: float) -> list[SignedMessage]:
    """Return the questions for some RRsets, each with another identifier: their answers come in any order.
    Raises PublishError."""
    first = secrets.randbits(16)
    made = []
    for number, rrset in enumerate(rrsets, first):
        name = dns.name.from_text(rrset.name)
        message = dns.message.make_query(name, rrset.type, flags=0, id=number & 0xFFFF)
        made.append(_signed(message.to_wire(), key, wall_s))
    return made


def answer(asked: SignedMessage, wire: bytes) -> dns.message.Message:
    """Return the answer, proved with the key. Raises PublishError."""
    if len(wire) < _HEADER or wire[:2] != asked.wire[:2]:
        raise PublishError("its answer is of another message")
    try:
        message = dns.message.from_wire(wire, keyring=asked.key, request_mac=asked.mac)
    except dns.exception.DNSException as problem:
        raise PublishError(_why_unproved(asked, wire, problem)) from None
    except ValueError as problem:
        raise PublishError(f"its answer makes no sense: {type(problem).__name__}") from None
    if asked.key is not None and not message.had_tsig:
        raise PublishError(_UNSIGNED)
    return message


def _why_unproved(asked: SignedMessage, wire: bytes, problem: dns.exception.DNSException) -> str:
    match problem:
        case dns.tsig.PeerBadTime():
            return "it refuses (BADTIME): its clock and that of this host differ"
        case dns.tsig.PeerBadKey():
            return "it refuses (BADKEY): it does not know the key, or the key may not change these names"
        case dns.tsig.PeerBadSignature():
            return "it refuses (BADSIG): its key of this name has another secret or algorithm"
        case dns.tsig.BadTime():
            return "its answer is of another time: its clock and that of this host differ"
        case dns.tsig.BadSignature():
            return "its answer is not signed with the key"
    if asked.key is not None and wire[10:12] == b"\0\0":  # no additional record, where a signature stands
        return f"it answers {_word(wire[3] & 0x0F)}, and {_UNSIGNED}"
    return f"its answer makes no sense: {type(problem).__name__}"


def refusal(rcode: int) -> str:
    """An answer other than the expected ones, in words."""
    return _REFUSALS.get(rcode, f"it answers {_word(rcode)}")


def rrset(asked: SignedMessage, key: RrsetKey, wire: bytes) -> Rrset:
    """Return the RRset that the answer holds. Raises PublishError."""
    message = answer(asked, wire)
    if message.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        words = "it does not serve the zone, or not to this host"
        raise PublishError(f"{words}: it answers {_word(message.rcode())}")
    if not message.flags & dns.flags.AA:
        raise PublishError("it does not serve the zone: its answers are not authoritative")
    try:
        rdataset = message.find_rrset(
            message.answer, dns.name.from_text(key.name), dns.rdataclass.IN, dns.rdatatype.from_text(key.type)
        )
    except KeyError:
        return ABSENT
    return Rrset(rdataset.ttl, frozenset(rdata.to_digestable() for rdata in rdataset))


def _word(rcode: int) -> str:
    return dns.rcode.to_text(dns.rcode.Rcode(rcode))
