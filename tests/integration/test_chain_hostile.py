"""Strangers send what they please to every part of the whole chain: all go on, DNS is never wrong."""

import contextlib
import itertools
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_kit.control import request

from tests.support.backend import ADDRESS, HANDLE, OWNER, ZONE
from tests.support.chain import SIP_PORTS, Chain
from tests.support.dns_watch import DnsWatch
from tests.support.garbage import asap_seeds, enrp_seeds, mutated
from tests.support.namespaces import REPOSITORY, kill, own_namespace
from tests.support.registrars import registration_port
from tests.support.second_try import BrokenError
from tests.support.waiting import until

ALL = set(SIP_PORTS)
HOSTILE_PORT = 3899
HOSTILE_ENRP_PORT = 9899
SCTP_USERLAND = REPOSITORY / "sctp-userland"
SCTPD = SCTP_USERLAND / "build" / "sctpd"
SENDER = REPOSITORY / "tests" / "integration" / "send_messages.py"


class Attacked:
    """The chain, its SIP servers, and a client that asks all the time."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        chain.backend.add_registrar(f"{ADDRESS}:{HOSTILE_PORT}/{HOSTILE_ENRP_PORT}")
        self.hostile = chain.folder / "hostile.log"
        chain.namespace.start(
            *(sys.executable, "-m", "tests.support.garbage"),
            *(ADDRESS, str(HOSTILE_PORT), HANDLE),
            sctp=True,
            log=self.hostile,
            environment={"PYTHONPATH": str(REPOSITORY)},
        )
        self.sip = {port: chain.start_sip(port) for port in SIP_PORTS}
        chain.start_sidecar(registrars=[*chain.registrars.addresses, f"{ADDRESS}:{HOSTILE_PORT}"])
        chain.start()
        until(lambda: chain.targets_at(OWNER) == ALL, told=chain.sidecar.log)
        self.watch = DnsWatch(chain.namespace, OWNER, chain.folder / "watch.txt")

    @contextlib.contextmanager
    def unharmed(self) -> Iterator[None]:
        """The fault within doesn't matter: every process lives, no log holds a traceback, no answer is
        wrong."""
        before, began_at_s = self.chain.processes(), time.monotonic()
        yield
        time.sleep(1.2)  # what is cached runs out
        self.chain.assert_calm(before)
        until_s = time.monotonic() - 0.1
        until(lambda: self.watch.since(began_at_s, until_s))
        wrong = self.watch.wrong(ALL, began_at_s, until_s)
        if strangers := [answer for answer in wrong if not answer.ports <= ALL]:
            raise BrokenError(f"in the DNS: {strangers}")
        assert not wrong
        until(lambda: "status: NXDOMAIN" in self.chain.pdns.dig(f"x{time.monotonic_ns()}.{ZONE}", "A"))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with own_namespace() as namespace:
        yield Attacked(Chain(namespace, tmp_path_factory.mktemp("hostile")))


def send(path: Path, data: bytes, *, wait: bool = True, timeout_s: float = 60) -> bytes:
    """Send `data` to a unix socket and return the answer; without `wait`, be gone at once."""
    said = b""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.settimeout(timeout_s)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(data)
            if wait:
                client.shutdown(socket.SHUT_WR)
                while part := client.recv(65536):
                    said += part
    return said


@contextlib.contextmanager
def slow_clients(path: Path, data: bytes, count: int) -> Iterator[None]:
    """Clients that send a byte of `data` now and then, and never read, meanwhile."""
    stop = threading.Event()

    def drip() -> None:
        with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
            client.connect(str(path))
            for byte in data:
                client.send(bytes((byte,)))
                if stop.wait(0.05):
                    return

    threads = [threading.Thread(target=drip) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def lines_of_garbage(draw: random.Random, right: list[bytes]) -> list[bytes]:
    """Lines that are no request, or almost one."""
    lines = [
        b"",
        b"\0",
        b"null",
        b"[]",
        b"{" * 60_000,
        b"[" * 60_000,
        b'{"a":' * 9_000,
        b"x" * 1_000_000,
        b'{"method":"lookup","parameters":' + b"9" * 5_000 + b"}",
        b'{"command":"status","command":["status"]}',
        *right,
    ]
    for line in right * 40:
        data = bytearray(line)
        for _ in range(draw.randrange(1, 6)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        lines.append(bytes(data))
    return lines


def methods() -> list[bytes]:
    """Requests of the remote backend's protocol, with values of wrong types and sizes."""
    values: list[object] = [
        None,
        0,
        -1,
        1e308,
        "",
        "x" * 300,
        ".",
        "\u0000",
        "\ud7ff",
        [],
        {},
        [[]],
        "a." * 200,
    ]
    found = []
    for method in ("initialize", "lookup", "list", "getAllDomains", "getDomainInfo", "getAllDomainMetadata"):
        for value in values:
            parameters = {"qname": value, "qtype": value, "zonename": value, "name": value, "remote": value}
            found.append(json.dumps({"method": method, "parameters": parameters}).encode())
        found.append(json.dumps({"method": method, "parameters": "x"}).encode())
    found += [json.dumps({"method": value, "parameters": {}}).encode() for value in values]
    return found


