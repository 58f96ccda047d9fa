"""Whether `rspdns-registrar check` sees that a registrar of this host runs unprotected."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from daemon_kit import logs
from registrar_config import in_force, load_inventory
from registrar_config.gate import Gate, answer, gate_rules
from registrar_config.inventory import Inventory
from registrar_config.packet_filter import packet_filter
from registrar_config.render import registrar_options

from tests.support.waiting import until_async

INVENTORY = """\
filter = "elsewhere"
[[registrar]]
name = "r1"
address = "10.0.0.1"
[[registrar]]
name = "r2"
address = "10.0.0.2"
[[registrar]]
name = "r3"
address = "10.0.0.3"
"""

SERVERS = '[[agent]]\nname = "servers"\naddresses = ["10.20.0.0/16"]\n'


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    """An inventory whose files of r1 are in `tmp_path`."""
    (tmp_path / "inventory.toml").write_text(INVENTORY)
    loaded = load_inventory(tmp_path / "inventory.toml")
    rules = tmp_path / "registrar-r1.gate"
    rules.write_text(gate_rules(loaded, "r1"))
    options = registrar_options(loaded, 1, loaded.registrars["r1"], str(rules))
    (tmp_path / "registrar-r1.env").write_text(options)
    return loaded


@contextlib.asynccontextmanager
async def running(folder: Path, gate: Gate | None) -> AsyncIterator[None]:
    """Answer at the control socket of r1."""
    control = folder / "rspdns-registrar-r1" / "control.sock"
    control.parent.mkdir(exist_ok=True)
    stop = asyncio.Event()
    task = asyncio.create_task(answer(control, gate, stop))
    await until_async(control.exists)
    yield
    stop.set()
    await task


async def problems(inventory: Inventory, folder: Path) -> list[str]:
    return await asyncio.to_thread(lambda: list(in_force.missing(inventory, ["r1"], folder, folder)))


async def test_registrar_that_was_started_before_its_gate_was_there_is_told(
    inventory: Inventory, tmp_path: Path
) -> None:
    assert await problems(inventory, tmp_path) == []  # it is stopped
    async with running(tmp_path, None):
        [problem] = await problems(inventory, tmp_path)
    assert problem.startswith("no gate stands before registrar r1 of this host: it runs without one")
    assert "restart rspdns-registrar@r1" in problem
    gate = Gate(tmp_path / "registrar-r1.gate", logs.get_logger("gate"))
    async with running(tmp_path, gate):
        assert await problems(inventory, tmp_path) == []


async def test_gate_that_is_older_than_the_inventory_is_told(inventory: Inventory, tmp_path: Path) -> None:
    newer = inventory.model_copy(update={"registrar": inventory.registrar[:1]})
    [problem] = await problems(newer, tmp_path)
    assert problem.startswith(f"{tmp_path}/registrar-r1.gate is not made from this inventory")


async def test_nft_that_hangs_is_told(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nft = tmp_path / "nft"
    nft.write_text("#!/bin/sh\nexec sleep 60\n")
    nft.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda *_, **__: str(nft))
    monkeypatch.setattr(in_force, "_WITHIN_S", 0.2)
    filtered = inventory.model_copy(update={"filter": "nftables"})
    [problem] = await problems(filtered, tmp_path)
    assert "did not end within 0.2 s" in problem


async def test_filter_of_one_registrar_is_none_for_another_at_other_address_and_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each address has a file of its own, and one is loaded."""
    monkeypatch.setattr(in_force, "_gate_problem", lambda *_: "")
    monkeypatch.setattr(in_force, "_running_problem", lambda *_: "")
    (tmp_path / "nft").write_text(f"#!/bin/sh\ncat {tmp_path}/loaded\n")
    (tmp_path / "nft").chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda *_, **__: str(tmp_path / "nft"))

    def missing_with(address: str, ports: str = "") -> list[str]:
        text = INVENTORY.partition("\n")[2].replace('"10.0.0.2"', f'"{address}"\n{ports}')
        (tmp_path / "inventory.toml").write_text(text + SERVERS)
        inventory = load_inventory(tmp_path / "inventory.toml")
        (tmp_path / "loaded").write_text(packet_filter(inventory, "r1"))
        for name in ("r1", "r2"):
            (tmp_path / f"registrar-{name}.gate").write_text(gate_rules(inventory, name))
        return list(in_force.missing(inventory, ["r1", "r2"], tmp_path, tmp_path))

    other_ports = "asap_port = 3900\nenrp_port = 9950"
    [problem] = missing_with("10.0.0.2", other_ports)
    assert problem.startswith("the packet filter loaded on this host drops what is sent to r2, at another ")
    assert "give the registrars of one host the same address" in problem
    assert missing_with("10.0.0.1", other_ports) == [], "the file of an address has all its registrars"
    assert missing_with("10.0.0.2") == [], "the rules are the same"
