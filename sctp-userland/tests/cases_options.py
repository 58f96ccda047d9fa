"""Socket options."""

import contextlib
import errno
import socket
import struct
import time

from sctp_api import (
    ASSOC_CHANGE,
    PATH_PARAMETERS,
    SCTP_ASSOCINFO,
    SCTP_DEFAULT_SEND_PARAM,
    SCTP_DEFAULT_SNDINFO,
    SCTP_DELAYED_SACK,
    SCTP_EVENT,
    SCTP_INITMSG,
    SCTP_MAXSEG,
    SCTP_PEER_ADDR_PARAMS,
    SCTP_RECVNXTINFO,
    SCTP_RECVRCVINFO,
    SCTP_RTOINFO,
    SHUTDOWN_EVENT,
    SNDINFO,
    SNDRCV,
    SOL_SCTP,
    associated,
    connected,
    expect,
    get_option,
    one_to_many,
    one_to_one,
    receive,
    send,
    writable,
)

HEARTBEAT_ENABLE, HEARTBEAT_DEMAND, SACK_DELAY_ENABLE, SACK_DELAY_DISABLE = 1, 4, 32, 64


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


def case_delayed_sack_off_and_on() -> None:
    """In both forms, and by PEER_ADDR_PARAMS: off is a delay of 0 and a frequency of 1."""
    with one_to_one() as sock:

        def now() -> tuple[int, ...]:
            return struct.unpack("=iII", get_option(sock, SCTP_DELAYED_SACK, bytes(12)))

        def by_path(flag: int, delay_ms: int) -> None:
            fields = PATH_PARAMETERS.pack(0, bytes(128), 0, 0, 0, delay_ms, flag, 0, 0)
            sock.setsockopt(SOL_SCTP, SCTP_PEER_ADDR_PARAMS, fields)

        for option, expected in (
            (struct.pack("=iI", 0, 100), (0, 100, 2)),
            (struct.pack("=iI", 0, 0), (0, 0, 1)),
            (struct.pack("=iI", 0, 120), (0, 120, 2)),
            (struct.pack("=iII", 0, 0, 1), (0, 0, 1)),
            (struct.pack("=iII", 0, 0, 0), (0, 0, 1)),
            (struct.pack("=iII", 0, 0, 2), (0, 120, 2)),
        ):
            sock.setsockopt(SOL_SCTP, SCTP_DELAYED_SACK, option)
            assert now() == expected, (now(), expected)
        by_path(SACK_DELAY_DISABLE, 0)
        assert now() == (0, 0, 1)
        by_path(SACK_DELAY_ENABLE, 90)
        assert now() == (0, 90, 2)


def case_path_parameters_of_nobody() -> None:
    """A heartbeat can't be demanded where there is no peer; nor has any a family that there isn't."""
    none, unknown = bytes(128), struct.pack("=H", 77) + bytes(126)
    demand = PATH_PARAMETERS.pack(0, none, 0, 0, 0, 0, HEARTBEAT_DEMAND, 0, 0)
    with one_to_one() as fresh, connected() as (client, _):
        expect(errno.EINVAL, fresh.setsockopt, SOL_SCTP, SCTP_PEER_ADDR_PARAMS, demand)
        client.setsockopt(SOL_SCTP, SCTP_PEER_ADDR_PARAMS, demand)
        of_unknown = PATH_PARAMETERS.pack(0, unknown, 1700, 0, 0, 0, HEARTBEAT_ENABLE, 0, 0)
        expect(errno.EINVAL, client.setsockopt, SOL_SCTP, SCTP_PEER_ADDR_PARAMS, of_unknown)


def case_maxseg() -> None:
    with one_to_many() as sock:
        sock.setsockopt(SOL_SCTP, SCTP_MAXSEG, struct.pack("=iI", 0, 1000))
        assert struct.unpack("=iI", sock.getsockopt(SOL_SCTP, SCTP_MAXSEG, 8))[1] == 1000


def case_each_event_alone() -> None:
    """Each can be set and asked for, before and after binding."""
    with one_to_many(events=False) as sock:
        for kind, on in ((ASSOC_CHANGE, 1), (SHUTDOWN_EVENT, 0)):
            sock.setsockopt(SOL_SCTP, SCTP_EVENT, struct.pack("=iHBx", 0, kind, on))
            answer = get_option(sock, SCTP_EVENT, struct.pack("=iHBx", 0, kind, 9))
            assert struct.unpack("=iHBx", answer) == (0, kind, on)


