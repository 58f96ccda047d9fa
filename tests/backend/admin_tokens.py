"""Tokens of the admin API, and the files that hold them."""

from pathlib import Path

READER = "reader-0123456789abcdef"
WRITER = "writer-0123456789abcdef"


def tokens(folder: Path, name: str, *lines: str, mode: int = 0o640) -> str:
    (folder / name).write_text("\n".join(lines) + "\n")
    (folder / name).chmod(mode)
    return name
