"""Who comes just after descriptors were passed that are being disposed of."""

import sys

import pytest

from tests.sctp.test_daemon import SCTPD, daemons, serves, wait_for
from tests.support.namespaces import Namespace

pytestmark = pytest.mark.integration

PASSES = """
import array, os, select, signal, socket, struct, sys
AT_ONCE = 253  # descriptors of one message, the most Linux takes
daemon = int(sys.argv[1])
passed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
rights = array.array("i", [passed.fileno()] * AT_ONCE)
controls = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(4)]
for control in controls:
    control.connect("\\0sctp-userland")
last = controls.pop()
last.send(struct.pack("=HH4iHHIIIIHHII", 1, 14, 0, -1, -1, 0, *[0] * 10))  # OP_STATUS
assert last.recv(100)
last.close()  # all were accepted
os.kill(daemon, signal.SIGSTOP)
for control in controls:
    control.sendmsg([b"no request"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
os.kill(daemon, signal.SIGCONT)
for control in controls:
    assert select.select([control], [], [], 20)[0]
print("dropped")
"""


def test_nobody_waits_for_what_was_just_handed_over(namespace: Namespace) -> None:
    """759 descriptors come in one turn of the loop: so many that newcomers wait while these lie there.

    They are handed over in the same turn, and nothing happens afterwards that would be the occasion to admit
    anybody again.
    """
    namespace.start(str(SCTPD))
    assert wait_for(lambda: serves(namespace))
    (daemon,) = daemons(namespace)
    run = namespace.run(sys.executable, "-c", PASSES, str(daemon))
    assert run.stdout == "dropped\n", run.stderr
    asked = namespace.run(str(SCTPD), "--status")
    assert (asked.stdout, asked.stderr) == ("no sockets\n", "")
