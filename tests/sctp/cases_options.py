"""Socket options, and event loops."""

import asyncio
import errno
import select
import socket
import struct
import time

from cases_one_to_one import expect  # type: ignore[import-not-found, unused-ignore]
from sctp_api import (  # type: ignore[import-not-found, unused-ignore]
    COMM_UP,
    PATH_PARAMETERS,
    SCTP_ASSOCINFO,
    SCTP_DELAYED_SACK,
    SCTP_EVENTS,
    SCTP_INITMSG,
    SCTP_MAXSEG,
    SCTP_PEER_ADDR_PARAMS,
    SCTP_RTOINFO,
    SOL_SCTP,
    addresses_of,
    associated,
    connected,
    get_option,
    listener,
    one_to_many,
    one_to_one,
    receive,
    receive_data,
    send,
    subscribe,
)

HEARTBEAT_ENABLE, SACK_DELAY_ENABLE = 1, 32


def case_rtoinfo_of_a_socket() -> None:
    with one_to_one() as sock:
        sock.setsockopt(SOL_SCTP, SCTP_RTOINFO, struct.pack("=iIII", 0, 100, 300, 50))
        assert sock.getsockopt(SOL_SCTP, SCTP_RTOINFO, 16) == struct.pack("=iIII", 0, 100, 300, 50)


def case_rtoinfo_of_an_association() -> None:
    with associated() as (client, association, _, _):
        client.setsockopt(SOL_SCTP, SCTP_RTOINFO, struct.pack("=iIII", association, 0, 400, 60))
        answer = get_option(client, SCTP_RTOINFO, struct.pack("=iIII", association, 0, 0, 0))
        assert struct.unpack("=iIII", answer)[2:] == (400, 60)


def case_associnfo() -> None:
    with associated() as (client, association, _, _):
        client.setsockopt(SOL_SCTP, SCTP_ASSOCINFO, struct.pack("=iHHIII", association, 4, 0, 0, 0, 0))
        answer = get_option(client, SCTP_ASSOCINFO, struct.pack("=iHHIII", association, 0, 0, 0, 0, 0))
        same, retransmissions, destinations, peer_window, own_window, cookie_ms = struct.unpack(
            "=iHHIII", answer
        )
        assert (same, retransmissions, destinations) == (association, 4, 1)
        assert peer_window > 0
        assert own_window > 0
        assert cookie_ms > 0


def case_initmsg() -> None:
    with one_to_one() as sock:
        sock.setsockopt(SOL_SCTP, SCTP_INITMSG, struct.pack("=HHHH", 7, 9, 3, 500))
        assert struct.unpack("=HHHH", sock.getsockopt(SOL_SCTP, SCTP_INITMSG, 8)) == (7, 9, 3, 500)


def case_peer_address_parameters() -> None:
    with associated() as (client, association, server, _):
        port = server.getsockname()[1]
        address = struct.pack("=HH4s", socket.AF_INET, socket.htons(port), socket.inet_aton("127.0.0.1"))
        client.setsockopt(
            SOL_SCTP,
            SCTP_PEER_ADDR_PARAMS,
            PATH_PARAMETERS.pack(association, address, 1500, 3, 0, 0, HEARTBEAT_ENABLE, 0, 0),
        )
        answer = get_option(
            client, SCTP_PEER_ADDR_PARAMS, PATH_PARAMETERS.pack(association, address, 0, 0, 0, 0, 0, 0, 0)
        )
        fields = PATH_PARAMETERS.unpack(answer[: PATH_PARAMETERS.size])
        assert (fields[2], fields[3]) == (1500, 3)
        assert fields[6] & HEARTBEAT_ENABLE


