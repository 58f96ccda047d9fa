"""One-to-many sockets (SOCK_SEQPACKET)."""

import errno
import socket
import struct
import threading
import time

from sctp_api import (
    ABORT,
    ASSOC_CHANGE,
    CANT_START,
    CMSG_SNDINFO,
    COMM_LOST,
    COMM_UP,
    EOF,
    ESTABLISHED,
    SCTP_DEFAULT_SEND_PARAM,
    SCTP_EVENTS,
    SCTP_NODELAY,
    SCTP_RECVRCVINFO,
    SCTP_STATUS,
    SHUTDOWN_COMP,
    SNDINFO,
    SNDRCV,
    SOL_SCTP,
    addresses_of,
    associated,
    bindx,
    connectx,
    expect,
    get_option,
    loopback,
    one_to_many,
    one_to_one,
    peeloff,
    readable,
    receive,
    receive_change,
    receive_data,
    send,
    subscribe,
)


def echo(family: int) -> None:
    with associated(family) as (client, to_server, server, to_client):
        for number in range(100):
            send(client, b"%d" % number, association=to_server, ppid=11)
            got = receive_data(server)
            assert (got.data, got.ppid, got.association) == (b"%d" % number, 11, to_client)
            send(server, got.data, association=got.association, ppid=12)
            assert receive_data(client).ppid == 12


def case_echo_ipv4() -> None:
    echo(socket.AF_INET)


def case_echo_ipv6() -> None:
    echo(socket.AF_INET6)


def case_streams_in_the_order_of_sending() -> None:
    """Messages that wait for the association, on several streams, ordered and not."""
    with one_to_many() as server, one_to_many() as client:
        server.bind((loopback(socket.AF_INET), 0))
        server.listen(5)
        sent = [(b"%d" % number, (0, 3, 1, 0, 2, 3, 0, 1)[number]) for number in range(8)]
        for data, stream in sent:
            send(client, data, to=server.getsockname(), stream=stream, flags=int(stream == 1))
        assert [receive_data(server).data for _ in sent] == [data for data, _ in sent]


def case_sender_address() -> None:
    with associated() as (client, to_server, server, _):
        send(client, b"x", association=to_server)
        assert receive_data(server).address == ("127.0.0.1", client.getsockname()[1])


def case_reply_by_address() -> None:
    with associated() as (client, to_server, server, _):
        send(client, b"x", association=to_server)
        got = receive_data(server)
        assert got.address is not None
        server.sendto(b"y", got.address)
        assert receive_data(client).data == b"y"


def case_association_up_is_notified() -> None:
    with one_to_many() as server, one_to_many() as client:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        send(client, b"x", to=server.getsockname())
        for sock in (server, client):
            got = receive(sock)
            assert (got.notification, got.state) == (ASSOC_CHANGE, COMM_UP)
            assert len(got.data) == 20
            assert got.flags & socket.MSG_EOR
        assert receive(server).data == b"x"


def case_no_events_by_default() -> None:
    with one_to_many(events=False) as server, one_to_many(events=False) as client:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        client.sendto(b"x", server.getsockname())
        data, ancillary, flags, _ = server.recvmsg(100, 1000)
        assert (data, ancillary, flags) == (b"x", [], socket.MSG_EOR)


def case_events_can_be_read_back() -> None:
    with one_to_many(events=False) as sock:
        sock.setsockopt(SOL_SCTP, SCTP_EVENTS, bytes([1, 1, 0, 1, 0, 1, 0, 0]))
        assert sock.getsockopt(SOL_SCTP, SCTP_EVENTS, 8) == bytes([1, 1, 0, 1, 0, 1, 0, 0])


def case_empty_message() -> None:
    with associated() as (client, to_server, _, _):
        expect(errno.EINVAL, lambda: send(client, b"", association=to_server))


def case_default_send_parameters() -> None:
    with associated() as (client, to_server, server, _):
        chosen = SNDRCV.pack(4, 0, 0, socket.htonl(77), 0, 0, 0, 0, to_server)
        client.setsockopt(SOL_SCTP, SCTP_DEFAULT_SEND_PARAM, chosen)
        asked = SNDRCV.pack(0, 0, 0, 0, 0, 0, 0, 0, to_server)
        assert get_option(client, SCTP_DEFAULT_SEND_PARAM, asked) == chosen
        client.sendto(b"x", ("127.0.0.1", server.getsockname()[1]))
        got = receive_data(server)
        assert (got.stream, got.ppid) == (4, 77)


