"""The master file of a zone (RFC 1035 section 5): SOA, NS and whatever else does not change by itself.

dnspython reads it, but for the lines that `plain_lines` reads faster.
Records outside the zone, which its zone class passes over in silence, are an error here: the administrator
meant them to be served. All errors are reported at once, each with its line.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple, cast

import dns.exception
import dns.grange
import dns.name
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.tokenizer
import dns.zonefile
from daemon_kit.config_file import ConfigurationError, ConfigurationErrors, read_text

from rspdns import names
from rspdns.rrset import AddressData, Data, OtherData, Record, SoaData, SrvData
from rspdns.zones.plain_lines import is_plain_origin, plain_line, whole_name

MAX_RECORDS = 200_000
"""The most records of one zone file, with those that its $GENERATE directives make."""
MAX_STEPS = 65_536
"""Records that one $GENERATE makes."""
MAX_MESSAGE = 65_535
"""Octets of the largest DNS message (RFC 1035 section 4.2.2): a record that does not fit is never answered,
and ends every zone transfer."""
_HEADER, _AROUND_QUESTION, _AROUND_RECORD, _POINTER = 12, 4, 10, 2
"""Octets of a message's header, of a question and a record besides their names, and of a repeated name."""
MAX_TTL_S = 2**31 - 1
"""The largest TTL (RFC 2181 section 8)."""
_TOLD_EVERY = 1000
"""Records between two reports of progress."""
_SIGNING = {"RRSIG", "NSEC", "NSEC3", "NSEC3PARAM"}
_MOST_ERRORS = 50
_NO_TYPE = re.compile(r"unknown rdatatype '(\d[^']*)'")
"""dnspython takes a TTL that is too large for a type; no type begins with a digit."""
_QUOTED_LIST = re.compile(r'\b((?:port|ipv4hint|ipv6hint|mandatory|ech)=)"([^"]*)"')
"""Parameters that PowerDNS reads without quotes only (RFC 9460 section 2.1 allows both)."""


@dataclass(frozen=True, slots=True)
class StartOfAuthority:
    """The SOA of the file. Its serial is not kept: the one served moves with the live records."""

    data: SoaData
    ttl_s: int

    def record(self, zone: str, serial: int, negative_ttl_s: int) -> Record:
        """The SOA as served, its TTL and MINIMUM at most `negative_ttl_s`.

        A resolver keeps "no such name" for the smaller of the two (RFC 2308 section 5); a returning server
        must not stay hidden for longer.
        """
        minimum_s = min(self.data.minimum_s, negative_ttl_s)
        data = self.data._replace(serial=serial % 2**32, minimum_s=minimum_s)
        return Record(zone, "SOA", data, min(self.ttl_s, negative_ttl_s))


_NO_SOA = StartOfAuthority(SoaData("", "", 0, 0, 0, 0, 0), 0)


@dataclass(frozen=True, slots=True)
class StaticZone:
    """The records of a zone file, the SOA apart. `records` by owner name, `lines` by record."""

    file: str
    zone: str
    soa: StartOfAuthority
    records: Mapping[str, tuple[Record, ...]]
    lines: Mapping[Record, int]

    @classmethod
    def of_lines(cls, file: str, zone: str, lines: Sequence[_Line]) -> StaticZone:
        """Return the records of `lines`, those outside the zone apart; a missing SOA is all zeros."""
        starts = (StartOfAuthority(line.data, line.ttl_s) for line in lines if isinstance(line.data, SoaData))
        soa = next(starts, _NO_SOA)
        inside = [line for line in lines if names.is_at_or_below(line.owner, zone)]
        lines_of = _records(inside)
        by_owner: dict[str, list[Record]] = {}
        for record in lines_of:
            by_owner.setdefault(record.name, []).append(record)
        return cls(file, zone, soa, {name: tuple(records) for name, records in by_owner.items()}, lines_of)


class ZoneFileErrors(ConfigurationErrors):
    """Every error of a master file, the records that could be read, and whose could not.

    `unread`: the owner names of the others; None where any name could have some.
    """

    def __init__(
        self, errors: Sequence[ConfigurationError], rest: StaticZone, unread: frozenset[str] | None
    ) -> None:
        super().__init__(errors)
        self.rest = rest
        self.unread = unread


class _Line(NamedTuple):
    """One record of the file: its line number, owner name and type as text, its data, and how many octets
    these have on the wire."""

    number: int
    owner: str
    type: str
    ttl_s: int
    data: Data
    octets: int


class _TooMuch(dns.exception.DNSException):
    """The file asks for more records than a zone may have; `is_whole` says that no more of it is read."""

    def __init__(self, text: str, *, is_whole: bool) -> None:
        super().__init__(text)  # type: ignore[no-untyped-call]  # dnspython's has no types
        self.is_whole = is_whole


