"""The state that survives a restart."""

import errno
import os
import re
import stat
from pathlib import Path

import pytest
from daemon_kit.errors import FatalError
from ppe_agent import state
from ppe_agent.state import Drain, KeptServer, StateDirectory


def test_identifier_and_drain_survive(tmp_path: Path) -> None:
    states = StateDirectory(tmp_path / "new" / "directory")
    states.prepare()
    first = states.load("sip-1")
    assert first.identifier != states.load("sip-2").identifier
    states.save("sip-1", KeptServer(first.identifier, drain=Drain()))
    assert StateDirectory(tmp_path / "new" / "directory").load("sip-1") == KeptServer(
        first.identifier, Drain()
    )


def test_a_power_cut_does_not_undo_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[bool, list[str]]] = []

    def note(descriptor: int) -> None:
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        names = [re.sub("[.].{8}$", "", path.name) for path in tmp_path.iterdir()]
        synced.append((is_directory, names))

    monkeypatch.setattr(os, "fsync", note)
    StateDirectory(tmp_path).save("sip-1", KeptServer(7, drain=Drain()))
    assert synced == [(False, [".sip-1.json"]), (True, ["sip-1.json"])]  # the file, then its name


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
        "[" * 60000,
    ],
)
def test_a_damaged_file_is_refused_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    """It may have said that the server is drained."""
    file = tmp_path / "sip-1.json"
    file.write_text(text)
    words = r"^state file .*/sip-1.json is damaged \(.*then has a new identifier, and is not drained$"
    with pytest.raises(FatalError, match=words):
        StateDirectory(tmp_path).load("sip-1")
    assert file.read_text() == text
    file.unlink()
    assert not StateDirectory(tmp_path).load("sip-1").drained


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_a_file_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    states = StateDirectory(tmp_path)
    states.save("sip-1", KeptServer(7, drain=Drain()))

    def broken(path: Path) -> None:
        raise OSError(code, os.strerror(code), str(path))

    with monkeypatch.context() as disk:
        disk.setattr(state, "open_regular", broken)
        with pytest.raises(FatalError, match=rf"can't be read \({os.strerror(code)}\), and may say "):
            states.load("sip-1")
    assert states.load("sip-1") == KeptServer(7, drain=Drain())


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FatalError, match=r"state directory .*/file/below can't be written"):
        StateDirectory(tmp_path / "file" / "below").prepare()