def case_sndinfo_and_rcvinfo() -> None:
    with associated() as (client, to_server, server, to_client):
        subscribe(server, association=True)
        server.setsockopt(SOL_SCTP, SCTP_RECVRCVINFO, 1)
        information = SNDINFO.pack(2, 0, socket.htonl(99), 0, to_server)
        client.sendmsg([b"x"], [(SOL_SCTP, CMSG_SNDINFO, information)])
        got = receive_data(server)
        assert (got.data, got.stream, got.ppid, got.association) == (b"x", 2, 99, to_client)


def case_status() -> None:
    began_s = time.monotonic()
    with associated() as (client, association, server, _):
        answer = get_option(client, SCTP_STATUS, struct.pack("=i", association) + bytes(172))
        fields = struct.unpack_from("=iiIHHHHI", answer)
        assert len(answer) == 176
        assert fields[:2] == (association, ESTABLISHED)
        assert fields[2] > 0
        path_association, family, port = struct.unpack_from("=iHH", answer, 24)
        assert path_association == association
        assert (family, socket.ntohs(port)) == (socket.AF_INET, server.getsockname()[1])
        state, window, round_trip, timeout, mtu = struct.unpack_from("=iIIII", answer, 24 + 4 + 128)
        assert state == 2
        assert window > 0
        assert timeout > 0
        assert mtu >= 1280
        # None was longer than all of this took; a kernel counts by its tick, 10 ms at most.
        assert round_trip <= (time.monotonic() - began_s) * 1000 + 10


def case_status_of_unknown_association() -> None:
    with associated() as (client, association, _, _):
        expect(
            errno.EINVAL, get_option, client, SCTP_STATUS, struct.pack("=i", association + 1000) + bytes(172)
        )


def case_connect_opens_an_association() -> None:
    with one_to_many() as server, one_to_many() as client:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        client.connect(server.getsockname())
        assert receive(client).state == COMM_UP


def case_connect_refused() -> None:
    with one_to_many() as client:
        expect(errno.ECONNREFUSED, client.connect, ("127.0.0.1", 9))


def case_refused_is_no_error_of_the_socket() -> None:
    """connect() tells it if it waits, and a notification."""
    for blocking in (True, False):
        with one_to_many() as client:
            client.setblocking(blocking)
            expect(errno.ECONNREFUSED if blocking else errno.EINPROGRESS, client.connect, ("127.0.0.1", 9))
            receive_change(client, CANT_START)
            assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            expect(errno.EPIPE, client.send, b"x", socket.MSG_NOSIGNAL)


