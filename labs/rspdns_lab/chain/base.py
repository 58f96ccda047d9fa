"""What every lab of several hosts is: a network, a folder, programs, and an end that leaves none of them."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from rspdns_lab.ending import tell_of_full_disk, uninterrupted
from rspdns_lab.net.network import Network, network_prefix
from rspdns_lab.net.processes import Program, end_programs

_STOP_TIMEOUT_S: Final = 4.0


class LabBase:
    """A running lab. Use it as a context manager; leaving it removes every process, namespace and file of it.

    Raises LabError when the machine lacks something, or a part does not start.
    """

    def __init__(self) -> None:
        self.network = Network(network_prefix())
        self.folder = Path()

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix=f"rspdns-lab-{os.getpid()}-"))
        try:
            self.network.__enter__()
            self.build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def build(self) -> None:
        """Make all hosts with their files; nothing runs yet."""
        raise NotImplementedError

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        raise NotImplementedError

    def close(self) -> None:
        """End all programs, remove namespaces and files. Safe to repeat; not interrupted by Ctrl-C."""
        with uninterrupted():
            end_programs(list(self.programs()), _STOP_TIMEOUT_S)
            self.network.close()
            if self.folder != Path():
                tell_of_full_disk(self.folder)
                shutil.rmtree(self.folder, ignore_errors=True)
