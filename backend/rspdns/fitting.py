"""How many records fit into one answer, computed from their size on the wire.

An answer must be whole at 512 bytes, the limit of a client without EDNS (RFC 1035 section 4.2.1), unless its
pool answers with all members: then it must fit into a message over TCP. PowerDNS
adds the targets' addresses to an SRV answer and, as soon as any record does not fit, those included, sends
an empty answer with the TC bit. So the addresses are counted too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address

Address = IPv4Address | IPv6Address

LIMIT = 512
"""Bytes of a UDP answer to a client without EDNS."""
LIMIT_TCP = 65_535
"""Bytes of a DNS message over TCP (RFC 1035 section 4.2.2)."""
HEADER = 12
QUESTION_FIXED = 4
"""Type and class, after the name."""
OPT = 11
"""An empty OPT record (RFC 6891), which the answer to a client with EDNS and a buffer of 512 also carries."""
RECORD = 2 + 10
"""A record but for its data: the owner as a compression pointer, type, class, TTL, length."""
SRV_FIXED = 6
"""Priority, weight, port; the target follows uncompressed (RFC 2782)."""
SVCB_FIXED = 2
"""Priority; the target follows uncompressed (RFC 9460 section 2.2)."""
SVC_PARAMETER, SVC_PORT = 4, 2
"""Key and length of each parameter, and the data of a port."""
A_DATA, AAAA_DATA = 4, 16
NAPTR_FIXED = 4
"""Order and preference; flags, services and regexp follow with a length byte each, the replacement
uncompressed."""


def name_size(name: str) -> int:
    """Bytes of an uncompressed name on the wire, given without the final dot and without escapes."""
    return len(name) + 2 if name else 1


def room(qname: str, limit: int = LIMIT) -> int:
    """Bytes left for records in an answer of at most `limit` bytes to a question about `qname`."""
    return limit - HEADER - name_size(qname) - QUESTION_FIXED - OPT


def srv_size(target: str, ipv4: int, ipv6: int) -> int:
    """Bytes of an SRV record together with its target's `ipv4` A and `ipv6` AAAA records."""
    own = RECORD + SRV_FIXED + name_size(target)
    return own + ipv4 * (RECORD + A_DATA) + ipv6 * (RECORD + AAAA_DATA)


def svcb_size(target: str, alpn: Sequence[str], *, with_port: bool, ipv4: int, ipv6: int) -> int:
    """Bytes of an SVCB or HTTPS record, its target's addresses as hints and in records of their own."""
    hints = sum(SVC_PARAMETER + count * size for count, size in ((ipv4, A_DATA), (ipv6, AAAA_DATA)) if count)
    port = SVC_PARAMETER + SVC_PORT if with_port else 0
    addresses = ipv4 * (RECORD + A_DATA) + ipv6 * (RECORD + AAAA_DATA)
    return svcb_own_size(target, alpn) + port + hints + addresses


def svcb_own_size(target: str, alpn: Sequence[str]) -> int:
    """Bytes of an SVCB or HTTPS record with nothing but protocols; none in AliasMode."""
    protocols = SVC_PARAMETER + sum(1 + len(protocol) for protocol in alpn) if alpn else 0
    return RECORD + SVCB_FIXED + name_size(target) + protocols


def svcb_alias_size(target: str) -> int:
    """Bytes that an alias takes beside the records it stands for, which PowerDNS puts behind it."""
    return svcb_own_size(target, ()) + name_size(target)


def addresses_beside(qname: str, target: str, addresses: Sequence[Address]) -> tuple[Address, ...]:
    """The first of a target's addresses, as many as leave room for a second such target in the SRV answer."""
    left = room(qname) // 2 - srv_size(target, 0, 0)
    kept = []
    for address in addresses:
        left -= RECORD + len(address.packed)
        if left < 0:
            break
        kept.append(address)
    return tuple(kept)


def beyond_pointers(label: str, addresses: int) -> int:
    """Bytes that a target's addresses take more where its SRV record is too far behind in an answer.

    A compression pointer reaches the first 16 KiB (RFC 1035 section 4.1.4): for a target behind these its
    `label` is repeated at each address.
    """
    return addresses * (1 + len(label))


def naptr_size(flags: str, service: str, replacement: str) -> int:
    """Bytes of a NAPTR record with an empty regexp."""
    return RECORD + NAPTR_FIXED + 1 + len(flags) + 1 + len(service) + 1 + name_size(replacement)


def how_many(qname: str, sizes: Iterable[int], limit: int = LIMIT) -> int:
    """How many of the records, taken in order, fit into one answer to a question about `qname`."""
    left = room(qname, limit)
    count = 0
    for size in sizes:
        left -= size
        if left < 0:
            break
        count += 1
    return count


def addresses_that_fit(qname: str, data_size: int, limit: int = LIMIT) -> int:
    """How many A (`data_size` 4) or AAAA (16) records fit."""
    return max(0, room(qname, limit)) // (RECORD + data_size)
