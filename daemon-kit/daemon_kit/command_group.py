"""A group of commands whose help shows each command's summary whole."""

from __future__ import annotations

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
