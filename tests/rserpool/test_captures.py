"""Our codec agrees with captures of real programs, byte for byte.

    RSPDNS_PCAP=one.pcap:two.pcap pytest tests/rserpool/test_captures.py

RSPDNS_PCAP_BEFORE_RFC=1 renumbers first, and back to compare the bytes: for captures of 2007, such as
rsplib's published demo capture, from before the RFCs gave the numbers of today.
"""

import os
from pathlib import Path

import pytest

from rserpool import asap
from tests.rserpool.captures import FIRST, LAST, check, data_chunk, messages, pcap, sctp_packet

PATHS = [Path(name) for name in os.environ.get("RSPDNS_PCAP", "").split(":") if name]
BEFORE_RFC = bool(os.environ.get("RSPDNS_PCAP_BEFORE_RFC"))


@pytest.mark.skipif(not PATHS, reason="set RSPDNS_PCAP to the captures to check")
@pytest.mark.parametrize("path", PATHS, ids=str)
def test_every_message_of_a_capture_is_decoded_and_encoded_byte_for_byte(path: Path) -> None:
    report = check(path, before_rfc=BEFORE_RFC)
    assert not report.problems
    assert report.seen
    print(path, dict(report.seen))


def test_fragments_are_joined_in_whatever_order_and_retransmissions_ignored(tmp_path: Path) -> None:
    data = asap.encode(asap.HandleResolution(b"P"))
    first, middle, last = data[:4], data[4:9], data[9:]
    path = tmp_path / "capture.pcap"
    top = 0xFFFFFFFF
    parts = [(top, FIRST, first), (1, LAST, last), (1, LAST, last), (0, 0, middle), (top, FIRST, first)]
    chunks = [data_chunk(tsn, asap.PPID, part, flags) for tsn, flags, part in parts]
    path.write_bytes(pcap(*map(sctp_packet, chunks)))
    assert [captured.data for captured in messages(path)] == [data]


def test_bundled_messages_are_found_and_disagreement_is_reported(tmp_path: Path) -> None:
    good = asap.encode(asap.HandleResolution(b"P"))
    refused = bytes.fromhex("05000008 01230004")
    with_dirty_padding = bytes.fromhex("0500000c 0009000550 ffffff")
    path = tmp_path / "capture.pcap"
    sent = [good, refused, with_dirty_padding]
    chunks = [data_chunk(tsn, asap.PPID, data) for tsn, data in enumerate(sent)]
    path.write_bytes(pcap(sctp_packet(*chunks, data_chunk(3, 0, good))))
    report = check(path)
    assert report.seen == {"HandleResolution": 2}
    assert len(report.problems) == 2
    assert "0x0123" in report.problems[0]
    assert "became" in report.problems[1]
