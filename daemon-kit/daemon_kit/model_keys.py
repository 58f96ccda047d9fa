"""Which keys a pydantic model knows at a place, to suggest one for a misspelt key."""

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel


def known_keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """Return the sorted keys that `model` knows in the table at the pydantic error's `location`.

    Of a union, the keys of the member that the location names by its tag; of all members when it names none.
    """
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
    return sorted({key for candidate in models for key, _ in _fields(candidate)})


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        yield field.alias or name, field.annotation


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return every model inside an annotation such as `list[Annotated[A | B, ...]] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for inner in get_args(annotation) for found in _models_in(inner)]


def _has_tag(model: type[BaseModel], tag: str | int) -> bool:
    """Tell whether a field of `model` is a Literal with the value `tag`."""
    return any(tag in get_args(field.annotation) for field in model.model_fields.values())
