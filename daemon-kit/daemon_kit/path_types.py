"""Paths in configuration files: text that the system's calls can take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator


def check_path(text: str) -> str:
    """Return `text`. Raises ValueError when it is empty or holds a NUL byte: no path has one."""
    if not text:
        raise ValueError("a path is not empty")
    if "\0" in text:
        raise ValueError("a path holds no NUL byte")
    return text


def _check(value: object) -> object:
    return check_path(value) if isinstance(value, str) else value


PathText = Annotated[str, AfterValidator(check_path)]
"""A path kept as text."""
FilePath = Annotated[Path, BeforeValidator(_check)]
"""A path as `pathlib.Path`; looked at before, since that takes an empty text for the directory "."."""
