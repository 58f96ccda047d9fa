"""The blocks of a page of the documentation: the files that its reader writes, and the commands."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

FENCE = re.compile(r" *(```+)(\w*)(.*)")
ITEM = re.compile(r"( *)(\d+\.|[-*]|===) ")
TAB = re.compile(r"=== \"(.*)\"")
_TAB_LEVEL = 7
APPENDED, EXCERPT = "at the end of ", "in "
IN_DEBIAN = ("apt-get install", "make install", "make deb", "modprobe ")
"""Commands that need a network or another kernel: what they bring is on the hosts already."""


@dataclass(frozen=True)
class Block:
    """A block of a page: `headings` are those that it is under, the outermost first, and its tab; `title` is
    that of the fence."""

    headings: tuple[str, ...]
    language: str
    title: str
    text: str

    @property
    def path(self) -> str | None:
        """The file that the block is, or None."""
        name = self.title.removeprefix(APPENDED).removeprefix(EXCERPT)
        return name if name and " " not in name else None

    def commands(self, left_out: Sequence[str] = ()) -> str:
        """The lines to type, in a block with prompts those behind them, without those that begin so."""
        lines = self.text.replace("\\\n", "\\\0").splitlines()
        if any(line.startswith("$ ") for line in lines):
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        kept = [line for line in lines if not line.startswith((*IN_DEBIAN, *left_out))]
        return "\n".join(kept).replace("\0", "\n")


def read(page: str) -> list[Block]:
    """The blocks of a page, without the indentation of lists and tabs."""
    lines = page.splitlines()
    found: list[Block] = []
    headings: dict[int, str] = {}
    inside, at = 0, 0
    while at < len(lines):
        line, indented = lines[at], " " * (inside + 4)
        after_blank = at == 0 or not lines[at - 1].strip()
        at += 1
        if fence := FENCE.match(line):
            end = next(n for n in range(at, len(lines)) if lines[n].strip() == fence[1])
            title = re.search(r'title="([^"]*)"', fence[3])
            found.append(
                Block(tuple(headings.values()), fence[2], title[1] if title else "", _whole(lines[at:end]))
            )
            at = end + 1
        elif line.startswith("#"):
            level, inside = len(line) - len(line.lstrip("#")), 0
            headings = {above: text for above, text in headings.items() if above < level}
            headings[level] = line.lstrip("# ")
        elif after_blank and line.startswith(indented) and line.strip():
            end = at
            while end < len(lines) and (lines[end].startswith(indented) or not lines[end].strip()):
                end += 1
            found.append(Block(tuple(headings.values()), "indented", "", _whole(lines[at - 1 : end])))
            at = end
        elif item := ITEM.match(line):
            inside = len(item[1]) + 4
            if tab := TAB.match(line):
                headings[_TAB_LEVEL] = tab[1]
        elif after_blank and line and not line.startswith(" "):
            inside = 0
            headings.pop(_TAB_LEVEL, None)
    return found


def _whole(lines: Sequence[str]) -> str:
    return textwrap.dedent("\n".join(lines)).strip("\n") + "\n"


def blocks(page: str, language: str) -> list[str]:
    """The texts of the page's blocks in `language`."""
    return [block.text for block in read(page) if block.language == language]
