"""Gateways of a cell of real registrars below an upper name server: two side by side, shards, each death."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.backend import FIXED, OWNER, ZONE
from tests.support.chain import Chain
from tests.support.members import Members
from tests.support.namespaces import Namespace
from tests.support.registrars import Registrars
from tests.support.stalls import Mark
from tests.support.waiting import until

CELL = "10.99.0.2"
GATEWAYS = ("10.99.0.31", "10.99.0.32")
NAME = f"as.eu1.{ZONE}"
UPPER_POOL = f"""
[[pool]]
handle = "sip"
service = "_sip._udp"
name = "as"
accept = ["10.99.0.30/31", "10.99.0.32/32"]
slow_start_s = 0
cells = {{ "10.99.0.30/31" = "{NAME}", "10.99.0.32" = "{NAME}" }}
"""
DELEGATION = FIXED + "eu1 NS ns.eu1\nns.eu1 A 10.99.0.21\n"


def gateway_toml(folder: Path, address: str, cell: list[str], upper: list[str]) -> Path:
    """The configuration of the gateway at this address: a pool of two shards."""
    path = folder / f"gateway-{address}.toml"
    path.write_text(
        f"registrars = {json.dumps(cell)}\nupper_registrars = {json.dumps(upper)}\n"
        f'address = "{address}"\nreregistration_ms = 300\n[control]\npath = "{folder}/{address}.sock"\n'
        f'[[pool]]\nhandles = ["sip-a", "sip-b"]\nupper_handle = "sip"\naccept = ["{CELL}/32"]\n'
    )
    return path


def start(namespace: Namespace, config: Path) -> subprocess.Popen[str]:
    """A gateway; `rspdns gateway run`."""
    words = (sys.executable, "-m", "rspdns.cli", "gateway", "run", "-c", str(config), "--log-json")
    return namespace.start(*words, sctp=True, log=config.with_suffix(".log"))


def test_two_gateways_of_a_cell_count_once_and_each_may_end(namespace: Namespace, tmp_path: Path) -> None:
    chain = Chain(namespace, tmp_path)
    for address in (CELL, *GATEWAYS):
        namespace.ip("addr", "add", f"{address}/24", "dev", "eth0")
    (tmp_path / "cell").mkdir()
    cell = Registrars(namespace, tmp_path / "cell", CELL, supervised=True, reregistration_ms=300)
    chain.backend.write_zone(UPPER_POOL, DELEGATION)
    chain.start()
    servers = Members(namespace, tmp_path, CELL, cell.addresses)
    for number, handle in enumerate(("sip-a", "sip-b", "sip-b"), 1):
        servers.add(number, handle, 5000 + number, load=0.2)
    configs = [
        gateway_toml(tmp_path, address, cell.addresses_with_enrp, chain.registrars.addresses)
        for address in GATEWAYS
    ]

    def upper() -> set[str]:
        """The gateways that the upper registrars list."""
        return {address for each in chain.backend.pool()["members"] for address in each["addresses"]}

    def is_shown() -> bool:
        """Whether the upper name leads to the cell, once."""
        return [line.split()[3] for line in chain.pdns.short(OWNER, "SRV")] == [f"{NAME}."]

    def pool_of(config: Path) -> dict[str, object]:
        """The pool in the status of a gateway."""
        words = (sys.executable, "-m", "rspdns.cli", "gateway", "status", "--json", "-c", str(config))
        found: dict[str, object] = json.loads(namespace.run(*words).stdout)["pool"][0]
        return found

    gateways = [start(namespace, config) for config in configs]
    until(lambda: upper() == set(GATEWAYS), told=configs[0].with_suffix(".log"))
    assert is_shown(), "the cell, not its gateways"
    for config in configs:
        found = pool_of(config)
        assert (found["members"], found["capacity"], found["load"]) == (3, 3.0, 0.2), "of both shards"

    gateways[0].send_signal(signal.SIGTERM)
    left = Mark.now()
    until(lambda: upper() == {GATEWAYS[1]}, every_s=0.01)
    assert left.ran_s() < 5
    assert gateways[0].wait(30) == 0
    assert is_shown()
    again = start(namespace, configs[0])
    until(lambda: upper() == set(GATEWAYS), told=configs[0].with_suffix(".log"))

    os.killpg(gateways[1].pid, signal.SIGKILL)
    gateways[1].wait()
    until(lambda: upper() == {GATEWAYS[0]}, told=chain.backend.log)
    assert is_shown()

    servers.remove(1)
    until(lambda: pool_of(configs[0])["members"] == 2)
    again.send_signal(signal.SIGTERM)
    until(lambda: upper() == set(), told=chain.backend.log)
    assert again.wait(30) == 0
