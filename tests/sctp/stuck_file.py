"""A file that can be opened but never closed: its file system is this process, which doesn't answer.

`stuck_file.py flush FILE PROGRAM ARGUMENT...` makes FILE one, for the program it then runs (needs root):
each close() of it waits for ever. With `write` in the place of `flush` it is writing that is never answered:
the kernel keeps what is written, and waits only when the file is closed for the last time, by whomever.
All ends with this process.
"""

import ctypes
import os
import signal
import stat
import struct
import sys
import tempfile
import threading

from rspdns_lab.net.private_file import unshare_mounts

REQUEST = struct.Struct("=IIQQIIII")  # length, operation, unique, node, user, group, process, padding
ANSWER = struct.Struct("=IiQ")  # length, error, unique
GETATTR, OPEN, WRITE, FLUSH, INIT = 3, 14, 16, 25, 26
STUCK = {"flush": FLUSH, "write": WRITE}
KEEP_WRITTEN = 1 << 16  # FUSE_WRITEBACK_CACHE
ENOSYS = 38
DEVICE = "/dev/fuse"
PR_SET_PDEATHSIG = 1
IS_FILE = 0o100666


def answer_to(operation: int, body: bytes, flags: int) -> bytes | None:
    """Return the answer, None: not known."""
    if operation == INIT:
        major, minor = struct.unpack_from("=II", body)
        return struct.pack("=IIIIHHIIHH32x", major, min(minor, 31), 0, flags, 1, 1, 4096, 1, 0, 0)
    if operation == GETATTR:
        valid, attributes = struct.pack("=QII", 1, 0, 0), (1, *bytes(8), IS_FILE, 1, 0, 0, 0, 4096, 0)
        return valid + struct.pack("=6Q10I", *attributes)
    return struct.pack("=QII", 1, 0, 0) if operation == OPEN else None


def serve(device: int, stuck: str) -> None:
    flags = KEEP_WRITTEN if stuck == "write" else 0
    while True:
        request = os.read(device, 1 << 17)
        _, operation, unique, *_ = REQUEST.unpack_from(request)
        if operation == STUCK[stuck]:
            continue
        body = answer_to(operation, request[REQUEST.size :], flags)
        error = 0 if body is not None else -ENOSYS
        body = body or b""
        os.write(device, ANSWER.pack(ANSWER.size + len(body), error, unique) + body)


def open_device() -> int:
    """Open /dev/fuse, where it isn't there (a chroot) one like it."""
    flags = os.O_RDWR | os.O_CLOEXEC
    if os.path.exists(DEVICE):
        return os.open(DEVICE, flags)
    with tempfile.TemporaryDirectory() as folder:
        os.mknod(f"{folder}/fuse", stat.S_IFCHR | 0o600, os.makedev(10, 229))
        return os.open(f"{folder}/fuse", flags)


def main() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    stuck, path = sys.argv[1], sys.argv[2].encode()
    device = open_device()
    options = f"fd={device},rootmode=100666,user_id=0,group_id=0,allow_other".encode()
    unshare_mounts()
    if libc.mount(b"stuck", path, b"fuse", 0, options):
        raise OSError(ctypes.get_errno(), "cannot mount")
    threading.Thread(target=serve, args=(device, stuck), daemon=True).start()
    child = os.fork()
    if child == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.execvp(sys.argv[3], sys.argv[3:])  # noqa: S606
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
