"""A host that registers thousands of pool elements in one pool, and goes on coming and going.

    python -m rspdns_lab.bench.stranger_elements ADDRESS HANDLE COUNT PER_S REGISTRAR...

Registers COUNT elements, PER_S a second over all registrars; then, at the same pace, each in turn deregisters
and registers again under another identifier. Writes "registered N" once a second. It never waits for answers.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Sequence

import uvloop

from rserpool import Deregistration, RegistrarAddress
from rspdns_lab.bench.element_association import ElementAssociation, registration

_FIRST_IDENTIFIER = 0x01000000
_TURN_S = 0.01


async def _register(
    own: str, handle: bytes, count: int, per_s: float, registrars: Sequence[RegistrarAddress]
) -> None:
    associations = [ElementAssociation(own, registrar) for registrar in registrars]
    for association in associations:
        association.connect()
        await association.is_up.wait()
    began_s = told_s = time.monotonic()
    for number in itertools.count():
        due_s = began_s + number / per_s
        if due_s > time.monotonic():
            await asyncio.sleep(max(_TURN_S, due_s - time.monotonic()))
        identifier = _FIRST_IDENTIFIER + number
        if number >= count:
            left = number - count
            associations[left % len(associations)].send(Deregistration(handle, identifier - count))
        joining = registration(handle, identifier, own, number)
        associations[number % len(associations)].send(joining)
        if time.monotonic() >= told_s + 1:
            told_s = time.monotonic()
            print(f"registered {number + 1}", flush=True)


if __name__ == "__main__":
    uvloop.run(
        _register(
            sys.argv[1],
            sys.argv[2].encode(),
            int(sys.argv[3]),
            float(sys.argv[4]),
            [RegistrarAddress.parse(registrar) for registrar in sys.argv[5:]],
        )
    )
