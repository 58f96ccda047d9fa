"""Configuration files: TOML into pydantic models, with every error at once, each with file, line and key."""

import copy
import functools
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from daemon_kit.files import check_path, open_regular
from daemon_kit.model_keys import deeper_header, header_of, known_keys, meant_key, meant_tag, none_of
from daemon_kit.toml_lines import Location, key_lines, unclosed_quote

ModelT = TypeVar("ModelT", bound=BaseModel)

_MAX_FILE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, order=True)
class ConfigurationError:
    """One error: where it is, and what to do. `line` is 0 when it is in no line; `key` is dotted."""

    file: str
    line: int
    key: str
    problem: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.key}: {self.problem}" if self.key else f"{where}: {self.problem}"


class ConfigurationErrors(Exception):  # noqa: N818 - the name says that it holds all of them
    """Every error found in one or more files; `str()` gives one per line."""

    def __init__(self, errors: Sequence[ConfigurationError]) -> None:
        self.errors = sorted(set(errors))
        super().__init__("\n".join(str(error) for error in self.errors))


class StrictModel(BaseModel):
    """Base of configuration models: unknown keys are errors, values are frozen."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @classmethod
    def document_problems(cls, document: dict[str, Any]) -> Iterator[tuple[Location, str]]:
        """Yield what is wrong between keys of the whole `document` (duplicates, say): where, and what.

        Called for the model given to `load()` with the unchecked document, also when single keys are wrong,
        so that the reader sees every error in one go. `find()` and `duplicates()` are safe on it.
        """
        del document
        yield from ()


class TomlDocument:
    """The text of one file, its data and where each key stands."""

    def __init__(self, file: str, text: str) -> None:
        """Read `text`. Raises ConfigurationErrors when it is not TOML."""
        self.file = file
        try:
            self.data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationErrors([_syntax_error(file, text, str(error))]) from None
        except RecursionError:
            raise ConfigurationErrors([ConfigurationError(file, 0, "", "nested too deeply")]) from None
        self._text = text

    @functools.cached_property
    def _lines(self) -> dict[Location, int]:
        """Only needed to tell an error; of a long file it takes as long as reading it."""
        return key_lines(self._text)

    def has(self, location: Sequence[str | int]) -> bool:
        """Tell whether the last part of `location` is in the document; parts it lacks are passed over."""
        here: Location = ()
        is_there = False
        for part in location:
            is_there = (*here, part) in self._lines
            here = (*here, part) if is_there else here
        return is_there

    def locate(self, location: Sequence[str | int]) -> tuple[int, str]:
        """Return line and dotted key of a location; of a missing key, the line of the table for it.

        Parts that the document does not have are passed over (pydantic puts names of union members in), all
        but the last one.
        """
        here: Location = ()
        unknown: tuple[str | int, ...] = ()
        for part in location:
            if (*here, part) in self._lines:
                here, unknown = (*here, part), ()
            else:
                unknown = (part,)
        return self._lines[here], _dotted((*here, *unknown))

    def error(self, location: Sequence[str | int], problem: str) -> ConfigurationError:
        """Return `problem` as an error at `location`."""
        line, key = self.locate(location)
        return ConfigurationError(self.file, line, key, problem)


def load(path: str | Path, model: type[ModelT]) -> ModelT:
    """Read the TOML file `path` into `model`.

    Raises ConfigurationErrors with every error of the file: unreadable, not TOML, keys unknown or wrong.
    """
    return parse(read_text(path), str(path), model)


def parse(text: str, file: str, model: type[ModelT]) -> ModelT:
    """Do what `load()` does, for a text at hand."""
    return check(TomlDocument(file, text), model)


def check(document: TomlDocument, model: type[ModelT]) -> ModelT:
    """Do what `load()` does, for a document at hand."""
    errors = []
    if issubclass(model, StrictModel):
        errors += [document.error(*problem) for problem in model.document_problems(document.data)]
    try:
        result = model.model_validate(document.data)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        with_known = _without_unknown_keys(document.data, problems)
        try:  # an unknown key keeps the rules between the keys of its table from being looked at
            model.model_validate(with_known)
        except ValidationError as more:
            problems += more.errors(include_url=False)
        errors += [
            _explain(document, model, problem) for problem in problems if not _follows(problem, problems)
        ]
    if errors:
        raise ConfigurationErrors(errors)
    return result


def _without_unknown_keys(data: dict[str, Any], errors: Sequence[ErrorDetails]) -> dict[str, Any]:
    known = copy.deepcopy(data)
    for error in errors:
        if error["type"] == "extra_forbidden":
            table: Any = known
            for part in error["loc"][:-1]:
                here = range(len(table)) if isinstance(table, list) else table
                if isinstance(here, dict | range) and part in here:  # unlike the name of a union's member
                    table = table[part]
            if isinstance(table, dict):
                table.pop(error["loc"][-1], None)
    return known


def read_text(path: str | Path) -> str:
    """Return the text of a file. Raises ConfigurationErrors when it can't be read or isn't UTF-8."""
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            raise ConfigurationErrors([ConfigurationError(str(path), 0, "", "larger than 4 MiB")])
        return data.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except OSError as error:
        problem = f"can't be read: {error.strerror or error}"
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigurationErrors([ConfigurationError(str(path), line, "", "not UTF-8")]) from None
    except ValueError:
        problem = "can't be read: a path holds no NUL byte"
    raise ConfigurationErrors([ConfigurationError(str(path), 0, "", problem)])


def named_control_path(path: str | Path, default: Path) -> Path:
    """Return only the control socket (`path` of `[control]`) that a file names, whatever else is wrong in it.

    The running service must be reachable while somebody edits the file, or while the network is away.
    Raises ConfigurationErrors when the file can't be read, isn't TOML, or names no socket that can be: to ask
    at the default one instead would be to ask another service.
    """
    document = TomlDocument(str(path), read_text(path))
    control = document.data.get("control", {})
    if not isinstance(control, dict):
        raise ConfigurationErrors([document.error(("control",), "must be a table: [control]")])
    path_text = control.get("path", str(default))
    if not isinstance(path_text, str):
        raise ConfigurationErrors([document.error(("control", "path"), "must be text, in quotes")])
    try:
        return Path(check_path(path_text))
    except ValueError as problem:
        raise ConfigurationErrors([document.error(("control", "path"), str(problem))]) from None


def find(document: Any, pattern: Sequence[str]) -> Iterator[tuple[Location, Any]]:
    """Yield location and value of all that matches `pattern`, where "*" stands for each element of an array.

    A value that is missing or of another type than the pattern expects is passed over.
    """
    locations: list[tuple[Location, Any]] = [((), document)]
    for step in pattern:
        following: list[tuple[Location, Any]] = []
        for location, value in locations:
            if step == "*" and isinstance(value, list):
                following += [((*location, position), element) for position, element in enumerate(value)]
            elif step != "*" and isinstance(value, dict) and step in value:
                following.append(((*location, step), value[step]))
        locations = following
    yield from locations


def duplicates(document: Any, pattern: Sequence[str]) -> Iterator[tuple[Location, str]]:
    """Yield, for `document_problems()`, each string or number matching `pattern` that stood there before."""
    seen: set[str | int] = set()
    for location, value in find(document, pattern):
        if isinstance(value, str | int):
            if value in seen:
                yield location, f"{value!r} is there twice"
            seen.add(value)


_WORDS = {
    "model_type": "must be a table",
    "path_type": "must be a path, as text",
    "string_type": "must be text, in quotes",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
}
"""In place of pydantic's, which are those of a programmer."""
_BOUNDS = {"ge": "at least", "le": "at most", "gt": "more than", "lt": "less than"}
"""The same, for a number that is out of its range."""


