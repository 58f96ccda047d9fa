"""A stranger that lists a registrar's address as one of its own. Run it where SCTP works.

    python -m tests.support.claiming_stranger OWN CLAIMED TARGET PORT HANDLE IDENTIFIER

It has bound CLAIMED on an interface that nobody reaches, sets up associations from OWN with the pool element
at TARGET again and again, says on each that it is the element's new home, and accepts every registration.
Writes a line for each association, and for each registration that it got.
"""

import contextlib
import select
import sys
import time

from rserpool import (
    AssociationLost,
    AssociationUp,
    EndpointKeepAlive,
    Registration,
    RegistrationResponse,
    SctpMessage,
    SctpSocket,
    asap,
)

AGAIN_S = 0.2
IDENTIFIER = 0x666


def main(own: str, claimed: str, target: str, port: str, handle: str, identifier: str) -> None:
    takeover = EndpointKeepAlive(IDENTIFIER, handle.encode(), int(identifier, 16), home=True)
    stranger = SctpSocket(local_addresses=[own, claimed], port=asap_port(), listens=True)
    associations: set[int] = set()
    tried_s = float("-inf")
    while True:
        if time.monotonic() - tried_s >= AGAIN_S:
            tried_s = time.monotonic()
            for association in tuple(associations):
                with contextlib.suppress(OSError):
                    stranger.send(association, asap.PPID, asap.encode(takeover))
            if not associations:
                with contextlib.suppress(OSError):
                    stranger.connect((target, int(port)))
        select.select([stranger], [], [], 0.05)
        with contextlib.suppress(BlockingIOError):
            match stranger.receive():
                case AssociationUp(association):
                    associations.add(association)
                    tried_s = float("-inf")
                    print("associated", flush=True)
                case AssociationLost(association):
                    associations.discard(association)
                case SctpMessage(association, _, data):
                    message = asap.decode(data)
                    if isinstance(message, Registration):
                        print("registration", flush=True)
                        accepted = RegistrationResponse(message.handle, message.pool_element.identifier)
                        stranger.send(association, asap.PPID, asap.encode(accepted))


def asap_port() -> int:
    """The port of the registrar that it claims to be."""
    return 3863


if __name__ == "__main__":
    main(*sys.argv[1:])
