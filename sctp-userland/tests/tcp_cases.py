"""TCP sockets as programs use them: each case passes by the kernel's TCP and, under the shim, by SCTP.

Plain Python without packages. It prints one JSON line for each case. With the word `sctp` it also looks
whether TCP was used.
"""

import array
import asyncio
import errno
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

TIMEOUT_S = 20
HOST = "127.0.0.1"
Serve = Callable[[socket.socket], None]


def listener(host: str = HOST) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.settimeout(TIMEOUT_S)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, 0))
    made.listen(50)
    return made


@contextmanager
def connected(serve: Serve | None = None) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a connection; `serve` runs in a thread with the server's."""
    with listener() as listens, socket.create_connection(listens.getsockname(), TIMEOUT_S) as client:
        server, _ = listens.accept()
        server.settimeout(TIMEOUT_S)
        thread = threading.Thread(target=serve, args=(server,)) if serve else None
        if thread:
            thread.start()
        with server:
            yield client, server
            if thread:
                thread.join(TIMEOUT_S)


def read_all(end: socket.socket) -> bytes:
    pieces = []
    while piece := end.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def raises(number: int, function: Callable[[], object]) -> None:
    got = 0
    try:
        function()
    except OSError as error:
        got = error.errno or 0
    assert got == number, errno.errorcode.get(got, "no error")


def case_bytes_in_pieces_both_ways() -> None:
    sent = os.urandom(3_000_000)

    def echo(server: socket.socket) -> None:
        while piece := server.recv(65536):
            server.sendall(piece)

    with connected(echo) as (client, _):
        writer = threading.Thread(target=client.sendall, args=(sent,))
        writer.start()
        got = b""
        while len(got) < len(sent):
            got += client.recv(777_777)
        writer.join()
        assert got == sent


def case_half_close_keeps_the_other_side() -> None:
    with connected() as (client, server):
        client.sendall(b"request")
        client.shutdown(socket.SHUT_WR)
        assert read_all(server) == b"request"
        raises(errno.EPIPE, lambda: client.send(b"x"))
        server.sendall(bytes(200_000))
        server.close()
        assert len(read_all(client)) == 200_000


def case_both_half_closes_end_in_order() -> None:
    for _ in range(20):
        with connected() as (client, server):
            client.shutdown(socket.SHUT_WR)
            assert read_all(server) == b""
            server.sendall(b"last")
            server.shutdown(socket.SHUT_WR)
            assert read_all(client) == b"last"
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def case_close_passes_on_all_that_was_sent() -> None:
    with connected() as (client, server):
        client.sendall(bytes(150_000))
        client.close()
        assert len(read_all(server)) == 150_000


def case_close_with_unread_bytes_resets() -> None:
    with connected() as (client, server):
        client.sendall(b"unread")
        assert select.select([server], [], [], TIMEOUT_S)[0]
        server.close()
        raises(errno.ECONNRESET, lambda: client.recv(1))


def case_linger_zero_resets() -> None:
    with connected() as (client, server):
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.close()
        raises(errno.ECONNRESET, lambda: client.recv(1))


def case_killed_peer_of_a_reader_ends_in_order() -> None:
    with listener() as listens:
        child = os.fork()
        if child == 0:
            with socket.create_connection(listens.getsockname()) as client:
                client.sendall(b"dying words")
                os.kill(os.getpid(), 9)
        server, _ = listens.accept()
        os.waitpid(child, 0)
        assert read_all(server) == b"dying words"


def case_write_after_the_peers_close_fails() -> None:
    with connected() as (client, server):
        server.close()
        assert client.recv(1) == b""
        with suppress(ConnectionResetError):
            client.send(b"x")
        deadline = time.monotonic() + TIMEOUT_S
        with suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() < deadline:
                client.send(b"x")
                time.sleep(0.01)
        assert time.monotonic() < deadline


def case_names_of_both_ends() -> None:
    with listener() as listens, socket.create_connection(listens.getsockname()) as client:
        server, address = listens.accept()
        with server:
            assert address == server.getpeername() == client.getsockname()
            assert server.getsockname() == client.getpeername() == listens.getsockname()


