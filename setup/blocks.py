#!/usr/bin/env python3
"""Lists blocks of pages that a reader can't copy or place: `setup/blocks.py [FILE...]`; default: docs/.

A block with the content of a file has its name: `toml title="/etc/rspdns/rspdns.toml"`. A block with a prompt
is `console`: neither prompt nor output is copied. Output alone is `text`. An indented block is commands.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

NO_FILE = {"sh", "bash", "console", "text", "json"}
"""Languages of blocks that need no title."""
FENCE = re.compile(r"( *)```(\w*)(.*)$")
PROMPT = re.compile(r" {4,}\$ ")
TABLE = re.compile(r" {4,}\[\[?[a-z][\w.]*\]\]?( |$)")
PATH = re.compile(r" *(#|//|--|;) /etc/")


def wrong(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield number and fault of each line that begins a wrong block."""
    inside, is_titled, is_first = False, False, False
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if fence and inside:
            inside = False
        elif fence:
            inside, is_first, is_titled = True, True, "title=" in fence[3]
            if not fence[2]:
                yield number, "a block without a language: console, text, sh, toml ..."
            elif fence[2] not in NO_FILE and not is_titled:
                yield number, f"the content of a file without its name: {fence[2]} title=..."
        elif inside:
            if is_first and not is_titled and PATH.match(line):
                yield number, "the content of a file without its name: title=..., not a comment"
            is_first = False
        elif PROMPT.match(line):
            yield number, "a prompt in an indented block: leave it out, or write a console block"
        elif TABLE.match(line):
            yield number, "the content of a file in an indented block: write a toml block with title=..."


def main(names: list[str]) -> int:
    """Print them with file and line; return 1 when there are any."""
    if not names:
        listed = subprocess.run(["git", "ls-files", "docs/*.md"], check=True, capture_output=True, text=True)
        names = listed.stdout.splitlines()
    paths = [path for path in map(Path, names) if path.is_file()]
    places = [(path, *each) for path in paths for each in wrong(path.read_text().splitlines())]
    for path, line, fault in places:
        print(f"{path}:{line}: {fault}")
    return int(bool(places))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
