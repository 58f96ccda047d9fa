"""What is opened for reading, and what would hold the program up instead."""

import os
import socket
import tempfile
from pathlib import Path

import pytest
from daemon_kit.files import open_regular


def test_a_file_also_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("what it holds")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        with open_regular(tmp_path / name) as file:
            assert file.read() == b"what it holds"


def test_what_is_none_is_refused_at_once() -> None:
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
