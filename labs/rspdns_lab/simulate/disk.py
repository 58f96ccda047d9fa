"""The disk of a simulated host: nothing is synced, since no machine loses its power, and it may be full."""

import errno
import os
from typing import Any

from rspdns_lab.simulate.network import SimulatedNetwork


class OsModule:
    """Python's module `os` for what writes files. `network` is set by the scenario."""

    network: SimulatedNetwork

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        """Raise OSError when the disk is full."""
        del descriptor
        if self.network.kernel.running is not None and self.network.here.is_disk_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
