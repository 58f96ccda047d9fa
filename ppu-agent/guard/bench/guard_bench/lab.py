"""A client, a gateway and a server, each a network namespace; the guard; programs that make many set-ups."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import shlex
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from daemon_kit.child import die_with_parent
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, LabNetwork, call_in, network_prefix
from rspdns_lab.net.preconditions import compile_c
from rspdns_lab.net.processes import processor_s

GuardPlace = Literal["routed", "bridged"]
HOUSE: Final = Path(__file__).parents[2]
PROGRAM: Final = HOUSE / "build" / "ppu-guard"
SOURCE: Final = HOUSE / "bench" / "setups.c"
PORT: Final = 5060
SILENT: Final = "10.2.0.9"
"""An address that leads to the server's host, where nobody has it."""
SERVERS: Final = tuple(f"10.2.0.{number}" for number in range(1, 255))
_CLIENT, _SERVER = "10.1.255.2", "10.2.255.2"
_TOLD_WITHIN_S: Final = 20.0
_RENEW_EVERY_S: Final = 0.5
_NICE: Final = -10
_NICE_LOAD: Final = -5
_BPF_ENABLE_STATS: Final = 32
_BPF: Final = {"x86_64": 321, "aarch64": 280}


class Guard:
    """ppu-guard in a network namespace, with a lease that is renewed while this object lives.

    Raises LabError when it does not begin. `counters` is the last that it said of itself, once a second.
    """

    def __init__(
        self,
        namespace: Path,
        interface: str,
        members: Iterable[str],
        *,
        pending: int,
        repeat: str = "fixed",
        program: Path = PROGRAM,
    ) -> None:
        if not program.exists():
            raise LabError(f"{program} is missing: `make` builds it (clang, libbpf-dev)")
        self.counters: Mapping[str, Any] = {}
        self.is_renewing = True
        self.process = subprocess.Popen(
            ["nsenter", f"--net={namespace}", "--", str(program), "--pending", str(pending), interface],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        with contextlib.suppress(OSError):  # as its unit does
            os.setpriority(os.PRIO_PROCESS, self.pid, _NICE)
        self._words = ""
        self.say("\n".join([*(f"member {member} {repeat}" for member in members), "commit"]))
        for work in (self._read, self._renew):
            threading.Thread(target=work, daemon=True).start()
        end_s = time.monotonic() + _TOLD_WITHIN_S
        while self.counters.get("interfaces") != {interface: ""}:
            if self.process.poll() is not None or time.monotonic() > end_s:
                self.stop()
                raise LabError(f"ppu-guard does not run here: {self._words or self.counters}")
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        """Its process: nsenter becomes it."""
        return self.process.pid

    def say(self, words: str) -> None:
        """Say something as the agent does."""
        with contextlib.suppress(OSError, ValueError):
            if self.process.stdin is not None:
                self.process.stdin.write(words + "\n")

    def count(self, name: str) -> int:
        """The events under this name that the guard has counted."""
        return int(self.counters.get(f"{name}_count", 0))

    def stop(self) -> None:
        """End it in order, as the end of the agent does; by force when that takes long. Safe to repeat."""
        with contextlib.suppress(OSError):
            self.process.send_signal(signal.SIGCONT)
            if self.process.stdin is not None:
                self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it by force: its program stays at the interface."""
        self.process.kill()
        self.process.wait()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            try:
                self.counters = json.loads(line)
            except ValueError:
                self._words = line.strip()

    def _renew(self) -> None:
        while self.process.poll() is None:
            if self.is_renewing:
                self.say("renew")
            time.sleep(_RENEW_EVERY_S)


class GuardLab:
    """The network, and what runs in it. A context manager. Raises LabError."""

    def __init__(self, way: GuardPlace) -> None:
        self.way = way
        self.network = LabNetwork(network_prefix(), prefix_length=30)
        self._cleanup = contextlib.ExitStack()
        self.gate = Path("/run/netns") / f"{self.network.prefix}-lan"

    def __enter__(self) -> GuardLab:
        with contextlib.ExitStack() as cleanup:
            cleanup.enter_context(self.network)
            self.client = self.network.add_host("client", _CLIENT)
            self.server = self.network.add_host("server", _SERVER)
            self._connect()
            folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="rspdns-guard-")))
            self._setups = build_setups(folder)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def guard(self, addresses: Iterable[str] = SERVERS, pending: int = 100_000) -> Guard:
        """Start the guard at the client's side of the gateway."""
        return Guard(self.gate, "client", (f"{address} {PORT} tcp" for address in addresses), pending=pending)

    def deafen(self) -> None:
        """Have the kernels of client and server drop TCP: load is none of theirs, and costs what others need.

        The programs of the load still get it: packet sockets for all protocols come first.
        """
        chain = "chain in { type filter hook ingress device eth0 priority 0; ip protocol tcp drop; }"
        for host in (self.client, self.server):
            _run(["ip", "netns", "exec", host.namespace, "nft", f"table netdev lab {{ {chain}; }}"])

    def respond(self, dropped: float, seed: int) -> subprocess.Popen[str]:
        """Start the server's side: it answers set-ups, but drops this share of the SYNs."""
        mac = mac_of(self.gate, "server") if self.way == "routed" else mac_of(self.client.path, "eth0")
        process = subprocess.Popen(
            [*_in(self.server), str(self._setups), "respond", "eth0", mac, str(dropped), str(seed)],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        if process.stdout is None or process.stdout.readline() != "ready\n":
            process.kill()
            raise LabError("the lab's responder does not run here")
        return process

    def generate(
        self, count: int, rate_per_s: float, *, burst: int, seed: int, wait_ms: int
    ) -> dict[str, Any]:
        """Begin this number of set-ups, and return their results."""
        mac = mac_of(self.gate, "client") if self.way == "routed" else mac_of(self.server.path, "eth0")
        words = (count, rate_per_s, burst, seed, wait_ms)
        command = [*_in(self.client), str(self._setups), "generate", "eth0", mac, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LabError(f"the lab's generator failed: {done.stderr.strip()}")
        return dict(json.loads(done.stdout))

    def _connect(self) -> None:
        client, server, gate = self.client.namespace, self.server.namespace, self.gate.name
        mac = mac_of(self.server.path, "eth0")
        for path, forwards in ((self.gate, "1"), (self.client.path, "0"), (self.server.path, "0")):
            call_in(path, partial(Path("/proc/sys/net/ipv4/ip_forward").write_text, forwards))
        if self.way == "bridged":
            _ip(client, "route", "add", "10.2.0.0/16", "dev", "eth0")
            _ip(client, "neigh", "add", SILENT, "lladdr", mac, "dev", "eth0")
            return
        for host, link, net in ((client, "client", "10.1"), (server, "server", "10.2")):
            _ip(gate, "link", "set", link, "nomaster")
            _ip(gate, "addr", "add", f"{net}.255.1/30", "dev", link)
            _ip(gate, "route", "add", f"{net}.0.0/24", "via", f"{net}.255.2")
            _ip(host, "route", "add", "default", "via", f"{net}.255.1")
            here = Path("/run/netns") / host
            _ip(gate, "neigh", "add", f"{net}.255.2", "lladdr", mac_of(here, "eth0"), "dev", link)


def build_setups(folder: Path) -> Path:
    """Compile the generator and responder into `folder`, and return where it is. Raises LabError."""
    return compile_c(SOURCE, folder / "setups", "-pthread")


def mac_of(namespace: Path, link: str) -> str:
    """Return the MAC address of a link in a namespace."""
    command = ["nsenter", f"--net={namespace}", "--", "ip", "-json", "link", "show", link]
    return str(
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)[0]["address"]
    )


def _in(host: Host) -> list[str]:
    """How a program is started on a host, before what else this machine does: it must not lose packets."""
    return ["nice", "-n", str(_NICE_LOAD), "nsenter", f"--net={host.path}", "--"]


def _ip(namespace: str, *words: str) -> None:
    _run(["ip", "-netns", namespace, *words])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"can't set up the network: {shlex.join(command)}: {done.stderr.strip()}")


class ProcessorUse:
    """The guard's processor time: its process, and its BPF programs while packets pass."""

    def __init__(self, guard: Guard) -> None:
        self._pid = guard.pid
        self._statistics = _count_bpf_time()
        self._began = self._used_s()

    def used_s(self) -> float:
        """Seconds of processor time since the beginning."""
        return self._used_s() - self._began

    def close(self) -> None:
        """Have the kernel count no more."""
        os.close(self._statistics)

    def _used_s(self) -> float:
        return processor_s(self._pid) + bpf_s(self._pid)


def bpf_s(pid: int) -> float:
    """Return the time that BPF programs of a process ran, as its descriptors tell (while it is counted)."""
    found: dict[str, int] = {}
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        fields = _fields(file)
        if "run_time_ns" in fields:
            found[fields["prog_id"]] = int(fields["run_time_ns"])
    return sum(found.values()) / 1e9


def memory_bytes(pid: int) -> int:
    """Return the memory of a process, with that of its BPF maps."""
    maps: dict[str, int] = {}
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        fields = _fields(file)
        if "map_id" in fields and "memlock" in fields:
            maps[fields["map_id"]] = int(fields["memlock"])
    status = _fields(Path(f"/proc/{pid}/status"))
    return sum(maps.values()) + int(status["RssAnon"].split()[0]) * 1024


def _fields(file: Path) -> dict[str, str]:
    with contextlib.suppress(OSError):
        lines = (line.partition(":") for line in file.read_text().splitlines())
        return {name: value.strip() for name, _, value in lines}
    return {}


def _count_bpf_time() -> int:
    """Have the kernel count BPF programs' time until the descriptor is closed. Raises LabError."""
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = ctypes.create_string_buffer(struct.pack("=I", 0), 128)
    number = _BPF.get(platform.machine())
    found: int = -1 if number is None else libc.syscall(number, _BPF_ENABLE_STATS, attributes, 128)
    if found < 0:
        raise LabError("the kernel does not count the time of BPF programs for this user; try root")
    return found
