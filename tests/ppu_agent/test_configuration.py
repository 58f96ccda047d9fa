"""ppu-agent.toml: what it may say, and what is told when it is wrong."""

import math
from pathlib import Path

import pytest
from click.testing import CliRunner
from daemon_kit.config_file import ConfigurationErrors
from ppu_agent.agent import INTERVALS
from ppu_agent.cli import main
from ppu_agent.configuration import control_path, load_configuration

from rserpool import Protocol

EXAMPLE = Path(__file__).resolve().parents[2] / "ppu-agent" / "examples" / "ppu-agent.toml"
WELL = 'registrars = ["10.0.0.1"]\n[[pool]]\nhandle = "p"\naccept = ["10.0.0.0/8"]\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "ppu-agent.toml"
    path.write_text(text)
    return path


def test_example_is_right() -> None:
    config = load_configuration(EXAMPLE)
    assert config.handles == ("sip-as-udp",)
    assert config.pools[0].policy.on_dead == {
        Protocol.UDP: "redirect",
        Protocol.TCP: "refuse",
        Protocol.SCTP: "refuse",
    }


def test_on_dead_is_one_action_or_a_table_by_transport(tmp_path: Path) -> None:
    def on_dead(text: str) -> dict[str, str]:
        policy = load_configuration(written(tmp_path, f"{WELL}on_dead = {text}\n")).pools[0].policy
        return {protocol.name.lower(): action for protocol, action in policy.on_dead.items()}

    assert on_dead('"redirect"') == {"udp": "redirect", "tcp": "redirect", "sctp": "redirect"}
    with pytest.raises(ConfigurationErrors, match="must be"):
        on_dead('"drop"')
    assert on_dead('"repeat"') == {"udp": "redirect", "tcp": "repeat", "sctp": "refuse"}
    assert on_dead('{ udp = "refuse", tcp = "redirect" }') == {
        "udp": "refuse",
        "tcp": "redirect",
        "sctp": "refuse",
    }


@pytest.mark.parametrize(
    ("text", "key"),
    [('"answer-503"', "pool[0].on_dead"), ('{ udp = "answer-503" }', "pool[0].on_dead.udp")],
)
def test_refused_answer_503_names_the_word_that_replaces_it(tmp_path: Path, text: str, key: str) -> None:
    path = written(tmp_path, f"{WELL}on_dead = {text}\n")
    line = path.read_text().splitlines().index(f"on_dead = {text}") + 1
    with pytest.raises(ConfigurationErrors) as errors:
        load_configuration(path)
    assert str(errors.value) == (
        f'{path}:{line}: {key}: "answer-503" is gone: write "refuse", which answers SIP over UDP with 503'
    )


def test_ports_of_a_pool_are_those_of_its_servers_and_any_by_default(tmp_path: Path) -> None:
    config = load_configuration(written(tmp_path, f"{WELL}ports = [5060, 5062]\n"))
    assert config.pool_rules["p"].ports == {5060, 5062}
    assert not load_configuration(written(tmp_path, WELL)).pool_rules["p"].ports
    with pytest.raises(ConfigurationErrors, match=r"pool\[0\].ports\[0\]"):
        load_configuration(written(tmp_path, f"{WELL}ports = [0]\n"))


def test_wrong_value_of_pace_is_told_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationErrors) as errors:
        load_configuration(written(tmp_path, f'{WELL}pace = "fast"\n'))
    (error,) = errors.value.errors
    assert str(error).endswith("""pool[0].pace: must be true, false or "rtt" (is 'fast')""")


def test_every_error_is_told_with_its_line_and_key(tmp_path: Path) -> None:
    text = 'registrars = []\nextra = 1\n[[pool]]\nhandle = "p"\naccept = []\n'
    text += 'on_dead = "shoot"\nalso = ["tcp", "tcp"]\n'
    path = written(tmp_path, text + '[[pool]]\nhandle = "p"\naccept = ["x"]\n')
    with pytest.raises(ConfigurationErrors) as errors:
        load_configuration(path)
    told = {(error.line, error.key) for error in errors.value.errors}
    assert told == {
        (1, "registrars"),
        (2, "extra"),
        (5, "pool[0].accept"),
        (6, "pool[0].on_dead"),
        (7, "pool[0].also"),
        (9, "pool[1].handle"),
        (10, "pool[1].accept[0]"),
    }


