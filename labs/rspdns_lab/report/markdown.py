"""A report as a page of Markdown, for documentation: when, where and by which command it was measured."""

import os
import platform
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from shlex import join

from rspdns_lab.report.files import write_whole
from rspdns_lab.report.html import Page, markdown_table


def machine() -> str:
    """This machine in words: processors and their kind, system, kernel; no name of the host."""
    kinds = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    kind = kinds[0].partition(":")[2].strip() if kinds else platform.machine()
    names = [line for line in _lines("/etc/os-release") if line.startswith("PRETTY_NAME=")]
    system = names[0].partition("=")[2].strip('"') if names else platform.system()
    return f"{os.cpu_count()} processors ({kind}), {system}, Linux {platform.release()}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []


def markdown_page(page: Page, command: Sequence[str], today: date, where: str) -> str:
    """The texts and tables of `page`, made `today` by `command` on the machine `where`, without plots."""
    parts = [
        "<!-- Made by the command below; not to be edited by hand. -->",
        f"# {page.title}",
        page.text,
        f"Measured on {today.isoformat()}: {where}.",
        f"    {join(command)}",
    ]
    for section in page.sections:
        if section.text or section.table:
            parts += [
                f"## {section.title}",
                section.text,
                markdown_table(section.table) if section.table else "",
            ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def write_markdown(file: Path, page: Page, command: Sequence[str]) -> None:
    """Write the page, or leave what was there before. Raises OSError."""
    write_whole(file, markdown_page(page, command, date.today(), machine()))
