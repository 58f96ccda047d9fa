"""gdnsd's configuration syntax (vscf, gdnsd.config(5)): hashes, arrays, strings, with their file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from rspdns.importing.model import FileLine, ImportProblem

_MOST_DEPTH: Final = 50
_MOST_INCLUDED: Final = 16
"""Files that include each other; gdnsd knows no limit, a file that includes itself would never end."""
_TOKEN: Final = re.compile(
    r"""(?P<space>[\s,]+|[\#;][^\n]*) | (?P<sign>=>?|[{}\[\]])
      | \$include\{\s*(?:"(?P<include>(?:[^"\\]|\\.)*)"|(?P<bare_include>[^\s{}"]+))\s*\}
      | "(?P<quoted>(?:[^"\\]|\\.)*)" | (?P<bare>(?!\$)(?:\\.|[^\s\[\]{};,"\#=\\])+)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Text:
    """A string, and where it stands."""

    text: str
    found_at: FileLine


@dataclass(frozen=True)
class Array:
    """[ value, value ]."""

    values: tuple[Setting, ...]
    found_at: FileLine


@dataclass(frozen=True)
class Hash:
    """{ key => value }, in the order of the file."""

    values: dict[str, Setting]
    found_at: FileLine


Setting = Text | Array | Hash


class _Reader:
    def __init__(self, text: str, file: str, depth: int = 0) -> None:
        self._file = file
        self._depth = depth
        """How many files include this one, each the next."""
        self._line = 1
        self._tokens = self._split(text)
        self._next = next(self._tokens, None)

    def document(self) -> Hash:
        return self._inside_hash(FileLine(self._file, 1), end=None, depth=0)

    def included(self) -> Hash | Array:
        """Return a file that another one includes: a hash without braces, or an array."""
        if not self._is("["):
            return self.document()
        value = self._value(0)
        if self._next is not None or not isinstance(value, Array):
            self._fail("after the array belongs nothing")
        return value

    def _fail(self, problem: str) -> NoReturn:
        raise ImportProblem(f"{FileLine(self._file, self._line)}: {problem}")

    def _split(self, text: str) -> Iterator[tuple[str, str, int]]:
        position, line = 0, 1
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                self._line = line
                self._fail(f"{text[position]!r} can't stand here")
            kind = match.lastgroup or ""
            if kind == "bare_include":
                yield "include", _unescaped(match[kind]), line
            elif kind != "space":
                yield kind, match[kind] if kind == "sign" else _unescaped(match[kind]), line
            line += match[0].count("\n")
            position = match.end()

    def _take(self) -> tuple[str, str]:
        if self._next is None:
            self._fail("the file ends too soon")
        kind, text, self._line = self._next
        self._next = next(self._tokens, None)
        return kind, text

    def _is(self, sign: str) -> bool:
        return self._next is not None and self._next[:2] == ("sign", sign)

    def _value(self, depth: int) -> Setting:
        if depth > _MOST_DEPTH:
            self._fail("too many brackets within each other")
        kind, text = self._take()
        found_at = FileLine(self._file, self._line)
        if kind == "include":
            files = self._files(text)
            if len(files) != 1:
                self._fail(f"$include{{{text}}}: one file is a value, there are {len(files)}")
            return self._read(files[0])
        if kind != "sign":
            return Text(text, found_at)
        if text == "{":
            return self._inside_hash(found_at, "}", depth)
        if text == "[":
            values = []
            while not self._is("]"):
                values.append(self._value(depth + 1))
            self._take()
            return Array(tuple(values), found_at)
        return self._fail(f"{text!r} can't stand here")

    def _inside_hash(self, found_at: FileLine, end: str | None, depth: int) -> Hash:
        values: dict[str, Setting] = {}
        while not (self._next is None if end is None else self._is(end)):
            kind, key = self._take()
            if kind == "include":
                self._merge(values, key)
                continue
            if kind == "sign":
                self._fail(f"{key!r} stands where a key belongs")
            if key in values:
                self._fail(f"{key!r} is there twice")
            if not (self._is("=>") or self._is("=")):
                self._fail(f"after the key {key!r} belongs =>")
            self._take()
            values[key] = self._value(depth + 1)
        if end is not None:
            self._take()
        return Hash(values, found_at)

    def _merge(self, values: dict[str, Setting], pattern: str) -> None:
        """Add the keys of the files that stand where a key belongs."""
        line = self._line
        for file in self._files(pattern):
            included = self._read(file)
            self._line = line
            if not isinstance(included, Hash):
                self._fail(f"{file} is an array, where keys belong")
            for key, value in included.values.items():
                if key in values:
                    self._fail(f"{key!r} of {file} is there already")
                values[key] = value

    def _files(self, pattern: str) -> Sequence[Path]:
        """Return the files of an $include: one, those of a directory, or those of a pattern."""
        path = Path(self._file).parent / pattern
        if path.is_dir():
            return sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
        base = Path(path.anchor or ".")
        files = sorted(base.glob(str(path.relative_to(base)))) if re.search(r"[*?\[]", pattern) else [path]
        if not files:
            self._fail(f"$include{{{pattern}}}: no such file")
        return files

    def _read(self, file: Path) -> Hash | Array:
        if self._depth >= _MOST_INCLUDED:
            self._fail(f"$include of {file}: too many files within each other")
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as problem:
            self._fail(f"$include of {file}: {getattr(problem, 'strerror', None) or problem}")
        return _Reader(text, str(file), self._depth + 1).included()


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        digits = match[1]
        return chr(int(digits)) if digits.isdigit() and int(digits) < 256 else digits

    return re.sub(r"\\([0-9]{3}|.)", plain, text, flags=re.DOTALL)


def read(text: str, file: str) -> Hash:
    """Return the whole file. Raises ImportProblem."""
    return _Reader(text, file).document()
