"""Whether a signed answer that there is nothing proves it (RFC 4035 section 5.4, RFC 5155 section 8).

Only the records are checked: whether their signatures are right is for delv.
"""

from __future__ import annotations

import base64
from typing import Any

import dns.dnssec
import dns.message
import dns.name
import dns.rcode
import dns.rdata
import dns.rdatatype
import dns.rdtypes.ANY.NSEC
import dns.rdtypes.ANY.NSEC3

Nsec = dns.rdtypes.ANY.NSEC.NSEC
Nsec3 = dns.rdtypes.ANY.NSEC3.NSEC3


def what_is_wrong(answer: dns.message.Message) -> str | None:
    """The fault that a validator would find in an answer that there is nothing; None: it proves that."""
    question = answer.question[0]
    if answer.answer:
        return None
    if answer.rcode() not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
        return dns.rcode.to_text(answer.rcode())
    no_such_name = answer.rcode() == dns.rcode.NXDOMAIN
    nsec, nsec3 = _proofs(answer)
    if nsec and not nsec3:
        return _with_nsec(question.name, question.rdtype, no_such_name, nsec)
    if nsec3 and not nsec:
        return _with_nsec3(question.name, question.rdtype, no_such_name, nsec3)
    return "no proof"


def _proofs(answer: dns.message.Message) -> tuple[dict[dns.name.Name, Nsec], dict[dns.name.Name, Nsec3]]:
    nsec: dict[dns.name.Name, Nsec] = {}
    nsec3: dict[dns.name.Name, Nsec3] = {}
    for rrset in answer.authority:
        for record in rrset:
            if isinstance(record, Nsec):
                nsec[rrset.name] = record
            elif isinstance(record, Nsec3):
                nsec3[rrset.name] = record
    return nsec, nsec3


def _types(record: Nsec | Nsec3) -> set[int]:
    return {
        256 * window + 8 * index + bit
        for window, bitmap in record.windows
        for index, byte in enumerate(bitmap)
        for bit in range(8)
        if byte & 0x80 >> bit
    }


def _between(name: Any, before: Any, after: Any) -> bool:
    """Whether a name lies in the gap, the last one of which goes round."""
    if before < after:
        return bool(before < name < after)
    return bool(name > before or name < after)


def _with_nsec(
    name: dns.name.Name, rdtype: int, no_such_name: bool, proofs: dict[dns.name.Name, Nsec]
) -> str | None:
    own = proofs.get(name)
    covering = [(owner, proof.next) for owner, proof in proofs.items() if _between(name, owner, proof.next)]
    if not no_such_name:
        if own is not None:
            return f"the proof has the type {_said(own)}" if rdtype in _types(own) else None
        if any(after.is_subdomain(name) for _, after in covering):
            return None  # an empty non-terminal
        return f"nothing shows that the name exists: {_said(*proofs)}"
    if own is not None or not covering:
        return f"the name isn't denied: {_said(*proofs)}"
    encloser = max((_common(name, end) for pair in covering for end in pair), key=len)
    wildcard = dns.name.Name((b"*", *encloser.labels))
    if any(_between(wildcard, owner, proof.next) for owner, proof in proofs.items()):
        return None
    return f"the wildcard {wildcard} isn't denied: {_said(*proofs)}"


def _common(name: dns.name.Name, other: dns.name.Name) -> dns.name.Name:
    while not other.is_subdomain(name):
        name = name.parent()
    return name


def _with_nsec3(
    name: dns.name.Name, rdtype: int, no_such_name: bool, proofs: dict[dns.name.Name, Nsec3]
) -> str | None:
    some = next(iter(proofs.values()))
    by_hash = {owner.labels[0].decode().upper(): proof for owner, proof in proofs.items()}

    def hashed(of: dns.name.Name) -> str:
        return dns.dnssec.nsec3_hash(of, some.salt, some.iterations, some.algorithm).upper()

    def is_denied(of: dns.name.Name) -> bool:
        return any(_between(hashed(of), owner, _next(proof)) for owner, proof in by_hash.items())

    own = by_hash.get(hashed(name))
    if not no_such_name:
        if own is None:
            return f"nothing shows that the name exists: {_said(*proofs)}"
        return f"the proof has the type {_said(own)}" if rdtype in _types(own) else None
    encloser, next_closer = name.parent(), name
    while hashed(encloser) not in by_hash:
        if len(encloser) <= 2:
            return f"no closest encloser: {_said(*proofs)}"
        encloser, next_closer = encloser.parent(), encloser
    for denied in (next_closer, dns.name.Name((b"*", *encloser.labels))):
        if not is_denied(denied):
            return f"{denied} isn't denied: {_said(*proofs)}"
    return None


def _said(*what: object) -> str:
    return " ".join(map(str, what))


def _next(record: Nsec3) -> str:
    return base64.b32hexencode(record.next).decode()
