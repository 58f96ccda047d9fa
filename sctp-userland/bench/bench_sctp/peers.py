"""Both ends of the SCTP benchmark, one process and its children: each result is one line of JSON.

    python peers.py MEASUREMENT [NUMBER]

It is started where SCTP works: under sctp-run, or on a kernel that has it. Servers are children that die
with it.
"""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Final

from daemon_kit.child import die_with_parent

_LOOPBACK: Final = ("127.0.0.1", 0)
_REQUEST: Final = 100
_ROOM: Final = 65536
_STYLES: Final = MappingProxyType(
    {
        "udp": (socket.SOCK_DGRAM, socket.IPPROTO_UDP),
        "tcp": (socket.SOCK_STREAM, socket.IPPROTO_TCP),
        "sctp": (socket.SOCK_STREAM, socket.IPPROTO_SCTP),
    }
)
_TIMEOUT_S: Final = 60.0
_GROUP: Final = 4
_SCTP_NODELAY: Final = 3


def main() -> None:
    """Run one measurement."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard) if soft < hard else (soft, hard))
    name, number = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for result in _MEASUREMENTS[name](number):
        print(json.dumps(result), flush=True)


def streams(count: int) -> Iterator[dict[str, float]]:
    """Messages per second through one association, one TCP connection, one UDP socket, each in turn."""
    rates: dict[str, list[float]] = {style: [] for style in _STYLES}
    for _ in range(3):
        for style in _STYLES:
            rates[style].append(_rate(style, count))
    yield {style: statistics.median(of_style) for style, of_style in rates.items()}


def hold(count: int) -> Iterator[dict[str, float]]:
    """Open `count` associations, use each, say so, and use each again when a line comes on standard input."""
    name = _in_child("sctp", _serve_many)
    started_s = time.monotonic()
    clients = []
    for _ in range(count):
        client = _socket("sctp")
        client.bind(_LOOPBACK)  # or it tells of more addresses, where a server on loopback can't confirm them
        client.connect(name)
        clients.append(client)
    used = sum(_is_echoed(client) for client in clients)
    yield {"held": used, "opened_per_s": count / (time.monotonic() - started_s)}
    sys.stdin.readline()
    yield {"held": sum(_is_echoed(client) for client in clients)}


def killed(count: int) -> Iterator[dict[str, float]]:
    """From SIGKILL of a process to the end of file at its peer, in ms; over TCP the same."""
    yield _ends_beside_tcp(count, 1)


def killed_group(count: int) -> Iterator[dict[str, float]]:
    """The same for each peer of a process group of four, all killed at once."""
    yield _ends_beside_tcp(count, _GROUP)


def soak(count: int) -> Iterator[dict[str, float]]:
    """`count` requests, each answered before the next one of its association goes out; none may be lost."""
    name = _in_child("sctp", _serve_many)
    clients = [_socket("sctp") for _ in range(min(8, count))]
    for client in clients:
        client.connect(name)
    asked: dict[socket.socket, int] = {}
    started_s, next_number, answered, wrong = time.monotonic(), 0, 0, 0
    poll = select.epoll()
    by_fd = {client.fileno(): client for client in clients}
    for client in clients:
        poll.register(client, select.EPOLLIN)
        asked[client] = next_number
        client.send(b"%d" % next_number)
        next_number += 1
    while answered < count:
        ready = poll.poll(_TIMEOUT_S)
        if not ready:
            break
        for fd, _ in ready:
            client = by_fd[fd]
            wrong += client.recv(_ROOM) != b"%d" % asked[client]
            answered += 1
            if next_number < count:
                asked[client] = next_number
                client.send(b"%d" % next_number)
                next_number += 1
    took_s = time.monotonic() - started_s
    yield {"asked": next_number, "lost": next_number - answered, "wrong": wrong, "per_s": answered / took_s}


def _socket(style: str) -> socket.socket:
    made = socket.socket(socket.AF_INET, *_STYLES[style])
    made.settimeout(_TIMEOUT_S)
    if style == "tcp":
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    elif style == "sctp":
        made.setsockopt(socket.IPPROTO_SCTP, _SCTP_NODELAY, 1)
    return made


def _in_child(style: str, serve: Callable[[socket.socket], None]) -> tuple[str, int]:
    """Serve on a new socket in a child; return its address."""
    with _socket(style) as server:
        server.bind(_LOOPBACK)
        server.settimeout(None)
        if style != "udp":
            server.listen(1024)
        name: tuple[str, int] = server.getsockname()
        if os.fork() == 0:
            with contextlib.suppress(BaseException):
                die_with_parent(signal.SIGKILL)()
                serve(server)
            os._exit(0)
    return name


def _serve_many(server: socket.socket) -> None:
    """Echo on every association."""
    poll = select.epoll()
    poll.register(server, select.EPOLLIN)
    clients: dict[int, socket.socket] = {}
    while True:
        for fd, _ in poll.poll():
            if fd == server.fileno():
                client, _ = server.accept()
                client.setsockopt(socket.IPPROTO_SCTP, _SCTP_NODELAY, 1)
                clients[client.fileno()] = client
                poll.register(client, select.EPOLLIN)
            elif data := clients[fd].recv(_ROOM):
                clients[fd].send(data)
            else:
                clients.pop(fd).close()


def _is_echoed(client: socket.socket) -> bool:
    client.send(b"x")
    return client.recv(_ROOM) == b"x"


def _rate(style: str, count: int) -> float:
    """Messages that arrive per second; UDP loses the others."""
    receiver_end, sender_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)

    def take(server: socket.socket) -> None:
        source = server if style == "udp" else server.accept()[0]
        source.settimeout(1.0)
        got, first_s, last_s = 0, 0.0, 0.0
        with contextlib.suppress(TimeoutError):
            while data := source.recv(_REQUEST if style == "tcp" else _ROOM):
                last_s = time.monotonic()
                first_s = first_s or last_s
                got += len(data)
                if got >= count * _REQUEST:
                    break
        receiver_end.send(json.dumps([got / _REQUEST, last_s - first_s]).encode())

    with receiver_end, sender_end:
        name = _in_child(style, take)
        with _socket(style) as client:
            client.connect(name)
            client.settimeout(None)
            message = bytes(_REQUEST)
            for _ in range(count):
                client.send(message)
            sender_end.settimeout(_TIMEOUT_S)
            got, seconds = json.loads(sender_end.recv(_ROOM))
    return float(got / seconds) if seconds else 0.0


def _ends_beside_tcp(count: int, members: int) -> dict[str, float]:
    times = sorted(_noticed_ms("sctp", count, members))
    return {
        "quarter_ms": times[len(times) // 4],
        "median_ms": statistics.median(times),
        "p99_ms": times[int(len(times) * 0.99)],
        "tcp_median_ms": statistics.median(_noticed_ms("tcp", count, members)),
        "trials": count,
    }


def _noticed_ms(style: str, count: int, members: int) -> list[float]:
    """From SIGKILL of a process group, `count` times, until each peer of its members saw the end."""
    times: list[float] = []
    with _socket(style) as listener:
        listener.bind(_LOOPBACK)
        listener.listen(16)
        for _ in range(count):
            group = 0
            pids = []
            for _ in range(members):
                pid = os.fork()
                if pid == 0:
                    _connect_and_wait(style, listener.getsockname(), group)
                os.setpgid(pid, group)
                group = group or pid
                pids.append(pid)
            peers = [listener.accept()[0] for _ in pids]
            for peer in peers:
                peer.recv(_ROOM)
            before_s = time.monotonic()
            os.killpg(group, signal.SIGKILL)
            times += [(end_s - before_s) * 1000 for end_s in _ends_s(peers)]
            for pid in pids:
                os.waitpid(pid, 0)
    return times


def _ends_s(peers: list[socket.socket]) -> Iterator[float]:
    """Close each peer when its association is over; yield when that was."""
    left = {peer.fileno(): peer for peer in peers}
    with select.epoll() as poll:
        for descriptor in left:
            poll.register(descriptor, select.EPOLLIN)
        while left:
            ready = poll.poll(_TIMEOUT_S)
            if not ready:
                raise TimeoutError("a peer was not told")
            for descriptor, _ in ready:
                with contextlib.suppress(ConnectionResetError):
                    if left[descriptor].recv(_ROOM):
                        continue
                yield time.monotonic()
                left.pop(descriptor).close()


def _connect_and_wait(style: str, name: tuple[str, int], group: int) -> None:
    die_with_parent(signal.SIGKILL)()
    with contextlib.suppress(OSError):  # the parent was first
        os.setpgid(0, group)
    client = _socket(style)
    client.connect(name)
    client.send(b"ready")
    signal.pause()


_MEASUREMENTS: Final = MappingProxyType(
    {
        "streams": streams,
        "hold": hold,
        "killed": killed,
        "killed-group": killed_group,
        "soak": soak,
    }
)


if __name__ == "__main__":
    main()
