"""The common behaviour of all commands: whole summaries in the help, completion in every shell."""

import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from daemon_kit.commands import CommandGroup, config_option
from daemon_kit.config_file import ConfigurationError, ConfigurationErrors, read_text
from daemon_kit.control import ControlError
from daemon_kit.errors import FatalError

PROGRAMS = {
    "rspdns": "rspdns.cli",
    "ppe-agent": "ppe_agent.cli",
    "ppu-agent": "ppu_agent.cli",
    "rspdns-registrar": "registrar_config.cli",
    "rspdns-lab": "rspdns_lab.cli",
}


def groups(command: click.Command, words: str) -> list[tuple[str, click.Group]]:
    if not isinstance(command, click.Group):
        return []
    inner = [
        found
        for name, inner_command in command.commands.items()
        for found in groups(inner_command, f"{words} {name}")
    ]
    return [(words, command), *inner]


@pytest.mark.parametrize(("program", "module"), PROGRAMS.items())
def test_summaries_are_whole_at_80_columns(program: str, module: str) -> None:
    for words, group in groups(import_module(module).main, program):
        shown = group.get_help(click.Context(group, info_name=words, terminal_width=80))
        assert "..." not in shown.partition("Commands:")[2], shown
        assert max(map(len, shown.splitlines())) <= 80
        for command in group.commands.values():
            first = " ".join((command.help or "").split("\n\n")[0].split()).split(". ")[0].rstrip(".")
            assert first in " ".join(shown.split()), command.name


def leaves(command: click.Command) -> list[click.Command]:
    """All commands below a group that are no groups."""
    if not isinstance(command, click.Group):
        return [command]
    return [found for child in command.commands.values() for found in leaves(child)]


def called(line: str) -> click.Command:
    """The command that a command line calls, once click has taken its words."""
    program, *words = shlex.split(line)
    command: click.Command | None = import_module(PROGRAMS[program]).main
    while isinstance(command, click.Group):
        _, command, words = command.resolve_command(click.Context(command, info_name=program), words)
    assert command is not None
    command.make_context(command.name, words)
    return command


@pytest.mark.parametrize(("program", "module"), PROGRAMS.items())
def test_every_command_shows_an_example_that_it_takes(
    program: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("gdnsd", "example.org.zone", "web.json"):  # files that a command wants to be there
        (tmp_path / file).touch()
    for command in leaves(import_module(module).main):
        shown = command.get_help(click.Context(command, info_name=program, terminal_width=80))
        example = shown.partition("Example:\n")[2].replace("\\\n", " ")
        assert called(re.split(" && | > ", example)[0].replace("/etc/gdnsd", "gdnsd")) is command, shown


@pytest.mark.parametrize(("program", "module"), PROGRAMS.items())
def test_every_group_names_the_manual_and_how_to_begin(program: str, module: str) -> None:
    main = import_module(module).main
    for words, group in groups(main, program):
        parent = None if group is main else click.Context(main, info_name=program)
        context = click.Context(group, info_name=words.split()[-1], terminal_width=80, parent=parent)
        shown = group.get_help(context)
        assert shown.endswith(f"Manual: man {program}")
        assert group.epilog, words
        assert f"{program} " in group.epilog


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ConfigurationErrors([ConfigurationError("a.toml", 3, "port", "is missing")]),
            "a.toml:3: port: is missing",
        ),
        (ControlError("nothing answers at /run/a"), "error: nothing answers at /run/a"),
        (FatalError("no SCTP here"), "error: no SCTP here"),
    ],
)
def test_an_error_for_people_ends_any_command_with_one_line(error: Exception, told: str) -> None:
    @click.command()
    def inner() -> None:
        raise error

    done = CliRunner().invoke(
        CommandGroup(commands={"outer": click.Group(commands={"inner": inner})}), "outer inner"
    )
    assert (done.exit_code, done.output) == (1, f"{told}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_command_completes_in_every_shell(program: str, shell: str) -> None:
    """By click's own means; `make install` keeps the script where shells look for it."""
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    done = subprocess.run(
        [Path(sys.executable).parent / program],
        env={**os.environ, variable: f"{shell}_source"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert variable in done.stdout


def test_a_missing_default_file_is_told_with_the_option_that_names_another(tmp_path: Path) -> None:
    default, named = tmp_path / "default.toml", tmp_path / "named.toml"

    @click.group(cls=CommandGroup)
    def program() -> None:
        pass

    @program.command()
    @config_option(default)
    def check(config: Path) -> None:
        read_text(config)

    at_default = CliRunner().invoke(program, ["check"])
    assert at_default.exit_code == 1
    assert at_default.output.splitlines() == [
        f"{default}: can't be read: No such file or directory",
        f"If your configuration file is not {default}, name it: -c FILE",
    ]
    assert CliRunner().invoke(program, ["check", "-c", str(named)]).output.splitlines() == [
        f"{named}: can't be read: No such file or directory",
    ]


def test_commands_stand_in_the_order_of_their_use_and_each_once() -> None:
    commands = {name: click.Command(name) for name in ("check", "forget", "serve", "up")}
    group = CommandGroup(commands=commands, first=("up", "serve"))
    assert group.list_commands(click.Context(group)) == ["up", "serve", "check", "forget"]
