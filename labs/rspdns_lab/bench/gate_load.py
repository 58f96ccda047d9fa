"""Messages to one registrar, as fast as it answers.

    python -m rspdns_lab.bench.gate_load OWN REGISTRAR KIND SECONDS

KIND is `questions` (handle resolutions) or `registrations` (elements that register again, with another load).
WINDOW messages are under way at a time. The answers are counted, and their number is written at the end.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator
from typing import Final

import uvloop

from rserpool import ASAP, HandleResolution, HandleResolutionResponse, RegistrarAddress, asap
from rspdns_lab.bench.element_association import ElementAssociation, registration

HANDLE: Final = b"gated"
ELEMENTS: Final = 50
WINDOW: Final = 32
_LOADS: Final = 7


def questions() -> Iterator[bytes]:
    """Yield the bytes of handle resolutions."""
    return itertools.repeat(ASAP.encode(HandleResolution(HANDLE)))


def registrations(own: str) -> Iterator[bytes]:
    """Yield the bytes of registrations: each element again and again."""
    return itertools.cycle(
        ASAP.encode(registration(HANDLE, number + 1, own, number, load / _LOADS))
        for load in range(_LOADS)
        for number in range(ELEMENTS)
    )


async def _measure(own: str, registrar: str, kind: str, seconds: float) -> int:
    answers = 0
    messages = questions() if kind == "questions" else registrations(own)
    expected = HandleResolutionResponse if kind == "questions" else asap.RegistrationResponse

    def answered(message: object) -> None:
        nonlocal answers
        if isinstance(message, expected):
            answers += 1
            association.send_encoded(next(messages))

    association = ElementAssociation(own, RegistrarAddress.parse(registrar), on_message=answered)
    association.connect()
    await association.is_up.wait()
    end_s = time.monotonic() + seconds
    for _ in range(WINDOW):
        association.send_encoded(next(messages))
    await asyncio.sleep(end_s - time.monotonic())
    return answers


if __name__ == "__main__":
    _own, _registrar, _kind, _seconds = sys.argv[1:]
    print(uvloop.run(_measure(_own, _registrar, _kind, float(_seconds))))
