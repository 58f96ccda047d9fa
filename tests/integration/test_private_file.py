"""One program sees another file instead of one; nobody else does. Also inside a chroot."""

import subprocess
import sys
from pathlib import Path

CAT = """
#include <stdio.h>
int main(int count, char **names) { FILE *file = fopen(names[1], "r"); int byte;
  while (file && (byte = getc(file)) != EOF) putchar(byte);
  return !file || count != 2; }
"""


def test_the_other_file_is_seen_by_the_program_alone(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("one\n")
    other.write_text("another\n")
    command = [sys.executable, "-m", "rspdns_lab.net.private_file", str(other), str(file), "cat", str(file)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "another\n"
    assert file.read_text() == "one\n"


def test_in_a_chroot_whose_root_is_no_mount_point(tmp_path: Path) -> None:
    (tmp_path / "cat.c").write_text(CAT)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "file").write_text("one\n")
    (tmp_path / "other").write_text("another\n")
    subprocess.run(["cc", "-static", "-o", tmp_path / "cat", tmp_path / "cat.c"], check=True)
    inside = "import os, sys; from rspdns_lab.net import private_file; os.chroot(sys.argv[1]); "
    inside += "private_file.run('/other', '/file', ['/cat', '/file'])"
    done = subprocess.run(
        [sys.executable, "-c", inside, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "another\n", done.stderr
    assert (tmp_path / "file").read_text() == "one\n"


def test_a_missing_private_file_is_told_in_one_line(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "rspdns_lab.net.private_file",
        str(tmp_path / "none"),
        "/etc/hosts",
        "true",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: mounting on /etc/hosts: No such file or directory\n"
