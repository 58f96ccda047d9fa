"""Ansible reaches a systemd in namespaces (tests/support/live_systemd.py) through its process 1."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: inside
short_description: Runs what Ansible wants inside the namespaces of a process
description: It enters the namespaces and the root directory of a process of this machine.
author: the founders of rspdns
options:
  pid:
    description: The process.
    required: true
    type: int
    vars: [{name: inside_pid}]
"""


class Connection(ConnectionBase):  # type: ignore[misc]  # Ansible has no types
    """Commands by nsenter, files through /proc/PID/root."""

    transport = "inside"
    has_pipelining = True

    def _connect(self) -> "Connection":
        self._connected = True
        return self

    def close(self) -> None:
        """Nothing is held."""
        self._connected = False

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Run a command as root."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        where = ["nsenter", f"--target={self.get_option('pid')}", "--all", "--root", "--wd", "--"]
        environment = [
            "env",
            "-i",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME=/root",
            "LANG=C.UTF-8",
        ]
        done = subprocess.run(
            [*where, *environment, "sh", "-c", cmd], input=in_data, capture_output=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file in."""
        super().put_file(in_path, out_path)
        shutil.copyfile(in_path, self._inside(out_path))

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file out."""
        super().fetch_file(in_path, out_path)
        shutil.copyfile(self._inside(in_path), out_path)

    def _inside(self, path: Any) -> Path:
        return Path(f"/proc/{self.get_option('pid')}/root") / str(path).lstrip("/")
