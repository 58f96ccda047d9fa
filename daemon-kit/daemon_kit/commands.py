"""What commands at a terminal share: help that shows each summary whole, and Ctrl-C as the way out."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import click

NO_LIMIT = 1000
"""Characters; click cuts summaries to what fits into one line."""


class CommandGroup(click.Group):
    """As click's, but a summary that is longer than its line goes on in the next one."""

    group_class = type

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a name and a summary for every command that is not hidden."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(NO_LIMIT)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


@contextlib.contextmanager
def until_ctrl_c() -> Iterator[Callable[[], bool]]:
    """End the block at Ctrl-C, quietly; what it yields says whether to go on, to be asked at each turn.

    Python drops a KeyboardInterrupt that is raised while it finalizes an object, and tells so with a
    traceback: then the next turn ends it, and nothing is told.
    """
    pressed = False

    def press(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, press)
    told = sys.unraisablehook
    sys.unraisablehook = lambda dropped: None if dropped.exc_type is KeyboardInterrupt else told(dropped)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield lambda: not pressed
    finally:
        sys.unraisablehook = told
        signal.signal(signal.SIGINT, before)
