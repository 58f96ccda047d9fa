"""Drained servers: a registration life that says for how long an operator takes a server out. Pure.

A registrar drops an element that deregistered as it drops one that died, and tells its peers nothing of the
reason. But it passes the registration life of a new element on unchanged. (rspregistrar keeps the first life
when the same element registers again.) So a server that is drained registers a second element, the
*farewell*, for a moment: at its own address and port, at its home registrar, with a life out of the range
below. It deregisters once that is taken.

| life in ms | meaning |
|---|---|
| 47,011 | drained without an end |
| 47,011 + 1 to 1,440 | drained for so many minutes |
| 48,451 + 25 to 720 | drained for so many hours |

A sidecar registers no server with such a life.
"""

import math
from typing import Final

LONGEST_DRAIN_S: Final = 30 * 86_400.0
"""A drain with an end lasts at most so long."""
_FIRST_MS: Final = 47_011
_DAY_MINUTES: Final = 1_440
_LONGEST_HOURS: Final = 720


def drained_life_ms(drained_s: float | None) -> int:
    """Return the registration life, in ms, that says: drained for `drained_s`, which is rounded up; None:
    without an end."""
    if drained_s is None:
        return _FIRST_MS
    minutes = max(1, math.ceil(drained_s / 60))
    if minutes <= _DAY_MINUTES:
        return _FIRST_MS + minutes
    return _FIRST_MS + _DAY_MINUTES + min(_LONGEST_HOURS, math.ceil(minutes / 60))


def is_drained_life(life_ms: int) -> bool:
    """Tell whether a registration life says that its server is drained."""
    return _FIRST_MS <= life_ms <= _FIRST_MS + _DAY_MINUTES + _LONGEST_HOURS


def drained_for_s(life_ms: int) -> float | None:
    """Return for how long a server is drained, in seconds, of a life that says so; None: without an end."""
    number = life_ms - _FIRST_MS
    if number > _DAY_MINUTES:
        return (number - _DAY_MINUTES) * 3600.0
    return number * 60.0 or None
