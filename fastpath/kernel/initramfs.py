"""Writes a folder as the kernel reads an initramfs (cpio, "newc"), to the standard output."""

import os
import stat
import sys
from pathlib import Path


def entry(number: int, name: str, mode: int, data: bytes) -> bytes:
    """One file: its head, its name and its content, each padded to 4 bytes."""
    path = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def main() -> None:
    """The folder is the first argument."""
    top = Path(sys.argv[1])
    out = sys.stdout.buffer
    for number, path in enumerate(sorted(top.rglob("*")), 1):
        mode = path.lstat().st_mode
        data = os.readlink(path).encode() if stat.S_ISLNK(mode) else b""
        if stat.S_ISREG(mode):
            data = path.read_bytes()
        out.write(entry(number, str(path.relative_to(top)), mode, data))
    console = bytearray(entry(0, "dev/console", stat.S_IFCHR | 0o600, b""))
    console[6 + 9 * 8 : 6 + 11 * 8] = b"%08X%08X" % (5, 1)
    out.write(console + entry(0, "TRAILER!!!", 0, b""))


main()
