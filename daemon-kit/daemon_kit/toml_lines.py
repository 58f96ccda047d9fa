"""The line of each key of a TOML document.

`tomllib` says nothing about positions. This module walks a document that `tomllib` has already accepted, so
it only has to find the keys, not to judge the syntax.
"""

import re
import tomllib
from typing import Final

Location = tuple[str | int, ...]
"""A position in a document: keys and indexes in arrays. `("as", 0, "port")`: `port` of the first `[[as]]`."""

_BARE_KEY_END: Final = frozenset(" \t.=]\r\n")
_SCALAR_END: Final = frozenset(",]}#\r\n")


def key_lines(text: str) -> dict[Location, int]:
    """Return the line (from 1) of every key, table and array element of the valid TOML document `text`.

    A table made only by the name of another one (`a` in `[a.b]`) stands where it was first named. The
    document itself, `()`, stands at line 1.
    """
    return _Walker(text.replace("\r\n", "\n")).walk()


_QUOTES: Final = re.compile(
    r"""\#[^\n]* | \"{3}(?:\\.|[^\\])*?\"{3,5} | '{3}.*?'{3,5} | \"(?:\\[^\n]|[^"\\\n])*\" | '[^'\n]*' """
    r"""| (?P<open>["'])""",
    re.VERBOSE | re.DOTALL,
)


def unclosed_quote(text: str) -> int | None:
    """Return the line (from 1) of the first quote that is never closed; `text` need not be valid."""
    for quote in _QUOTES.finditer(text):
        if quote["open"]:
            return text.count("\n", 0, quote.start()) + 1
    return None


class _Walker:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._lines: dict[Location, int] = {(): 1}
        self._table_counts: dict[Location, int] = {}  # of arrays of tables: a header means their last element

    def walk(self) -> dict[Location, int]:
        table: Location = ()
        while self._skip_blank():
            if self._peek() == "[":
                table = self._header()
            else:
                self._pair(table)
        return self._lines

    def _header(self) -> Location:
        line = self._line
        is_array = self._text.startswith("[[", self._at)
        self._advance(2 if is_array else 1)
        keys = self._dotted_key()
        self._skip_spaces()
        self._advance(2 if is_array else 1)
        path = (*self._resolve(keys[:-1], line), keys[-1])
        if is_array:
            self._lines.setdefault(path, line)
            count = self._table_counts.get(path, 0)
            self._table_counts[path] = count + 1
            path += (count,)
        self._lines[path] = line
        return path

    def _resolve(self, keys: list[str], line: int) -> Location:
        """Return the table a header's `keys` lead to: of an array of tables, the last one so far."""
        path: Location = ()
        for key in keys:
            path += (key,)
            self._lines.setdefault(path, line)
            if path in self._table_counts:
                path += (self._table_counts[path] - 1,)
        return path

    def _pair(self, table: Location) -> None:
        path, line = table, self._line
        for key in self._dotted_key():
            path += (key,)
            self._lines.setdefault(path, line)
        self._skip_spaces()
        self._advance(1)  # the equals sign
        self._skip_spaces()
        self._value(path)

    def _value(self, path: Location) -> None:
        first = self._peek()
        if first in "\"'":
            self._string()
        elif first == "[":
            self._array(path)
        elif first == "{":
            self._inline_table(path)
        else:
            while self._at < len(self._text) and self._peek() not in _SCALAR_END:
                self._advance(1)

    def _array(self, path: Location) -> None:
        self._advance(1)
        position = 0
        while self._skip_blank() and self._peek() != "]":
            if self._peek() == ",":
                self._advance(1)
                continue
            self._lines[(*path, position)] = self._line
            self._value((*path, position))
            position += 1
        self._advance(1)

    def _inline_table(self, path: Location) -> None:
        self._advance(1)
        while self._skip_blank() and self._peek() != "}":
            if self._peek() == ",":
                self._advance(1)
            else:
                self._pair(path)
        self._advance(1)

    def _dotted_key(self) -> list[str]:
        keys = [self._key()]
        self._skip_spaces()
        while self._peek() == ".":
            self._advance(1)
            keys.append(self._key())
            self._skip_spaces()
        return keys

    def _key(self) -> str:
        self._skip_spaces()
        start = self._at
        if self._peek() == '"':
            self._string()
            return _unescape(self._text[start + 1 : self._at - 1])
        if self._peek() == "'":
            self._string()
            return self._text[start + 1 : self._at - 1]
        while self._peek() not in _BARE_KEY_END:
            self._advance(1)
        return self._text[start : self._at]

    def _string(self) -> None:
        quote = self._peek()
        delimiter = quote * 3 if self._text.startswith(quote * 3, self._at) else quote
        self._advance(len(delimiter))
        while not self._text.startswith(delimiter, self._at):
            self._advance(2 if quote == '"' and self._peek() == "\\" else 1)
        self._advance(len(delimiter))
        if len(delimiter) == 3:
            while self._peek() == quote:  # up to two quotes may belong to the text itself
                self._advance(1)

    def _skip_spaces(self) -> None:
        while self._peek() in (" ", "\t"):
            self._advance(1)

    def _skip_blank(self) -> bool:
        """Go past white space, line ends and comments; return whether anything is left."""
        while self._at < len(self._text):
            if self._peek() == "#":
                while self._peek() not in ("\n", ""):
                    self._advance(1)
            elif self._peek() in " \t\r\n":
                self._advance(1)
            else:
                return True
        return False

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _advance(self, characters: int) -> None:
        if self._at + characters > len(self._text):
            raise ValueError("not a valid TOML document")
        self._line += self._text.count("\n", self._at, self._at + characters)
        self._at += characters


def _unescape(quoted: str) -> str:
    """Return what a basic string, given without its quotes, means."""
    return str(tomllib.loads(f'key = "{quoted}"')["key"])