def case_names_of_ipv6_and_of_ipv4_in_it() -> None:
    with listener("::") as listens:
        port = listens.getsockname()[1]
        for host, expected in (("::1", "::1"), (HOST, "::ffff:127.0.0.1")):
            with socket.create_connection((host, port)) as client:
                server, address = listens.accept()
                with server:
                    assert address[0] == server.getpeername()[0] == expected
                    assert client.getpeername()[:2] == (host, port)
                    client.sendall(b"x")
                    assert server.recv(10) == b"x"


def case_refused() -> None:
    with listener() as listens:
        nowhere = listens.getsockname()
    for _ in range(2):
        raises(errno.ECONNREFUSED, lambda: socket.create_connection(nowhere))


def case_epoll_set_from_before_connect() -> None:
    """The program would wait for ever if its registration went with the TCP socket."""
    with listener() as listens, socket.socket() as client, select.epoll() as watched:
        client.setblocking(False)
        watched.register(client, select.EPOLLOUT | select.EPOLLIN)
        assert client.connect_ex(listens.getsockname()) in {0, errno.EINPROGRESS}
        server, _ = listens.accept()
        with server:
            server.sendall(b"news")
            deadline = time.monotonic() + TIMEOUT_S
            while not any(events & select.EPOLLIN for _, events in watched.poll(TIMEOUT_S)):
                assert time.monotonic() < deadline
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            assert client.recv(10) == b"news"
            watched.modify(client, select.EPOLLIN)
            assert watched.poll(0) == []


def case_second_connect_says_connected() -> None:
    with listener() as listens, socket.socket() as client:
        client.connect(listens.getsockname())
        assert client.connect_ex(listens.getsockname()) == errno.EISCONN


def case_options_are_kept_and_answered() -> None:
    with connected() as (client, _):
        for level, option in (
            (socket.IPPROTO_TCP, socket.TCP_NODELAY),
            (socket.IPPROTO_TCP, socket.TCP_CORK),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            (socket.SOL_SOCKET, socket.SO_REUSEADDR),
        ):
            client.setsockopt(level, option, 1)
            assert client.getsockopt(level, option) == 1, option
        client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 16)
        assert client.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 16
        assert client.getsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, 100) == b""
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_TCP
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\1"  # ESTABLISHED
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) > 500


def case_settings_from_before_connect_stay() -> None:
    with listener() as listens, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 100_000))
        os.set_inheritable(client.fileno(), True)
        client.connect(listens.getsockname())
        assert os.get_inheritable(client.fileno())
        raises(errno.EAGAIN, lambda: client.recv(1))


def case_a_reader_that_waits_stops_the_writer() -> None:
    with connected() as (client, server):
        client.setblocking(False)
        sent = 0
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < 0.5:
            try:
                sent += client.send(bytes(65536))
                quiet_since = time.monotonic()
            except BlockingIOError:
                time.sleep(0.02)
            assert sent < 64 << 20
        received = 0
        while received < sent:
            received += len(server.recv(1 << 20))
        assert select.select([], [client], [], TIMEOUT_S)[1]


def case_peek_and_number_of_unread_bytes() -> None:
    with connected() as (client, server):
        client.sendall(b"12345")
        assert select.select([server], [], [], TIMEOUT_S)[0]
        assert server.recv(3, socket.MSG_PEEK) == b"123"
        unread = array.array("i", [0])
        fcntl.ioctl(server, termios.FIONREAD, unread)
        assert unread[0] == 5


def case_asyncio_with_an_end_in_the_middle() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read())[::-1])
        writer.write_eof()
        await writer.drain()
        writer.close()

    async def talk() -> None:
        server = await asyncio.start_server(serve, HOST, 0)
        async with server:
            for _ in range(5):
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                writer.write(b"abc" * 50_000)
                writer.write_eof()
                assert await reader.read() == b"cba" * 50_000
                writer.close()

    asyncio.run(asyncio.wait_for(talk(), TIMEOUT_S))