def case_parameters_of_all_paths() -> None:
    """Without an address they are for the whole association."""
    with associated() as (client, association, _, _):
        none = bytes(128)
        client.setsockopt(
            SOL_SCTP,
            SCTP_PEER_ADDR_PARAMS,
            PATH_PARAMETERS.pack(association, none, 1700, 4, 0, 0, HEARTBEAT_ENABLE, 0, 0),
        )
        answer = get_option(
            client, SCTP_PEER_ADDR_PARAMS, PATH_PARAMETERS.pack(association, none, 0, 0, 0, 0, 0, 0, 0)
        )
        fields = PATH_PARAMETERS.unpack(answer[: PATH_PARAMETERS.size])
        assert (fields[2], fields[3]) == (1700, 4)


def case_delayed_sack() -> None:
    with one_to_one() as sock:
        sock.setsockopt(SOL_SCTP, SCTP_DELAYED_SACK, struct.pack("=iII", 0, 20, 0))
        assert struct.unpack("=iII", sock.getsockopt(SOL_SCTP, SCTP_DELAYED_SACK, 12))[1] == 20


def case_maxseg() -> None:
    with one_to_many() as sock:
        sock.setsockopt(SOL_SCTP, SCTP_MAXSEG, struct.pack("=iI", 0, 1000))
        assert struct.unpack("=iI", sock.getsockopt(SOL_SCTP, SCTP_MAXSEG, 8))[1] == 1000


def case_buffer_sizes_are_doubled() -> None:
    with one_to_one() as sock:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, 50000)
            assert sock.getsockopt(socket.SOL_SOCKET, option) == 100000