def case_refused_while_another_thread_asks() -> None:
    """Questions about options don't take the error that connect() waits for."""
    done, told = threading.Event(), set()
    with one_to_many(events=False) as client:

        def ask() -> None:
            while not done.is_set():
                client.getsockopt(SOL_SCTP, SCTP_NODELAY)
                told.add(client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            for _ in range(50):
                expect(errno.ECONNREFUSED, client.connect, ("127.0.0.1", 9))
        finally:
            done.set()
            thread.join()
    assert told == {0}


def case_no_backlog() -> None:
    """listen(0) ends listening, and is an error where nobody listens."""
    with one_to_many() as server, one_to_one() as client:
        server.bind(("127.0.0.1", 0))
        expect(errno.EINVAL, server.listen, 0)
        server.listen(5)
        server.listen(0)
        expect(errno.EINVAL, server.listen, 0)
        expect(errno.ECONNREFUSED, client.connect, server.getsockname())


def case_connectx() -> None:
    with one_to_many() as server, one_to_many() as client:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        association = connectx(client, [server.getsockname()])
        assert association != 0
        assert receive_change(client, COMM_UP).changed_association == association
        send(client, b"x", association=association)
        assert receive_data(server).data == b"x"


def case_bindx_and_address_lists() -> None:
    with one_to_many() as server, one_to_many() as client:
        bindx(server, [("127.0.0.1", 0)])
        port = server.getsockname()[1]
        bindx(server, [("127.0.0.2", port)])
        server.listen(1)
        assert sorted(addresses_of(server, peer=False)) == [("127.0.0.1", port), ("127.0.0.2", port)]
        association = connectx(client, [("127.0.0.1", port)])
        receive_change(client, COMM_UP)
        assert sorted(addresses_of(client, association, peer=True)) == [
            ("127.0.0.1", port),
            ("127.0.0.2", port),
        ]
        send(client, b"x", association=association)
        assert receive_data(server).data == b"x"


def case_calls_for_one_to_one_only() -> None:
    with one_to_many() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        expect(errno.EOPNOTSUPP, server.accept)
        server.shutdown(socket.SHUT_WR)  # without effect
        expect(errno.ENOTCONN, server.getpeername)


def case_not_listening_refuses() -> None:
    with one_to_many() as deaf, one_to_one() as client:
        deaf.bind(("127.0.0.1", 0))
        expect(errno.ECONNREFUSED, client.connect, deaf.getsockname())


def case_several_clients() -> None:
    with one_to_many() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(16)
        clients = [one_to_many() for _ in range(10)]
        for number, client in enumerate(clients):
            send(client, b"%d" % number, to=server.getsockname())
        seen = {}
        for _ in clients:
            got = receive_data(server)
            seen[got.data] = got.association
        assert len(set(seen.values())) == 10
        for number, client in enumerate(clients):
            send(server, b"to %d" % number, association=seen[b"%d" % number])
            assert receive_data(client).data == b"to %d" % number
            client.close()


def case_many_messages() -> None:
    count = 2000
    with associated() as (client, to_server, server, _):

        def write() -> None:
            for number in range(count):
                send(client, b"%d" % number, association=to_server)

        thread = threading.Thread(target=write)
        thread.start()
        for number in range(count):
            assert receive_data(server).data == b"%d" % number
        thread.join(10)
        assert not readable(server, 0.05)


def case_address_family() -> None:
    with one_to_many(socket.AF_INET6) as server, one_to_many(socket.AF_INET6) as client:
        server.bind((loopback(socket.AF_INET6), 0))
        server.listen(1)
        send(client, b"x", to=server.getsockname())
        got = receive_data(server)
        assert got.address is not None
        assert got.address[0] == "::1"


def case_many_messages_to_two_peers_one_of_which_reads_late() -> None:
    """Each gets all of its own, in order, named by identifier and by address."""
    count = 200
    with one_to_many() as client, one_to_many() as prompt, one_to_many() as late:
        for server in (prompt, late):
            server.bind((loopback(socket.AF_INET), 0))
            server.listen(5)
            send(client, b"open", to=server.getsockname())
            assert receive_data(server).data == b"open"
        receive_change(client, COMM_UP)
        to_late = receive_change(client, COMM_UP).changed_association

        def write() -> None:
            for number in range(count):
                send(client, b"%d" % number + bytes(5000), association=to_late)
                send(client, b"%d" % number + bytes(5000), to=prompt.getsockname())

        def read(server: socket.socket) -> None:
            for number in range(count):
                got[server].append(receive_data(server).data == b"%d" % number + bytes(5000))

        got: dict[socket.socket, list[bool]] = {prompt: [], late: []}
        threads = [threading.Thread(target=write), threading.Thread(target=read, args=(prompt,))]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        read(late)
        for thread in threads:
            thread.join()
        assert got == {server: [True] * count for server in (prompt, late)}


def case_messages_sent_just_before_peeling_off_come_first() -> None:
    with associated() as (client, to_server, server, to_client):
        for number in range(50):
            send(client, b"%d" % number, association=to_server)
        with peeloff(client, to_server) as peeled:
            for number in range(50, 100):
                send(peeled, b"%d" % number)
            for number in range(100):
                assert receive_data(server).data == b"%d" % number
            send(server, b"back", association=to_client)
            assert receive_data(peeled).data == b"back"
            assert send_error(client, to_server) in (errno.EPIPE, errno.EINVAL)


def case_sends_after_the_association_ended_fail_at_once() -> None:
    """However many went before, named by identifier; another peer's association stays."""
    with one_to_many() as other, associated() as (client, to_server, server, to_client):
        other.bind((loopback(socket.AF_INET), 0))
        other.listen(5)
        for end, state in ((ABORT, COMM_LOST), (EOF, SHUTDOWN_COMP)):
            for number in range(20):
                send(client, b"%d" % number, association=to_server)
                send(client, b"other %d" % number, to=other.getsockname())
                assert receive_data(server).data == b"%d" % number
                assert receive_data(other).data == b"other %d" % number
            send(server, b"", association=to_client, flags=end)
            receive_change(client, state)
            assert send_error(client, to_server) in (errno.EPIPE, errno.EINVAL)
            send(client, b"still there", to=other.getsockname())
            assert receive_data(other).data == b"still there"
            send(client, b"again", to=server.getsockname())
            got = receive_data(server)
            to_client = got.association
            to_server = receive_change(client, COMM_UP).changed_association


def send_error(sock: socket.socket, association: int) -> int:
    """Return the errno of a send; 0: it was taken."""
    try:
        send(sock, b"x", association=association)
    except OSError as error:
        return error.errno or 0
    return 0
