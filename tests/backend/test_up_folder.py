"""Folders of `rspdns up`: those whose owner was killed are removed by the next one, others are left alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rspdns.up.files import remove_abandoned

OWNER = """\
import sys, time
from rspdns.up.files import own_folder
with own_folder() as folder:
    (folder / "logs").mkdir()
    (folder / "logs" / "one").touch()
    print(folder, flush=True)
    time.sleep(60)
"""


def test_only_the_folders_of_killed_runs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rspdns-up-without-a-lock").mkdir()
    (tmp_path / "rspdns-up-link").symlink_to(tmp_path / "rspdns-up-without-a-lock")
    (tmp_path / "rspdns-up-file").touch()
    others = set(tmp_path.iterdir())
    owners = [
        subprocess.Popen(
            [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env={"TMPDIR": str(tmp_path)}
        )
        for _ in range(2)
    ]
    folders = [Path(owner.stdout.readline().strip()) for owner in owners if owner.stdout]
    try:
        remove_abandoned(tmp_path)
        assert set(tmp_path.iterdir()) == {*others, *folders}
        owners[0].kill()
        owners[0].wait()
        with monkeypatch.context() as patch:
            patch.setattr(os, "geteuid", lambda: 12345)
            remove_abandoned(tmp_path)
        assert set(tmp_path.iterdir()) == {*others, *folders}, "another user's"
        remove_abandoned(tmp_path)
        assert set(tmp_path.iterdir()) == {*others, folders[1]}
    finally:
        for owner in owners:
            owner.kill()
            owner.communicate()
