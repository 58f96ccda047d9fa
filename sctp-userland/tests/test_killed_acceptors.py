"""Processes that share a listening socket, one of which ends just after it was told of a connection."""

import sys

import pytest

from tests.support.namespaces import Namespace

pytestmark = pytest.mark.integration

WITHOUT_LIBRARY = """
import os, sys
os.read(int(sys.argv[1]), 1000)
"""
"""Takes what tells of the connection, as accept() does, and ends before it has asked for it."""
LISTENS = f"""
import os, socket, subprocess, sys
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
listener.bind(("127.0.0.1", 0))
listener.listen(5)
client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
client.connect(listener.getsockname())
bare = {{name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}}
command = [sys.executable, "-c", {WITHOUT_LIBRARY!r}, str(listener.fileno())]
subprocess.run(command, pass_fds=[listener.fileno()], env=bare, check=True)
subprocess.run([sys.executable, "-c", ""], check=True)  # with the library: this one's end is noticed
listener.settimeout(20)
assert listener.accept()[1] == client.getsockname()
listener.setblocking(False)
try:
    listener.accept()
except BlockingIOError:
    print("once")
"""


def test_connection_is_told_again(namespace: Namespace) -> None:
    """Else it waits for ever, or all after it are served one connection late."""
    run = namespace.run(sys.executable, "-c", LISTENS, sctp=True)
    assert run.stdout == "once\n", run.stderr
