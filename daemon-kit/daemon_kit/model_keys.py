"""Words that a person may have meant: the keys that a pydantic model knows in a table, a key's values."""

import difflib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel


def known_keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """Return the sorted keys that `model` knows in the table at the pydantic error's `location`.

    For a union: the keys of the member that the location names by its tag; of all members when it names none.
    """
    return sorted({key for candidate in _models_at(model, location) for key, _ in _fields(candidate)})


def meant_key(model: type[BaseModel], location: Sequence[str | int], key: str) -> str | None:
    """Return the key that may have been meant by the unknown `key` in the table at `location`.

    A model may have `OTHER_NAMES`: keys that people write in place of its own.
    """
    for candidate in _models_at(model, location):
        if other := getattr(candidate, "OTHER_NAMES", {}).get(key):
            return str(other)
    return meant(key, known_keys(model, location))


def header_of(model: type[BaseModel], location: Sequence[str | int], key: str) -> str | None:
    """Return how the table `key` below the table at `location` begins in TOML: "[[as.check]]", "[as.load]".

    None when `key` is no table, but a value.
    """
    for candidate in _models_at(model, location):
        annotation = dict(_fields(candidate)).get(key)
        if annotation is not None and _models_in(annotation):
            above = [
                part
                for i, part in enumerate(location)
                if isinstance(part, str) and part in known_keys(model, location[:i])  # not a union's tag
            ]
            name = ".".join([*above, key])
            return f"[[{name}]]" if _has_list(annotation) else f"[{name}]"
    return None


def deeper_header(model: type[BaseModel], key: str) -> str | None:
    """Return how the table `key` begins in TOML when exactly one table of the document holds it."""
    headers = [header for name, _ in _fields(model) if (header := header_of(model, (name,), key)) is not None]
    return headers[0] if len(headers) == 1 else None


def meant(word: str, known: Collection[str]) -> str | None:
    """Return which of `known` is likely meant by `word`."""
    for written in (word, word.lower(), word.lower().replace("_", "-")):
        for near in difflib.get_close_matches(written, known, n=1):
            return near
    return None


def meant_tag(model: type[BaseModel], location: Sequence[str | int], key: str, tag: str) -> str | None:
    """Return the tag meant by the unknown `tag` of the union at `location`, whose tags stand in `key`.

    A member of the union may have `OTHER_TAGS`: tags that people write in place of its own.
    """
    for candidate in _models_at(model, location):
        if tag.lower() in getattr(candidate, "OTHER_TAGS", ()):
            return str(get_args(candidate.model_fields[key].annotation)[0])
    return None


def none_of(word: str, known: Collection[str], near: str | None = None) -> str:
    """Say that `word` is none of the `known` ones; and which is likely meant (`near`), or else all."""
    near = near or meant(word, known)
    if near is not None:
        return f"{word!r} is unknown; did you mean {near!r}?"
    return f"{word!r} is none of {', '.join(map(repr, known))}"


def _models_at(model: type[BaseModel], location: Sequence[str | int]) -> list[type[BaseModel]]:
    models: list[type[BaseModel]] = [model]
    for part in location:
        following: list[type[BaseModel]] = []
        for candidate in models:
            for key, annotation in _fields(candidate):
                if key == part:
                    following += _models_in(annotation)
        if following:
            models = following
        elif tagged := [candidate for candidate in models if _has_tag(candidate, part)]:
            models = tagged
        elif not isinstance(part, int):
            return []
    return models


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        yield field.alias or name, field.annotation


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return every model inside an annotation such as `list[Annotated[A | B, ...]] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def _has_list(annotation: Any) -> bool:
    return get_origin(annotation) in (list, tuple) or any(_has_list(inner) for inner in get_args(annotation))


def _has_tag(model: type[BaseModel], tag: str | int) -> bool:
    """Tell whether a field of `model` is a Literal with the value `tag`."""
    return any(tag in get_args(field.annotation) for field in model.model_fields.values())
