#!/usr/bin/python3
"""One side of the tests on the wire: runs Python code that it finds in files, `1`, `2` and so on.

The same program on both sides: under sctp-run, and in the guest as its job. The value that the code leaves
in `result` is answered on the output, or its traceback; names stay from one file to the next. Files, which
host and guest share, since input on the guest's console gets lost now and then.
"""

import itertools
import json
import socket
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sctp_api

ANSWER = "answer "  # the guest's console also carries the kernel's own words
POLL_S = 0.01
TIMERS_MS = {"rto_min": 50, "rto_initial": 100, "rto_max": 300, "sack_timeout": 20}  # as in the demo
GUEST_ADDRESSES = {"vec0": ("10.5.0.2/24", "fd05::2/64"), "vec1": ("10.6.0.2/24", "fd06::2/64")}
# Linux counts most of a kilobyte for each message, however small. With its default, 208 KB, those behind one
# lost packet of many small ones shut the window, and the lost ones come again one at a time, 0.3 s apart.
RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024
HEARTBEATS, NO_HEARTBEATS = 1, 2
LOST_AFTER_S = 60  # retransmission takes a second at most, and no machine stops for so long


def exchange(sock: socket.socket, count: int) -> str:
    """Send this number of numbered messages and expect as many from the other side: each once, in order."""

    def write() -> None:
        for number in range(count):
            sock.send(b"%d" % number)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    for number in range(count):
        if not sctp_api.readable(sock, LOST_AFTER_S):
            return f"nothing instead of {number}"
        got = sock.recv(1000)
        if got != b"%d" % number:
            return f"{got!r} instead of {number}"
    thread.join()
    return "one too many" if sctp_api.readable(sock, 0.5) else "all"


def heartbeats(sock: socket.socket, association: int, interval_ms: int, most_timeouts: int = 0) -> None:
    """Set how often idle paths are checked (0: never), and after how many timeouts one is given up."""
    flags = HEARTBEATS if interval_ms else NO_HEARTBEATS
    parameters = sctp_api.PATH_PARAMETERS.pack(
        association, bytes(128), interval_ms, most_timeouts, 0, 0, flags, 0, 0
    )
    sock.setsockopt(sctp_api.SOL_SCTP, sctp_api.SCTP_PEER_ADDR_PARAMS, parameters)


class Paths:
    """Messages of a multihomed association, and what was notified of its paths meanwhile."""

    def __init__(self, sock: socket.socket, association: int) -> None:
        self._sock = sock
        self._association = association
        self._changes: list[tuple[int, str]] = []

    def ask(self, count: int) -> int:
        """Send `count` messages, each after the last one's answer; return the number of right answers."""
        right = 0
        for number in range(count):
            sctp_api.send(self._sock, b"%d" % number, association=self._association)
            right += self._receive() == b"%d" % number
        return right

    def answer(self, count: int) -> None:
        """Send this number of messages back."""
        for _ in range(count):
            sctp_api.send(self._sock, self._receive(), association=self._association)

    def wait_for_change(self, state: int, address: str) -> None:
        """Wait for the notification that the path to this address is in this state; later ones stay."""
        while (state, address) not in self._changes:
            self._note(sctp_api.receive(self._sock, timeout_s=30))
        del self._changes[: self._changes.index((state, address)) + 1]

    def wait_until_active(self, address: tuple[str, int]) -> None:
        """Wait until the path to this address is confirmed."""
        end_s = time.monotonic() + 30
        while sctp_api.path_state(self._sock, self._association, address) != sctp_api.PATH_ACTIVE:
            assert time.monotonic() < end_s
            time.sleep(0.05)

    def _receive(self) -> bytes:
        while (got := sctp_api.receive(self._sock, timeout_s=30)).is_notification:
            self._note(got)
        return got.data

    def _note(self, got: sctp_api.Received) -> None:
        if got.notification == sctp_api.PEER_ADDR_CHANGE:
            self._changes.append(got.changed_address)


def set_up_guest() -> None:
    """Configure the two links and the timers."""
    for interface, addresses in GUEST_ADDRESSES.items():
        subprocess.run(["ip", "link", "set", interface, "up"], check=True)
        for address in addresses:
            subprocess.run(["ip", "addr", "add", address, "dev", interface, "nodad"], check=True)
    for name, value in TIMERS_MS.items():
        Path(f"/proc/sys/net/sctp/{name}").write_text(str(value))
    Path("/proc/sys/net/core/rmem_default").write_text(str(RECEIVE_BUFFER_BYTES))


def next_code(path: Path) -> str:
    """Wait for a file, which comes whole, and return what it says."""
    while not path.exists():
        time.sleep(POLL_S)
    return path.read_text()


def main() -> None:
    """Run each file; the folder is an argument, the guest's own (`worker=...`) or the program's."""
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
    else:
        words = Path("/proc/cmdline").read_text().split()
        folder = Path(next(word for word in words if word.startswith("worker="))[len("worker=") :])
        set_up_guest()
    names: dict[str, object] = {
        **vars(sctp_api),
        "exchange": exchange,
        "heartbeats": heartbeats,
        "Paths": Paths,
    }
    print(f"{ANSWER}{json.dumps({'number': 0, 'result': 'ready'})}", flush=True)
    for number in itertools.count(1):
        code = next_code(folder / str(number))
        answer: dict[str, object] = {"number": number}
        try:
            names.pop("result", None)
            exec(code, names)  # noqa: S102 - the test's own code
            answer["result"] = names.get("result")
        except Exception:
            answer["error"] = traceback.format_exc()
        print(f"{ANSWER}{json.dumps(answer)}", flush=True)


if __name__ == "__main__":
    main()
