"""Programs that pass descriptors to sctpd, without the library, and what is seen of it."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.sctp.test_daemon import daemons, serves, wait_for
from tests.sctp.test_raw_clients import RAW
from tests.support.exact import BrokenError
from tests.support.namespaces import Namespace


@pytest.fixture(scope="module", name="open_to_all")
def daemon_open_to_all(sanitized_daemon: Path) -> Iterator[Namespace]:
    """Return a namespace with an sctpd for everyone."""
    namespace = Namespace(f"rspdns-open-{os.getpid()}")
    try:
        namespace.start(str(sanitized_daemon), "--everyone")
        assert wait_for(lambda: serves(namespace), 30)
        yield namespace
    finally:
        namespace.close()


WAS_DROPPED = """
REPLY = 16  # bytes of one that only says why
def was_dropped(control):
    try:
        return len(control.recv(100)) in (0, REPLY)
    except ConnectionResetError:  # with something unread
        return True
"""
LINGER = """
DAEMON = int(sys.argv[1])
server = socket.create_server(("127.0.0.1", 0))
def clients(count):
    made = []
    for _ in range(count):
        client = socket.create_connection(server.getsockname())
        client.setblocking(False)
        try:
            while True:
                client.send(bytes(65536))  # nobody reads: closing would wait
        except BlockingIOError:
            pass
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
        made.append(client)
    return made
def pass_on(to, data, passed):
    numbers = array.array("i", [client.fileno() for client in passed])
    os.kill(DAEMON, signal.SIGSTOP)  # its copies are the last ones
    try:
        to.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
    except BrokenPipeError:  # dropped already
        for client in passed:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
    finally:
        for client in passed:
            client.setblocking(True)
            socket.close(client.detach())
        os.kill(DAEMON, signal.SIGCONT)
"""
LINGERS = """
for count in (1, 6):  # the first may be of use, the others never are
    with connected() as control:
        pass_on(control, b"?", clients(count))
        assert was_dropped(control)
with connected() as control:  # left in the queue of a connection that is dropped
    passed = clients(1)
    control.send(b"?")
    pass_on(control, b"?", passed)
with connected() as control, new_socket(control) as sctp:
    pass_on(sctp, b"a plug", clients(1))
    new_socket(control).close()
with connected() as control:
    sctp = new_socket(control)
    pass_on(sctp, b"", clients(1))  # and the end comes after it
    sctp.close()
    new_socket(control).close()
print("done")
"""


def main_process(namespace: Namespace) -> int:
    """Return the process that serves: those that wait for something passed are its children."""
    found = daemons(namespace)
    for process in found:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(process).ppid() not in found:
                return process
    raise BrokenError("no sctpd serves any more")


def passer(namespace: Namespace, code: str) -> tuple[str, ...]:
    """Return the command that runs this, knowing which process serves."""
    return (sys.executable, "-c", RAW + WAS_DROPPED + LINGER + code, str(main_process(namespace)))


def descriptors(namespace: Namespace) -> int:
    return len(os.listdir(f"/proc/{main_process(namespace)}/fd"))
