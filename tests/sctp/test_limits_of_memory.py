"""What nobody may do to sctpd's memory: what waits to be read or sent, and associations."""

# ruff: noqa: E501  (programs given as text)

import sys

import pytest

from tests.sctp.shared_daemon import ECHO, FLOOD, PRELUDE, QUEUE_LIMIT_MB, resident_mb, start
from tests.sctp.test_daemon import SCTPD, as_nobody, serves, wait_for
from tests.support.namespaces import Namespace

pytestmark = pytest.mark.integration

RESIDENT_MB = 150
"""Far above what it takes with the limit, far below what a flood would take without one."""


def test_flood_of_a_program_that_never_reads(shared: Namespace) -> None:
    """100 associations would queue 50 MB and more; the user's limit stops them, and only that user.

    Not another one who has the same port at another address, either.
    """
    before_mb = resident_mb(shared)
    flood = start(shared, FLOOD, "full")
    assert resident_mb(shared) - before_mb < QUEUE_LIMIT_MB * 4
    assert as_nobody(shared, ECHO).stdout == "served\n"
    assert as_nobody(shared, ECHO.replace("('127.0.0.1', 0)", "('127.0.0.2', 5602)")).stdout == "served\n"
    flood.kill()
    flood.wait()
    code = PRELUDE + "with connected() as (client, server):\n client.send(b'x'); print(server.recv(10))"
    run = shared.run(sys.executable, "-c", code, sctp=True)
    assert run.stdout == "b'x'\n", "its memory isn't free again: " + run.stderr


def test_all_together_are_limited(namespace: Namespace) -> None:
    """Who holds more than his part of it is refused; another user, who holds little, is served."""
    limits = ("--queue-limit", "1000", "--client-queue-limit", "1000", "--memory-limit", "24")
    namespace.start(str(SCTPD), "--everyone", *limits)
    assert wait_for(lambda: serves(namespace))
    start(namespace, FLOOD, "full")
    assert resident_mb(namespace) < RESIDENT_MB
    run = as_nobody(namespace, ECHO)
    assert run.stdout == "served\n", run.stderr


BEGIN_WIDE = """
import errno, socket, struct, time
def wide(style):
    made = socket.socket(2, style, 132)
    made.setsockopt(132, 2, struct.pack("HHHH", 65535, 65535, 0, 0))
    made.setblocking(False)
    return made
def begin(made, port):
    if style == 1:
        return made.connect_ex(("10.7.0.2", port))
    try:
        made.sendto(b"x", ("10.7.0.2", port))
    except OSError as error:
        return error.errno
    return errno.EINPROGRESS
for style in (1, 5):
    held = [wide(style)]
    errors = set()
    for number in range(60):
        errors.add(begin(held[-1], 6000 + number))
        if style == 1:
            held.append(wide(style))
    print(errors == {errno.EINPROGRESS, errno.ENOBUFS} or errors, flush=True)
    for one in held:
        one.close()
    time.sleep(1)
"""


def test_associations_with_many_streams_are_limited(shared: Namespace) -> None:
    """Nobody answers them; each takes 4 MB and more of sctpd, connected or begun by sending. Those that end are given back."""
    shared.ip("link", "add", "nowhere", "type", "veth", "peer", "name", "void")  # where nobody answers
    shared.ip("addr", "add", "10.7.0.1/24", "dev", "nowhere")
    shared.ip("link", "set", "nowhere", "up")
    before_mb = resident_mb(shared)
    run = as_nobody(shared, BEGIN_WIDE)
    assert run.stdout == "True\nTrue\n", run.stdout + run.stderr
    assert resident_mb(shared) - before_mb < QUEUE_LIMIT_MB * 4


BEGIN_TO_MANY_ADDRESSES = """
import errno, socket, struct
held = socket.socket(2, 5, 132)
held.setblocking(False)
began, refused = 0, set()
for port in range(6000, 7500):
    addresses = [struct.pack("=H", 2) + struct.pack("!H4B8x", port, 10, 7, 0, 2 + number) for number in range(100)]
    try:
        held.setsockopt(132, 110, b"".join(addresses))  # SCTP_SOCKOPT_CONNECTX
        began += 1
    except OSError as error:
        refused.add(error.errno)
print(began > 20 and refused == {errno.ENOBUFS} or (began, refused))
"""


