"""Master files with records that only gdnsd or PowerDNS know (DYNA, DYNC, LUA, ALIAS), by dnspython."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import dns.exception
import dns.name
import dns.rdata
import dns.rdatatype
import dns.tokenizer
import dns.zone

from rspdns.importing.model import FileLine, ImportProblem

_TYPES: Final = {"LUA": 65402, "ALIAS": 65401, "DYNA": 65441, "DYNC": 65442}
"""PowerDNS's own numbers, and two of those for private use (RFC 6895): gdnsd's types have none."""


_INCLUDE: Final = re.compile(r"""(?mi)^(\$INCLUDE[ \t]+)("?)([^\s";]+)\2""")
_DIRECTIVE: Final = re.compile(r"(?mi)^\$(?!TTL\b|ORIGIN\b|INCLUDE\b|GENERATE\b)(\S+)[^\n]*")
"""A directive that RFC 1035 doesn't have and BIND doesn't, such as gdnsd's $ADDR_LIMIT_V4."""
_MOST_INCLUDED: Final = 16
"""Files that include each other; one that includes itself would never end."""


class _Text(dns.rdata.Rdata):
    """A record of one of these types: its words as they stand there, and the line."""

    words: tuple[str, ...]
    file: str
    line: int

    __slots__ = ("file", "line", "words")

    def __init__(self, rdclass: Any, rdtype: Any, words: tuple[str, ...], file: str, line: int) -> None:
        super().__init__(rdclass, rdtype)
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "file", file)
        object.__setattr__(self, "line", line)

    @classmethod
    def from_text(cls, rdclass: Any, rdtype: Any, tok: dns.tokenizer.Tokenizer, *_: Any, **__: Any) -> _Text:
        """Read what follows the type."""
        # The end of the line was read already where the first word is the last one.
        file, line = tok.where()
        line -= getattr(tok, "ungotten_char", None) == "\n"
        words = []
        while not (token := tok.get()).is_eol_or_eof():
            words.append(token.unescape().value)
        tok.unget(token)
        return cls(rdclass, rdtype, tuple(words), file, line)

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
    found_at: FileLine


class MasterFile(NamedTuple):
    """The contents of a master file: the lines of all other records, the special ones, and directives that
    only other name servers than BIND have, each at its line."""

    fixed: list[str]
    special: list[Special]
    directives: list[tuple[FileLine, str]]


def _as_it_is(text: str, _is_included: bool) -> str:
    return text


class _Included:
    """Copies of the files that a master file includes, each changed like the file itself."""

    def __init__(self, folder: Path, change: Callable[[str, bool], str]) -> None:
        self._folder = folder
        self._change = change
        self._files: dict[str, str] = {}
        self.directives: list[tuple[FileLine, str]] = []
        """Directives other than the usual ones, each whole with its line: they are taken out."""

    def prepared(self, text: str, file: Path, depth: int = 0) -> str:
        """Return the text with the copies' names in its $INCLUDE. Raises ImportProblem."""
        text = self._change(text, depth > 0)
        for match in _DIRECTIVE.finditer(text):
            self.directives.append((FileLine(str(file), text.count("\n", 0, match.start()) + 1), match[0]))
        text = _DIRECTIVE.sub("", text)

        def copied(match: re.Match[str]) -> str:
            source = file.parent / match[3]
            where = FileLine(str(file), text.count("\n", 0, match.start()) + 1)
            if depth >= _MOST_INCLUDED:
                raise ImportProblem(f"{where}: $INCLUDE of {source}: too many files within each other")
            try:
                included = source.read_text()
            except (OSError, UnicodeDecodeError) as problem:
                why = getattr(problem, "strerror", None) or problem
                raise ImportProblem(f"{where}: $INCLUDE of {source}: {why}") from None
            target = self._folder / f"{len(self._files)}-"
            self._files[str(target)] = str(source)
            target.write_text(self.prepared(included, source, depth + 1))
            return f"{match[1]}{target}"

        return _INCLUDE.sub(copied, text)

    def original(self, file: str) -> str:
        """Return the name of a copy's original; another name as it is."""
        return self._files.get(file, file)

    def message(self, problem: Exception, file: str, before: int) -> str:
        """Return a message with the originals' names; `before` lines of the `file` itself are not its own.

        dnspython names the line where a record ends, or the one behind it.
        """
        words = re.sub(
            rf"{re.escape(str(self._folder))}/\d+-", lambda name: self.original(name[0]), str(problem)
        )
        at = re.match(rf"{re.escape(file)}:(\d+): ", words)
        if at is not None:
            line = max(1, int(at[1]) - before)
            return f"{file}:{line}, or the record before: {words[at.end() :]}"
        return f"{file}: {words}"


def read_master_file(
    text: str,
    file: str,
    zone: str,
    default_ttl_s: int | None = None,
    change: Callable[[str, bool], str] = _as_it_is,
) -> MasterFile:
    """Read a master file. Raises ImportProblem.

    `default_ttl_s`: of records without a TTL; None: that of the record before, as RFC 1035 has it. `change`
    is called with the text of each file, and whether another one includes it: what must be changed first.
    """
    origin = dns.name.from_text(zone)
    lines: list[str] = []
    special: list[Special] = []
    with tempfile.TemporaryDirectory() as folder:
        included = _Included(Path(folder), change)
        text = included.prepared(text, Path(file))
        before = 0
        if default_ttl_s is not None:
            text, before = f"$TTL {default_ttl_s}\n{text}", 1
        try:
            parsed = dns.zone.from_text(
                text, origin, relativize=True, check_origin=False, filename=file, allow_include=True
            )
        except (dns.exception.DNSException, ValueError, OSError) as problem:
            raise ImportProblem(included.message(problem, file, before)) from None
    for name, ttl_s, rdata in parsed.iterate_rdatas():
        if isinstance(rdata, _Text):
            found_at = FileLine(
                included.original(rdata.file), rdata.line - (before if rdata.file == file else 0)
            )
            special.append(Special(str(name), type(rdata).__name__, rdata.words, found_at))
            continue
        content = rdata.to_text(origin=origin, relativize=False)
        line = f"{name} {ttl_s} IN {dns.rdatatype.to_text(rdata.rdtype)} {content}"
        lines.insert(0 if rdata.rdtype == dns.rdatatype.SOA else len(lines), line)
    special.sort(key=lambda record: record.found_at.line)
    return MasterFile(lines, special, included.directives)
