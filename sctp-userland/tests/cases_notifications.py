"""Notifications, and what can be asked about associations."""

import errno
import socket
import struct

from sctp_api import (
    ABORT,
    ADAPTATION_INDICATION,
    ADDR_CONFIRMED,
    ASSOC_CHANGE,
    COMM_LOST,
    COMM_UP,
    PATH_ACTIVE,
    PEER_ADDR_CHANGE,
    SCTP_ADAPTATION_LAYER,
    SCTP_DEFAULT_SNDINFO,
    SCTP_EVENT,
    SCTP_EVENTS,
    SCTP_GET_ASSOC_ID_LIST,
    SCTP_GET_ASSOC_NUMBER,
    SEND_FAILED,
    SEND_FAILED_HEADER,
    SHUTDOWN_COMP,
    SNDINFO,
    SOL_SCTP,
    UNORDERED,
    Received,
    associated,
    bindx,
    expect,
    get_option,
    listener,
    one_to_many,
    one_to_one,
    path_state,
    readable,
    receive,
    receive_data,
    receive_notification,
    send,
    subscribe,
)


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


def case_one_event_chosen() -> None:
    """SCTP_EVENT (RFC 6458, section 6.2.2) beside the older SCTP_EVENTS."""
    with one_to_many(events=False) as server, one_to_many(events=False) as client:
        server.setsockopt(SOL_SCTP, SCTP_EVENT, struct.pack("=iHBx", 0, ASSOC_CHANGE, 1))
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        client.sendto(b"x", server.getsockname())
        assert receive(server).state == COMM_UP
        data = receive(server)
        assert (data.data, data.is_notification) == (b"x", False)
        client.close()
        assert receive(server).state == SHUTDOWN_COMP


def case_unsent_messages_come_back() -> None:
    """SEND_FAILED for each message that the end of the association left unsent, with its text."""
    with associated() as (client, to_server, server, to_client):
        subscribe(client, data_io=True, association=True, send_failure=True)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10000)
        client.setblocking(False)
        sent = 0
        try:
            while sent < 20000:
                send(client, b"%09d" % sent + b"x" * 1000, association=to_server, ppid=7)
                sent += 1
        except BlockingIOError:
            pass
        send(server, b"", flags=ABORT, association=to_client)
        lost = False
        failed: list[Received] = []
        while not lost or readable(client, 1):
            got = receive(client)
            if got.notification == SEND_FAILED:
                failed.append(got)
            elif got.notification == ASSOC_CHANGE:
                assert got.state == COMM_LOST
                lost = True
        assert 0 < len(failed) <= sent
        numbers = {int(got.data[SEND_FAILED_HEADER : SEND_FAILED_HEADER + 9]) for got in failed}
        assert len(numbers) == len(failed)
        assert sent - 1 in numbers


def case_second_address_is_confirmed() -> None:
    with one_to_many() as server, one_to_many() as client:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        bindx(server, [("127.0.0.2", port)])
        server.listen(1)
        subscribe(client, data_io=True, association=True, address=True)
        send(client, b"x", to=("127.0.0.1", port))
        assert receive_data(server).data == b"x"
        while True:
            got = receive(client, timeout_s=10)
            if got.notification == PEER_ADDR_CHANGE and got.changed_address == (ADDR_CONFIRMED, "127.0.0.2"):
                break


def case_list_of_associations() -> None:
    with one_to_many() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(4)
        assert server.getsockopt(SOL_SCTP, SCTP_GET_ASSOC_NUMBER) == 0
        clients = [one_to_many() for _ in range(3)]
        for client in clients:
            send(client, b"x", to=server.getsockname())
        identifiers = sorted(receive_data(server).association for _ in clients)
        assert server.getsockopt(SOL_SCTP, SCTP_GET_ASSOC_NUMBER) == 3
        answer = get_option(server, SCTP_GET_ASSOC_ID_LIST, bytes(4 + 4 * 8))
        count, *found = struct.unpack_from("=I3I", answer)
        assert (count, sorted(found)) == (3, identifiers)
        for client in clients:
            client.close()


def case_path_information() -> None:
    with associated() as (client, association, server, _):
        name = server.getsockname()
        assert path_state(client, association, name) == PATH_ACTIVE
        expect(errno.EINVAL, path_state, client, association, ("127.0.0.9", name[1]))


def case_default_send_information() -> None:
    with associated() as (client, to_server, server, _):
        chosen = SNDINFO.pack(3, UNORDERED, socket.htonl(88), 0, to_server)
        client.setsockopt(SOL_SCTP, SCTP_DEFAULT_SNDINFO, chosen)
        asked = SNDINFO.pack(0, 0, 0, 0, to_server)
        assert get_option(client, SCTP_DEFAULT_SNDINFO, asked) == chosen
        client.sendto(b"x", server.getsockname())
        got = receive_data(server)
        assert (got.stream, got.ppid, got.unordered) == (3, 88, True)


def case_no_room_for_ancillary_data() -> None:
    with associated() as (client, to_server, server, _):
        send(client, b"x", association=to_server)
        assert readable(server, 5)
        data, ancillary, flags, _ = server.recvmsg(100, 0)
        assert (data, ancillary) == (b"x", [])
        assert flags & socket.MSG_CTRUNC


def case_adaptation_of_the_peer() -> None:
    """Both say what they speak above (RFC 5061, section 4.2.6)."""
    with one_to_many() as server, one_to_many() as client:
        for sock, adaptation in ((server, 5), (client, 6)):
            sock.setsockopt(SOL_SCTP, SCTP_ADAPTATION_LAYER, adaptation)
            subscribe(sock, data_io=True, association=True, adaptation=True)
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        send(client, b"x", to=server.getsockname())
        for sock, adaptation in ((server, 6), (client, 5)):
            got = receive_notification(sock, ADAPTATION_INDICATION)
            assert struct.unpack_from("=II", got.data, 4) == (16, adaptation)
            assert got.data[12:16] != bytes(4)
