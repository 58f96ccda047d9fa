"""Several threads and processes that read one socket: each part of a message goes to one of them."""

import os
import signal
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable

from sctp_api import CMSG_SNDRCV, SNDRCV, SOL_SCTP, connected, readable, receive, send, subscribe

READERS = 4
MESSAGES = 150
PARTS = 6  # of a message, each of PART bytes
PART = 4
MESSAGES_BEFORE_FORK = 30
PATIENCE_S = 30

Part = tuple[
    int, int, int
]  # the message by its content and by its payload protocol identifier; whether it ends there


def read_parts(sock: socket.socket) -> list[Part]:
    """Read until the association ends."""
    parts: list[Part] = []
    while True:
        data, ancillary, flags, _ = sock.recvmsg(PART, 1000)
        if not data:
            return parts
        ((_, _, information),) = (item for item in ancillary if item[:2] == (SOL_SCTP, CMSG_SNDRCV))
        ppid = socket.ntohl(SNDRCV.unpack(information)[3])
        parts.append((int.from_bytes(data, "big"), ppid, int(bool(flags & socket.MSG_EOR))))


def write_messages(sock: socket.socket) -> None:
    for number in range(MESSAGES):
        send(sock, number.to_bytes(PART, "big") * PARTS, ppid=number)


def assert_each_once(parts: list[Part]) -> None:
    expected: Counter[Part] = Counter()
    for number in range(MESSAGES):
        expected[number, number, 0] = PARTS - 1
        expected[number, number, 1] = 1
    got = Counter(parts)
    assert got == expected, {"too many": dict(got - expected), "missing": dict(expected - got)}


def case_threads_read_parts() -> None:
    with connected() as (client, server):
        subscribe(server, data_io=True)
        parts: list[Part] = []
        threads = [
            threading.Thread(target=lambda: parts.extend(read_parts(server)), daemon=True)
            for _ in range(READERS)
        ]
        for thread in threads:
            thread.start()
        write_messages(client)
        client.close()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert_each_once(parts)


def case_threads_read_parts_of_a_small_buffer() -> None:
    """Data that doesn't fit into it stays with the peer until it is read."""
    with connected() as (client, server):
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 3000)
        subscribe(server, data_io=True)
        parts: list[Part] = []
        threads = [
            threading.Thread(target=lambda: parts.extend(read_parts(server)), daemon=True)
            for _ in range(READERS)
        ]
        write_messages(client)
        for thread in threads:
            thread.start()
        client.close()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert_each_once(parts)


def forked(run: Callable[[], bytes]) -> tuple[int, int]:
    """Return the process, and a pipe that brings what it returned; it is killed if it takes too long."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE_S)
        try:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(run())
        finally:
            os._exit(0)
    os.close(writing)
    return pid, reading


def outcome(process: tuple[int, int]) -> bytes:
    with os.fdopen(process[1], "rb") as pipe:
        result = pipe.read()
    os.waitpid(process[0], 0)
    return result


def case_processes_read_parts() -> None:
    layout = struct.Struct("=III")
    with connected() as (client, server):
        subscribe(server, data_io=True)

        def run() -> bytes:
            client.close()
            return b"".join(layout.pack(*part) for part in read_parts(server))

        processes = [forked(run) for _ in range(READERS)]
        write_messages(client)
        client.close()
        assert_each_once([part for process in processes for part in layout.iter_unpack(outcome(process))])


def case_fork_beside_readers() -> None:
    """Threads read parts, and wait for more, while their process forks: the child reads parts, too."""
    with connected() as (client, server), connected() as (other, mine):
        subscribe(server, data_io=True)
        threads = [threading.Thread(target=read_parts, args=(server,), daemon=True) for _ in range(READERS)]
        for thread in threads:
            thread.start()

        def run() -> bytes:
            return receive(mine, room=PART).data + receive(mine, room=PART).data

        for _ in range(10):
            for _ in range(MESSAGES_BEFORE_FORK):
                send(client, bytes(PART * PARTS))
            other.send(b"for the child")
            assert readable(mine, PATIENCE_S)
            assert outcome(forked(run)) == b"for the "
            assert mine.recv(100) == b"child"
        client.close()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def case_parts_after_the_end() -> None:
    """The peer has ended when a small buffer takes messages in parts, looks at one, and reads on."""
    with connected() as (client, server):
        for number in range(3):
            client.send(bytes([number]) * 11)
        client.close()
        assert readable(server, PATIENCE_S)
        first = receive(server, room=4)
        assert (first.data, first.flags & socket.MSG_EOR) == (bytes(4), 0)
        assert server.recv(100, socket.MSG_PEEK) == bytes(7)
        assert server.recv(3, socket.MSG_PEEK) == bytes(3)
        rest = receive(server, room=100)
        assert (rest.data, rest.flags & socket.MSG_EOR) == (bytes(7), socket.MSG_EOR)
        assert [len(server.recv(6)) for _ in range(4)] == [6, 5, 6, 5]
        assert server.recv(100) == b""


def case_long_message_in_parts() -> None:
    """The parts of a long message come in order, into one buffer and into many."""
    message = bytes(range(256)) * 240
    with connected() as (client, server):
        client.send(message)
        client.send(b"the next")
        got = server.recv(10_000)
        buffers = [bytearray(100) for _ in range(300)]
        assert server.recvmsg_into(buffers)[0] == 30_000
        got += b"".join(bytes(buffer) for buffer in buffers)
        while len(got) < len(message):
            got += server.recv(8_000)
        assert got == message
        assert server.recv(100) == b"the next"