def case_linger_can_be_read_back() -> None:
    with one_to_one() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 7))
        assert struct.unpack("ii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)) == (1, 7)


def case_unknown_option() -> None:
    with one_to_one() as sock:
        expect(errno.ENOPROTOOPT, sock.setsockopt, SOL_SCTP, 9999, 1)
        expect(errno.ENOPROTOOPT, sock.getsockopt, SOL_SCTP, 9999)


def case_short_option() -> None:
    with one_to_one() as sock:
        expect(errno.EINVAL, sock.setsockopt, SOL_SCTP, SCTP_RTOINFO, b"xx")


def case_events_are_inherited() -> None:
    with listener() as waiting, one_to_one() as client:
        subscribe(waiting, data_io=True, association=True)
        client.connect(waiting.getsockname())
        server, _ = waiting.accept()
        with server:
            assert server.getsockopt(SOL_SCTP, SCTP_EVENTS, 3) == bytes([1, 1, 0])
            assert receive(server).state == COMM_UP
            send(client, b"x", ppid=42)
            assert receive_data(server).ppid == 42


def case_connect_again_after_refusal() -> None:
    with listener() as waiting, one_to_one() as client:
        expect(errno.ECONNREFUSED, client.connect, ("127.0.0.1", 9))
        client.connect(waiting.getsockname())
        server, _ = waiting.accept()
        with server:
            client.send(b"second try")
            assert server.recv(100) == b"second try"
            server.send(b"answer")
            assert client.recv(100) == b"answer"


def case_hang_up_is_polled() -> None:
    with connected() as (client, server), select.epoll() as poll:
        poll.register(server, select.EPOLLIN | select.EPOLLRDHUP)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        events = dict(poll.poll(5))[server.fileno()]
        assert events, "nothing woke it"
        expect(errno.ECONNRESET, server.recv, 10)


def case_asyncio() -> None:
    async def talk() -> None:
        loop = asyncio.get_running_loop()
        with listener() as waiting, one_to_one() as client:
            for sock in (waiting, client):
                sock.setblocking(False)
            accepting = asyncio.create_task(loop.sock_accept(waiting))
            await loop.sock_connect(client, waiting.getsockname())
            server, _ = await accepting
            with server:
                for number in range(50):
                    await loop.sock_sendall(client, b"%d" % number)
                    assert await loop.sock_recv(server, 100) == b"%d" % number
                client.close()
                assert await loop.sock_recv(server, 100) == b""

    asyncio.run(asyncio.wait_for(talk(), 20))


def case_asyncio_refused() -> None:
    async def talk() -> None:
        with one_to_one() as client:
            client.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", 9))
            except ConnectionRefusedError:
                return
            raise AssertionError("not refused")

    asyncio.run(asyncio.wait_for(talk(), 20))


def case_add_reader() -> None:
    async def talk() -> None:
        loop, got = asyncio.get_running_loop(), asyncio.Event()
        with associated() as (client, association, server, _):
            loop.add_reader(server, got.set)
            await asyncio.sleep(0.05)
            assert not got.is_set()
            send(client, b"x", association=association)
            await asyncio.wait_for(got.wait(), 5)
            loop.remove_reader(server)
            assert receive_data(server).data == b"x"

    asyncio.run(talk())


def case_long_notification_in_parts() -> None:
    with one_to_many() as server, one_to_many() as client:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        send(client, b"x", to=server.getsockname())
        first = receive(server, room=8)
        assert first.is_notification
        assert not first.flags & socket.MSG_EOR
        rest = receive(server, room=100)
        assert rest.is_notification
        assert len(rest.data) == 12
        assert rest.flags & socket.MSG_EOR
        assert receive(server).data == b"x"


def case_two_sockets_on_one_port() -> None:
    """Different addresses, the same port: each gets its own."""
    with one_to_many() as first, one_to_many() as second, one_to_many() as client:
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        second.bind(("127.0.0.2", port))
        for sock in (first, second):
            sock.listen(1)
        send(client, b"to the second", to=("127.0.0.2", port))
        assert receive_data(second).data == b"to the second"
        send(client, b"to the first", to=("127.0.0.1", port))
        assert receive_data(first).data == b"to the first"


def case_listening_port_with_equal_client_port() -> None:
    """Both ends use the same port number, on two addresses."""
    with one_to_many() as first, one_to_many() as second:
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        second.bind(("127.0.0.2", port))
        for sock in (first, second):
            sock.listen(5)
        send(first, b"from the first", to=("127.0.0.2", port))
        got = receive_data(second)
        assert (got.data, got.address) == (b"from the first", ("127.0.0.1", port))
        send(second, b"back", association=got.association)
        assert receive_data(first).address == ("127.0.0.2", port)


def case_time_to_live() -> None:
    with connected() as (client, server):
        send(client, b"soon", time_to_live_ms=5000)
        started = time.monotonic()
        assert receive(server).data == b"soon"
        assert time.monotonic() - started < 5


def case_ipv4_seen_by_an_ipv6_socket() -> None:
    """IPv4 peers have mapped addresses there, in and out."""
    with one_to_many(socket.AF_INET6) as server, one_to_many() as client:
        server.bind(("::", 0))
        server.listen(1)
        send(client, b"x", to=("127.0.0.1", server.getsockname()[1]))
        got = receive_data(server)
        assert got.address is not None
        assert got.address[0] == "::ffff:127.0.0.1"
        server.sendto(b"y", got.address)
        assert receive_data(client).data == b"y"
        assert addresses_of(server, got.association, peer=True)[0][0] == "::ffff:127.0.0.1"


def case_mapped_address_connects() -> None:
    with listener() as waiting, one_to_one(socket.AF_INET6) as client:
        client.connect(("::ffff:127.0.0.1", waiting.getsockname()[1]))
        server, _ = waiting.accept()
        with server:
            assert client.getpeername()[0] == "::ffff:127.0.0.1"
            client.send(b"x")
            assert server.recv(10) == b"x"


def case_name_of_a_connected_wildcard_socket() -> None:
    with one_to_one() as waiting, one_to_one() as client:
        waiting.bind(("0.0.0.0", 0))
        waiting.listen(1)
        client.connect(("127.0.0.1", waiting.getsockname()[1]))
        server, _ = waiting.accept()
        with server:
            assert client.getsockname()[0] == "127.0.0.1"
            assert server.getsockname()[0] == "127.0.0.1"
