"""gdnsd's configuration syntax (vscf, gdnsd.config(5)): hashes, arrays and strings, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from rspdns.importing.model import ImportProblem, Place

_MOST_DEPTH: Final = 50
_TOKEN: Final = re.compile(
    r"""(?P<space>[\s;,]+|\#[^\n]*) | (?P<include>\$include\b) | (?P<sign>=>?|[{}\[\]])
      | "(?P<quoted>(?:[^"\\]|\\.)*)" | (?P<bare>[^\s\[\]{};,"\#=]+)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Text:
    """A string, and where it stands."""

    text: str
    place: Place


@dataclass(frozen=True)
class Array:
    """[ value, value ]."""

    values: tuple[Value, ...]
    place: Place


@dataclass(frozen=True)
class Hash:
    """{ key => value }, in the order of the file."""

    values: dict[str, Value]
    place: Place


Value = Text | Array | Hash


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._line = 1
        self._tokens = self._split(text)
        self._next = next(self._tokens, None)

    def document(self) -> Hash:
        found = self._inside_hash(Place(self._file, 1), end=None, depth=0)
        if self._next is not None:
            self._fail(f"{self._next[1]!r} is too much")
        return found

    def _fail(self, problem: str) -> NoReturn:
        raise ImportProblem(f"{Place(self._file, self._line)}: {problem}")

    def _split(self, text: str) -> Iterator[tuple[str, str, int]]:
        position, line = 0, 1
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                self._line = line
                self._fail(f"{text[position]!r} can't stand here")
            kind = match.lastgroup or ""
            if kind == "include":
                self._line = line
                self._fail("$include is not followed: give one file that has all")
            if kind != "space":
                yield kind, _unescaped(match[kind]) if kind in ("quoted", "bare") else match[kind], line
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

    def _value(self, depth: int) -> Value:
        if depth > _MOST_DEPTH:
            self._fail("too many brackets within each other")
        kind, text = self._take()
        place = Place(self._file, self._line)
        if kind != "sign":
            return Text(text, place)
        if text == "{":
            return self._inside_hash(place, "}", depth)
        if text == "[":
            values = []
            while not self._is("]"):
                values.append(self._value(depth + 1))
            self._take()
            return Array(tuple(values), place)
        return self._fail(f"{text!r} can't stand here")

    def _inside_hash(self, place: Place, end: str | None, depth: int) -> Hash:
        values: dict[str, Value] = {}
        while not (self._next is None if end is None else self._is(end)):
            kind, key = self._take()
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
        return Hash(values, place)


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        digits = match[1]
        return chr(int(digits)) if digits.isdigit() and int(digits) < 256 else digits

    return re.sub(r"\\([0-9]{3}|.)", plain, text, flags=re.DOTALL)


def read(text: str, file: str) -> Hash:
    """Return the whole file. Raises ImportProblem."""
    return _Reader(text, file).document()
