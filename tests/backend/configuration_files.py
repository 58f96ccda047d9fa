"""Configurations on the disk, good and bad ones, for tests."""

from pathlib import Path

import pytest
from daemon_kit.config_file import ConfigurationErrors
from rspdns.configuration import load_configuration

from tests.backend.making import FIXED, UDP, ZONE

GOOD = 'registrars = ["10.0.0.1"]\n'


def write(directory: Path, main: str, **zones: str) -> Path:
    """Write a configuration; the argument `name` becomes `name.toml`, with a good zone file `name.zone`."""
    (directory / "zones.d").mkdir(exist_ok=True)
    for name, text in zones.items():
        (directory / "zones.d" / f"{name}.toml").write_text(text)
        if not (directory / "zones.d" / f"{name}.zone").exists():
            (directory / "zones.d" / f"{name}.zone").write_text(FIXED)
    (directory / "rspdns.toml").write_text(main)
    return directory / "rspdns.toml"


def head(name: str = "one", zone: str = ZONE) -> str:
    return f'zone = "{zone}"\nstatic = "{name}.zone"\n'


def errors(path: Path) -> list[tuple[str, int, str, str]]:
    with pytest.raises(ConfigurationErrors) as caught:
        load_configuration(path)
    return [(Path(error.file).name, error.line, error.key, error.problem) for error in caught.value.errors]


def only_error(path: Path) -> tuple[str, int, str, str]:
    (error,) = errors(path)
    return error


def pool_error(tmp_path: Path, pools: str, fixed: str = FIXED) -> tuple[str, int, str, str]:
    (tmp_path / "zones.d").mkdir()
    (tmp_path / "zones.d" / "one.zone").write_text(fixed)
    return only_error(write(tmp_path, GOOD, one=head() + pools))


def changed(**keys: str) -> str:
    """The pool, with these keys instead of or besides its own."""
    lines = [line for line in UDP.strip().splitlines() if line.split(" ")[0] not in keys]
    return "\n".join([*lines, *(f"{key} = {value}" for key, value in keys.items() if value)]) + "\n"
