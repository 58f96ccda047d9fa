"""Two hosts, a link between them: what each tells the other must be true there."""

import sys
from collections.abc import Callable

from tests.support.namespaces import Namespace

ECHO = """
import socket
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)
listener.bind(("10.8.0.1", 5001))
listener.listen(5)
print("ready", flush=True)
connection, _ = listener.accept()
while data := connection.recv(1000):
    connection.send(data)
"""
ASK = """
import socket, time
connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)
connection.settimeout(60)
connection.connect(("10.8.0.1", 5001))
for number in range(20):
    connection.send(b"%d" % number)
    assert connection.recv(1000) == b"%d" % number
    time.sleep(0.05)
print("done")
"""


def test_an_association_between_hosts_that_both_have_127_0_0_1_lasts(
    namespaces: Callable[[], Namespace],
) -> None:
    """127.0.0.1 must not be told to a peer elsewhere: it would look for us at itself."""
    first, other = namespaces(), namespaces()
    first.ip("link", "add", "eth0", "type", "veth", "peer", "eth0", "netns", other.name)
    for namespace, address in ((first, "10.8.0.1/24"), (other, "10.8.0.2/24")):
        namespace.ip("addr", "add", address, "dev", "eth0")
        namespace.ip("link", "set", "eth0", "up")
    server = first.start(sys.executable, "-c", ECHO, sctp=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    asked = other.run(sys.executable, "-c", ASK, sctp=True)
    assert asked.stdout == "done\n", asked.stderr
