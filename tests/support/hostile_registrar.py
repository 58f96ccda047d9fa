"""A registrar that answers every message with garbage. Run it where SCTP works.

    python -m tests.support.hostile_registrar ADDRESS PORT HANDLE

Writes "messages N" whenever it has sent N more garbage messages; it ends some associations in between.
"""

import contextlib
import random
import select
import sys

from rserpool.aio.sctp import AssociationUp, Message, SctpSocket

from tests.support.garbage import asap_seeds, enrp_seeds, mutated

TOLD_EVERY = 10


def main(address: str, port: str, handle: str) -> None:
    draw = random.Random(7)
    listener = SctpSocket(local_addresses=[address], port=int(port), listens=True)
    seeds = asap_seeds(handle.encode())
    sent = 0
    while True:
        select.select([listener], [], [])
        with contextlib.suppress(OSError):
            came = listener.receive()
            if not isinstance(came, AssociationUp | Message):
                continue
            for message in mutated([*seeds, *enrp_seeds()], draw.randrange(1, 4), draw):
                listener.send(came.association, draw.choice((11, 11, 11, 12, 0, 0xFFFFFFFF)), message)
                sent += 1
                if sent % TOLD_EVERY == 0:
                    print("messages", sent, flush=True)
            if draw.random() < 0.02:
                listener.close_association(came.association)


if __name__ == "__main__":
    main(*sys.argv[1:])
