"""What the parts' log entries mean, in a line for a person. An entry without a line here isn't told."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

Entry = Mapping[str, Any]


def _agent_link(entry: Entry) -> str:
    return f"connection to {entry['registrar']} " + ("is up" if entry["up"] else "lost")


# Values are templates, filled with the entry, or functions of it. Keys: program, event.
_LINES: Final[Mapping[tuple[str, str], str | Callable[[Entry], str]]] = MappingProxyType(
    {
        ("agent", "check_down"): "{check}: {saw}; it is down",
        ("agent", "check_up"): "{check}: {saw}; it is up",
        ("agent", "drained"): "told to drain",
        ("agent", "undrained"): "told to let it in again",
        ("agent", "registered"): "registered at {registrar}",
        ("agent", "deregistered"): "deregistered at {registrar}",
        ("agent", "registrar-lost"): "lost its registrar {registrar}: {detail}",
        ("agent", "unanswered"): "{registrar}: {detail}",
        ("agent", "taken-over"): "{registrar} took over and is its registrar now",
        ("agent", "missing_at_registrar"): "{registrar} does not list it: registers again",
        ("agent", "registrar_link"): _agent_link,
        (
            "registrar",
            "registrar_died",
        ): "rspregistrar ended: {how}; started again in {restart_in_ms} ms",
        ("registrar", "registrar_hung"): "rspregistrar hangs: {problem}",
        ("registrar", "registrar_unreachable"): "rspregistrar: {problem}",
        ("registrar", "registrar_started"): "rspregistrar started",
        ("registrar", "registrar_ready"): "rspregistrar has its peers' handlespace",
        ("registrar", "sentinel_registered"): "its new sentinel is in: settled",
        ("backend", "joined"): "{identifier} is in: {why}",
        ("backend", "left"): "{identifier} is out: {why}",
        ("backend", "moved"): "{identifier} moved: {why}",
        ("backend", "refused"): "{identifier} refused: {why}",
        ("backend", "questioned"): "many left at once: {why}",
        ("backend", "registrar"): "{why}",
    }
)


def in_words(program: str, entry: Entry, names: Mapping[str, str]) -> str:
    """Return what a log entry of `program` says, empty when it isn't worth a line.

    `names`: what to write for addresses and identifiers.
    """
    line = _LINES.get((program, str(entry.get("event", ""))))
    if line is None:
        return ""
    try:
        text = line(entry) if callable(line) else line.format_map(entry)
    except (KeyError, ValueError):
        return ""
    for written, name in names.items():
        text = text.replace(written, name)
    return text if len(text) <= 120 else text[:117] + "..."
