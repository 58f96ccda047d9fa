"""setup/install.sh, as far as it goes without installing; the whole of it is tried under systemd."""

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "setup" / "install.sh"


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path) -> None:
    precious = tmp_path / "opt" / "another program"
    precious.parent.mkdir()
    precious.write_text("precious")
    done = subprocess.run(
        [SCRIPT, "install"],
        env={**os.environ, "DESTDIR": str(tmp_path), "APPDIR": "/opt", "PYTHON": "/nowhere/python3"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "choose a folder of its own for APPDIR" in done.stderr
    assert precious.read_text() == "precious"
