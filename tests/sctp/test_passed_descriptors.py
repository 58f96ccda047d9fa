"""Clients that pass descriptors which take long to close, or left unsaid: whom that holds up.

With the sctpd that has sanitizers.
"""

import os
import resource
import signal

import pytest

from tests.sctp.passing import LINGERS, WAS_DROPPED, daemon_open_to_all, descriptors, main_process, passer  # noqa: F401  (a fixture)
from tests.sctp.sanitized_daemon import sanitized_daemon  # noqa: F401  (a fixture)
from tests.sctp.test_daemon import as_nobody, sctpd, serves, wait_for
from tests.sctp.test_raw_clients import RAW
from tests.support.namespaces import Namespace

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("sanitized_daemon")]


PASSES_WITHOUT_A_WORD = """
held = [socket.socketpair()[0] for _ in range(4)]
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [one.fileno() for one in held]))]
for _ in range(100):
    with connected() as control:
        control.sendmsg([b""], rights)
        assert was_dropped(control)
print("done")
"""


def test_descriptors_that_an_empty_message_brings_are_closed(open_to_all: Namespace) -> None:
    before = descriptors(open_to_all)
    run = as_nobody(open_to_all, RAW + WAS_DROPPED + PASSES_WITHOUT_A_WORD)
    assert run.stdout == "done\n", run.stdout + run.stderr
    assert wait_for(lambda: descriptors(open_to_all) < before + 50)


def test_a_socket_that_lingers_holds_nobody_up(open_to_all: Namespace) -> None:
    run = open_to_all.run(*passer(open_to_all, LINGERS))
    assert run.stdout == "done\n", run.stdout + run.stderr
    assert serves(open_to_all)


LINGERS_WITHIN = """
for _ in range(2):
    first, inner = socket.socketpair()
    pass_on(inner, b"x", clients(1))
    inner.close()
    with connected() as control:
        pass_on(control, b"?", [first] + [socket.socketpair()[0] for _ in range(100)])
        assert was_dropped(control)
with connected() as control:
    new_socket(control).close()
print("made")
"""


def test_what_lingers_in_the_queue_of_a_passed_socket_holds_nobody_up(open_to_all: Namespace) -> None:
    """Not even who passed it. Many descriptors that came with it don't stay open."""
    before = descriptors(open_to_all)
    run = open_to_all.run(*passer(open_to_all, LINGERS_WITHIN))
    assert run.stdout == "made\n", run.stdout + run.stderr
    assert wait_for(lambda: descriptors(open_to_all) < before + 20)


def take_all_descriptors(process: int) -> None:
    """Let it open no further one."""
    used = {int(name) for name in os.listdir(f"/proc/{process}/fd")}
    lowest_free = next(number for number in range(1000) if number not in used)
    hard = resource.prlimit(process, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(process, resource.RLIMIT_NOFILE, (lowest_free, hard))


WITHOUT_ROOM = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
hostile, other = connected(), connected()
held = new_socket(other)
passed = clients(2)
print("brought", flush=True)
signal.sigwait([signal.SIGUSR1])
pass_on(hostile, b"?", passed)
assert was_dropped(hostile)
address = struct.pack("=HH4s8x", 2, 0, bytes([127, 0, 0, 1]))
bound = call(other, BIND, address=address, fd=held.fileno())
print(bound[0], call(other, SOCKET, socket.AF_INET, socket.SOCK_STREAM)[0], flush=True)
time.sleep(100)
"""


def test_what_lingers_holds_nobody_up_when_no_descriptor_is_left(namespace: Namespace) -> None:
    """Without room for what comes along the kernel closes it where it is read. Who is there is served on."""
    namespace.start(sctpd())
    assert wait_for(lambda: serves(namespace), 30)
    client = namespace.start(*passer(namespace, WITHOUT_ROOM))
    assert client.stdout is not None
    assert client.stderr is not None
    assert client.stdout.readline() == "brought\n"
    take_all_descriptors(main_process(namespace))
    client.send_signal(signal.SIGUSR1)
    line = client.stdout.readline()
    assert line == "0 24\n", line + client.stderr.read()
