"""The addresses that peers tell of take memory: who serves these peers is charged with them."""

import subprocess
import sys

import pytest

from tests.sctp.shared_daemon import ECHO, start
from tests.sctp.test_daemon import SCTPD, as_nobody, serves, wait_for
from tests.support.namespaces import REPOSITORY, Namespace

pytestmark = pytest.mark.integration

SERVER = """
server = one_to_many(events=False)
server.bind(("0.0.0.0", 5700))
server.listen(1000)
print("listens", flush=True)
time.sleep(100)
"""
BEGINS = f"""
import struct, sys
sys.path.insert(0, {str(REPOSITORY)!r})
from tests.sctp.played_peer import *
MOST, SERVER, COOKIE = 150, 5700, 7
elsewhere = b"".join(struct.pack(">HH4B", 5, 8, 10, 98, 0, number) for number in range(1, 64))

def asked(peer, own_port, tag, kind, value, answer):
    before = len(peer.of(SERVER, answer))
    peer.send_from(own_port, SERVER, tag, chunk(kind, 0, value))
    peer.play(lambda: len(peer.of(SERVER, answer)) > before, timeout_s=3)
    return [one.value for one in peer.of(SERVER, answer)[before:]]

def cookie_of(acknowledged):
    at = 16  # bytes of the fixed part
    while acknowledged[at : at + 2] != bytes([0, COOKIE]):
        at += int.from_bytes(acknowledged[at + 2 : at + 4]) + 3 & ~3
    return acknowledged[at + 4 : at + int.from_bytes(acknowledged[at + 2 : at + 4])]

def began(peer, own_port):
    init = struct.pack(">IIHHI", own_port, WINDOW, 10, 10, FIRST_TSN) + elsewhere
    for acknowledged in asked(peer, own_port, 0, INIT, init, INIT_ACK):
        tag = int.from_bytes(acknowledged[:4])
        return bool(asked(peer, own_port, tag, COOKIE_ECHO, cookie_of(acknowledged), COOKIE_ACK))

with played() as peer:
    number = 0
    while number < MOST and began(peer, 20000 + number):
        number += 1
    print(number)
"""


def test_who_serves_peers_of_many_addresses_is_charged(namespace: Namespace) -> None:
    """With 64 addresses an association takes 49 KB, so 1 MB is used up by 22; and it is noticed at once.

    Were the addresses not charged before the next measurement, that would come after 120.
    """
    namespace.start(str(SCTPD), "--everyone", "--queue-limit", "1", "--client-queue-limit", "1")
    assert wait_for(lambda: serves(namespace))
    start(namespace, SERVER, "listens")
    peer = namespace.command(sys.executable, "-c", BEGINS)
    run = subprocess.run(peer, capture_output=True, text=True, timeout=60, check=False)
    assert run.stdout, run.stderr
    assert 10 < int(run.stdout) < 50
    assert as_nobody(namespace, ECHO).stdout == "served\n", "another user is charged, too"
