"""The common parts of commands: help, options, errors of one line, and Ctrl-C as the way out."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import click
from click.core import ParameterSource

from daemon_kit import logs
from daemon_kit.config_file import ConfigurationErrors
from daemon_kit.control import ControlError
from daemon_kit.durations import seconds_of
from daemon_kit.errors import FatalError

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
EXIT_FAILED = 1
NO_LIMIT = 1000
"""Characters; click cuts summaries to what fits into one line."""
_NO_DEFAULT_FILE = "daemon_kit.no_default_file"
"""Under this name click's context holds the default configuration file, where that is missing."""


def config_option(default: str | Path, what: str = "Configuration file.") -> Callable[[CommandT], CommandT]:
    """Return the option `--config`, which gives the command the argument `config`, a `Path`."""

    def note_missing(ctx: click.Context, parameter: click.Parameter, path: Path) -> Path:
        is_default = ctx.get_parameter_source(str(parameter.name)) is ParameterSource.DEFAULT
        if is_default and not path.exists():
            ctx.meta[_NO_DEFAULT_FILE] = path
        return path

    of_path = click.Path(path_type=Path)
    return click.option(
        "-c", "--config", type=of_path, default=default, show_default=True, help=what, callback=note_missing
    )


def log_options(level: str | None = "info") -> Callable[[CommandT], CommandT]:
    """Return the options `--log-level` and `--log-json`; no `level`: the configuration has one."""
    levels = click.Choice(logs.LEVELS)
    help_text = None if level else "Default: as in the configuration file."
    of_level = click.option(
        "--log-level", type=levels, default=level, show_default=bool(level), help=help_text
    )
    of_form = click.option("--log-json", is_flag=True, help="Log JSON lines instead of text for people.")
    return lambda command: of_level(of_form(command))


def duration_option(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """The callback of an option that takes a duration; it gives the command seconds."""
    try:
        return None if text is None else seconds_of(text)
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


def example(*lines: str) -> str:
    """Return the end of a command's help: a command line as a user types it, perhaps over several lines."""
    return "\n  ".join(("\b\nExample:", *lines))


def end_with(error: Exception | str) -> NoReturn:
    """Print `error` for the person at the terminal, and end the program with exit status 1."""
    click.echo(error if isinstance(error, ConfigurationErrors) else f"error: {error}", err=True)
    sys.exit(EXIT_FAILED)


class CommandGroup(click.Group):
    """As click's, but with `-h`, with whole summaries in its help, and with errors for people.

    `first` are the commands that the help lists first, in the order of their use; the others follow by name.
    A summary that is longer than its line goes on in the next one. ConfigurationErrors, ControlError and
    FatalError end the program with what they say and exit status 1: commands need not catch them.
    """

    group_class = type

    def __init__(self, *arguments: Any, first: Sequence[str] = (), **options: Any) -> None:
        options.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*arguments, **options)
        self.first = first

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        return [*self.first, *(name for name in super().list_commands(ctx) if name not in self.first)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error for people ends the program."""
        try:
            return super().invoke(ctx)
        except (ConfigurationErrors, ControlError, FatalError) as error:
            missing = ctx.meta.get(_NO_DEFAULT_FILE)
            if missing is not None and isinstance(error, ConfigurationErrors):
                click.echo(
                    f"{error}\nIf your configuration file is not {missing}, name it: -c FILE", err=True
                )
                sys.exit(EXIT_FAILED)
            end_with(error)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example, and the manual with every command, option and file."""
        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"Manual: man {ctx.find_root().info_name}")

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
    hook = sys.unraisablehook
    sys.unraisablehook = lambda dropped: None if dropped.exc_type is KeyboardInterrupt else hook(dropped)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield lambda: not pressed
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, before)


def counted(number: int, what: str) -> str:
    """Return "1 pool", "2 pools"; `what` is the noun in the singular, and takes an s."""
    return f"{number} {what}{'' if number == 1 else 's'}"
