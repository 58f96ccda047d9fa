"""Messages of data channels, and what one side of a flow may do."""

import asyncio
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rserpool.data_channel import (
    MAX_DATA_BYTES,
    MAX_DATAGRAM_BYTES,
    STREAMS,
    WINDOW_BYTES,
    ChannelFlow,
    DataMessage,
    DataMessageType,
    FlowBroken,
    decode,
    encode,
    way_of,
)
from rserpool.errors import DecodeError

from rserpool import Passing

FLOWS = st.integers(0, 2**32 - 1)
MESSAGES = st.one_of(
    st.builds(DataMessage, st.just(DataMessageType.OPEN), FLOWS, st.integers(1, 65535)),
    st.builds(
        DataMessage, st.just(DataMessageType.DATA), FLOWS, st.just(0), st.binary(min_size=1, max_size=100)
    ),
    st.builds(DataMessage, st.sampled_from((DataMessageType.END, DataMessageType.RESET)), FLOWS),
    st.builds(DataMessage, st.just(DataMessageType.CREDIT), FLOWS, credit=st.integers(0, 2**32 - 1)),
    st.builds(
        DataMessage, st.just(DataMessageType.DATAGRAM), FLOWS, st.integers(1, 65535), st.binary(max_size=100)
    ),
)


@given(MESSAGES)
def test_messages_are_read_as_they_were_written(message: DataMessage) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=64))
def test_hostile_bytes_are_refused_or_a_message_with_the_same_bytes(data: bytes) -> None:
    try:
        message = decode(data)
    except DecodeError:
        return
    assert encode(message) == data


def test_the_bytes_are_those_of_the_documentation() -> None:
    assert (
        encode(DataMessage(DataMessageType.DATAGRAM, 0x01020304, 5060, b"x"))
        == b"\x01\x06\x13\xc4\x01\x02\x03\x04x"
    )
    assert encode(DataMessage(DataMessageType.CREDIT, 7, credit=65536)) == b"\x01\x05\0\0\0\0\0\x07\0\x01\0\0"


@pytest.mark.parametrize(
    "data",
    [
        b"\x01\x02\0\0\0\0\0",
        b"\x02\x03\0\0\0\0\0\x01",
        b"\x01\x07\0\0\0\0\0\x01",
        b"\x01\x01\0\0\0\0\0\x01",
        b"\x01\x03\x13\xc4\0\0\0\x01",
        b"\x01\x02\0\0\0\0\0\x01",
        b"\x01\x05\0\0\0\0\0\x01\0\0",
        struct.pack(">BBHI", 1, 2, 0, 1) + bytes(MAX_DATA_BYTES + 1),
        struct.pack(">BBHI", 1, 6, 9, 1) + bytes(MAX_DATAGRAM_BYTES + 1),
    ],
    ids=["short", "version", "type", "no port", "a port", "no data", "credit", "long data", "long datagram"],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(data)


def test_a_flow_travels_in_order_in_one_stream_and_datagrams_without_order() -> None:
    ways = {way_of(DataMessage(kind, 13)) for kind in DataMessageType if kind is not DataMessageType.DATAGRAM}
    assert ways == {(1 + 13 % STREAMS, False)}
    assert way_of(DataMessage(DataMessageType.DATAGRAM, 13, 5060)) == (0, True)


def test_credit_is_given_for_what_was_taken_and_more_than_allowed_breaks_the_flow() -> None:
    sent: list[DataMessage] = []
    flow = ChannelFlow(3, sent.append)
    piece = DataMessage(DataMessageType.DATA, 3, data=bytes(MAX_DATA_BYTES))
    for _ in range(WINDOW_BYTES // MAX_DATA_BYTES):
        flow.received(piece)
    assert len(flow.take()) == WINDOW_BYTES
    assert sent == [DataMessage(DataMessageType.CREDIT, 3, credit=WINDOW_BYTES)]
    for _ in range(WINDOW_BYTES // MAX_DATA_BYTES):
        flow.received(piece)
    with pytest.raises(FlowBroken, match="more than was allowed"):
        flow.received(DataMessage(DataMessageType.DATA, 3, data=b"x"))


def test_sent_bytes_use_room_and_credit_gives_it_back() -> None:
    flow = ChannelFlow(3, lambda message: None)
    flow.push(bytes(1000))
    assert flow.room == WINDOW_BYTES - 1000
    flow.received(DataMessage(DataMessageType.CREDIT, 3, credit=1000))
    assert flow.room == WINDOW_BYTES
    with pytest.raises(FlowBroken, match="more credit"):
        flow.received(DataMessage(DataMessageType.CREDIT, 3, credit=1))


@pytest.mark.parametrize("kind", [DataMessageType.OPEN, DataMessageType.DATA])
def test_a_flow_that_ended_takes_no_more(kind: DataMessageType) -> None:
    flow = ChannelFlow(3, lambda message: None)
    flow.received(DataMessage(DataMessageType.END, 3))
    assert flow.has_ended
    with pytest.raises(FlowBroken) as broken:
        flow.received(DataMessage(kind, 3, 1 if kind is DataMessageType.OPEN else 0, b"x"))
    assert not broken.value.is_told


def test_a_reset_needs_no_answer() -> None:
    with pytest.raises(FlowBroken) as broken:
        ChannelFlow(3, lambda message: None).received(DataMessage(DataMessageType.RESET, 3))
    assert broken.value.is_told


def test_connection_through_which_nothing_passes_is_reset_and_leaves_no_task() -> None:
    async def scenario() -> tuple[list[DataMessage], bytes, int]:
        sent: list[DataMessage] = []

        def send(message: DataMessage) -> bool:
            sent.append(message)
            return True

        ours, theirs = socket.socketpair()
        theirs.settimeout(10)
        passing = Passing(7, send)
        async with asyncio.timeout(30):
            await passing.run(*await asyncio.open_connection(sock=ours), idle_s=0.2)
        await asyncio.sleep(0)
        return sent, await asyncio.to_thread(theirs.recv, 1), len(asyncio.all_tasks()) - 1

    assert asyncio.run(scenario()) == ([DataMessage(DataMessageType.RESET, 7)], b"", 0)


def test_connection_that_breaks_leaves_no_task() -> None:
    async def scenario() -> tuple[list[DataMessage], int]:
        sent: list[DataMessage] = []

        def send(message: DataMessage) -> bool:
            sent.append(message)
            return message.type is not DataMessageType.DATA

        ours, theirs = socket.socketpair()
        theirs.sendall(b"there is no room for this")
        async with asyncio.timeout(30):
            await Passing(7, send).run(*await asyncio.open_connection(sock=ours))
        await asyncio.sleep(0)
        theirs.close()
        return sent[1:], len(asyncio.all_tasks()) - 1

    assert asyncio.run(scenario()) == ([DataMessage(DataMessageType.RESET, 7)], 0)
