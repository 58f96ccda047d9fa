"""What every service loads, it pays for."""

import subprocess
import sys

PROGRAM = """
import sys
from daemon_kit import logs
assert not [one for one in sys.modules if one.startswith("rich")], "5 MB for colours that no log has"
import rich.console  # a command may, later
logs.configure("info")
try:
    {}["missing"]
except KeyError as problem:
    logs.get_logger("part").error("it_happened", exc_info=problem)
"""


def test_services_do_without_rich_and_show_tracebacks_all_the_same() -> None:
    done = subprocess.run(
        (sys.executable, "-c", PROGRAM), capture_output=True, text=True, timeout=60, check=True
    )
    assert "it_happened" in done.stderr
    assert "KeyError: 'missing'" in done.stderr
