"""`via = "sctp"` on a kernel's own SCTP, in a User-Mode Linux guest: both ends, over two networks.

ppe-agent runs whole, with `[relay]`. On ppu-agent's side only its `Channels` run, which speak SCTP: the
guest's kernel was built without nftables' NAT, which leads a front's packets to them. test_via.py tries
that part.
"""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from daemon_kit.control import ControlError
from ppu_agent.destinations import Destination
from ppu_agent.via import Channels
from rspdns_lab.net.network import call_in

from rserpool import DATA_CHANNEL_PORT, Protocol
from tests.support.guest import guest_command
from tests.support.namespaces import Namespace, own_namespace
from tests.support.sidecar import Sidecar, server_text
from tests.support.waiting import until

MUCH = os.urandom(300_000)
SERVER = IPv4Address("10.98.1.1")
UDP, TCP = Destination(SERVER, Protocol.UDP, 5060), Destination(SERVER, Protocol.TCP, 5070)
PATIENCE_S = 120.0
"""System calls are some 50 times slower in the guest."""
AGAIN_S = 5.0


@pytest.mark.timeout(600)
def test_data_channels_pass_a_kernels_sctp_and_outlive_one_of_two_networks(tmp_path: Path) -> None:
    results = tmp_path / "via.json"
    job = Path(__file__).parents[1] / "support" / "guest_python.sh"
    words = {"python": sys.executable, "module": "tests.ppu_agent.test_via_on_a_kernel", "results": results}
    subprocess.run(
        guest_command(job, memory_mb=512, **words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=580,
        check=False,
    )
    log = results.with_name("via.json.log")
    told = log.read_text() if log.exists() else "the guest did not run its job"
    assert results.exists(), told
    assert json.loads(results.read_text()) == {
        "sctp": "the kernel's",
        "datagram": True,
        "stream": True,
        "first network lost": True,
    }, told


# The code that runs in the guest


def serve() -> None:
    """Echo servers, for as long as the guest runs."""
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((str(SERVER), UDP.port))
    streams = socket.create_server((str(SERVER), TCP.port))

    def echo(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)

    def echo_datagrams() -> None:
        while True:
            datagrams.sendto(*datagrams.recvfrom(65536))

    def accept() -> None:
        while True:
            threading.Thread(target=echo, args=(streams.accept()[0],), daemon=True).start()

    for work in (echo_datagrams, accept):
        threading.Thread(target=work, daemon=True).start()


async def talk(there: Namespace) -> dict[str, object]:
    """The servers as a client's host sees them through its channels."""
    answers: asyncio.Queue[tuple[object, int, bytes]] = asyncio.Queue()
    channels = Channels(lambda *answer: answers.put_nowait(answer), ipv6=False)
    channels.start()
    found: dict[str, object] = {}
    async with asyncio.timeout(PATIENCE_S):
        answer: object = None
        while answer is None:  # as a client does: UDP may lose what waits for an association that fails
            channels.send(UDP, DATA_CHANNEL_PORT, 7, b"who is there?")
            with contextlib.suppress(TimeoutError):
                answer = await asyncio.wait_for(answers.get(), AGAIN_S)
        found["datagram"] = answer == (SERVER, 7, b"who is there?")
    print("datagram", flush=True)
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await channels.open(TCP, DATA_CHANNEL_PORT)
        writer.write(MUCH)
        writer.write_eof()
        found["stream"] = await reader.read() == MUCH
    print("stream", flush=True)
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await channels.open(TCP, DATA_CHANNEL_PORT)
        writer.write(b"one")
        before = await reader.readexactly(3)
        there.ip("link", "set", "first", "down")
        writer.write(b"two")
        found["first network lost"] = (before, await reader.readexactly(3)) == (b"one", b"two")
    await channels.close()
    return found


def listens(sidecar: Sidecar) -> bool:
    """Whether ppu-agents can reach the sidecar."""
    try:
        return bool(sidecar.status()["relay"]["is_open"])
    except ControlError:
        return False


def in_the_guest(results: Path) -> None:
    """Two hosts with two networks between them; one has the servers and their sidecar."""
    with own_namespace() as there, own_namespace() as here, tempfile.TemporaryDirectory(dir="/run") as folder:
        for number, name in enumerate(("first", "second"), start=1):
            there.ip("link", "add", name, "type", "veth", "peer", "name", name, "netns", here.name)
            for namespace, last in ((there, 1), (here, 2)):
                namespace.ip("address", "add", f"10.98.{number}.{last}/24", "dev", name)
                namespace.ip("link", "set", name, "up")
        there.route_clients()
        sidecar = Sidecar(there, Path(folder), ["10.98.1.2"])
        servers = [
            server_text("udp", "sip-udp", "udp", UDP.port, "sip-options"),
            server_text("tcp", "sip-tcp", "tcp", TCP.port, "tcp"),
        ]
        relayed = [server.replace("[[as.check]]", "relay = true\n[[as.check]]", 1) for server in servers]
        sidecar.configure('[relay]\naccept = ["10.98.0.0/16"]\n', *relayed)
        call_in(Path("/run/netns") / there.name, serve)
        sidecar.start()
        # Its control socket is there before it listens for ppu-agents: a datagram sent then would be lost.
        until(lambda: listens(sidecar), PATIENCE_S, sidecar.log, every_s=0.5)
        found = call_in(Path("/run/netns") / here.name, lambda: asyncio.run(talk(there)))
        maps = Path("/proc/self/maps").read_text()
        found["sctp"] = "not the kernel's" if "libsctp-userland" in maps else "the kernel's"
        results.write_text(json.dumps(found))


if __name__ == "__main__":
    in_the_guest(Path(sys.argv[1]))
