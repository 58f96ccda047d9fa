"""What survives a restart."""

import os
import stat
from pathlib import Path

import pytest
from daemon_kit.errors import FatalError
from ppe_agent.state import ServerState, StateDirectory


def test_identifier_and_drain_survive(tmp_path: Path) -> None:
    states = StateDirectory(tmp_path / "new" / "directory")
    states.prepare()
    first = states.load("sip-1")
    assert first.identifier != states.load("sip-2").identifier
    states.save("sip-1", ServerState(first.identifier, drained=True))
    assert StateDirectory(tmp_path / "new" / "directory").load("sip-1") == ServerState(first.identifier, True)


def test_a_power_cut_does_not_undo_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[bool, list[str]]] = []

    def note(descriptor: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append((is_directory, sorted(path.name for path in tmp_path.iterdir())))

    monkeypatch.setattr(os, "fsync", note)
    StateDirectory(tmp_path).save("sip-1", ServerState(7, drained=True))
    assert synced == [(False, ["sip-1.new"]), (True, ["sip-1.json"])]  # the file, then its name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"version": 2, "identifier": 1, "drained": false}',
        '{"version": 1, "identifier": 0, "drained": false}',
        '{"version": 1, "identifier": true, "drained": false}',
        '{"version": 1, "identifier": 4294967296, "drained": false}',
        '{"version": 1, "identifier": 7, "drained": "no"}',
        '{"version": 1, "ident',
    ],
)
def test_a_damaged_file_is_replaced_by_a_fresh_state(tmp_path: Path, text: str) -> None:
    (tmp_path / "sip-1.json").write_text(text)
    states = StateDirectory(tmp_path)
    state = states.load("sip-1")
    assert not state.drained
    assert states.load("sip-1") == state


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FatalError, match=r"state directory .*/file/below can't be written"):
        StateDirectory(tmp_path / "file" / "below").prepare()