def test_garbage_at_the_connector_harms_nobody(attacked: Attacked) -> None:
    path = attacked.chain.folder / "remote.sock"
    draw = random.Random(1)
    lookup = json.dumps({"method": "lookup", "parameters": {"qname": OWNER + ".", "qtype": "ANY"}}).encode()
    with attacked.unharmed(), slow_clients(path, lookup * 3, 30):
        for line in lines_of_garbage(draw, [*methods(), lookup][::2]):
            send(path, line + b"\n", wait=draw.random() < 0.5)
        for _ in range(200):
            send(path, lookup[: draw.randrange(len(lookup))], wait=False)
            send(path, (lookup + b"\n") * draw.randrange(1, 50), wait=False)
        with contextlib.ExitStack() as idle:
            for _ in range(600):  # more than it takes
                idle.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
            time.sleep(1.2)  # PowerDNS has to ask again meanwhile
        with pytest.raises(TimeoutError):  # who does not read the replies is not read any more
            send(path, draw.randbytes(3_000_000), timeout_s=0.5)
        said = send(path, b"garbage\n" + lookup + b"\n")
        assert said.count(b"\n") == 2, "the next request after garbage is answered"
        assert b"SRV" in said


@pytest.mark.parametrize("service", ["backend", "agent"])
def test_garbage_at_the_control_sockets_harms_nobody(attacked: Attacked, service: str) -> None:
    path = attacked.chain.folder / {"backend": "admin.sock", "agent": "agent.sock"}[service]
    draw = random.Random(2)
    # Without "drain": that would be obeyed.
    asked = [
        b'{"command":"status","x":1}',
        b'{"command":"reload","name":{}}',
        b'{"command":"undrain","name":[1]}',
    ]
    with attacked.unharmed():
        with slow_clients(path, asked[0], 30):
            for _ in range(30):
                send(path, asked[0] + b"\n", wait=False)
        for line in lines_of_garbage(draw, asked):
            said = send(path, line + b"\n", wait=draw.random() < 0.5)
            assert not said or b'"error"' in said or b'"result"' in said
    assert request(path, "status")


def follower_ports(chain: Chain) -> set[str]:
    """The ports at which the backend waits for pushes of the registrars."""
    shown = json.loads(chain.namespace.run(str(SCTPD), "--status", "--json").stdout)["sockets"]
    listening = [socket for socket in shown if socket["state"] == "listening"]
    backends = [pid for pid, command in chain.processes().items() if "rspdns.cli serve" in command]
    return {str(socket["port"]) for socket in listening if socket["process"] in backends}


def test_sctp_messages_of_strangers_and_of_a_hostile_registrar_harm_nobody(attacked: Attacked) -> None:
    """The stranger speaks to the ports of agent and backend, where registrars would; the registrar, to the
    associations of both."""
    chain = attacked.chain
    port = registration_port(chain.registrars.hsdump(1), ADDRESS, "5060/UDP")
    seeds = [*asap_seeds(HANDLE.encode()), *enrp_seeds()]
    lines = chain.folder / "messages.hex"
    lines.write_text("".join(f"{data.hex()}\n" for data in mutated(seeds, 200, random.Random(3))))
    before = attacked.hostile.read_text().count("messages")
    with attacked.unharmed():
        ports = [str(port), *follower_ports(chain)]
        assert len(ports) > 1
        for to, ppid in itertools.product(ports, ("11", "12", "0", "4294967295")):
            sent = chain.namespace.run(
                *("sh", "-c", 'exec "$0" "$1" "$2" "$3" "$4" < "$5"'),
                *(sys.executable, str(SENDER), ADDRESS, to, ppid, str(lines)),
                sctp=True,
                timeout_s=150,
            )
            assert sent.returncode == 0, sent.stderr
        until(lambda: attacked.hostile.read_text().count("messages") > before + 8)
    until(chain.backend.is_known, told=chain.backend.log)
    status = chain.backend.status() or {}
    assert status["registrars"][3]["standing"] != "settled"
    until(
        lambda: {member["port"] for member in chain.backend.pool()["members"]} == ALL, told=chain.backend.log
    )


def test_packets_that_are_no_sctp(attacked: Attacked) -> None:
    chain = attacked.chain
    lost = (chain.sidecar.log).read_text().count("registrar_lost")
    with attacked.unharmed():
        done = subprocess.run(
            chain.namespace.command(sys.executable, str(SCTP_USERLAND / "tests/raw_sctp.py"), ADDRESS),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        packets, pairs = map(int, done.stdout.split())
        assert packets > 1000
        assert pairs > 10, "it has seen the associations"
    assert (chain.sidecar.log).read_text().count("registrar_lost") == lost


def test_the_chain_still_works(attacked: Attacked) -> None:
    """A member that dies leaves, and joins again: nothing got stuck."""
    kill(attacked.sip[5061])
    until(lambda: attacked.chain.targets_at(OWNER) == ALL - {5061}, 5)
    attacked.sip[5061] = attacked.chain.start_sip(5061)
    until(lambda: attacked.chain.targets_at(OWNER) == ALL, 10)
