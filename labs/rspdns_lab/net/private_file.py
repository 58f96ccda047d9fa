"""Runs a program that sees another file in the place of one: a bind mount in a mount namespace of its own.

    python -m rspdns_lab.net.private_file OTHER FILE COMMAND...

`unshare --mount` and `mount --bind` do the same, but not inside a chroot whose root directory is no mount
point: there the namespace can't be cut off from the mounts it was copied from, and what is mounted would
appear outside.
"""

import ctypes
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Final, NoReturn

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS: Final = 0x20000
_MS_BIND: Final = 0x1000
_MS_REC: Final = 0x4000
_MS_SLAVE: Final = 0x80000


def run(other: str, file: str, command: Sequence[str]) -> NoReturn:
    """Become `command`, which sees `other` where `file` is. Raises OSError: no privilege, no such file."""
    unshare_mounts()
    _mount(other, file, _MS_BIND)
    os.execvp(command[0], list(command))  # noqa: S606 - an argument list, no shell


def unshare_mounts() -> None:
    """Have a mount namespace of one's own, whose mounts nobody outside sees. Raises OSError: no privilege."""
    if _LIBC.unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "no mount namespace of its own")
    _cut_off()


def _cut_off() -> None:
    try:
        _mount("none", "/", _MS_REC | _MS_SLAVE)
    except OSError:
        # "/" is no mount point; what it lies on has a name only outside: out by a second chroot, and back.
        here, root = os.open(".", os.O_PATH), os.open("/", os.O_PATH)
        with tempfile.TemporaryDirectory() as folder:
            os.chroot(folder)
            _climb()
            os.chroot(".")
            _mount("none", "/", _MS_REC | _MS_SLAVE)
            os.fchdir(root)
            os.chroot(".")
        os.fchdir(here)
        os.close(here)
        os.close(root)


def _climb() -> None:
    while not os.path.samestat(os.stat("."), os.stat("..")):
        os.chdir("..")


def _mount(source: str, target: str, flags: int) -> None:
    if _LIBC.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), f"mounting on {target}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    try:
        run(sys.argv[1], sys.argv[2], sys.argv[3:])
    except OSError as error:
        sys.exit(f"error: {error.strerror}")
