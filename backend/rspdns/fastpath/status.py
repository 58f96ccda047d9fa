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
    def read(cls, report: Any) -> DaemonStatus:
        """The status in a decoded reply. Raises KeyError, TypeError, ValueError."""
        return cls(
            str(report["mode"]),
            tuple(InterfaceStatus(**interface) for interface in report["interfaces"]),
            int(report["names"]),
            int(report["lease_ms"]),
            int(report["generation"]),
            {str(reason): int(count) for reason, count in report["decisions"].items()},
            tuple(AskedStatus(**asked) for asked in report["asked"]),
        )
