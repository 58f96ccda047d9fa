"""The systemd unit of the client's sidecar."""

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "ppu-agent" / "systemd" / "ppu-agent.service"


def test_agent_has_one_capability_and_the_sockets_it_needs() -> None:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    service = unit["Service"]
    assert service["CapabilityBoundingSet"] == service["AmbientCapabilities"] == "CAP_NET_ADMIN"
    assert "AF_NETLINK" in service["RestrictAddressFamilies"].split()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_knows_every_key(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/bin/ppu-agent run", "/bin/true run"))
    command = ["systemd-analyze", "verify", "--man=no", str(copy)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "ppu-agent" not in said.stderr, said.stderr
