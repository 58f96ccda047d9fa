"""DNS records as the backend holds them: the data of a record, the record, and all that is known of a name.

Data are fields, their text as PowerDNS has it, and their bytes on the wire. All of these are tuples, of which
a zone has hundreds of thousands: made and compared several times as fast as others.
"""

from __future__ import annotations

import socket
import struct
from functools import lru_cache
from typing import NamedTuple

import dns.name
import dns.rdata

_SRV = struct.Struct("!HHH")
_PARAMETER = struct.Struct("!HH")
_ALPN, _PORT, _IPV4HINT, _IPV6HINT = 1, 3, 4, 6
"""Keys of SvcParams (RFC 9460 section 14.3.2)."""
MOST_LABELS = 127
"""The most labels of a name of 255 bytes (RFC 1035 section 2.3.4)."""


class SrvData(NamedTuple):
    """The data of an SRV record (RFC 2782); `target` without the final dot, the root as "."."""

    priority: int
    weight: int
    port: int
    target: str

    @property
    def text(self) -> str:
        """The data as text."""
        return f"{self.priority} {self.weight} {self.port} {self.target}"

    @property
    def wire(self) -> bytes:
        """The data on the wire. Raises struct.error for numbers of more than two octets, DNSException."""
        return _SRV.pack(self.priority, self.weight, self.port) + wire_name(self.target)


class SvcbData(NamedTuple):
    """The data of an SVCB or HTTPS record (RFC 9460); `target` without the final dot, the owner as ".".

    Priority 0 is AliasMode, which has a target alone. `port` None: that of the URL. The hints are addresses
    of 4 bytes, or of 16.
    """

    priority: int
    target: str
    alpn: tuple[str, ...] = ()
    port: int | None = None
    ipv4hint: tuple[bytes, ...] = ()
    ipv6hint: tuple[bytes, ...] = ()

    @property
    def text(self) -> str:
        """The data as text."""
        words = [str(self.priority), self.target]
        if self.alpn:
            words.append(f"alpn={','.join(self.alpn)}")
        if self.port is not None:
            words.append(f"port={self.port}")
        for key, hints in (("ipv4hint", self.ipv4hint), ("ipv6hint", self.ipv6hint)):
            if hints:
                words.append(f"{key}={','.join(AddressData(packed).text for packed in hints)}")
        return " ".join(words)

    @property
    def wire(self) -> bytes:
        """The data on the wire. Raises struct.error for numbers of more than two octets, DNSException."""
        alpn = b"".join(bytes([len(protocol)]) + protocol.encode() for protocol in self.alpn)
        parameters = (
            (_ALPN, alpn),
            (_PORT, b"" if self.port is None else struct.pack("!H", self.port)),
            (_IPV4HINT, b"".join(self.ipv4hint)),
            (_IPV6HINT, b"".join(self.ipv6hint)),
        )
        written = (_PARAMETER.pack(key, len(value)) + value for key, value in parameters if value)
        return struct.pack("!H", self.priority) + wire_name(self.target.rstrip(".")) + b"".join(written)


class AddressData(NamedTuple):
    """The data of an A record, of 4 bytes, or of an AAAA record, of 16."""

    packed: bytes

    @property
    def text(self) -> str:
        """The address as text."""
        return socket.inet_ntop(socket.AF_INET if len(self.packed) == 4 else socket.AF_INET6, self.packed)

    @property
    def wire(self) -> bytes:
        """The address on the wire."""
        return self.packed


class SoaData(NamedTuple):
    """The data of an SOA record (RFC 1035 section 3.3.13); times in seconds."""

    mname: str
    rname: str
    serial: int
    refresh_s: int
    retry_s: int
    expire_s: int
    minimum_s: int

    @property
    def text(self) -> str:
        """The data as text."""
        return " ".join(map(str, self))

    @property
    def wire(self) -> bytes:
        """The data on the wire. Raises DNSException."""
        return OtherData("SOA", self.text).wire


class OtherData(NamedTuple):
    """The data of a record of any other type, which no decision reads."""

    type: str
    text: str

    @property
    def parsed(self) -> dns.rdata.Rdata:
        """The data as dnspython's value: slow. Raises DNSException."""
        return dns.rdata.from_text("IN", self.type, self.text, origin=dns.name.root, relativize=False)

    @property
    def wire(self) -> bytes:
        """The data on the wire. Raises DNSException."""
        return self.parsed.to_wire() or b""


Data = SrvData | SvcbData | AddressData | SoaData | OtherData


@lru_cache(maxsize=16384)
def wire_name(name: str) -> bytes:
    """A name on the wire; its final dot may be missing. Raises DNSException."""
    text = name.removesuffix(".")
    if "\\" not in text and text.isascii():
        labels = [label.encode() for label in text.split(".")] if text else []
        return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return dns.name.from_text(text, dns.name.root).to_wire() or b"\0"


class Record(NamedTuple):
    """One resource record; `ttl` in seconds.

    `auth` is False at and below a delegation, where the zone is not the authority and must not sign.
    """

    name: str
    type: str
    data: Data
    ttl: int
    auth: bool = True

    @property
    def content(self) -> str:
        """The data in PowerDNS's text form, SRV priority included."""
        return self.data.text


class Node(NamedTuple):
    """The records of one name (none: an empty non-terminal).

    `failure` says why records that belong here cannot be given (empty: they can); `below` extends it to every
    name under this one that has no node of its own.
    """

    records: tuple[Record, ...] = ()
    failure: str = ""
    below: bool = False
