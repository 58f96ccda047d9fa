"""The backend with 1,000 pools of 10 PEs: start-up, memory, and processor time while nobody asks."""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from rspdns_lab.errors import LabError
from rspdns_lab.hosts import wait_until
from rspdns_lab.network import Host
from rspdns_lab.processes import Program

POOLS, MEMBERS = 1000, 10
ZONE = "scale.example.net"
HOT_FOR_S = 5
"""At its start the backend asks about every pool often, for this long (60 s unless configured)."""
BOUNDS = {"rss_mib": 300.0, "idle_cpu_percent": 10.0, "startup_s": 5.0}
"""What is aimed at."""


def write(folder: Path) -> None:
    """Write the configuration."""
    (folder / "zones.d").mkdir(parents=True)
    (folder / "rspdns.toml").write_text(
        'registrars = ["10.78.0.1", "10.78.0.2", "10.78.0.3"]\n'
        f'follow = "poll"\npoll_hot_for_s = {HOT_FOR_S}\n'
        f'[pdns]\nconnector = "unix:{folder}/remote.sock"\ncontrol = ["{folder}/pdns.controlsocket"]\n'
        f'[admin]\nsocket = "{folder}/admin.sock"\n[state]\npath = "{folder}/state"\n'
    )
    (folder / "zones.d" / f"{ZONE}.zone").write_text(
        f"$ORIGIN {ZONE}.\n$TTL 300\n@ SOA ns hostmaster 1 3600 600 86400 5\n@ NS ns\nns A 10.78.255.1\n"
    )
    pools = "".join(
        f'[[pool]]\nhandle = "pool-{pool}"\nlabel = "u"\nservice = "_sip._udp"\nname = "as{pool}"\n'
        'accept = ["10.0.0.0/8"]\n'
        for pool in range(POOLS)
    )
    (folder / "zones.d" / f"{ZONE}.toml").write_text(f'zone = "{ZONE}"\nstatic = "{ZONE}.zone"\n{pools}')


def run_scale(host: Host, folder: Path, seconds: int, say: Callable[[str], None]) -> dict[str, float]:
    """Start it and look at it for `seconds`. Raises LabError."""
    write(folder)
    known = folder / "known"
    command = [
        sys.executable,
        "-m",
        "rspdns_lab.bench_scale_backend",
        str(folder / "rspdns.toml"),
        str(known),
    ]
    backend = Program("backend", host, command, folder / "backend.log")
    began_s = time.monotonic()
    backend.start()
    try:
        wait_until(known.exists, "the backend that knows every pool", 600, backend)
        startup_s = float(known.read_text()) - began_s
        time.sleep(HOT_FOR_S + 12)  # the last-known-good file is written, every pool had its turn
        process = psutil.Process(backend.pid)
        used = [0.0]
        process.cpu_percent()
        for _ in range(seconds):
            time.sleep(1)
            used.append(process.cpu_percent())
        figures = {
            "startup_s": startup_s,
            "rss_mib": process.memory_info().rss / 2**20,
            "idle_cpu_percent": statistics.mean(used[1:]),
        }
    except psutil.Error as problem:
        raise LabError(f"the backend ended: {problem}") from None
    finally:
        backend.stop()
    say(
        f"{POOLS:,} pools of {MEMBERS}: all known after {figures['startup_s']:.1f} s, "
        f"{figures['rss_mib']:.0f} MiB, {figures['idle_cpu_percent']:.1f} % of a core idle"
    )
    return figures
