"""A report as a page, made of rows and captions.

It is written as one self-contained HTML file with text, tables and plots, into which nothing is fetched; as
Markdown for documentation, with when, where and by which command it was measured, and its plots beside it;
or the tables alone are printed. A column whose rows are all alike is said in words instead.
"""

import html
import itertools
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from shlex import join
from typing import Any, Final, TypeVar

from rspdns_lab.report.files import write_whole
from rspdns_lab.report.plots import DARK, LIGHT, Plot, svg

T = TypeVar("T")
Rows = Sequence[Sequence[str]]
"""Rows of cells; the first row is the heading."""
Columns = Sequence[tuple[str, str | Callable[[T], str]]]
"""The heading of each column, and its cells: a format of a row's fields ("{calls:,}"), or a function."""
_STYLE: Final = """
:root { color-scheme: light dark; --soft: #f1f3f5; /* light */ }
@media (prefers-color-scheme: dark) { :root { --soft: #1f2327; /* dark */ } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .8rem; border-bottom: 1px solid var(--line);
  text-align: right; white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; min-width: 2.5rem; }
td:first-child { min-width: 11rem; white-space: normal; }
.long { min-width: 13rem; white-space: normal; text-align: left; }
th:first-child, td:first-child { text-align: left; }
thead th { background: var(--soft); }
p { max-width: 46rem; }
figure { margin: 1.5rem 0; border: 1px solid var(--line); border-radius: .5rem; padding: .5rem; }
figure svg { display: block; width: 100%; max-width: 44rem; height: auto; }
figure svg text { fill: var(--ink); }
figcaption { padding: .3rem .5rem; font-size: .9rem; }
@media (max-width: 40rem) {
  body { margin: 1rem auto; }
  th, td { padding: .3rem .5rem; font-size: .85rem; }
  td:first-child { min-width: 8rem; }
  /* The first column stays in sight while a table is scrolled sideways. */
  th:first-child, td:first-child { position: sticky; left: 0; border-right: 1px solid var(--line); }
  td:first-child { background: var(--paper); }
  h1 { font-size: 1.5rem; }
}
""".replace("/* light */", LIGHT).replace("/* dark */", DARK)
_LONG_CELL: Final = 28
"""A cell of more characters is a text, broken into lines; a shorter one holds figures."""
_CODE: Final = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Section:
    """A part of a page: what is seen (`text`), a table, plots."""

    title: str
    text: str = ""
    table: Rows = ()
    plots: Sequence[Plot] = ()

    @property
    def shown(self) -> tuple[Rows, str]:
        """The table without the columns whose rows are all alike, and these in words.

        The first column and the only row of a table stay.
        """
        rows = self.table[1:]
        columns = list(zip(*self.table, strict=True)) if len(rows) > 1 else []
        alike = {index for index, column in enumerate(columns) if index and len(set(column[1:])) == 1}
        if not alike or len(alike) == len(columns) - 1:
            return self.table, ""
        words = [f"{columns[index][0]} {rows[0][index]}" for index in sorted(alike) if rows[0][index]]
        table = [[cell for index, cell in enumerate(line) if index not in alike] for line in self.table]
        return table, f"In every row: {'; '.join(words)}." if words else ""


@dataclass(frozen=True)
class Page:
    """A whole page; `text` says what all of it is about."""

    title: str
    text: str
    sections: Sequence[Section]


