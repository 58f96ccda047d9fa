"""Reading less than a message: what it costs, and what readers may give back."""

import sys

import pytest
from daemon import PRELUDE, resident_mb, start_sctpd

from tests.support.namespaces import Namespace

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

READS_PIECES = """
def piece_s(queued):
    with connected() as (client, server):
        sent = [b"%099d|" % number for number in range(queued)]
        for message in sent:
            client.send(message)
        time.sleep(0.3)
        got, begun = b"", time.monotonic()
        for _ in range(20):
            assert readable(server, 5)
            got += server.recv(10)
        took_s = time.monotonic() - begun
        while len(got) < 100 * queued:
            assert readable(server, 5)
            got += server.recv(70)
        assert got == b"".join(sent)
        assert not readable(server)
        client.close()
        assert server.recv(10) == b""
        return took_s / 20
print(min(piece_s(3) for _ in range(3)), min(piece_s(1500) for _ in range(2)))
"""


def test_reading_a_piece_costs_the_same_however_much_is_queued(namespace: Namespace) -> None:
    """It took all that lay there out and put it in again. Order and poll() stay right."""
    run = namespace.run(sys.executable, "-c", PRELUDE + READS_PIECES, sctp=True)
    assert run.returncode == 0, run.stderr
    few_s, many_s = map(float, run.stdout.split())
    assert many_s < 5 * few_s, run.stdout


GIVES_BACK = """
import array, socket, struct
def request(operation, *arguments, data=0):
    return struct.pack("=HH4i", 1, operation, *arguments) + bytes(24) + struct.pack("=II", 0, data)
control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
control.connect("\\0sctp-userland")
control.send(request(1, socket.AF_INET, socket.SOCK_SEQPACKET, 0, 0))
fileno = int.from_bytes(control.recvmsg(100, 100)[1][0][2], "little")
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fileno]))]
given = struct.pack("=HH", 1, 1) + bytes(56) + bytes(200000)
for _ in range(400):
    control.sendmsg([request(18, 0, 0, 0, 0, data=len(given)), given], rights)
    control.recv(100)
print("given", flush=True)
control.recv(100)
"""
LIMIT_MB, BEYOND_MB = 24, 24


def test_what_readers_give_back_is_bound_by_the_memory_limit(namespace: Namespace) -> None:
    """80 MB of messages that never came."""
    start_sctpd(namespace, "--memory-limit", str(LIMIT_MB))
    client = namespace.start("/usr/bin/python3", "-c", GIVES_BACK)
    assert client.stdout is not None
    assert client.stdout.readline() == "given\n"
    assert resident_mb(namespace) < LIMIT_MB + BEYOND_MB
