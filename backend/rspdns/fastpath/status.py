"""The status that rspdns-fastpath reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AskedStatus:
    """One question with a ready answer."""

    name: str
    type: str
    variants: int
    answered: int
    passed: int
    failed: int


@dataclass(frozen=True, slots=True)
class InterfaceStatus:
    """One interface; `problem` says why the program is not attached, or that it is under another name."""

    name: str
    attached: bool
    problem: str


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """`decisions` counts questions by what became of them since the daemon began.

    `lease_ms` is for how long the answers are still good; 0: nothing is answered.
    """

    mode: str
    interfaces: tuple[InterfaceStatus, ...]
    names: int
    lease_ms: int
    generation: int
    decisions: Mapping[str, int]
    asked: tuple[AskedStatus, ...]

    @classmethod
    def read(cls, told: Any) -> DaemonStatus:
        """The status in a decoded reply. Raises KeyError, TypeError, ValueError."""
        return cls(
            str(told["mode"]),
            tuple(InterfaceStatus(**one) for one in told["interfaces"]),
            int(told["names"]),
            int(told["lease_ms"]),
            int(told["generation"]),
            {str(reason): int(count) for reason, count in told["decisions"].items()},
            tuple(AskedStatus(**one) for one in told["asked"]),
        )
