"""Types that several parts of agent.toml share; the pool policies by name (`least-used`, say), and the
values that each policy takes."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field

from rserpool import POLICIES, POLICY_KINDS, Policy, UnknownPolicy, policy_name

Milliseconds = Annotated[int, Field(ge=10, le=3_600_000)]
Uint32 = Annotated[int, Field(ge=0, le=0xFFFFFFFF)]
Share = Annotated[float, Field(ge=0, le=1)]
Port = Annotated[int, Field(ge=1, le=65535)]
_OF_SHELLS = frozenset("|&;<>()$`*?[#~\n")
"""The characters upon which a shell would act; no command here is run by a shell."""


def filled(problem: str) -> BeforeValidator:
    """Refuse an empty array with `problem`."""

    def check(value: object) -> object:
        if value == []:
            raise ValueError(problem)
        return value

    return BeforeValidator(check)


def matching(pattern: str, problem: str) -> AfterValidator:
    """Refuse text that `pattern` doesn't match as a whole with `problem`."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(problem)
        return value

    return AfterValidator(check)


def single_line(value: str) -> str:
    """Return `value`. Raises ValueError when it is empty or holds what can't stand in one line."""
    if not value or not value.isprintable():
        raise ValueError("one line of text, not empty")
    return value


def url_path(value: str) -> str:
    """Return `value`. Raises ValueError unless it is the path of a URL, "/health?full=1" say."""
    if not value.startswith("/") or not value.isprintable() or " " in value or "#" in value:
        raise ValueError('the path of a URL begins with "/" and has neither spaces nor "#"')
    return value


def _split(value: object) -> object:
    """Refuse a command line: show how it is written as a list."""
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError:  # quotes that only a shell understands
            words = []
        if not words or any(letter in _OF_SHELLS for letter in value):
            words = ["/bin/sh", "-c", value]
        shown = json.dumps(words, ensure_ascii=False)
        raise ValueError(f"must be a list, the program and its arguments: {shown}")  # noqa: TRY004 - for pydantic
    return value


def check_command(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return `value`. Raises ValueError unless it begins with a program and has no NUL byte."""
    if not value or not value[0]:
        raise ValueError('a command is a list: the program, then its arguments, e.g. ["/usr/bin/true"]')
    if any("\0" in argument for argument in value):
        raise ValueError("an argument holds no NUL byte")
    return value


CommandLine = Annotated[tuple[str, ...], AfterValidator(check_command), BeforeValidator(_split)]
"""The program and its arguments; it is run without a shell."""


POLICY_KEYS: Final = tuple(
    sorted({field.name for kind in POLICIES.values() for field in fields(kind)} - {"load"})
)
"""Every key of [[as]] that belongs to some policy: weight, priority, degradation, ..."""


def keys_of(name: str) -> tuple[str, ...]:
    """Return the keys that the policy `name` needs from the configuration."""
    return tuple(field.name for field in fields(POLICY_KINDS[name]) if field.name != "load")


def has_load(name: str) -> bool:
    """Tell whether the policy `name` carries the load."""
    return any(field.name == "load" for field in fields(POLICY_KINDS[name]))


def make_policy(name: str, values: Mapping[str, float], load: float) -> Policy:
    """Return the policy `name` with its configured `values`, and the load (0..1) where it has one."""
    given = {key: values[key] for key in keys_of(name)}
    if has_load(name):
        given["load"] = load
    return POLICY_KINDS[name](**given)  # type: ignore[arg-type]  # checked above


def name_of(policy: Policy) -> str:
    """Return the policy's name as agent.toml writes it, or its number when it has none."""
    if isinstance(policy, UnknownPolicy):
        return f"0x{policy.type:08x}"
    return policy_name(type(policy))