def load_zone_file(
    path: str | Path, zone: str, on_records: Callable[[int], None] = lambda more: None
) -> StaticZone:
    """Read the master file `path` of `zone`; `on_records` is told how many more records were read.

    Raises ConfigurationErrors with every error found. They are ZoneFileErrors when the file itself could be
    read.
    """
    return parse_zone_file(read_text(path), str(path), zone, on_records)


def parse_zone_file(
    text: str, file: str, zone: str, on_records: Callable[[int], None] = lambda more: None
) -> StaticZone:
    """Do what `load_zone_file()` does, for a text at hand."""
    lines, errors, unread = _read(text, file, dns.name.from_text(zone), on_records)
    if not all(names.is_at_or_below(line.owner, zone) for line in lines):
        unread = None  # who knows what was meant
    errors += [ConfigurationError(file, *problem) for problem in _problems(lines, zone)]
    apex_is_read = unread is not None and zone not in unread
    if apex_is_read and not any(line.type == "SOA" for line in lines):
        errors.append(ConfigurationError(file, 0, zone, "the zone has no SOA record"))
    if apex_is_read and not any(line.type == "NS" and line.owner == zone for line in lines):
        errors.append(ConfigurationError(file, 0, zone, "the zone has no NS record at its apex"))
    static = StaticZone.of_lines(file, zone, lines)
    if errors:
        raise ZoneFileErrors(errors, static, unread)
    return static


def _problems(lines: list[_Line], zone: str) -> list[tuple[int, str, str]]:
    """The problems between the records: line, owner name and problem."""
    problems = []
    types: dict[str, set[str]] = {}
    dnames = {line.owner for line in lines if line.type == "DNAME"}
    sizes: dict[tuple[str, str], int] = {}
    for line in lines:
        name = line.owner
        before = types.setdefault(name, set())
        if not names.is_at_or_below(name, zone):
            problems.append((line.number, name, f"lies outside the zone {zone}; is a final dot missing?"))
        elif line.type == "SOA" and name != zone:
            problems.append((line.number, name, "an SOA record may stand at the zone's apex only"))
        elif line.type == "SOA" and "SOA" in before:
            problems.append((line.number, name, "the zone has more than one SOA record"))
        elif line.type in _SIGNING:
            problems.append((line.number, name, f"{line.type} records are left to PowerDNS, which signs"))
        elif before and ("CNAME" in before or line.type == "CNAME"):
            problems.append((line.number, name, "a CNAME record stands alone at its name (RFC 1034)"))
        elif line.type == "DNAME" and "DNAME" in before:
            problems.append((line.number, name, "a name has one DNAME record at most (RFC 6672)"))
        elif dnames and name != zone and (above := dnames.intersection(_above(name, zone))):
            text = f"nothing may stand below the DNAME record of {min(above)} (RFC 6672 section 2.3)"
            problems.append((line.number, name, text))
        if (size := _size_problem(line, sizes)) is not None:
            problems.append((line.number, f"{name} {line.type}", size))
        if line.ttl_s > MAX_TTL_S:
            problems.append((line.number, name, f"the TTL is above {MAX_TTL_S} s"))
        before.add(line.type)
    return problems


def _above(name: str, zone: str) -> list[str]:
    return [*names.ancestors(name, zone), zone]


def _size_problem(line: _Line, sizes: dict[tuple[str, str], int]) -> str | None:
    """The problem with the size of a record, or of its RRset, whose sizes up to here are in `sizes`."""
    octets = line.octets
    owner = len(line.owner) + 2
    alone = _HEADER + owner + _AROUND_QUESTION + _POINTER + _AROUND_RECORD
    if alone + octets > MAX_MESSAGE:
        return f"its data have {octets} octets; a DNS message has room for {MAX_MESSAGE - alone} of them"
    key = line.owner, line.type
    before = sizes.get(key, alone - _POINTER - _AROUND_RECORD)
    sizes[key] = after = before + _POINTER + _AROUND_RECORD + octets
    if before <= MAX_MESSAGE < after:  # told once
        return f"the {line.type} records here have {after} octets with this one: no DNS message has the room"
    return None


def _records(lines: list[_Line]) -> dict[Record, int]:
    """The records and their first lines; those of one RRset share the smallest of their TTLs (RFC 2181
    section 5.2)."""
    ttls: dict[tuple[str, str], int] = {}
    for line in lines:
        key = (line.owner, line.type)
        ttls[key] = min(line.ttl_s, ttls.get(key, MAX_TTL_S))
    lines_of: dict[Record, int] = {}
    for line in lines:
        if line.type != "SOA":
            ttl_s = ttls[line.owner, line.type]
            lines_of.setdefault(Record(line.owner, line.type, line.data, ttl_s), line.number)
    return lines_of


