"""Files that are opened for reading, and sockets that are listened at: what is wrong is said at once."""

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest
from daemon_kit.errors import FatalError
from daemon_kit.files import open_regular, remove_unfinished, replace_file
from daemon_kit.unix_listener import MAX_PATH_BYTES, is_too_long, listen_at


def test_a_regular_file_is_opened_also_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("what it holds")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        with open_regular(tmp_path / name) as file:
            assert file.read() == b"what it holds"


def test_a_pipe_a_socket_a_device_and_a_directory_are_refused_at_once() -> None:
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/socket")
        os.mkfifo(f"{folder}/pipe")
        before = len(os.listdir("/proc/self/fd"))
        for path in (f"{folder}/socket", f"{folder}/pipe", "/dev/zero"):
            with pytest.raises(OSError, match="it is no regular file") as raised:
                open_regular(path)
            assert raised.value.filename == path
        with pytest.raises(IsADirectoryError):
            open_regular(folder)
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_replaced_file_is_whole_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    replace_file(path, b"old")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    replace_file(path, b"for everybody", mode=0o644)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


def test_an_unfinished_file_of_a_crash_is_removed_and_no_other_file(tmp_path: Path) -> None:
    for name in (".state.json.abcdefgh", "state.json", ".state.toml.abcdefgh"):
        (tmp_path / name).write_text("half")
    remove_unfinished(tmp_path / "state.json")
    assert sorted(file.name for file in tmp_path.iterdir()) == [".state.toml.abcdefgh", "state.json"]
    remove_unfinished(tmp_path / "no directory" / "state.json")


def test_a_socket_has_its_permissions_and_leaves_no_temporary_name(tmp_path: Path) -> None:
    path = tmp_path / "sock"
    with listen_at(path, 0o660, "the socket"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert list(tmp_path.iterdir()) == [path]


def test_a_living_process_is_not_pushed_aside(tmp_path: Path) -> None:
    first = listen_at(tmp_path / "sock", 0o660, "the socket")
    with pytest.raises(FatalError, match="already answers"):
        listen_at(tmp_path / "sock", 0o660, "the socket")
    first.close()


def test_a_file_that_is_no_socket_is_kept(tmp_path: Path) -> None:
    (tmp_path / "sock").write_text("precious")
    with pytest.raises(FatalError, match="no socket is there"):
        listen_at(tmp_path / "sock", 0o660, "the socket")
    assert (tmp_path / "sock").read_text() == "precious"


@pytest.mark.parametrize("path", ["missing/sock", "x" * 200])
def test_a_path_where_no_socket_can_be_is_told(tmp_path: Path, path: str) -> None:
    with pytest.raises(FatalError, match="can't be made"):
        listen_at(tmp_path / path, 0o660, "the socket")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["control.sock", "s"])
def test_longest_path_of_a_socket_is_known_before_it_is_bound(tmp_path: Path, name: str) -> None:
    for length in range(MAX_PATH_BYTES - 12, MAX_PATH_BYTES + 2):
        directory = tmp_path / ("x" * (length - len(f"{tmp_path}//{name}")))
        path = directory / name
        assert len(bytes(path)) == length
        directory.mkdir()
        if is_too_long(path):
            with pytest.raises(FatalError, match="has 107 bytes at most"):
                listen_at(path, 0o660, "the socket")
        else:
            listen_at(path, 0o660, "the socket").close()
    assert is_too_long(path)
    assert not is_too_long(tmp_path / name)
