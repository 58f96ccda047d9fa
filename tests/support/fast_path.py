"""A name server whose kernel answers: PowerDNS, backend and rspdns-fastpath; a client beside it.

PowerDNS listens at two addresses of each family; rspdns-fastpath knows one of each. So the same question can
be asked both ways.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pool_user import PoolView
from rspdns.fastpath import FastPath, LimitConfig
from rspdns.zones.zone import Zone
from rspdns_lab.net.network import call_in

from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.pdns import Pdns
from tests.support.served import ScriptedBackend
from tests.support.waiting import until

FOLDER = REPOSITORY / "fastpath"
FAST, SLOW = "10.99.0.1", "10.99.0.3"
FAST_6, SLOW_6 = "fd00:99::1", "fd00:99::3"
CLIENT, CLIENT_6 = "10.99.0.2", "fd00:99::2"
LEASE_S = 1.0
SIOCETHTOOL, ETHTOOL_GFLAGS, ETHTOOL_SFLAGS, ETH_FLAG_RXVLAN = 0x8946, 0x25, 0x26, 1 << 8
ETHTOOL_STXCSUM = 0x17


@cache
def built(target: str = "all") -> Path:
    """The daemon; skips the test where it can't be built or the kernel takes no BPF program."""
    made = subprocess.run(["make", "-C", FOLDER, target], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return FOLDER / ("build-asan" if target == "asan" else "build") / "rspdns-fastpath"


@cache
def why_not() -> str:
    """Why no BPF program can be loaded here; empty: it can."""
    done = subprocess.run([built(), "probe"], capture_output=True, text=True, check=False, timeout=60)
    return done.stderr.strip() if done.returncode else ""


def needs_bpf() -> None:
    """Skip the test where the kernel takes no BPF program."""
    why = why_not()
    if why:
        pytest.skip(f"no BPF program can be loaded here: {why}")


@dataclass
class FastStage:
    """All of it. At FAST the kernel answers, at SLOW PowerDNS alone."""

    server: Namespace
    client: Namespace
    folder: Path
    backend: ScriptedBackend
    pdns: Pdns
    link: FastPath
    daemons: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        """The daemon's."""
        return self.folder / "fastpath.sock"

    def start_daemon(
        self, *options: str, target: str = "all", interface: str = "server"
    ) -> subprocess.Popen[str]:
        """Start the daemon; return when it listens."""
        addresses = [part for address in (FAST, FAST_6) for part in ("--address", address)]
        command = [str(built(target)), "run", "--interface", interface, *addresses]
        daemon = self.server.start(
            *command, "--socket", str(self.socket), *options, log=self.folder / "fastpath.log"
        )
        self.daemons.append(daemon)
        until(lambda: self.socket.exists() or daemon.poll() is not None)
        assert daemon.poll() is None, (self.folder / "fastpath.log").read_text()
        return daemon

    def connect(self) -> None:
        """Make the link between both anew."""
        connect(self.server, self.client)

    def command(self, *words: str) -> str:
        """The output of `rspdns-fastpath WORDS`."""
        done = self.server.run(str(built()), *words, "--socket", str(self.socket))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        """The daemon's status."""
        told: dict[str, Any] = json.loads(self.command("status"))
        return told

    def decisions(self) -> dict[str, int]:
        """How often each decision was made."""
        found: dict[str, int] = self.status()["decisions"]
        return found

    def wait_until_ready(self) -> None:
        """Wait until the kernel has all answers, and the lease."""
        log = self.folder / "fastpath.log"
        until(lambda: self.link.problem is None and self.status()["lease_ms"] > 0, told=log)

    def ask(self, script: str, *arguments: str, timeout_s: float = 200) -> Any:
        """Run a script at the client; return the JSON that it prints."""
        file = self.folder / f"{uuid.uuid4().hex}.py"
        file.write_text(script)
        done = self.client.run(sys.executable, str(file), *arguments, timeout_s=timeout_s)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@contextmanager
def fast_stage(
    zones: Sequence[Zone],
    views: Mapping[str, PoolView],
    folder: Path,
    *options: str,
    target: str = "all",
    limit: LimitConfig | None = None,
    **settings: Any,
) -> Iterator[FastStage]:
    """Serve these zones until the end of the block; `options` are the daemon's."""
    needs_bpf()
    name = f"rspdns-test-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    server = Namespace(name)
    try:
        client = Namespace(f"{name}c")
        try:
            connect(server, client)
            near = bool(settings.get("near"))
            link = FastPath(str(folder / "fastpath.sock"), 1232, limit=limit, client_subnet=near)
            pdns = Pdns(server, folder, address=FAST, **settings)
            config = pdns.folder / "pdns.conf"
            every = ",".join((FAST, SLOW, FAST_6, SLOW_6))
            text = config.read_text().replace(f"local-address={FAST}\n", f"local-address={every}\n")
            assert every in text
            config.write_text(text)
            backend = ScriptedBackend(zones, folder, [pdns.control], fastpath=link)
            stage = FastStage(server, client, folder, backend, pdns, link)
            stage.start_daemon(*options, target=target)
            backend.start(views)
            try:
                pdns.start(zones[0].name)
                stage.wait_until_ready()
                yield stage
            finally:
                backend.stop()
                for daemon in stage.daemons:
                    if daemon.poll() is None:
                        daemon.terminate()
                        daemon.wait(30)
        finally:
            client.close()
    finally:
        server.close()


def connect(server: Namespace, client: Namespace) -> None:
    """A veth pair between both, with its addresses."""
    server.ip(
        *("link", "add", "server", "type", "veth", "peer", "name", "client", "netns", client.name),
    )
    for namespace, interface, addresses in (
        (server, "server", (f"{FAST}/24", f"{SLOW}/24", f"{FAST_6}/64", f"{SLOW_6}/64")),
        (client, "client", (f"{CLIENT}/24", f"{CLIENT_6}/64")),
    ):
        for address in addresses:
            more = ["nodad"] if ":" in address else []
            namespace.ip("address", "add", address, "dev", interface, *more)
        namespace.ip("link", "set", interface, "up")
    take_vlan_tags_out(server, "server", wanted=False)


def take_vlan_tags_out(namespace: Namespace, interface: str, *, wanted: bool) -> None:
    """The effect of `ethtool -K INTERFACE rxvlan on|off`. XDP modes are refused where it is on."""

    def set_flag() -> None:
        flags = _ask_driver(interface, ETHTOOL_GFLAGS) & ~ETH_FLAG_RXVLAN
        _ask_driver(interface, ETHTOOL_SFLAGS, flags | ETH_FLAG_RXVLAN if wanted else flags)

    call_in(Path("/run/netns") / namespace.name, set_flag)


def leave_checksums_to_hardware(namespace: Namespace, interface: str, *, wanted: bool) -> None:
    """The effect of `ethtool -K INTERFACE tx on|off`. On veth they stay undone."""
    call_in(Path("/run/netns") / namespace.name, lambda: _ask_driver(interface, ETHTOOL_STXCSUM, int(wanted)))


def _ask_driver(interface: str, what: int, flags: int = 0) -> int:
    value = array.array("I", [what, flags])
    request = struct.pack("16sQ16x", interface.encode(), value.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, request)
    return value[1]
