"""The pool policies as agent.toml names them (`least-used` for LeastUsed), and the values each one takes."""

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from rserpool import POLICIES, KnownPolicy, Policy, UnknownPolicy


def _name(kind: type[KnownPolicy]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind.__name__).lower()


POLICY_KINDS: Final[dict[str, type[KnownPolicy]]] = {_name(kind): kind for kind in POLICIES.values()}
"""Every policy that rspregistrar knows, by its name in the configuration."""

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
    return POLICY_KINDS[name](**given)  # type: ignore[arg-type]


def name_of(policy: Policy) -> str:
    """Return the policy's name as agent.toml writes it, or its number when it has none."""
    if isinstance(policy, UnknownPolicy):
        return f"0x{policy.type:08x}"
    return _name(type(policy))
