"""Two handlespaces of real registrars, one backend: a reload adds one, losing one costs its members only."""

import json
from pathlib import Path

from tests.support.backend import ADDRESS, HANDLE, OWNER, POOL
from tests.support.chain import Chain
from tests.support.members import Members
from tests.support.namespaces import Namespace
from tests.support.registrars import Registrars
from tests.support.stalls import Mark
from tests.support.waiting import until

THERE = "10.99.0.2"
BOTH = POOL.replace(f'"{ADDRESS}/32"', f'"{ADDRESS}/32", "{THERE}/32"')


class Cells(Chain):
    """A chain whose registrars are the handlespace `eu`; those of `us` are at another address."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        super().__init__(namespace, folder)
        namespace.ip("addr", "add", f"{THERE}/24", "dev", "eth0")
        (folder / "us").mkdir()
        self.there = Registrars(namespace, folder / "us", THERE, supervised=True, reregistration_ms=300)
        self._rest = self.backend.config.read_text().partition("\n")[2]

    def configure(self, *names: str) -> None:
        """Have these handlespaces in the configuration and in the pool."""
        addresses = {"eu": self.registrars.addresses_with_enrp, "us": self.there.addresses_with_enrp}
        tables = (
            f'\n[[handlespace]]\nname = "{name}"\nregistrars = {json.dumps(addresses[name])}\n'
            for name in names
        )
        sites = (f'\n[[site]]\nname = "site-{name}"\nhandlespace = "{name}"\n' for name in names)
        self.backend.config.write_text(self._rest + "".join((*tables, *sites)))
        self.backend.registrars = [registrar for name in names for registrar in addresses[name]]
        order = json.dumps([f"site-{name}" for name in reversed(names)])
        self.backend.write_zone(f"{BOTH}handlespaces = {json.dumps(names)}\norder = {order}\n")

    def shown(self) -> set[str]:
        """Return the first labels of the targets that DNS gives."""
        return {line.split()[3].partition(".")[0] for line in self.pdns.short(OWNER, "SRV")}


def test_lost_handlespace_costs_its_own_members_only(namespace: Namespace, tmp_path: Path) -> None:
    cells = Cells(namespace, tmp_path)
    cells.configure("eu")
    cells.start()
    here = Members(namespace, tmp_path, ADDRESS, cells.registrars.addresses, "here")
    there = Members(namespace, tmp_path, THERE, cells.there.addresses, "there")
    for members, first in ((here, 5001), (there, 6001)):
        members.add(1, HANDLE, first)
        members.add(2, HANDLE, first + 1)
    until(lambda: cells.shown() == {"00000001", "00000002"}, told=cells.backend.log)

    cells.configure("eu", "us")
    reloaded = cells.backend.command("reload")
    assert reloaded.returncode == 0, reloaded.stdout + reloaded.stderr
    both = {f"0000000{number}-{name}" for number in (1, 2) for name in ("eu", "us")}
    until(lambda: cells.shown() == both, 40, cells.backend.log)
    until(cells.backend.is_known, 40, cells.backend.log)
    best = {line.split()[3].partition(".")[0] for line in cells.pdns.short(OWNER, "SRV") if line[0] == "0"}
    assert best == {"00000001-us", "00000002-us"}, "the site of their handlespace is the first one"
    switched = cells.backend.command("override", "site", "site-us", "down", "--reason", "power works")
    assert switched.returncode == 0, switched.stderr
    until(lambda: cells.shown() == {"00000001-eu", "00000002-eu"}, told=cells.backend.log)
    assert cells.backend.command("override", "clear", "--all").returncode == 0
    until(lambda: cells.shown() == both, told=cells.backend.log)

    cells.registrars.kill()
    until(lambda: [part["stale_s"] is None for part in cells.backend.pool()["handlespaces"]] == [False, True])
    left = Mark.now()
    there.remove(2)
    until(lambda: cells.shown() == both - {"00000002-us"}, told=cells.backend.log)
    assert left.ran_s() < 5
    here.kill()
    until(lambda: cells.shown() == {"00000001-us"}, told=cells.backend.log)
    told = cells.backend.command("status").stdout
    assert "handlespace eu: from memory" in told
    assert "eu 1" in told

    cells.configure("us")
    assert cells.backend.command("reload", "--force").returncode == 0
    until(lambda: cells.shown() == {"00000001"}, told=cells.backend.log)
    assert {each["handlespace"] for each in (cells.backend.status() or {})["registrars"]} == {"us"}