def test_associations_with_many_addresses_are_limited(shared: Namespace) -> None:
    """Nobody answers them; each takes 70 KB of sctpd."""
    before_mb = resident_mb(shared)
    run = shared.run(sys.executable, "-c", BEGIN_TO_MANY_ADDRESSES, sctp=True)
    assert run.stdout == "True\n", run.stdout + run.stderr
    assert resident_mb(shared) - before_mb < QUEUE_LIMIT_MB * 3


CLOSES_UNSENT = """
import errno, os, socket, struct, time
def leave_behind():
    # With data for a peer that never answers: the association goes on without its socket, and the program's end.
    left = socket.socket(2, 5, 132)
    left.setsockopt(132, 2, struct.pack("HHHH", 65535, 65535, 0, 0))
    try:
        left.sendto(b"x", ("10.7.0.2", 6000))
    except OSError as error:
        return error.errno
    finally:
        left.close()
    return 0
answers = [leave_behind() for _ in range(40)]
print(set(answers) == {0, errno.ENOBUFS} and answers[0] == 0 or answers, flush=True)
"""


HOLDS_SOME = """
with listener() as waiting, one_to_one() as client:
    client.connect(waiting.getsockname())
    server = waiting.accept()[0]
    client.setblocking(False)
    held = 0
    try:
        while True:
            held += client.send(bytes(20000))
    except BlockingIOError:
        pass
    assert held > 200000
    with connected() as (other, far):
        other.send(b"served")
        print(far.recv(100))
"""


def test_associations_of_closed_sockets_count(namespace: Namespace) -> None:
    """Who closes sockets whose data nobody takes is charged with them until they end, and he alone."""
    soon = ("--init-retransmissions", "2", "--rto-initial", "300", "--rto-min", "300", "--rto-max", "500")
    namespace.start(str(SCTPD), "--everyone", "--queue-limit", "20", *soon)
    assert wait_for(lambda: serves(namespace))
    namespace.ip("link", "add", "nowhere", "type", "veth", "peer", "name", "void")
    namespace.ip("addr", "add", "10.7.0.1/24", "dev", "nowhere")
    namespace.ip("link", "set", "nowhere", "up")
    before_mb = resident_mb(namespace)
    run = as_nobody(namespace, CLOSES_UNSENT)
    assert run.stdout == "True\n", run.stdout + run.stderr
    assert resident_mb(namespace) - before_mb < 60  # 40 of them take 270 MB
    run = namespace.run(sys.executable, "-c", PRELUDE + HOLDS_SOME, sctp=True)
    assert run.stdout == "b'served'\n", run.stderr
    again = CLOSES_UNSENT.replace("range(40)", "range(1)").replace("{0, errno.ENOBUFS}", "{0}")
    assert wait_for(lambda: as_nobody(namespace, again).stdout == "True\n", 60), "they aren't given back"


SENDS_TO_ALL = """
sender = one_to_many()
sender.setblocking(False)
for number in range(100):
    sender.sendto(b"?", (f"10.9.9.{number + 2}", 5610))  # nobody answers
calls = 0
try:
    while calls < 600:
        send(sender, bytes(1400), flags=0x40)  # SCTP_SENDALL
        calls += 1
except OSError as error:
    assert error.errno in (11, 105), error
print(0 < calls < 150 or calls)
"""


def test_a_message_to_all_counts_for_each(namespace: Namespace) -> None:
    """With a hundred associations each call queues 140 KB, of the 8 MB that may be."""
    namespace.ip("link", "add", "silent", "type", "veth", "peer", "name", "void")
    namespace.ip("addr", "add", "10.9.9.1/24", "dev", "silent")
    namespace.ip("link", "set", "silent", "up")
    namespace.start(str(SCTPD), "--everyone", "--queue-limit", "8")
    assert wait_for(lambda: serves(namespace))
    run = namespace.run(sys.executable, "-c", PRELUDE + SENDS_TO_ALL, sctp=True)
    assert run.stdout == "True\n", run.stdout + run.stderr
