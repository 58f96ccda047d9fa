"""The status of the backend: described in `model`, made in `build`, shown in a terminal by `view`."""

from rspdns.status.model import OtherVersionError, Status, dumped, read

__all__ = ["OtherVersionError", "Status", "dumped", "read"]