def write_page(file: Path, page: Page) -> None:
    """Write the page, or leave what was there before. Raises OSError."""
    number = itertools.count(1)
    body = "".join(_section(section, number) for section in page.sections)
    write_whole(
        file,
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(page.title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{html.escape(page.title)}</h1><p>{html.escape(page.text)}</p>\n{body}</body></html>\n",
    )


def markdown_table(table: Rows) -> str:
    """Return the table in Markdown."""
    head, *rows = table
    sides = ["---" if not index or _is_long(column) else "---:"
             for index, column in enumerate(zip(*table, strict=True))]  # fmt: skip
    lines = [head, sides, *rows]
    cells = ([cell.replace("|", r"\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def table_of(columns: Columns[T], rows: Iterable[T]) -> Rows:
    """Return a table with a line for each row."""
    lines = [
        [cell.format_map(_Fields(row)) if isinstance(cell, str) else cell(row) for _, cell in columns]
        for row in rows
    ]
    return [[head for head, _ in columns], *lines]


class _Fields:
    """The attributes of an object, or values of a mapping, by their names: for `str.format_map`."""

    def __init__(self, row: object) -> None:
        self._row = row

    def __getitem__(self, name: str) -> Any:
        return self._row[name] if isinstance(self._row, Mapping) else getattr(self._row, name)


def tables_of(page: Page) -> str:
    """Return the tables of a page in Markdown, each below the title of its section."""
    parts = []
    for section in page.sections:
        table, alike = section.shown
        if table:
            parts += [f"### {section.title}\n", *([f"{alike}\n"] if alike else []), markdown_table(table)]
    return "\n".join(parts)


def _section(section: Section, number: Iterator[int]) -> str:
    """Return the section; `number` gives each plot of the page another one."""
    parts = [f"<section><h2>{html.escape(section.title)}</h2>"]
    table, alike = section.shown
    if text := " ".join(filter(None, (section.text, alike))):
        parts.append(f"<p>{_marked_up(text)}</p>")
    if table:
        parts.append(_table(table))
    for plot in section.plots:
        drawn = svg(plot, next(number))
        caption = html.escape(plot.caption)
        parts.append(f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>")
    return "\n".join([*parts, "</section>\n"])


def _table(table: Rows) -> str:
    head, *rows = table
    classes = [' class="long"' if _is_long(column) else "" for column in zip(*table, strict=True)]
    cells = "".join(
        f'<th scope="col"{how}>{_marked_up(cell)}</th>' for cell, how in zip(head, classes, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{how}>{_marked_up(cell)}</td>" for cell, how in zip(row, classes, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="table"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


def _is_long(column: Sequence[str]) -> bool:
    """Whether a column has a long cell below its head, and so holds texts."""
    return max(map(len, column[1:]), default=0) > _LONG_CELL


def _marked_up(text: str) -> str:
    """Return a text in HTML; what stands between backticks, as in Markdown, is code."""
    return _CODE.sub(r"<code>\1</code>", html.escape(text))


def machine() -> str:
    """This machine in words: processors and their kind, system, kernel; no name of the host."""
    kinds = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    kind = kinds[0].partition(":")[2].strip() if kinds else platform.machine()
    names = [line for line in _lines("/etc/os-release") if line.startswith("PRETTY_NAME=")]
    version = platform.release().partition("-")[0]  # what follows is the builder's
    system = names[0].partition("=")[2].strip('"') if names else platform.system()
    return f"{os.cpu_count()} processors ({kind}), {system}, Linux {version}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []


def measured_now() -> str:
    """Return a sentence on when and where figures came about, at the end of their run."""
    load = os.getloadavg()[0]
    return f"Measured on {date.today().isoformat()}: {machine()}; load average {load:.1f} at the end."


def markdown_page(
    page: Page, command: Sequence[str], measured: Sequence[str], pictures: Sequence[str] = ()
) -> str:
    """The texts, tables and plots of `page`, made by `command`.

    `measured`: sentences as those of `measured_now`. `pictures`: the files of the plots, in their order.
    """
    files = iter(pictures)
    parts = [
        "<!-- Made by the command below; not to be edited by hand. -->",
        f"# {page.title}",
        page.text,
        "\n".join(measured),
        f"    {join(command)}",
    ]
    for section in page.sections:
        table, alike = section.shown
        parts += [
            f"## {section.title}",
            section.text,
            alike,
            markdown_table(table) if table else "",
            *(
                f"![{plot.caption}]({file})\n\n{plot.caption}"
                for plot, file in zip(section.plots, files, strict=False)
            ),
        ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def write_plots(file: Path, plots: Sequence[Plot]) -> list[str]:
    """Write the plots beside a page (FILE-1.svg), remove others of an earlier one; return their names.

    Raises OSError.
    """
    pictures = [file.with_name(f"{file.stem}-{number}.svg") for number in range(1, len(plots) + 1)]
    for picture, plot in zip(pictures, plots, strict=True):
        write_whole(picture, svg(plot))
    for picture in set(file.parent.glob(f"{file.stem}-[0-9]*.svg")) - set(pictures):
        picture.unlink()
    return [picture.name for picture in pictures]


def write_markdown(file: Path, page: Page, command: Sequence[str], measured: Sequence[str]) -> None:
    """Write the page with its plots beside it, or leave what was there before. Raises OSError."""
    pictures = write_plots(file, [plot for section in page.sections for plot in section.plots])
    write_whole(file, markdown_page(page, command, measured, pictures))
