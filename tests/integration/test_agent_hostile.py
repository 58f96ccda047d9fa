"""The sidecar survives strangers: garbage at its sockets, and one that claims a registrar's address."""

import json
import random
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.backend import ADDRESS, HANDLE
from tests.support.chain import Chain
from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.registrars import registration_port
from tests.support.waiting import until

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


def test_garbage_on_sctp_and_on_the_control_socket_changes_nothing(
    namespace: Namespace, tmp_path: Path
) -> None:
    chain = Chain(namespace, tmp_path, registrars="alone")
    chain.sidecar.configure_server(HANDLE, "tcp-hold", "tcp")
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


STRANGER, CLAIMED = "10.99.0.66", "10.99.0.11"


def next_to(chain: Chain, make: Callable[[], Namespace], *, answers_arp: bool = False) -> Namespace:
    """Return a host at the other end of the cable, with CLAIMED on its loopback interface.

    Unless `answers_arp`, nobody reaches it there. If it does, that address is its own for all that can be
    seen.
    """
    stranger = make()
    chain.namespace.ip("link", "set", "eth0-peer", "netns", stranger.name)
    stranger.run("sysctl", "-w", f"net.ipv4.conf.all.arp_ignore={0 if answers_arp else 1}")
    for command in (
        f"address add {STRANGER}/24 dev eth0-peer",
        f"address add {CLAIMED}/32 dev lo",
        "link set eth0-peer up",
    ):
        stranger.ip(*command.split())
    return stranger


def attacked(
    make: Callable[[], Namespace], folder: Path, *, answers_arp: bool = False
) -> tuple[Chain, Path, int]:
    """Start registrars, a server with its agent, and the stranger; return the chain, the stranger's log, and
    how many changes the registrars had seen before."""
    chain = Chain(make(), folder, registrars="alone")
    stranger = next_to(chain, make, answers_arp=answers_arp)
    chain.sidecar.configure_server(HANDLE, "tcp-hold", "tcp")
    text = chain.sidecar.config.read_text()
    chain.sidecar.config.write_text(
        text.replace(
            json.dumps(chain.registrars.addresses), json.dumps([CLAIMED, *chain.registrars.addresses])
        )
    )
    chain.start_tcp()
    chain.sidecar.start()
    identifier = chain.until_in()
    port = registration_port(chain.registrars.hsdump(1), ADDRESS)
    before = len(chain.watch.changes())
    log = folder / "stranger.log"
    stranger.start(
        *(sys.executable, "-m", "tests.support.claiming_stranger"),
        *(STRANGER, CLAIMED, ADDRESS, str(port), HANDLE, identifier),
        sctp=True,
        log=log,
        environment={"PYTHONPATH": str(REPOSITORY)},
    )
    until(lambda: log.exists() and "associated" in log.read_text())
    return chain, log, before


def test_an_address_that_is_only_listed_deceives_no_agent(
    namespaces: Callable[[], Namespace], tmp_path: Path
) -> None:
    chain, log, before = attacked(namespaces, tmp_path)
    until(lambda: log.read_text().count("associated") > 2)  # it is sent away, and comes again
    time.sleep(3)
    assert "registration" not in log.read_text()
    assert not [change for change in chain.watch.changes()[before:] if change["elements"] == {}]
    assert chain.sidecar.until_state("in")["registrar"] in chain.registrars.addresses


def test_a_home_that_no_other_registrar_confirms_is_left(
    namespaces: Callable[[], Namespace], tmp_path: Path
) -> None:
    """It says that it took over again and again, and confirms every registration."""
    chain, log, _ = attacked(namespaces, tmp_path, answers_arp=True)
    until(lambda: "registration" in log.read_text())
    chain.sidecar.until_status(lambda status: status["registrar"] in chain.registrars.addresses)
    assert "no other registrar lists it" in chain.sidecar.log.read_text()
    registrations = log.read_text().count("registration")
    chain.until_in()
    time.sleep(4)
    assert log.read_text().count("registration") == registrations
    assert chain.sidecar.until_state("in")["registrar"] in chain.registrars.addresses
