"""Bytes that are almost right: ASAP and ENRP messages with some bits, lengths or ends changed.

    python -m tests.support.garbage ADDRESS PORT HANDLE

is a registrar that answers every message with them. Run it where SCTP works.
"""

import contextlib
import random
import select
import sys
from ipaddress import ip_address

from rserpool import (
    AssociationUp,
    LeastUsed,
    PoolElement,
    Protocol,
    SctpMessage,
    SctpSocket,
    Transport,
    asap,
    enrp,
)

STRANGER = PoolElement(
    0xDEADBEEF, 1, 60_000, Transport(Protocol.UDP, 5099, (ip_address("192.0.2.66"),)), LeastUsed(0.0)
)
"""An element that no zone accepts."""
TOLD_EVERY = 10


def asap_seeds(handle: bytes) -> list[bytes]:
    """Right messages about the pool `handle`."""
    return [
        asap.encode(message)
        for message in (
            asap.HandleResolutionResponse(handle, LeastUsed(0.0), (STRANGER,)),
            asap.HandleResolutionResponse(handle, LeastUsed(0.0), (STRANGER,) * 20),
            asap.HandleResolution(handle, 128),
            asap.EndpointKeepAliveAck(handle, 7),
            asap.EndpointUnreachable(handle, 7),
            asap.ServerAnnounce(7),
            asap.Cookie(b"x" * 50),
        )
    ]


def enrp_seeds() -> list[bytes]:
    """Right messages between registrars."""
    return [
        enrp.encode(message) for message in (enrp.ListRequest(7, 0), enrp.HandleTableRequest(7, 0, False))
    ]


def mutated(seeds: list[bytes], count: int, draw: random.Random) -> list[bytes]:
    """`count` messages made of `seeds`; some are wholly random."""
    return [_mutate(bytearray(draw.choice(seeds)), draw) for _ in range(count)]


def _mutate(data: bytearray, draw: random.Random) -> bytes:
    match draw.randrange(5):
        case 0:
            return draw.randbytes(draw.randrange(1, 1400))
        case 1:  # cut short, or longer than it says
            return bytes(data[: draw.randrange(1, len(data) + 1)]) + draw.randbytes(draw.randrange(20))
        case 2:  # a length that lies
            offset = draw.randrange(0, len(data) - 3, 4) + 2
            data[offset : offset + 2] = draw.choice((b"\0\0", b"\0\3", b"\xff\xff", draw.randbytes(2)))
        case 3:  # parameters again and again
            data[len(data) :] = data[4:] * draw.randrange(1, 40)
            data[2:4] = (len(data) & 0xFFFF).to_bytes(2, "big")
        case _:
            for _ in range(draw.randrange(1, 20)):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def main(address: str, port: str, handle: str) -> None:
    draw = random.Random(7)
    listener = SctpSocket(local_addresses=[address], port=int(port), listens=True)
    seeds = asap_seeds(handle.encode())
    sent = 0
    while True:
        select.select([listener], [], [])
        with contextlib.suppress(OSError):
            came = listener.receive()
            if not isinstance(came, AssociationUp | SctpMessage):
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
