"""A command without its extra says what to install."""

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from rspdns.entry import COMMANDS


def start(command: str, missing: str, first: str = "pass") -> subprocess.CompletedProcess[str]:
    """Run the installed form of a command, with one library hidden."""
    code = (
        "import sys\n"
        f"{first}\n"
        f"sys.modules[{missing!r}] = None\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {missing!r}:\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        f"del sys.modules[{missing!r}]\n"
        f"sys.argv = ['command', '--help']\nfrom rspdns.entry import start\nstart({command!r})\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        ("rspdns", "dns", "backend"),
        ("ppe-agent", "pydantic", "agent"),
        ("rspdns-registrar", "pydantic", "registrar"),
        ("rspdns-lab", "pyroute2", "labs"),
    ],
)
def test_a_missing_library_is_one_clear_line(command: str, missing: str, extra: str) -> None:
    done = start(command, missing)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert f"{missing!r} is missing" in done.stderr
    assert f"source run: {sys.prefix}/bin/python -m pip install '.[{extra}]'" in done.stderr


def test_outside_of_a_virtual_environment_a_missing_library_leads_to_make_setup() -> None:
    """Debian's own Python is externally managed: pip would refuse."""
    done = start("rspdns-lab", "pyroute2", "sys.prefix = sys.base_prefix")
    assert done.returncode == 2
    assert "run `make setup`, then .venv/bin/rspdns-lab" in done.stderr
    assert "pip" not in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_with_everything_there_the_command_runs(command: str) -> None:
    done = start(command, "something_nobody_needs")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage" in done.stdout


def test_the_registrars_command_needs_no_library_of_the_backend() -> None:
    done = start("rspdns-registrar", "dns")
    assert (done.returncode, done.stderr) == (0, "")
    assert "render" in done.stdout
    # A host of a registrar has the extra [registrar] alone: its page names no command that refuses there.
    page = (Path(__file__).resolve().parents[2] / "registrar-config" / "README.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("    rspdns ")] == []


def test_every_command_is_installed() -> None:
    scripts = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"][
        "scripts"
    ]
    assert scripts.keys() == COMMANDS.keys()
    for target in scripts.values():
        module, _, function = target.partition(":")
        assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize("module", [module for module, _ in COMMANDS.values()])
def test_every_command_knows_short_help_and_its_version(module: str) -> None:
    for option, expected in (("-h", "Usage"), ("--version", version("rspdns"))):
        done = subprocess.run(
            [sys.executable, "-c", f"from {module} import main; main()", option],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert expected in done.stdout


def test_an_interrupt_while_loading_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text("raise KeyboardInterrupt\n")
    code = "from daemon_kit.entry import run; run('command', 'slow_module', 'extra')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "command: stopped\n")


def run_main(tmp_path: Path, body: str, **more: Any) -> subprocess.CompletedProcess[str]:
    (tmp_path / "a_module.py").write_text(f"def main():\n    {body}\n")
    code = "from daemon_kit.entry import run; run('command', 'a_module', 'extra')"
    options = {"stdout": subprocess.PIPE, **more}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False, **options
    )


def test_a_full_disk_behind_the_output_is_one_clear_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        for body in ("print('x')", "print('x', flush=True)", "print('x'); raise SystemExit(0)"):
            done = run_main(tmp_path, body, stdout=full)
            said = "error: its output can't be written: No space left on device\n"
            assert (done.returncode, done.stderr) == (1, said)


def test_a_file_that_can_not_be_opened_is_named(tmp_path: Path) -> None:
    done = run_main(tmp_path, "open('/nowhere/x')")
    assert (done.returncode, done.stderr) == (1, "error: /nowhere/x: No such file or directory\n")


def test_an_error_of_a_connection_is_not_told_as_an_error_of_a_file_or_the_output(tmp_path: Path) -> None:
    done = run_main(tmp_path, "raise ConnectionResetError(104, 'Connection reset by peer')")
    assert (done.returncode, done.stderr) == (1, "error: Connection reset by peer\n")


def test_a_terminal_without_utf8_shows_what_it_can(tmp_path: Path) -> None:
    done = run_main(tmp_path, "print('\u2501 ok')", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout) == (0, "? ok\n")
