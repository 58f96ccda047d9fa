"""The plain lines of a master file: a record on one line, without escapes, parentheses and units of time.

Nearly all lines of a large zone are plain, and dnspython takes ten times as long for each of them. A line
that is not surely plain is left to dnspython, and so is everything that is wrong. A test compares both
readings.
"""

from __future__ import annotations

import re
import socket
from typing import NamedTuple

import dns.exception
import dns.ipv6

from rspdns.rrset import AddressData, Data, OtherData, SrvData

_LABEL = r"[A-Za-z0-9_*-]{1,63}"
_NAME = rf"{_LABEL}(?:\.{_LABEL})*\.?"
_GAP = r"[ \t]+"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_NUMBER = r"(?:0|[1-9][0-9]{0,4})"
_STRING = r'"[ !#-\[\]-~]{0,255}"'
_LINE = re.compile(
    rf"(?P<owner>{_NAME})?{_GAP}(?:(?P<ttl>[0-9]{{1,9}}){_GAP})?(?:IN{_GAP})?"
    rf"(?:A{_GAP}(?P<a>{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET})"
    rf"|AAAA{_GAP}(?P<aaaa>[0-9A-Fa-f:]+)"
    rf"|(?P<type>CNAME|NS|PTR|MX|SRV){_GAP}(?P<numbers>(?:{_NUMBER}{_GAP})*)(?P<name>{_NAME})"
    rf"|TXT{_GAP}(?P<txt>{_STRING}(?:{_GAP}{_STRING})*))"
    r"[ \t]*(?:;[^\r\n]*)?\n"
)
_STRINGS = re.compile(_STRING)
_NUMBERS = {"CNAME": 0, "NS": 0, "PTR": 0, "MX": 1, "SRV": 3}
"""How many numbers stand before the name, of two octets each."""
_MOST_NUMBER = 65_535
_MOST_NAME = 253
"""Characters of the longest name (255 octets) without its final dot."""
_AROUND_NAME = 2
"""Octets of a name on the wire above its characters here."""
_PLAIN_ORIGIN = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*)?")


class PlainLine(NamedTuple):
    """One record. `owner` as written, "" for the one of the line before; `ttl_s` None where none is given;
    `data` of `octets` on the wire; `end` is where the next line begins."""

    owner: str
    ttl_s: int | None
    type: str
    data: Data
    octets: int
    end: int


def is_plain_origin(origin: str) -> bool:
    """Whether relative names can be completed with this origin, written without its final dot."""
    return _PLAIN_ORIGIN.fullmatch(origin) is not None


def whole_name(written: str, origin: str) -> str | None:
    """The absolute name without its final dot; None if it is too long."""
    is_whole = written[-1] == "."
    name = written[:-1] if is_whole else f"{written}.{origin}" if origin else written
    return name if len(name) <= _MOST_NAME else None


def plain_line(text: str, start: int, origin: str) -> PlainLine | None:
    """Read the line that begins at `start`; None if it is not plain."""
    match = _LINE.match(text, start)
    if match is None:
        return None
    owner, ttl, a, aaaa, kind, numbers, name, txt = match.groups()
    data: Data
    if a is not None:
        kind, data, octets = "A", AddressData(socket.inet_aton(a)), 4
    elif aaaa is not None:
        try:
            kind, data, octets = "AAAA", AddressData(dns.ipv6.inet_aton(aaaa)), 16
        except dns.exception.SyntaxError:
            return None
    elif txt is not None:
        strings = _STRINGS.findall(txt)
        kind, octets = "TXT", len("".join(strings)) - len(strings)
        data = OtherData(kind, " ".join(strings))
    else:
        whole, values = whole_name(name, origin), [int(number) for number in numbers.split()]
        if whole is None or len(values) != _NUMBERS[kind] or any(value > _MOST_NUMBER for value in values):
            return None
        octets = 2 * len(values) + len(whole) + _AROUND_NAME
        if kind == "SRV":
            priority, weight, port = values
            data = SrvData(priority, weight, port, whole)
        else:
            data = OtherData(kind, " ".join((*map(str, values), whole)))
    return PlainLine(owner or "", int(ttl) if ttl is not None else None, kind, data, octets, match.end())
