"""Web sessions as ns-2's PagePool makes them: pages, objects, gaps, sizes. Pure, and alike for a seed."""

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

SESSIONS: Final = 135
SERVERS: Final = 9
PACKET_BYTES: Final = 1000
_PAGES: Final = 240.0
_OBJECTS: Final = 3.0
_BETWEEN_PAGES_S: Final = 5.0
_BETWEEN_OBJECTS_S: Final = 0.1
_OBJECT_PACKETS: Final = 12.0
_SHAPE: Final = 1.2


class WebPage(NamedTuple):
    """A page: its server, the packets of each object, the gap before each but the first, a time to think."""

    server: int
    packets: tuple[int, ...]
    gaps_s: tuple[float, ...]
    think_s: float


def round_trips_ms() -> list[float]:
    """Return the round trip to each server: 5 to 100 ms, at even distances."""
    return [5 + 95 * server / (SERVERS - 1) for server in range(SERVERS)]


def session(seed: int) -> Iterator[WebPage]:
    """Yield the pages of a session, and of those that follow it: a session has Exp(240) pages."""
    dice = random.Random(seed)  # noqa: S311 - traffic, no secret
    while True:
        for _ in range(_at_least(dice, _PAGES)):
            count = _at_least(dice, _OBJECTS)
            yield WebPage(
                dice.randrange(SERVERS),
                tuple(object_packets(dice) for _ in range(count)),
                tuple(dice.expovariate(1 / _BETWEEN_OBJECTS_S) for _ in range(count - 1)),
                dice.expovariate(1 / _BETWEEN_PAGES_S),
            )


def object_packets(dice: random.Random) -> int:
    """Return the size of an object: Pareto with a mean of 12 packets and a shape of 1.2: at least 2."""
    return round(_OBJECT_PACKETS * (_SHAPE - 1) / _SHAPE * dice.paretovariate(_SHAPE))


def _at_least(dice: random.Random, mean: float) -> int:
    return max(1, round(dice.expovariate(1 / mean)))
