"""The sidecar survives whatever strangers send to its SCTP port and its control socket."""

import random
import re
import socket
import sys
from pathlib import Path

from tests.support.agent_host import ADDRESS, Host
from tests.support.namespaces import REPOSITORY, Namespace

SENDER = REPOSITORY / "tests" / "integration" / "send_messages.py"


def garbage(handle: bytes, identifier: int) -> list[bytes]:
    """Return random bytes, and messages a pool element knows with lengths that lie."""
    draw = random.Random(1)
    padded = handle + bytes(-len(handle) % 4)
    parameter = b"\x00\x09" + (4 + len(handle)).to_bytes(2, "big") + padded
    messages = []
    for kind in range(256):
        messages += [
            bytes((kind, draw.randrange(256))) + length.to_bytes(2, "big") + parameter
            for length in (0, 3, 4, 8, 8 + len(parameter), 0xFFFF)
        ]
        body = draw.randbytes(4) + parameter + b"\x00\x0e\x00\x08" + identifier.to_bytes(4, "big")
        messages.append(bytes((kind, 1)) + (4 + len(body)).to_bytes(2, "big") + body)
        messages.append(draw.randbytes(draw.randrange(1, 1200)))
    return messages


def test_garbage_on_sctp_and_on_the_control_socket(namespace: Namespace, tmp_path: Path) -> None:
    host = Host(namespace, tmp_path)
    host.configure("tcp-hold", "tcp")
    host.start_tcp_server()
    agent = host.start_agent()
    identifier = host.until_in()
    dump = host.namespace.run("hsdump", f"{ADDRESS}:9901", sctp=True).stdout
    port = re.search(rf"regT:\s+\{{{re.escape(ADDRESS)}\}} (\d+)/SCTP", dump)
    assert port, dump
    before = len(host.watch.changes())
    lines = tmp_path / "garbage.hex"
    lines.write_text("".join(f"{message.hex()}\n" for message in garbage(b"agent-test", int(identifier, 16))))
    for ppid in ("11", "12", "0"):
        sent = host.namespace.run(
            *("sh", "-c", 'exec "$0" "$1" "$2" "$3" "$4" < "$5"'),
            *(sys.executable, str(SENDER), ADDRESS, port[1], ppid, str(lines)),
            sctp=True,
            timeout_s=90,
        )
        assert sent.returncode == 0, sent.stderr
    for message in garbage(b"control", 7)[::20]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(tmp_path / "control.sock"))
            client.sendall(message + b"\n")
    assert agent.poll() is None
    assert host.until_state("in")["identifier"] == identifier
    assert "Traceback" not in (tmp_path / "agent.log").read_text()
    assert not [change for change in host.watch.changes()[before:] if change["elements"] == {}]
