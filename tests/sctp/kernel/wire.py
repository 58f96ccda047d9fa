#!/usr/bin/python3
"""The kernel end of the tests on the wire: runs in the guest, echoes, does what `run ...` asks for."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sctp_api import (  # type: ignore[import-not-found, unused-ignore]
    ABORT,
    COMM_LOST,
    Received,
    bindx,
    one_to_many,
    receive,
    receive_change,
    receive_data,
    send,
)

PORT = 5000


def talk(address: str, port: int, count: int) -> str:
    """Send numbered messages to an echo server and expect each back, once and in order."""
    with one_to_many() as client:
        send(client, b"open", to=(address, port))
        association = receive_data(client, timeout_s=20).association

        def write() -> None:
            for number in range(count):
                send(client, b"%d" % number, association=association)

        thread = threading.Thread(target=write)
        thread.start()
        for number in range(count):
            got = receive_data(client, timeout_s=60).data
            if got != b"%d" % number:
                return f"{got!r} instead of {number}"
        thread.join()
        return "all"


def aborted(address: str, port: int) -> str:
    """Ask an echo server to abort, and wait for it."""
    with one_to_many() as client:
        send(client, b"abort me", to=(address, port))
        receive_change(client, COMM_LOST, timeout_s=20)
        return "aborted"


def serve(server: socket.socket, got: Received) -> bool:
    """Answer one message; False: it was the last."""
    words = got.data.decode(errors="replace").split()
    answer = got.data
    if got.data == b"quit":
        return False
    if got.data == b"abort me":
        send(server, b"", flags=ABORT, association=got.association)
        return True
    if words[:2] == ["run", "talk"]:
        answer = talk(words[2], int(words[3]), int(words[4])).encode()
    elif words[:2] == ["run", "aborted"]:
        answer = aborted(words[2], int(words[3])).encode()
    send(server, answer, association=got.association, ppid=got.ppid)
    return True


def main() -> None:
    """Configure the two links, then serve until told to quit."""
    for link in (0, 1):
        subprocess.run(["ip", "addr", "add", f"10.{5 + link}.0.2/24", "dev", f"vec{link}"], check=True)
        subprocess.run(["ip", "link", "set", f"vec{link}", "up"], check=True)
    for name, value in (("rto_min", 50), ("rto_initial", 100), ("rto_max", 300)):
        Path(f"/proc/sys/net/sctp/{name}").write_text(str(value))
    with one_to_many() as server:
        bindx(server, [("10.5.0.2", PORT)])
        bindx(server, [("10.6.0.2", PORT)])
        server.listen(16)
        while True:
            got = receive(server, timeout_s=300)
            if not got.is_notification and not serve(server, got):
                break


if __name__ == "__main__":
    main()
