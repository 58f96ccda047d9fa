"""Tells when the home registrar alone knows a pool element: it is to be left then. Pure.

A home that confirms each registration, while no other registrar lists the element, has lost its peers, or is
none. A registrar tells its peers of a registration within a millisecond, so seconds are no accident.
"""

from typing import Final

from rserpool import RegistrarAddress, backoff_s

LACKED_S: Final = 3.0
"""So long all others must lack the element; after leaving a home for it in vain twice as long, ..."""
LACKED_CEILING_S: Final = 300.0
"""... up to this: when no two registrars reach each other, moving does not help."""
HEARD_S: Final = 2.0
"""What a registrar said longer ago does not count: it is asked twice a second."""


class Outvoted:
    """What every registrar says of one pool element, against its home. Times are in s, on one clock."""

    def __init__(self) -> None:
        self._said: dict[RegistrarAddress, tuple[bool, float]] = {}
        self._home: RegistrarAddress | None = None
        self._since_s: float | None = None
        self._left = 0

    def told(
        self, registrar: RegistrarAddress, home: RegistrarAddress | None, listed: bool | None, now: float
    ) -> bool:
        """Take in whether `registrar` lists the element (None: its answer does not tell), whose home is
        `home` (None: it has none). Return whether the home is to be left now."""
        if home != self._home:
            self._home, self._since_s = home, None
        if listed is None:
            self._said.pop(registrar, None)
        else:
            self._said[registrar] = (listed, now)
        others = [said for one, (said, at_s) in self._said.items() if one != home and now - at_s <= HEARD_S]
        if any(others):
            self._left = 0
        if home is None or not others or any(others):
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = now
        if now < self._since_s + backoff_s(1 + self._left, LACKED_S, LACKED_CEILING_S):
            return False
        self._left += 1
        self._since_s = None
        return True
