"""The wheel, installed by pip with each extra, and by pipx: `make test-wheel`. Packages are fetched."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.namespaces import REPOSITORY

pytestmark = pytest.mark.timeout(900)
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
COMMANDS = {
    "agent": ["ppe-agent"],
    "grpc": ["ppe-agent"],
    "client": ["ppu-agent"],
    "backend": ["rspdns"],
    "registrar": ["rspdns-registrar"],
    "labs": ["rspdns-lab", "rspdns", "ppe-agent", "ppu-agent", "rspdns-registrar"],
}
"""The commands of each extra."""
CACHE = {
    "PIP_CACHE_DIR": str(REPOSITORY / ".setup" / "pip"),
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
}


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**CACHE, **environment},
        cwd="/",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel() -> Path:
    (path,) = (REPOSITORY / "build" / "dist").glob("rspdns-*.whl")
    return path


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of a fresh virtual environment."""
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    return tmp_path / "venv" / "bin" / "python"


def test_each_extra_for_users_is_tried() -> None:
    assert set(PROJECT["optional-dependencies"]) - {"docs", "dev"} == set(COMMANDS)
    assert set(PROJECT["scripts"]) == set(COMMANDS["labs"])


@pytest.mark.parametrize("extra", COMMANDS)
def test_an_extra_brings_all_that_its_commands_need(extra: str, wheel: Path, python: Path) -> None:
    run(python, "-m", "pip", "--quiet", "install", f"rspdns[{extra}] @ {wheel.as_uri()}")
    run(python, "-m", "pip", "check")
    for command in COMMANDS[extra]:
        assert PROJECT["version"] in run(python.parent / command, "--version")
        assert "Usage" in run(python.parent / command, "--help")
    others = set(COMMANDS["labs"]) - set(COMMANDS[extra])
    for command in others:
        done = subprocess.run(
            [python.parent / command, "--help"], capture_output=True, text=True, check=False, env=CACHE
        )
        assert "Traceback" not in done.stderr


def test_pipx_installs_it(wheel: Path, python: Path, tmp_path: Path) -> None:
    run(python, "-m", "pip", "--quiet", "install", "pipx")
    folders = {
        "PIPX_HOME": str(tmp_path / "home"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "PIPX_MAN_DIR": str(tmp_path / "man"),
    }
    run(python, "-m", "pipx", "install", f"rspdns[backend] @ {wheel.as_uri()}", **folders)
    assert PROJECT["version"] in run(tmp_path / "bin" / "rspdns", "--version")
