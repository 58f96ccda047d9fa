"""The audit: each change that a person or a program made by socket, API or command is one line of the log."""

from __future__ import annotations

from daemon_kit.logs import get_logger

_log = get_logger("audit")


def audit(by: str, action: str, what: str, *, before: str | None = None, after: str | None = None) -> None:
    """Log that `by` did `action` to `what`, and what was before and after; None: nothing was, or is.

    `by` is the user of the process at the control socket, or the name of the token.
    """
    _log.info("changed", by=by, action=action, what=what, before=before, after=after)
