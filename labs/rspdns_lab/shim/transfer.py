"""The programs of `rspdns-lab shim`: a server, and a client that prints one figure. They know TCP only.

    serve CONGESTION
    fetch CONGESTION ADDRESS BYTES       seconds until the last byte; -1: it never came
    pause CONGESTION ADDRESS SECONDS     a line when a stream began; its longest pause, ms; -1: it ended
    set-up CONGESTION ADDRESS NUMBER     median time of a connect(), us
    messages CONGESTION ADDRESS SECONDS  answered messages a second

CONGESTION: `cubic`, `reno`, `bbr`; `mptcp`: Multipath TCP with CUBIC; `sctp`: the shim's, which must take
TCP's place. A client asks by a line of 20 bytes.
"""

import contextlib
import select
import socket
import statistics
import sys
import threading
import time
from typing import Final

PORT: Final = 7000
LINE: Final = 20
MESSAGE: Final = 100
SCTP: Final = "sctp"
"""The answer of the shim's library when it is asked for the congestion control."""
_IPPROTO_MPTCP: Final = 262
_CHUNK: Final = bytes(65536)
_STREAM_EVERY_S: Final = 0.005
_PATIENCE_S: Final = 600.0


def made(congestion: str) -> socket.socket:
    """Return a socket of this kind."""
    protocol = _IPPROTO_MPTCP if congestion == "mptcp" else 0
    new = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    new.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    control(new, congestion)
    return new


def control(connection: socket.socket, congestion: str) -> None:
    """Choose the kernel's congestion control, whose default may be any."""
    if congestion != SCTP:
        name = "cubic" if congestion == "mptcp" else congestion
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())


def exactly(connection: socket.socket, size: int) -> bytes:
    """Return this number of bytes, fewer at the end."""
    got = b""
    while len(got) < size and (piece := connection.recv(size - len(got))):
        got += piece
    return got


def answer(connection: socket.socket) -> None:
    """Serve a client: the bytes it wants, a stream, or each message as it came."""
    with connection, contextlib.suppress(OSError):
        kind, _, number = exactly(connection, LINE).decode().strip().partition(" ")
        if kind == "bytes":
            left = int(number)
            while left > 0:
                left -= connection.send(_CHUNK[:left])
        elif kind == "stream":
            while True:
                connection.sendall(_CHUNK[:1000])
                time.sleep(_STREAM_EVERY_S)
        else:
            while message := exactly(connection, MESSAGE):
                connection.sendall(message)


def serve(congestion: str) -> None:
    """Serve until it is killed."""
    listener = made(congestion)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", PORT))  # noqa: S104 - a lab's host
    listener.listen(100)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        control(connection, congestion)
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def connected(congestion: str, address: str, question: str) -> socket.socket:
    """Return a connection that has asked."""
    client = made(congestion)
    client.settimeout(_PATIENCE_S)
    client.connect((address, PORT))
    used = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
    if congestion == SCTP != used:
        raise ConnectionError(f"TCP ({used}) was used instead of SCTP")
    client.sendall(question.ljust(LINE).encode())
    return client


def fetch(congestion: str, address: str, size: int) -> float:
    """Return the seconds from connect() to the last of the bytes."""
    began_s = time.monotonic()
    with connected(congestion, address, f"bytes {size}") as client:
        left = size
        while left > 0 and (piece := client.recv(65536)):
            left -= len(piece)
    if left:
        raise ConnectionError(f"{left} bytes are missing")
    return time.monotonic() - began_s


def longest_pause_ms(congestion: str, address: str, seconds: float) -> float:
    """Return the longest time without a byte; -1: the last one was never followed by another."""
    longest_s, last_s = 0.0, 0.0
    with connected(congestion, address, "stream") as client, contextlib.suppress(OSError):
        client.recv(1)
        print("begun", flush=True)
        end_s = time.monotonic() + seconds
        last_s = time.monotonic()
        while (now_s := time.monotonic()) < end_s:
            if select.select([client], [], [], end_s - now_s)[0] and client.recv(65536):
                longest_s, last_s = max(longest_s, time.monotonic() - last_s), time.monotonic()
    return -1.0 if time.monotonic() - last_s > 1 else longest_s * 1000


def set_up_us(congestion: str, address: str, number: int) -> float:
    """Return the median time of a connect()."""
    took_s = []
    for _ in range(number):
        with made(congestion) as client:
            began_s = time.monotonic()
            client.connect((address, PORT))
            took_s.append(time.monotonic() - began_s)
    return statistics.median(took_s) * 1e6


def messages(congestion: str, address: str, seconds: float) -> float:
    """Return the number of messages a second, the next one after the last one's answer."""
    count, end_s = 0, time.monotonic() + seconds
    with connected(congestion, address, "echo") as client:
        while time.monotonic() < end_s:
            client.sendall(_CHUNK[:MESSAGE])
            exactly(client, MESSAGE)
            count += 1
    return count / seconds


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", way]:
            serve(way)
        case ["fetch", way, server, wanted]:
            try:
                print(fetch(way, server, int(wanted)))
            except OSError as error:
                print(-1, error)
        case ["pause", way, server, wanted]:
            print(longest_pause_ms(way, server, float(wanted)))
        case ["set-up", way, server, wanted]:
            print(set_up_us(way, server, int(wanted)))
        case ["messages", way, server, wanted]:
            print(messages(way, server, float(wanted)))
