"""How many pool elements registrars bear, and how often they may ask each. Pure: numbers in, numbers out.

rspregistrar has one thread. It spends time on keep-alives of the elements that it is home to, and on every
registration anywhere: its own and those that its peers tell it of. An element registers again every
`agent_reregistration_ms`. While one registrar is down the others are home to its elements, too.

The rule has two parts, which hold while one registrar is down, too. No registrar's thread is busy for more
than half of the time. One burst of keep-alives takes half of `TIMEOUT_MS` at most.

Why bursts: rspregistrar sends all keep-alives that are due in one go, and none while acknowledgements come
in. So under load it asks all elements at once. Meanwhile it reads no acknowledgement: when a burst takes
longer than `TIMEOUT_MS`, it drops elements that have answered.
"""

import math
from dataclasses import dataclass
from typing import Final

from registrar_config.options import KEEP_ALIVE, TIMERS_MS

KEEP_ALIVE_US: Final = 40
"""The cost of a keep-alive for rspregistrar's thread. `rspdns-lab bench --only registrars` measures its
processor time: 36 us at most, 10 us under load. If sctpd carries SCTP, the thread also waits for it, about
20 us."""
REGISTRATION_US: Final = 45
"""The cost of a registration for each rspregistrar's thread: 14 to 44 us from 1,000 elements on."""
MOST_BUSY: Final = 0.5
SHORTEST_KEEP_ALIVE_MS: Final = TIMERS_MS[KEEP_ALIVE]
TIMEOUT_MS: Final = TIMERS_MS["endpointkeepalivetimeoutinterval"]
MOST_BURST_MS: Final = TIMEOUT_MS / 2
_MOST_REGISTRARS: Final = 99


@dataclass(frozen=True)
class Sizing:
    """The work of `registrars` with `elements`.

    `keep_alive_ms`: how often an element is asked. `busy`: share of the time (0..1, or more when it is too
    much) for which a registrar's thread works while one registrar is down. `burst_ms`: how long it then takes
    to ask all its elements at once; 0 where registrations leave no keep-alives to be sent.
    """

    elements: int
    registrars: int
    keep_alive_ms: int
    busy: float
    burst_ms: float

    @property
    def detection_ms(self) -> int:
        """The longest time for which a silent host stays registered."""
        return self.keep_alive_ms + TIMEOUT_MS

    @property
    def fits(self) -> bool:
        """Whether each registrar's thread has the time for it."""
        return self.busy <= MOST_BUSY + 0.001

    @property
    def bursts_fit(self) -> bool:
        """Whether a registrar that asks all its elements at once still hears them in time."""
        return self.burst_ms <= MOST_BURST_MS


def size(elements: int, registrars: int, reregistration_ms: int) -> Sizing:
    """Return the shortest keep-alive interval at which these registrars bear these elements."""
    homes = max(1, registrars - 1)
    registering = elements * REGISTRATION_US / 1000 / reregistration_ms
    asking_ms = elements * KEEP_ALIVE_US / 1000 / homes
    # Every registration starts the interval anew: an interval that is longer means no keep-alive in between.
    longest_ms = reregistration_ms + SHORTEST_KEEP_ALIVE_MS
    room = MOST_BUSY - registering
    wanted_ms = math.ceil(asking_ms / room) if room > 0 else longest_ms
    if wanted_ms > reregistration_ms:
        return Sizing(elements, registrars, max(SHORTEST_KEEP_ALIVE_MS, longest_ms), registering, 0.0)
    interval_ms = max(SHORTEST_KEEP_ALIVE_MS, wanted_ms)
    return Sizing(elements, registrars, interval_ms, registering + asking_ms / interval_ms, asking_ms)


def most_elements(registrars: int, reregistration_ms: int) -> int:
    """Return how many elements these registrars bear at the shortest interval."""
    homes = max(1, registrars - 1)
    each = REGISTRATION_US / 1000 / reregistration_ms + KEEP_ALIVE_US / 1000 / homes / SHORTEST_KEEP_ALIVE_MS
    return int(MOST_BUSY / each)


def registrars_for(elements: int, reregistration_ms: int) -> int | None:
    """Return how many registrars bear the elements at the shortest interval; None: no number does."""
    for registrars in range(3, _MOST_REGISTRARS + 1):
        sizing = size(elements, registrars, reregistration_ms)
        if sizing.fits and sizing.keep_alive_ms == SHORTEST_KEEP_ALIVE_MS:
            return registrars
    return None


def registrars_for_bursts(elements: int) -> int:
    """Return how many registrars there must be for a burst of keep-alives to be short enough."""
    return math.ceil(elements * KEEP_ALIVE_US / 1000 / MOST_BURST_MS) + 1


def shortest_reregistration_ms(elements: int) -> int:
    """Return how rarely these elements must register again for their registrations to leave room."""
    return math.ceil(elements * REGISTRATION_US / 1000 / (MOST_BUSY * 0.8) / 1000) * 1000
