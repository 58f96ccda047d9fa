"""An override in words, the same in status, log and comparison."""

from __future__ import annotations

from datetime import UTC, datetime


def title(action: str, servers: str, share: float | None, pool: str | None) -> str:
    """Return the action and the servers of an override: "down 10.0.0.1"."""
    part = "" if share is None else f"={100 * share:g}%"
    return f"{action}{part} {servers}" + (f" of {pool}" if pool else "")


def utc(at_s: float) -> str:
    """Return a time of the wall clock for people."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
