"""The messages that secondaries are sent, and what they answer. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import dns.exception
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.rrset
import dns.tsig
import dns.tsigkeyring

from rspdns.rrset import Record
from rspdns.secondaries.schedule import NOERROR

_HEADER = struct.Struct("!HHHHHH")
_TSIG_ERRORS = {
    dns.tsig.PeerBadKey: "BADKEY",
    dns.tsig.PeerBadSignature: "BADSIG",
    dns.tsig.PeerBadTime: "BADTIME",
}
_RESPONSE, _OPCODE_SHIFT, _OPCODE_MASK, _RCODE_MASK = 0x8000, 11, 0xF, 0xF


def notify(zone: str, soa: Record) -> dns.message.Message:
    """A NOTIFY that the zone changed; it holds the new SOA as a hint (RFC 1996 section 3.7)."""
    message = dns.message.make_query(f"{zone}.", dns.rdatatype.SOA)
    message.set_opcode(dns.opcode.NOTIFY)
    message.flags = (message.flags | dns.flags.AA) & ~dns.flags.RD
    message.answer.append(dns.rrset.from_text(f"{zone}.", soa.ttl, "IN", "SOA", _absolute(soa.content)))
    return message


def soa_question(zone: str) -> dns.message.Message:
    """A question for the SOA of a zone."""
    message = dns.message.make_query(f"{zone}.", dns.rdatatype.SOA)
    message.flags &= ~dns.flags.RD
    return message


def _absolute(content: str) -> str:
    mname, rname, *numbers = content.split()
    return " ".join((*(f"{name.removesuffix('.')}." for name in (mname, rname)), *numbers))


def with_number(wire: bytes, number: int) -> bytes:
    """The message with this ID."""
    return struct.pack("!H", number) + wire[2:]


@dataclass(frozen=True, slots=True)
class Signed:
    """A signed message, and its MAC, by which the answer is checked."""

    wire: bytes
    mac: bytes


def signed(message: dns.message.Message, number: int, key: dns.tsig.Key) -> Signed:
    """The message with this ID, signed."""
    message.id = number
    message.use_tsig({key.name: key}, key.name)
    wire = message.to_wire()
    return Signed(wire, message.mac or b"")


def answer_number(data: bytes) -> int | None:
    """The ID of an answer; None for anything else."""
    if len(data) < _HEADER.size:
        return None
    number, flags, *_ = _HEADER.unpack_from(data)
    return number if flags & _RESPONSE else None


def notify_answer(data: bytes, key: dns.tsig.Key | None, mac: bytes) -> str | None:
    """The name of the response code of the answer to a NOTIFY, or of its TSIG error (RFC 8945 section 5.2);
    None if it is none, or is not signed as it should be.

    A refusal may be unsigned: a secondary that lacks the key can't sign.
    """
    _, flags, *_ = _HEADER.unpack_from(data)
    if flags >> _OPCODE_SHIFT & _OPCODE_MASK != dns.opcode.NOTIFY:
        return None
    rcode = dns.rcode.to_text(dns.rcode.Rcode(flags & _RCODE_MASK))
    if key is None:
        return rcode
    try:
        answer = dns.message.from_wire(data, keyring={key.name: key}, request_mac=mac)
    except dns.tsig.PeerError as problem:
        return _TSIG_ERRORS.get(type(problem), rcode)
    except (dns.exception.DNSException, ValueError):
        return None if rcode == NOERROR else rcode
    return rcode if answer.had_tsig or rcode != NOERROR else None


def soa_answer(data: bytes, zone: str) -> tuple[str, int | None] | None:
    """The name of the response code, and the serial if there is one, of the answer to a question for the SOA;
    None if it is none. An answer without authority has no serial: it is what somebody else told, or
    remembers."""
    try:
        answer = dns.message.from_wire(data)
    except (dns.exception.DNSException, ValueError):
        return None
    if answer.opcode() != dns.opcode.QUERY:
        return None
    rcode = dns.rcode.to_text(answer.rcode())
    if answer.flags & dns.flags.AA:
        for rrset in answer.answer:
            is_zone = rrset.name.to_text(omit_final_dot=True).lower() == zone
            if is_zone and rrset.rdtype == dns.rdatatype.SOA:
                return rcode, int(rrset[0].serial)
    return rcode, None
