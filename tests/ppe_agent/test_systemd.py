"""The unit file, looked at by systemd itself."""

import re
import subprocess
from pathlib import Path

UNITS = Path(__file__).resolve().parents[2] / "ppe-agent" / "systemd"


def test_the_unit_is_right_and_confined(tmp_path: Path) -> None:
    text = (UNITS / "ppe-agent.service").read_text()
    (tmp_path / "ppe-agent.service").write_text(text.replace("/usr/bin/ppe-agent", "/bin/true"))
    unit = str(tmp_path / "ppe-agent.service")
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    level = re.search(r"Overall exposure level for ppe-agent.service: ([0-9.]+)", judged.stdout)
    assert level is not None, judged.stderr
    assert float(level[1]) < 2.5
    assert "User=ppe-agent" in (UNITS / "ppe-agent.service").read_text()


def test_the_user_that_the_unit_wants_is_made() -> None:
    done = subprocess.run(
        ["systemd-sysusers", "--dry-run", str(UNITS / "ppe-agent.sysusers")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "ppe-agent" in done.stdout + done.stderr