def _data(kind: str, rdata: Any) -> Data:
    """The data of dnspython's `rdata`, which are of the type `kind`."""
    match kind:
        case "SRV":
            target = rdata.target.to_text(omit_final_dot=True)
            return SrvData(rdata.priority, rdata.weight, rdata.port, target)
        case "A" | "AAAA":
            return AddressData(rdata.to_wire())
        case "SOA":
            times = rdata.refresh, rdata.retry, rdata.expire, rdata.minimum
            return SoaData(rdata.mname.to_text(), rdata.rname.to_text(), 0, *times)
        case "CERT":  # PowerDNS reads numbers, no mnemonics (RFC 4398 section 2.2)
            numbers = f"{rdata.certificate_type:d} {rdata.key_tag} {rdata.algorithm:d}"
            return OtherData(kind, f"{numbers} {base64.b64encode(rdata.certificate).decode()}")
        case _:
            return OtherData(kind, _content(rdata))


def _content(rdata: dns.rdata.Rdata) -> str:
    """The data as text, names in it without the final dot (unless one is the root, which has no other
    form)."""
    absolute = rdata.to_text()
    relative = rdata.to_text(origin=dns.name.root, relativize=True)
    content = relative if relative.count("@") == absolute.count("@") else absolute
    if rdata.rdtype in (dns.rdatatype.SVCB, dns.rdatatype.HTTPS):
        content = _QUOTED_LIST.sub(r"\1\2", content)
    return content


class _Collector:
    """Stands where dnspython's reader expects a transaction, and keeps each record with its line."""

    def __init__(self, origin: dns.name.Name, on_records: Callable[[int], None]) -> None:
        self.manager = self
        self._on_records = on_records
        self.origin = origin
        self.line_number = 0
        self.lines: list[_Line] = []
        self._name: dns.name.Name | None = None
        self._owner = ""
        self._types: dict[dns.rdatatype.RdataType, str] = {}

    def origin_information(self) -> tuple[dns.name.Name, bool, dns.name.Name]:
        return self.origin, False, self.origin

    def check_put_rdataset(self, check: object) -> None:
        """Ask for nothing: the rules of CNAME are checked with all the others."""

    def _set_origin(self, origin: dns.name.Name) -> None:
        """$ORIGIN: the reader keeps it."""

    def add(self, name: dns.name.Name, ttl: int, rdata: dns.rdata.Rdata) -> None:
        if self.is_full:
            raise _TooMuch(f"the zone has more than {MAX_RECORDS} records", is_whole=True)
        if name is not self._name:
            self._name, self._owner = name, names.to_text(name)
        kind = self._types.get(rdata.rdtype)
        if kind is None:
            kind = self._types[rdata.rdtype] = dns.rdatatype.to_text(rdata.rdtype)
        octets = len(rdata.to_wire() or b"")
        self.add_line(_Line(self.line_number, self._owner, kind, ttl, _data(kind, rdata), octets))

    def add_line(self, line: _Line) -> None:
        """Keep a record; there must be room for it."""
        self.lines.append(line)
        if not len(self.lines) % _TOLD_EVERY:
            self._on_records(_TOLD_EVERY)

    @property
    def is_full(self) -> bool:
        """Whether there are as many records as a zone may have."""
        return len(self.lines) >= MAX_RECORDS


class _Tokenizer(dns.tokenizer.Tokenizer):
    """dnspython's tokenizer, which also tells the collector where each record and directive begins, and gives
    it the plain lines, so that `reader` gets the others only.

    Its own count is a line ahead where a line's first word is also its last one.
    """

    def __init__(self, text: str, file: str, collector: _Collector, first_line: int = 1) -> None:
        super().__init__(text, filename=file)
        self.line_number = first_line
        self.collector = collector
        self.reader: dns.zonefile.Reader | None = None
        """It must be given for plain lines to be read here."""
        self._whole_text = text
        self._is_range = False
        """Whether the next token is the range of a $GENERATE."""

    def get(self, want_leading: bool = False, want_comment: bool = False) -> dns.tokenizer.Token:
        if want_leading and want_comment:  # so asks the reader for what begins a line, and for nothing else
            if self.reader is not None:
                self._read_plain_lines(self.reader)
            self.collector.line_number = self.line_number
            token = super().get(want_leading, want_comment)
            self._is_range = token.value.upper() == "$GENERATE"
            return token
        token = super().get(want_leading, want_comment)
        if self._is_range:
            self._is_range = False
            _check_range(token.value)
        return token

    def _read_plain_lines(self, reader: dns.zonefile.Reader) -> None:
        """Take the plain lines from here on, and leave tokenizer and reader as if they had read them."""
        is_at_line = not (self.after_cr or self.multiline or self.quoting)
        if not is_at_line or self.ungotten_char is not None or self.ungotten_token is not None:
            return
        last_name, given_origin = reader.last_name, reader.current_origin
        if given_origin is None or last_name is None:
            return
        origin = given_origin.to_text(omit_final_dot=True) if given_origin != dns.name.root else ""
        if not is_plain_origin(origin):
            return
        written, owner = "", names.to_text(last_name)
        start = self.file.tell()
        while (
            not self.collector.is_full and (line := plain_line(self._whole_text, start, origin)) is not None
        ):
            if line.owner:
                whole = whole_name(line.owner, origin)
                if whole is None:
                    break
                written, owner = line.owner, whole.lower()
            ttl_s = line.ttl_s
            if ttl_s is not None:
                reader.last_ttl, reader.last_ttl_known = ttl_s, True
            elif reader.default_ttl_known and not getattr(reader, "default_ttl_from_soa", True):
                ttl_s = reader.default_ttl
            else:
                break  # without $TTL, versions of dnspython differ
            self.collector.add_line(_Line(self.line_number, owner, line.type, ttl_s, line.data, line.octets))
            self.line_number += 1
            start = line.end
        self.file.seek(start)
        if written:
            reader.last_name = dns.name.from_text(written, given_origin)


