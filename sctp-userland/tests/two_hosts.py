"""Two hosts (network namespaces) with two links between them, each with an SCTP of its own."""

# ruff: noqa: E501  (programs given as text)
import subprocess
import sys
from collections.abc import Callable

from daemon import PRELUDE

from tests.support.namespaces import Namespace

ECHO = """
server = one_to_many()
bindx(server, [(address, 5000) for address in sys.argv[1:]]) if len(sys.argv) > 1 else server.bind(("0.0.0.0", 5000))
server.listen(16)
print("listening", flush=True)
while True:
    got = receive_data(server, timeout_s=1000)
    send(server, got.data, association=got.association)
"""


def make_hosts(namespaces: Callable[[], Namespace]) -> tuple[Namespace, Namespace]:
    """Return two hosts with two links: 10.1.0.0/24 and 10.2.0.0/24, the first host .1, the second .2."""
    first, second = namespaces(), namespaces()
    for link in (1, 2):
        first.ip(
            "link",
            "add",
            f"link{link}",
            "type",
            "veth",
            "peer",
            "name",
            f"link{link}",
            "netns",
            second.name,
        )
        for number, host in ((1, first), (2, second)):
            host.ip("addr", "add", f"10.{link}.0.{number}/24", "dev", f"link{link}")
            host.ip("-6", "addr", "add", f"fd00:{link}::{number}/64", "dev", f"link{link}", "nodad")
            host.ip("link", "set", f"link{link}", "up")
    return first, second


def serve(host: Namespace, *addresses: str) -> subprocess.Popen[str]:
    process = host.start(sys.executable, "-c", PRELUDE + ECHO, *addresses, sctp=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    return process


def run(host: Namespace, code: str, timeout_s: float = 60) -> str:
    done = host.run(sys.executable, "-c", PRELUDE + code, sctp=True, timeout_s=timeout_s)
    assert done.returncode == 0, done.stderr
    return done.stdout


ECHO_ONCE = """
client = one_to_many()
send(client, b"x", to=({address!r}, 5000))
print(receive_data(client).data)
"""
