"""Asks in batches, and tells what that cost: a program that runs on a host of the lab.

    python -m rspdns_lab.bench.batches ADDRESS PORT QUESTIONS FILE

FILE has a line "<name> SRV" for each question; they are asked in turn, BATCH by a system call. Prints JSON:
the processor time of this process for each question, in microseconds, and questions a second. dnsperf polls
more often when answers come sooner; a batch costs the same whoever answers it.
"""

import ctypes
import json
import socket
import sys
import time
from pathlib import Path

BATCH = 64
_ANSWER_BYTES = 512
_PAUSE_S = 0.0003
_PATIENCE_S = 2.0
_DONT_WAIT = 0x40
_QR, _RCODE = 0x80, 0x0F
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_size", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_size", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    _fields_ = (("header", _Header), ("size", ctypes.c_uint32))


class _Batch:
    """As many messages as one system call takes, with memory of their own."""

    def __init__(self, contents: list[bytes]) -> None:
        self.buffers = [ctypes.create_string_buffer(content, len(content)) for content in contents]
        self._vectors = (_Vector * len(contents))(
            *(_Vector(ctypes.addressof(buffer), len(buffer)) for buffer in self.buffers)
        )
        self.messages = (_Message * len(contents))()
        for message, index in zip(self.messages, range(len(contents)), strict=True):
            message.header.vectors = ctypes.pointer(self._vectors[index])
            message.header.vector_count = 1


def question(name: str, number: int) -> bytes:
    """An SRV question."""
    wire = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return number.to_bytes(2, "big") + b"\0\0\0\1" + bytes(6) + wire + b"\0\0\x21\0\1"


def ask(address: str, port: int, count: int, names: list[str]) -> dict[str, float]:
    """Ask this number of questions; raises OSError or TimeoutError where not every one is answered.

    An answer that is no DNS answer is an echo: only the last batch is looked at.
    """
    batches = [
        _Batch([question(names[(start + index) % len(names)], start + index) for index in range(BATCH)])
        for start in range(0, len(names) * BATCH, BATCH)
    ][: len(names)]
    got = _Batch([bytes(_ANSWER_BYTES)] * BATCH)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as file:
        file.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        file.connect((address, port))
        number = file.fileno()
        rounds = count // BATCH
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        for turn in range(rounds):
            if _LIBC.sendmmsg(number, batches[turn % len(batches)].messages, BATCH, 0) != BATCH:
                raise OSError(ctypes.get_errno(), "not every question could be sent")
            _receive(number, got)
        cpu_s, took_s = time.process_time() - began_cpu_s, time.monotonic() - began_s
    heads = [buffer.raw[:12] for buffer in got.buffers]
    answers = sum(bool(head[2] & _QR) and not head[3] & _RCODE and head[7] > 0 for head in heads)
    asked = rounds * BATCH
    return {"cpu_us": 1e6 * cpu_s / asked, "per_s": asked / took_s, "asked": asked, "answers": answers}


def _receive(number: int, got: _Batch) -> None:
    """Take as many messages as a batch has. Raises TimeoutError."""
    missing, end_s = BATCH, 0.0
    while missing:
        taken = _LIBC.recvmmsg(number, got.messages, missing, _DONT_WAIT, None)
        if taken > 0:
            missing -= taken
            continue
        now_s = time.monotonic()
        end_s = end_s or now_s + _PATIENCE_S
        if now_s > end_s:
            raise TimeoutError(f"{missing} of {BATCH} questions were not answered")
        time.sleep(_PAUSE_S)


def main() -> None:
    """Ask, and print what it cost."""
    address, port, count, file = sys.argv[1:]
    names = [line.split()[0] for line in Path(file).read_text().splitlines()]
    print(json.dumps(ask(address, int(port), int(count), names)))


if __name__ == "__main__":
    main()
