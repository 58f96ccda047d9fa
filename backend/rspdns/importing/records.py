"""Master files with records that only gdnsd or PowerDNS know (DYNA, DYNC, LUA, ALIAS), by dnspython."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Final

import dns.exception
import dns.name
import dns.rdata
import dns.rdatatype
import dns.tokenizer
import dns.zone

from rspdns.importing.model import ImportProblem, Place

_TYPES: Final = {"LUA": 65402, "ALIAS": 65401, "DYNA": 65441, "DYNC": 65442}
"""PowerDNS's own numbers, and two of those for private use (RFC 6895): gdnsd's types have none."""


class _Text(dns.rdata.Rdata):
    """A record of one of these types: its words as they stand there, and the line."""

    words: tuple[str, ...]
    line: int

    __slots__ = ("line", "words")

    def __init__(self, rdclass: Any, rdtype: Any, words: tuple[str, ...], line: int) -> None:
        super().__init__(rdclass, rdtype)
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "line", line)

    @classmethod
    def from_text(cls, rdclass: Any, rdtype: Any, tok: dns.tokenizer.Tokenizer, *_: Any, **__: Any) -> _Text:
        """Read what follows the type."""
        # The end of the line was read already where the first word is the last one.
        line = tok.where()[1] - (getattr(tok, "ungotten_char", None) == "\n")
        words = []
        while not (token := tok.get()).is_eol_or_eof():
            words.append(token.unescape().value)
        tok.unget(token)
        return cls(rdclass, rdtype, tuple(words), line)

    def to_text(self, *_: Any, **__: Any) -> str:
        """Return the words."""
        return " ".join(self.words)

    def _to_wire(self, file: Any, *_: Any, **__: Any) -> None:
        """Two records are the same when they have the same words."""
        file.write("\0".join(self.words).encode())


class LUA(_Text):
    """PowerDNS: the type of the answer, and a Lua snippet."""


class ALIAS(_Text):
    """PowerDNS: the addresses of another name."""


class DYNA(_Text):
    """gdnsd: addresses by `plugin!resource`."""


class DYNC(_Text):
    """gdnsd: addresses or a CNAME by `plugin!resource`."""


def _register() -> None:
    for name, number in _TYPES.items():
        if not dns.rdatatype.is_metatype(dns.rdatatype.RdataType.make(number)):
            dns.rdata.register_type(sys.modules[__name__], number, name)


_register()


@dataclass(frozen=True)
class Special:
    """A record of one of these types, at `name` relative to the zone ("@" for its apex)."""

    name: str
    type: str
    words: tuple[str, ...]
    place: Place


def read_master_file(
    text: str, file: str, zone: str, default_ttl_s: int | None = None
) -> tuple[list[str], list[Special]]:
    """Return the lines of all other records, and the special ones. Raises ImportProblem.

    `default_ttl_s`: of records without a TTL; None: that of the record before, as RFC 1035 has it.
    """
    origin = dns.name.from_text(zone)
    before = 0
    if default_ttl_s is not None:
        text, before = f"$TTL {default_ttl_s}\n{text}", 1
    try:
        found = dns.zone.from_text(text, origin, relativize=True, check_origin=False, filename=file)
    except (dns.exception.DNSException, ValueError) as problem:
        raise ImportProblem(f"{file}: {problem}") from None
    lines: list[str] = []
    special: list[Special] = []
    for name, ttl_s, rdata in found.iterate_rdatas():
        if isinstance(rdata, _Text):
            kind = type(rdata).__name__
            special.append(Special(str(name), kind, rdata.words, Place(file, rdata.line - before)))
            continue
        content = rdata.to_text(origin=origin, relativize=False)
        line = f"{name} {ttl_s} IN {dns.rdatatype.to_text(rdata.rdtype)} {content}"
        lines.insert(0 if rdata.rdtype == dns.rdatatype.SOA else len(lines), line)
    special.sort(key=lambda one: one.place.line)
    return lines, special
