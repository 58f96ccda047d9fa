"""Sockets at a path: their permissions, and what lies there already."""

import stat
from pathlib import Path

import pytest
from daemon_kit.errors import FatalError
from daemon_kit.unix_listener import listen_at


def test_only_owner_and_group_may_connect(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("place", ["missing/sock", "x" * 200])
def test_a_place_where_no_socket_can_be_is_told(tmp_path: Path, place: str) -> None:
    with pytest.raises(FatalError, match="can't be made"):
        listen_at(tmp_path / place, 0o660, "the socket")
    assert not list(tmp_path.iterdir())