@pytest.mark.parametrize(
    "front", ["0.0.0.0:5060", "127.0.0.1:5060", "224.0.0.5:5060", "[::]:5060", "[::1]:5060"]
)
def test_an_address_that_no_client_can_reach_stands_for_no_pool(tmp_path: Path, front: str) -> None:
    with pytest.raises(ConfigurationErrors, match="stands for no pool"):
        load_configuration(written(tmp_path, WELL + f'steer = "{front}"\n'))


def test_a_key_that_needs_another_one_says_so(tmp_path: Path) -> None:
    text = WELL + 'affinity = "source"\nvia = "sctp"\n'
    with pytest.raises(ConfigurationErrors) as errors:
        load_configuration(written(tmp_path, text))
    assert {error.key for error in errors.value.errors} == {"pool[0].affinity", "pool[0].via"}
    with pytest.raises(ConfigurationErrors, match="has no meaning without via"):
        load_configuration(written(tmp_path, WELL + 'steer = "10.9.9.9:5060"\nvia_port = 99\n'))
    policy = (
        load_configuration(written(tmp_path, WELL + 'steer = "10.9.9.9:5060"\nvia = "sctp"\n'))
        .pools[0]
        .policy
    )
    assert policy.via_port == 4630


def test_commands_say_what_is_wrong_without_a_traceback(tmp_path: Path) -> None:
    path = written(tmp_path, f'[control]\npath = "{tmp_path}/none.sock"\n')
    assert control_path(path) == tmp_path / "none.sock"
    for words in (["check", "--offline"], ["run"]):
        said = CliRunner().invoke(main, [*words, "-c", str(path)])
        assert said.exit_code == 1
        assert "registrars" in said.output
    for words in (["status"], ["explain", "10.0.0.1:5060"], ["suspend"], ["resume"]):
        said = CliRunner().invoke(main, [*words, "-c", str(path)])
        assert said.exit_code == 1
        assert said.output.startswith("error: nothing answers at ")
    said = CliRunner().invoke(main, ["check", "--offline", "-c", str(written(tmp_path, WELL))])
    assert said.output.endswith("no errors\n")


def test_registrars_are_asked_alone_and_never_less_often_unless_told_otherwise(tmp_path: Path) -> None:
    """Pools are never looked up here: a pool that cooled down would be asked about every 10 s."""
    config = load_configuration(written(tmp_path, WELL))
    assert config.follow == "poll"
    assert INTERVALS.hot_for_s == math.inf


def test_pool_is_in_one_handlespace_or_several(tmp_path: Path) -> None:
    tables = "".join(
        f'[[handlespace]]\nname = "{name}"\nregistrars = ["10.{n}.0.1"]\n'
        for n, name in enumerate(("eu", "us"))
    )
    pool = WELL.partition("\n")[2]
    both = f'{tables}{pool}steer = "10.0.0.9:5060"\nhandlespaces = ["eu", "us"]\n'
    eu, us = (each.policy for each in load_configuration(written(tmp_path, both)).pools)
    assert (eu.parts, us.parts) == (("eu/p", "us/p"), ("us/p", "eu/p"))
    assert (eu.front is None, us.front is None) == (False, True)
    for wrong, words in (
        ('handlespaces = ["eu", "ap"]\n', r"pool\[0\].handlespaces: ap: no \[\[handlespace\]\]"),
        ('handlespaces = ["eu", "eu"]\n', "'p' is there twice"),
        ('handlespaces = ["eu"]\nhandlespace = "us"\n', "takes either handlespace or handlespaces"),
        (f'handlespaces = ["eu", "us"]\n{pool}handlespace = "us"\n', "'p' is there twice"),
    ):
        with pytest.raises(ConfigurationErrors, match=words):
            load_configuration(written(tmp_path, f"{tables}{pool}{wrong}"))
    each = "".join(f'{pool}handlespace = "{name}"\n' for name in ("eu", "us"))
    assert load_configuration(written(tmp_path, tables + each)).handles == ("eu/p", "us/p")