def case_what_receive_tells_is_a_number() -> None:
    """Any but 0 turns it on; each can be read back."""
    with one_to_many() as sock:
        for option in (SCTP_RECVRCVINFO, SCTP_RECVNXTINFO):
            for given, got in ((0x100, 1), (0, 0), (1, 1)):
                sock.setsockopt(SOL_SCTP, option, struct.pack("=i", given))
                assert sock.getsockopt(SOL_SCTP, option) == got


def case_buffer_sizes_are_doubled() -> None:
    with one_to_one() as sock:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, 50000)
            assert sock.getsockopt(socket.SOL_SOCKET, option) == 100000


def case_options_of_an_unknown_association() -> None:
    with associated() as (client, association, _, _):
        other = association + 1000
        for option, value in (
            (SCTP_RTOINFO, struct.pack("=iIII", other, 100, 300, 50)),
            (SCTP_ASSOCINFO, struct.pack("=iHHIII", other, 4, 0, 0, 0, 0)),
            (SCTP_PEER_ADDR_PARAMS, PATH_PARAMETERS.pack(other, bytes(128), 100, 1, 0, 0, 1, 0, 0)),
            (SCTP_DEFAULT_SEND_PARAM, SNDRCV.pack(1, 0, 0, 0, 0, 0, 0, 0, other)),
        ):
            expect(errno.EINVAL, client.setsockopt, SOL_SCTP, option, value)
            expect(errno.EINVAL, get_option, client, option, value)


def case_unknown_flags_by_default() -> None:
    with associated() as (client, association, _, _):
        flags = 0x8000
        older = SNDRCV.pack(0, 0, flags, 0, 0, 0, 0, 0, association)
        expect(errno.EINVAL, client.setsockopt, SOL_SCTP, SCTP_DEFAULT_SEND_PARAM, older)
        newer = SNDINFO.pack(0, flags, 0, 0, association)
        expect(errno.EINVAL, client.setsockopt, SOL_SCTP, SCTP_DEFAULT_SNDINFO, newer)


SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_PEEK_OFF = 32, 33, 42


def case_least_buffer_sizes() -> None:
    with one_to_one() as sock:
        for option, least in ((socket.SO_SNDBUF, 4608), (socket.SO_RCVBUF, 2304)):
            for size in (0, 1, 1000):
                sock.setsockopt(socket.SOL_SOCKET, option, size)
                assert sock.getsockopt(socket.SOL_SOCKET, option) == max(2 * size, least)


def case_buffers_by_force() -> None:
    """A sender that finds no room isn't told that it may send on."""
    with connected() as (client, _):
        for force, option in ((SO_SNDBUFFORCE, socket.SO_SNDBUF), (SO_RCVBUFFORCE, socket.SO_RCVBUF)):
            client.setsockopt(socket.SOL_SOCKET, force, 100_000)
            assert client.getsockopt(socket.SOL_SOCKET, option) == 200_000
        client.setblocking(False)
        deadline = time.monotonic() + 20
        while writable(client, 0.5):
            assert time.monotonic() < deadline, "never full"
            with contextlib.suppress(BlockingIOError):
                while True:
                    client.send(bytes(5000))


def case_no_peek_offset() -> None:
    with one_to_one() as sock:
        expect(errno.EOPNOTSUPP, sock.setsockopt, socket.SOL_SOCKET, SO_PEEK_OFF, 3)
        expect(errno.EOPNOTSUPP, sock.getsockopt, socket.SOL_SOCKET, SO_PEEK_OFF)


def case_unknown_option() -> None:
    with one_to_one() as sock:
        expect(errno.ENOPROTOOPT, sock.setsockopt, SOL_SCTP, 9999, 1)
        expect(errno.ENOPROTOOPT, sock.getsockopt, SOL_SCTP, 9999)


def case_short_option() -> None:
    with one_to_one() as sock:
        expect(errno.EINVAL, sock.setsockopt, SOL_SCTP, SCTP_RTOINFO, b"xx")


def case_time_to_live() -> None:
    with connected() as (client, server):
        send(client, b"soon", time_to_live_ms=5000)
        started = time.monotonic()
        assert receive(server).data == b"soon"
        assert time.monotonic() - started < 5