def _check_range(text: str) -> None:
    """Refuse the range of a $GENERATE that has too many steps, before the first of them is made."""
    try:
        first, last, step = dns.grange.from_text(text)
    except dns.exception.DNSException:
        return  # the reader says what is wrong with it
    steps = (last - first) // step + 1
    if steps > MAX_STEPS:
        raise _TooMuch(f"it makes {steps} records, and may make {MAX_STEPS} at most", is_whole=False)


def _read(
    text: str, file: str, origin: dns.name.Name, on_records: Callable[[int], None]
) -> tuple[list[_Line], list[ConfigurationError], frozenset[str] | None]:
    """Every record, every line that is none, and the owner names of those (None: they could be any).

    After an error reading goes on at the next owner name.
    """
    text_lines = io.StringIO(
        text, newline=""
    ).readlines()  # as the tokenizer counts them, unlike splitlines()
    collector = _Collector(origin, on_records)
    tokenizer = _Tokenizer(text, file, collector)
    reader = dns.zonefile.Reader(tokenizer, dns.rdataclass.IN, cast(Any, collector))
    reader.zone_origin = dns.name.root  # passes no record over for lying outside the zone
    tokenizer.reader = reader
    errors: list[ConfigurationError] = []
    unread: set[str | None] = set()
    while len(errors) < _MOST_ERRORS:
        try:
            reader.read()
            break
        except (dns.exception.DNSException, UnicodeError, ValueError) as error:
            number = min(collector.line_number, len(text_lines))
            errors.append(ConfigurationError(file, number, "", _explain(error, file, text_lines[number - 1])))
            unread.add(None if isinstance(error, _TooMuch) else _owner(text_lines[number - 1], reader))
            if isinstance(error, _TooMuch) and error.is_whole:
                break
            while number < len(text_lines) and not _starts_a_record(text_lines[number]):
                number += 1
            tokenizer = _Tokenizer("".join(text_lines[number:]), file, collector, number + 1)
            reader.tok, tokenizer.reader = tokenizer, reader
    else:
        unread.add(None)  # whatever follows was not looked at
    known = frozenset(name for name in unread if name is not None)
    return collector.lines, errors, None if len(known) < len(unread) else known


def _owner(line: str, reader: dns.zonefile.Reader) -> str | None:
    """The owner name of a line that could not be read; None when that is not known."""
    words = line.split()
    if not words or line[0] in ' \t;()$"' or reader.current_origin is None:
        return None
    try:
        return names.to_text(dns.name.from_text(words[0], reader.current_origin))
    except (dns.exception.DNSException, UnicodeError, ValueError):
        return None


def _starts_a_record(line: str) -> bool:
    return line[0] not in " \t\r\n;()"


def _explain(error: Exception, file: str, line: str) -> str:
    """The error of dnspython for a line: without its number, which it also names, with its text."""
    text = str(error)
    if isinstance(error, _TooMuch):
        return f"{shorten(line, 60, placeholder=' ...')!r}: {text}"
    if text.startswith(f"{file}:"):
        text = text.removeprefix(f"{file}:").partition(": ")[2]
    if "caught exception" in text:
        text = text.rpartition("'>: ")[2]
    if (ttl := _NO_TYPE.search(text)) is not None or text.startswith("TTL"):
        wrong = repr(ttl.group(1)) if ttl is not None else "this"
        text = f"{wrong} is no TTL; one has 0 to {MAX_TTL_S} s"
    text = text.replace("unknown rdatatype", "unknown record type").removesuffix(".")
    return f"{shorten(line, 60, placeholder=' ...')!r} is not understood: {text[:1].lower()}{text[1:]}"
