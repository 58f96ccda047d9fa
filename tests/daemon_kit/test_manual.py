"""The man pages tell every command and option there is, and man(1) shows them without a complaint."""

import importlib.util
import os
import subprocess
from importlib import import_module
from pathlib import Path

import click
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "setup" / "man_pages.py"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = importlib.util.spec_from_file_location("man_pages", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    folder = tmp_path_factory.mktemp("man")
    program.main(folder)
    return folder / "man1"


def leaves(command: click.Command) -> list[click.Command]:
    inner = command.commands.values() if isinstance(command, click.Group) else ()
    return [command, *(leaf for command in inner for leaf in leaves(command))]


@pytest.mark.parametrize(
    ("program", "module"),
    [
        ("rspdns", "rspdns.cli"),
        ("ppe-agent", "ppe_agent.cli"),
        ("rspdns-registrar", "registrar_config.cli"),
        ("rspdns-lab", "rspdns_lab.cli"),
    ],
)
def test_every_command_and_option_is_shown(pages: Path, program: str, module: str) -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", str(pages / f"{program}.1")],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert done.stderr == ""
    shown = " ".join(done.stdout.replace("\u2010\n", "").split())
    for command in leaves(import_module(module).main):
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert max(parameter.opts, key=len) in shown, (command.name, parameter.opts)
        if not isinstance(command, click.Group):
            assert f" {command.name}" in shown
            first = " ".join((command.help or "").split())[:30]
            assert first.replace("`", "") in shown, command.name


def test_a_line_that_looks_like_roff_is_text(tmp_path: Path) -> None:
    from daemon_kit.manual import man_page

    @click.group(help=".SH NAME of \\fBall\\fP")
    def group() -> None:
        pass

    page = tmp_path / "x.1"
    page.write_text(man_page("x", group, "1", {}))
    shown = subprocess.run(
        ["groff", "-man", "-Tascii", "-P-cbou", str(page)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert ".SH NAME of \\fBall\\fP" in shown
