"""Peers: where two name servers differ, and wrong tables."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from daemon_kit.config_file import ConfigurationErrors
from pool_user import OverrideAction
from rspdns.configuration import load_configuration
from rspdns.peers import PeerConfig
from rspdns.peers.peers import Peer, differences
from rspdns.status.model import OverrideStatus

HOUR_S = 3600.0


def override(servers: str = "sip-1", **other: Any) -> OverrideStatus:
    values: dict[str, Any] = {
        "number": 1,
        "action": OverrideAction.DOWN,
        "servers": servers,
        "pool": None,
        "share": None,
        "reason": "new kernel",
        "by": "alice",
        "set_at_s": 1e9,
        "starts_at_s": 1e9,
        "ends_at_s": None,
        "holds": True,
        "problem": None,
    }
    return OverrideStatus(**values | other)


def test_the_same_overrides_do_not_differ() -> None:
    ends = override(ends_at_s=1e9 + HOUR_S)
    assert differences([], []) == []
    assert differences([override(number=3)], [override(by="bob")]) == []
    assert differences([ends], [override(ends_at_s=1e9 + HOUR_S + 1)]) == []


def test_each_difference_is_told_in_words() -> None:
    share = override("sip-2", action=OverrideAction.SHARE, share=0.05, pool="sip-udp")
    assert differences([override(), share], [override("sip-3")]) == [
        "not here: down sip-3, by alice: new kernel",
        "only here: down sip-1",
        "only here: share=5% sip-2 of sip-udp",
    ]
    later = override(ends_at_s=1e9)
    assert differences([override()], [later]) == [
        "down sip-1: it ends when it is cleared here, at 2001-09-09 01:46:40 UTC there"
    ]
    held_back = override(holds=False, problem="the last member")
    assert differences([override()], [held_back]) == ["down sip-1: it does not hold there: the last member"]
    assert len(differences([override(f"sip-{number}") for number in range(100)], [])) == 20


def test_overrides_are_compared_by_their_identifiers() -> None:
    both, here = override(id="a" * 16), override(starts_at_s=2e9, ends_at_s=2e9 + HOUR_S, holds=False)
    assert differences([both, here], [both]) == ["only here: down sip-1 from 2033-05-18 03:33:20 UTC on"]
    assert differences([here, both], [both, here]) == []
    assert differences([override(id="a" * 16)], [override(id="b" * 16)]) == []


async def test_token_that_may_read_only_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    config = PeerConfig(name="ns2", url="https://ns2.example.net", token="/etc/t")  # noqa: S106 - a path
    peer = Peer(config, list)

    async def ask(*_: Any) -> dict[str, Any]:
        return {"overrides": [], "may_write": False}

    monkeypatch.setattr(peer, "_ask", ask)
    await peer.compare(None)  # type: ignore[arg-type]
    assert peer.status(0.0).problem == "the token may read only: no override can be set there"


def test_words_of_a_peer_are_cut_and_fit_for_a_terminal() -> None:
    (told,) = differences([], [override(reason="\x1b[2J" + "x" * 10_000)])
    assert told.startswith("not here: down sip-1, by alice: ?[2Jxxx")
    assert len(told) == 500


@pytest.mark.parametrize("theirs", [{"ends_at_s": 1e300}, {"ends_at_s": "soon"}, {"number": None}, "x"])
async def test_answer_that_makes_no_sense_is_a_problem_and_the_next_is_heard(
    monkeypatch: pytest.MonkeyPatch, theirs: Any
) -> None:
    """No name server answers so; `_ask` stands for one that does."""
    config = PeerConfig(name="ns2", url="https://ns2.example.net", token="/etc/t")  # noqa: S106 - a path
    peer, answers = Peer(config, lambda: [override()]), [theirs, {}]

    async def ask(*wanted: Any) -> dict[str, Any]:
        other = answers.pop(0)
        others = [asdict(override()) | other] if isinstance(other, dict) else other
        return {"overrides": others, "may_write": True}

    monkeypatch.setattr(peer, "_ask", ask)
    await peer.compare(None)  # type: ignore[arg-type]
    assert peer.status(0.0).problem == "it tells overrides of another version"
    await peer.compare(None)  # type: ignore[arg-type]
    assert (peer.status(0.0).problem, peer.status(0.0).differences) == (None, [])


BASE = 'registrars = ["10.0.0.1"]\n'
PEER = '[[peer]]\nname = "ns2"\nurl = "https://ns2.example.net:8054"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PEER, "peer[0].token"),
        (PEER.replace("https", "ftp") + 'token = "/x"\n', "a URL"),
        (PEER.replace("https", "http") + 'token = "/x"\n', "anybody on the way could read the token"),
        (PEER.replace(":8054", ":8054/v1") + 'token = "/x"\n', "scheme, host and port"),
        (PEER.replace("//", "//user:word@") + 'token = "/x"\n', "without user"),
        ((PEER + 'token = "/x"\n') * 2, "'ns2' is there twice"),
        (PEER.replace('"ns2"', '"N S"') + 'token = "/x"\n', "peer[0].name|name"),
        (PEER + 'token = "tokens"\n', "whole path"),
        (PEER + 'token = "/nowhere/token"\n', "can't be read"),
        (PEER + 'token = "/dev/null"\n', "token"),
        (PEER + 'token = "/x"\nsecret = 1\n', "secret"),
    ],
)
def test_check_tells_a_wrong_peer(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "zones.d").mkdir()
    (tmp_path / "rspdns.toml").write_text(BASE + text)
    with pytest.raises(ConfigurationErrors) as told:
        load_configuration(tmp_path / "rspdns.toml")
    error = str(told.value)
    assert any(word in error for word in words.split("|")), error
    assert "rspdns.toml" in error


def test_a_token_is_read_without_its_name_and_never_told(tmp_path: Path) -> None:
    (tmp_path / "zones.d").mkdir()
    token = tmp_path / "token"
    token.write_text("# of ns2\n\nsecret-0123456789-abcdef  # alice\n")
    (tmp_path / "rspdns.toml").write_text(f'{BASE}{PEER}token = "{token}"\n')
    token.chmod(0o604)
    with pytest.raises(ConfigurationErrors, match="everybody on this host may read") as told:
        load_configuration(tmp_path / "rspdns.toml")
    assert "secret" not in str(told.value)
    token.chmod(0o600)
    assert load_configuration(tmp_path / "rspdns.toml").peers[0].name == "ns2"
