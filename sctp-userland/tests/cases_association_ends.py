"""How associations of one-to-many sockets end, what is told of it, and what is sent to one that is none."""

import errno
import socket
import struct

from sctp_api import (
    ABORT,
    ASSOC_CHANGE_HEADER,
    CANT_START,
    COMM_LOST,
    EOF,
    SCTP_AUTOCLOSE,
    SHUTDOWN_COMP,
    SHUTDOWN_EVENT,
    SOL_SCTP,
    USER_INITIATED_ABORT,
    associated,
    expect,
    one_to_many,
    receive,
    receive_change,
    receive_data,
    send,
    subscribe,
)


def case_refused_is_notified() -> None:
    with one_to_many() as client:
        send(client, b"x", to=("127.0.0.1", 9))
        refused = receive_change(client, CANT_START)
        assert len(refused.data) == ASSOC_CHANGE_HEADER


def case_close_is_notified() -> None:
    with associated() as (client, _, server, association):
        client.close()
        assert receive_change(server, SHUTDOWN_COMP).changed_association == association


def case_shutdown_event() -> None:
    with associated() as (client, to_server, server, _):
        subscribe(server, data_io=True, association=True, shutdown=True)
        send(client, b"", flags=EOF, association=to_server)
        assert receive(server).notification == SHUTDOWN_EVENT
        receive_change(server, SHUTDOWN_COMP)
        receive_change(client, SHUTDOWN_COMP)


def case_abort_is_notified() -> None:
    with associated() as (client, to_server, server, association):
        send(client, b"", flags=ABORT, association=to_server)
        assert receive_change(server, COMM_LOST).changed_association == association


def case_abort_with_reason() -> None:
    with associated() as (client, to_server, server, _):
        send(client, b"reason", flags=ABORT, association=to_server)
        lost = receive_change(server, COMM_LOST).data
        length, error, outward, inward = struct.unpack_from("=I2xHHH", lost, 4)
        assert length == len(lost)
        assert (socket.ntohs(error), outward, inward) == (USER_INITIATED_ABORT, 0, 0)
        assert lost[ASSOC_CHANGE_HEADER:] == struct.pack(">HH", USER_INITIATED_ABORT, 10) + b"reason"


def case_abort_without_a_reason() -> None:
    with associated() as (client, to_server, server, _):
        send(client, b"", flags=ABORT, association=to_server)
        lost = receive_change(server, COMM_LOST).data
        assert lost[ASSOC_CHANGE_HEADER:] == struct.pack(">HH", USER_INITIATED_ABORT, 4)


def case_unknown_association() -> None:
    with associated() as (client, to_server, _, _):
        expect(
            errno.EPIPE,
            lambda: send(client, b"x", association=to_server + 1000, socket_flags=socket.MSG_NOSIGNAL),
        )


def case_send_to_ended_association() -> None:
    with associated() as (client, _, server, to_client):
        client.close()
        receive_change(server, SHUTDOWN_COMP)
        expect(
            errno.EPIPE, lambda: send(server, b"x", association=to_client, socket_flags=socket.MSG_NOSIGNAL)
        )


def case_end_with_data() -> None:
    with associated() as (client, to_server, _, _):
        expect(errno.EINVAL, lambda: send(client, b"x", flags=EOF, association=to_server))


def case_autoclose() -> None:
    """An idle association is closed in order by the side that asked for it; another one stays."""
    with one_to_many() as closing, one_to_many() as staying, one_to_many() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(5)
        closing.setsockopt(SOL_SCTP, SCTP_AUTOCLOSE, 1)
        associations = {}
        for sock, name in ((closing, b"closing"), (staying, b"staying")):
            send(sock, name, to=server.getsockname())
            associations[name] = receive_data(server).association
        assert receive_change(server, SHUTDOWN_COMP).changed_association == associations[b"closing"]
        receive_change(closing, SHUTDOWN_COMP)
        send(server, b"still there", association=associations[b"staying"])
        assert receive_data(staying).data == b"still there"