def case_children_inherit_and_execute() -> None:
    with connected() as (client, server):
        os.set_inheritable(client.fileno(), True)
        code = f"import os; os.write({client.fileno()}, os.read({client.fileno()}, 100)[::-1])"
        server.sendall(b"stressed")
        subprocess.run([sys.executable, "-c", code], close_fds=False, check=True, timeout=TIMEOUT_S)
        assert server.recv(100) == b"desserts"


def case_processes_that_accept_from_one_listener() -> None:
    """Prefork: each process waits with EPOLLEXCLUSIVE."""
    with listener() as listens:
        listens.setblocking(False)
        children = []
        for _ in range(3):
            child = os.fork()
            children.append(child)
            if child == 0:
                with select.epoll() as waits:
                    waits.register(listens, select.EPOLLIN | select.EPOLLEXCLUSIVE)
                    while True:
                        waits.poll(TIMEOUT_S)
                        with suppress(BlockingIOError):
                            server, _ = listens.accept()
                            with server:
                                server.setblocking(True)
                                server.sendall(server.recv(100))
        try:
            for number in range(30):
                with socket.create_connection(listens.getsockname(), TIMEOUT_S) as client:
                    client.sendall(b"%d" % number)
                    assert client.recv(100) == b"%d" % number
        finally:
            for child in children:
                os.kill(child, 9)
                os.waitpid(child, 0)


def case_two_listeners_on_one_port() -> None:
    """SO_REUSEPORT: either gets the connection."""
    with socket.socket() as first, socket.socket() as second:
        for listens in (first, second):
            listens.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listens.bind((HOST, 0 if listens is first else first.getsockname()[1]))
            listens.listen()
        for _ in range(10):
            with socket.create_connection(first.getsockname(), TIMEOUT_S) as client:
                ready = select.select([first, second], [], [], TIMEOUT_S)[0]
                server, _ = ready[0].accept()
                with server:
                    client.sendall(b"x")
                    assert server.recv(10) == b"x"


def case_listener_closed_and_opened_again() -> None:
    with listener() as listens:
        name = listens.getsockname()
        with socket.create_connection(name, TIMEOUT_S), listens.accept()[0]:
            pass
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(name)
        again.listen()
        with socket.create_connection(name, TIMEOUT_S) as client:
            server, _ = again.accept()
            with server:
                client.sendall(b"x")
                assert server.recv(10) == b"x"


def case_connection_that_is_never_accepted_is_lost() -> None:
    with listener() as listens:
        client = socket.create_connection(listens.getsockname(), TIMEOUT_S)
    with client:
        client.settimeout(TIMEOUT_S)
        raises(errno.ECONNRESET, lambda: client.recv(1))


def case_many_connections_at_once() -> None:
    with listener() as listens:
        clients = [socket.create_connection(listens.getsockname(), TIMEOUT_S) for _ in range(30)]
        servers = [listens.accept()[0] for _ in clients]
        by_name = {server.getpeername(): server for server in servers}
        for number, client in enumerate(clients):
            client.sendall(b"%d" % number)
            assert by_name[client.getsockname()].recv(10) == b"%d" % number
        for end in (*clients, *servers):
            end.close()


def tcp_connections() -> list[str]:
    """Return the TCP connections of this network namespace that are up."""
    with open("/proc/net/tcp") as v4, open("/proc/net/tcp6") as v6:
        return [line for line in (*v4, *v6) if line.split()[3] == "01"]


def main() -> None:
    for name, case in list(globals().items()):
        if name.startswith("case_"):
            began = time.monotonic()
            try:
                case()
                error = None
            except Exception:
                error = traceback.format_exc()
            took_ms = round((time.monotonic() - began) * 1000)
            print(json.dumps({"case": name, "error": error, "took_ms": took_ms}), flush=True)
    if sys.argv[1:] == ["sctp"]:
        with connected():
            print(json.dumps({"case": "no_tcp", "error": "\n".join(tcp_connections()) or None}), flush=True)


if __name__ == "__main__":
    main()
