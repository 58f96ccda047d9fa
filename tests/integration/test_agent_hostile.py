"""The sidecar survives whatever strangers send to its SCTP port and its control socket."""

import random
import socket
import sys
from pathlib import Path

from tests.support.backend import ADDRESS, HANDLE
from tests.support.chain import Chain
from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.registrars import registration_port

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
    chain = Chain(namespace, tmp_path, registrars="alone")
    chain.sidecar.configure_one(HANDLE, "tcp-hold", "tcp")
    chain.start_tcp()
    agent = chain.sidecar.start()
    identifier = chain.until_in()
    port = registration_port(chain.registrars.hsdump(1), ADDRESS)
    before = len(chain.watch.changes())
    lines = tmp_path / "garbage.hex"
    lines.write_text(
        "".join(f"{message.hex()}\n" for message in garbage(HANDLE.encode(), int(identifier, 16)))
    )
    for ppid in ("11", "12", "0"):
        sent = chain.namespace.run(
            *("sh", "-c", 'exec "$0" "$1" "$2" "$3" "$4" < "$5"'),
            *(sys.executable, str(SENDER), ADDRESS, str(port), ppid, str(lines)),
            sctp=True,
            timeout_s=90,
        )
        assert sent.returncode == 0, sent.stderr
    for message in garbage(b"control", 7)[::20]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(chain.sidecar.control))
            client.sendall(message + b"\n")
    assert agent.poll() is None
    assert chain.sidecar.until_state("in")["identifier"] == identifier
    assert "Traceback" not in chain.sidecar.log.read_text()
    assert not [change for change in chain.watch.changes()[before:] if change["elements"] == {}]