def _follows(error: ErrorDetails, errors: Sequence[ErrorDetails]) -> bool:
    """Tell whether an array is too short only because elements of it are wrong, which is told of each."""
    location = error["loc"]
    return error["type"] == "too_short" and any(
        len(other["loc"]) > len(location) and other["loc"][: len(location)] == location for other in errors
    )


def _explain(document: TomlDocument, model: type[BaseModel], error: ErrorDetails) -> ConfigurationError:
    location = error["loc"]
    if error["type"] == "missing":
        header = header_of(model, location[:-1], str(location[-1]))
        return document.error(location, f"is missing: write {header}" if header else "is missing")
    if error["type"] == "extra_forbidden":
        known = known_keys(model, location[:-1])
        key = str(location[-1])
        near = meant_key(model, location[:-1], key)
        if near is None and len(location) == 1 and (header := deeper_header(model, key)) is not None:
            return document.error(location, f"unknown at the top of the file; write {header}")
        hint = f"; did you mean {near!r}?" if near else f"; known: {', '.join(known)}" if known else ""
        return document.error(location, f"unknown key{hint}")
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        details = error["ctx"]
        table, key = location, details["discriminator"].strip("'")
        location = (*table, key)
        if error["type"] == "union_tag_not_found":
            return document.error(location, "is missing")
        tag, known = str(details["tag"]), _quoted_in(details["expected_tags"])
        return document.error(location, none_of(tag, known, meant_tag(model, table, key, tag)))
    if error["type"] == "literal_error" and isinstance(error["input"], str):
        known = _quoted_in(error["ctx"]["expected"])
        return document.error(_known_location(document, location), none_of(error["input"], known))
    if error["type"] == "too_short":
        return document.error(location, f"needs at least {error['ctx']['min_length']}")
    problem = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    problem = _WORDS.get(error["type"], problem)
    for bound, words in _BOUNDS.items():
        if bound in error.get("ctx", {}):
            problem = f"must be {words} {error['ctx'][bound]:g}"
    value = error["input"]
    if error["type"] in ("tuple_type", "list_type"):
        problem = "must be a list"
        if isinstance(value, str):
            return document.error(location, f"{problem}: [{json.dumps(value, ensure_ascii=False)}]")
        if isinstance(value, dict):
            header = re.sub(r"\[\d+\]", "", document.locate(location)[1])
            return document.error(location, f"{problem}: a table of it begins with [[{header}]]")
    if isinstance(value, str | int | float) and not _is_word_of(str(value), problem):
        shown = repr(value)
        problem += f" (is {shown if len(shown) <= 80 else shown[:77] + '...'})"
    return document.error(_known_location(document, location), problem[:1].lower() + problem[1:])


