"""The systemd units, read by systemd itself where it is installed."""

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

UNITS = Path(__file__).resolve().parents[2] / "backend" / "systemd"


def read(name: str) -> ConfigParser:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((UNITS / name).read_text())
    return unit


def test_powerdns_starts_after_the_backend_but_does_not_end_with_it() -> None:
    unit = read("rspdns.service")
    assert unit["Unit"]["Before"] == "pdns.service"
    assert "pdns.service" in unit["Install"]["WantedBy"].split()
    assert "RequiredBy" not in unit["Install"]


def test_the_socket_outlives_the_service() -> None:
    service, socket = read("rspdns.service"), read("rspdns.socket")
    assert socket["Socket"]["ListenStream"].startswith(f"/run/{service['Service']['RuntimeDirectory']}/")
    assert service["Service"]["RuntimeDirectoryPreserve"] == "yes"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_knows_every_key(tmp_path: Path) -> None:
    units = ["rspdns.service", "rspdns.socket"]
    for name in units:
        text = (UNITS / name).read_text().replace("/usr/bin/rspdns serve", "/bin/true serve")
        (tmp_path / name).write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in units)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    ours = [line for line in said.stderr.splitlines() if "rspdns" in line]
    assert not ours, ours
