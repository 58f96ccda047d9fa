"""The files of a lab's report: options of its command, results kept up while it runs, read back to resume."""

import functools
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from daemon_kit.files import replace_file

from rspdns_lab.errors import LabError

STDOUT = Path("-")
T = TypeVar("T")


class ReportPath(click.Path):
    """A file that a command writes at its end, maybe after hours: where it can't be is said at once.

    `stdout`: whether "-" stands for stdout; otherwise it is refused, since a file of that name helps nobody.
    """

    def __init__(self, *, stdout: bool = False) -> None:
        super().__init__(path_type=Path, dir_okay=False, writable=True)
        self._stdout = stdout

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path. Raises click.BadParameter when its folder isn't there or can't be written to."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path == STDOUT and not self._stdout:
            self.fail("this report goes to a file, not to stdout; name one", param, ctx)
        if path != STDOUT and not path.parent.is_dir():
            self.fail(f"there is no folder {path.parent}; make it, or name another file", param, ctx)
        if path != STDOUT and not os.access(path.parent, os.W_OK | os.X_OK):
            self.fail(f"nothing can be written to {path.parent}; name another file", param, ctx)
        return path


@dataclass(frozen=True)
class ReportFiles:
    """The files of a report: figures and every trial, from which a run can go on, and a page to look at.

    `results` is kept up as `json_file` is, and always gone on from.
    """

    json_file: Path | None = None
    html_file: Path | None = None
    results: Path | None = None
    markdown_file: Path | None = None

    def earlier(self, read: Callable[[dict[str, Any]], T], options: Mapping[str, Any]) -> list[T]:
        """Return the trials of the run to resume, each made by `read`; none for a run that begins.

        `read` may raise TypeError or LookupError. `options`: what a trial's figures depend on. Raises
        LabError when the file is another lab's report, or none at all, or of a run with other options.
        """
        file = self.results
        if file is None or not file.exists():
            return []
        try:
            report = json.loads(file.read_text())
            found = [read(dict(trial)) for trial in report["trials"]]
            before = dict(report.get("options", options))
        except OSError as error:
            raise LabError(f"{file} can't be read: {error.strerror}") from None
        except (ValueError, TypeError, LookupError, AttributeError):
            raise LabError(f"{file} is no report of this lab; remove it, or name another file") from None
        others = [
            f"{name} was {_in_words(before.get(name))} and is {_in_words(value)} now"
            for name, value in options.items()
            if before.get(name) != value
        ]
        if others:
            raise LabError(
                f"{file} can't be resumed: {'; '.join(others)}; use the same options, or another file"
            )
        return found

    def measured(self) -> list[str]:
        """Return when and where the trials of `earlier` were measured, in sentences."""
        file = self.results
        return list(json.loads(file.read_text()).get("measured", ())) if file and file.exists() else []

    def keep(self, report: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        """Write the report to its files, if there are any; never half. Raises LabError: a full disk, say.

        `options` as for `earlier`.
        """
        for file in filter(None, dict.fromkeys((self.results, self.json_file))):
            try:
                write_whole(file, json.dumps({"options": options, **report}) + "\n")
            except OSError as error:
                raise LabError(
                    f"{file}: {error.strerror or error}; what it held before is kept: make room, "
                    "and go on from there with --results"
                ) from None


def _in_words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def write_whole(path: Path, text: str) -> None:
    """Write the file, or leave what was there before: never half. Raises OSError, which names the file."""
    target = path.resolve()  # a link stays one
    if target.exists() and not target.is_file():  # a pipe, a device
        target.write_text(text)
        return
    try:
        replace_file(target, text.encode(), mode=0o644)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def hand_over(path: Path, text: str) -> None:
    """Write the figures to the file at `path` ("-": stdout), all or, where the disk is full, to stdout.

    Raises LabError when they went to stdout instead: nothing that took minutes to measure is lost, and an
    older report stays whole.
    """
    if path == STDOUT:
        click.echo(text)
        return
    try:
        write_whole(path, text + "\n")
    except OSError as error:
        click.echo(text)
        raise LabError(f"{path}: {error.strerror or error}; the figures are printed instead") from None


def report_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a report (`--json`, `--html`, ...) to a command, which gets them as `report`."""

    @functools.wraps(command)
    def with_report(
        json_file: Path | None,
        *,
        results: Path | None,
        html_file: Path | None,
        markdown_file: Path | None,
        **arguments: Any,
    ) -> None:
        command(report=ReportFiles(json_file, html_file, results, markdown_file), **arguments)

    for option in (
        click.option(
            "--markdown",
            "markdown_file",
            type=ReportPath(),
            help="One page of Markdown; plots in files beside it.",
        ),
        click.option("--html", "html_file", type=ReportPath(), help="One page with tables and plots."),
        click.option(
            "--results", type=ReportPath(), help="The same, and the run that wrote this file is gone on with."
        ),
        click.option(
            "--json", "json_file", type=ReportPath(), help="Figures and every trial; kept up as it runs."
        ),
    ):
        with_report = option(with_report)
    return with_report