def _known_location(document: TomlDocument, location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return `location` without what pydantic adds: the name of a union's member is no key."""
    while location and not document.has(location):
        location = location[:-1]
    return location


def _quoted_in(text: str) -> list[str]:
    """Return the words in quotes of pydantic's list of what it expects."""
    return re.findall(r"'([^']*)'", text)


def _is_word_of(value: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None


def _syntax_error(file: str, text: str, message: str) -> ConfigurationError:
    lines = text.splitlines()
    match = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", message, re.DOTALL)
    line, said = max(1, len(lines)), message.removesuffix(" (at end of document)")
    if match:
        line, said = int(match[2]), match[1]
    quote = unclosed_quote(text)
    if quote is not None and quote <= line:
        return ConfigurationError(file, quote, "", f"not TOML: a quote is not closed: {_shown(lines, quote)}")
    if said == "Unclosed array":
        said = "a list is not closed with ], or its elements lack quotes or the commas between them"
    elif said == "Invalid value":
        said = f"the value is no number, list or text; text stands in quotes: {_shown(lines, line)}"
    return ConfigurationError(file, line, "", f"not TOML: {said}")


def _shown(lines: Sequence[str], number: int) -> str:
    line = lines[number - 1].strip() if number <= len(lines) else ""
    return line if len(line) <= 80 else line[:77] + "..."


def _dotted(location: Sequence[str | int]) -> str:
    """Write a location as people do: `as[0].check[1].port`."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"'
            text += f".{name}" if text else name
    return text
