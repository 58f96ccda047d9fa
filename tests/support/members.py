"""Registers pool elements as a test says: a program with a control socket, and `Members` to drive it.

python members.py CONTROL_SOCKET ADDRESS REGISTRAR...
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast

from daemon_kit.control import ControlCommand, ControlError, ControlServer, request

from rserpool import (
    LeastUsed,
    PoolElement,
    PoolElementClient,
    Protocol,
    RegistrarAddress,
    Transport,
)
from tests.support.namespaces import REPOSITORY, Namespace

REREGISTRATION_MS = 1000
PATIENCE_S = 60.0


class Members:
    """Pool elements in a process of their own; `kill()` takes them all without a word."""

    def __init__(
        self, namespace: Namespace, folder: Path, address: str, registrars: list[str], name: str = "members"
    ) -> None:
        self._control = folder / f"{name}.sock"
        self._process = namespace.start(
            *(sys.executable, "-m", "tests.support.members", str(self._control), address, *registrars),
            sctp=True,
            log=folder / f"{name}.log",
            environment={"PYTHONPATH": str(REPOSITORY)},
        )
        wait_for_control(self._control, self._process, folder / f"{name}.log")

    def add(
        self,
        identifier: int,
        handle: str,
        port: int,
        load: float = 0.0,
        *,
        is_echo: bool = False,
    ) -> None:
        """Register one, which answers SIP OPTIONS over UDP. `is_echo`: the server there echoes what is no SIP
        and answers nothing else, and it lives on when the element is removed."""
        request(
            self._control,
            "add",
            timeout_s=PATIENCE_S,
            identifier=identifier,
            handle=handle,
            port=port,
            load=load,
            is_echo=is_echo,
        )

    def set_load(self, identifier: int, load: float) -> None:
        """Register it again with this load."""
        request(self._control, "load", timeout_s=PATIENCE_S, identifier=identifier, load=load)

    def remove(self, identifier: int) -> None:
        """Deregister it."""
        request(self._control, "remove", timeout_s=PATIENCE_S, identifier=identifier)

    def kill(self) -> None:
        """The whole process dies."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def process(self) -> subprocess.Popen[str]:
        """The process."""
        return self._process


def wait_for_control(control: Path, process: subprocess.Popen[str], log: Path) -> None:
    """Wait until the program listens at its control socket."""
    end_s = time.monotonic() + 60
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(str(control)) == 0:
                return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end_s
        time.sleep(0.02)


class _Program:
    def __init__(self, address: str, registrars: list[str]) -> None:
        self._address = address
        self._registrars = [RegistrarAddress.parse(text) for text in registrars]
        self._clients: dict[int, PoolElementClient] = {}
        self._servers: dict[int, asyncio.DatagramTransport] = {}

    async def add(self, wanted: dict[str, Any]) -> dict[str, Any]:
        transport = Transport(Protocol.UDP, wanted["port"], (ip_address(self._address),), False)
        policy = LeastUsed(wanted["load"])
        element = PoolElement(wanted["identifier"], 0, 3 * REREGISTRATION_MS, transport, policy, None)
        client = PoolElementClient(
            self._registrars,
            wanted["handle"].encode(),
            element,
            local_addresses=[self._address],
            reregistration_ms=REREGISTRATION_MS,
        )
        loop = asyncio.get_running_loop()
        kind = _EchoServer if wanted["is_echo"] else _SipServer
        server, _ = await loop.create_datagram_endpoint(kind, (self._address, wanted["port"]))
        if not wanted["is_echo"]:
            self._servers[wanted["identifier"]] = server
        client.start()
        self._clients[wanted["identifier"]] = client
        return {}

    async def load(self, wanted: dict[str, Any]) -> dict[str, Any]:
        self._clients[wanted["identifier"]].update_policy(LeastUsed(wanted["load"]))
        return {}

    async def remove(self, wanted: dict[str, Any]) -> dict[str, Any]:
        client = self._clients.pop(wanted["identifier"])
        server = self._servers.pop(wanted["identifier"], None)
        if server is not None:
            server.close()
        if not await client.deregister(2000):
            raise ControlError("not deregistered")
        await client.close()
        return {}


class _SipServer(asyncio.DatagramProtocol):
    """Answers every request with 200 and the request's own headers."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: Any) -> None:
        kept = (b"via:", b"from:", b"to:", b"call-id:", b"cseq:")
        headers = [line for line in data.split(b"\r\n")[1:] if line.lower().startswith(kept)]
        lines = [b"SIP/2.0 200 OK", *headers, b"Content-Length: 0", b"", b""]
        self._transport.sendto(b"\r\n".join(lines), address)


class _EchoServer(asyncio.DatagramProtocol):
    """Sends every datagram back, but SIP requests."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: Any) -> None:
        if b"SIP/2.0" not in data:
            self._transport.sendto(data, address)


ADD = {
    "identifier": int,
    "port": int,
    "load": float,
    "handle": str,
    "is_echo": bool,
}


async def _main(control: str, address: str, *registrars: str) -> None:
    program = _Program(address, list(registrars))
    server = ControlServer(
        control,
        {
            "add": ControlCommand(program.add, ADD),
            "load": ControlCommand(program.load, {"identifier": int, "load": float}),
            "remove": ControlCommand(program.remove, {"identifier": int}),
        },
    )
    await server.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
