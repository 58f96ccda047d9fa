"""How long to wait with a fresh PE identifier after another host was found to have the former one. Pure."""

from typing import Final

from rserpool import REJECTED_CEILING_S, REJECTED_FIRST_S, backoff_s

FORGOTTEN_S: Final = 2 * REJECTED_CEILING_S


class CollisionPause:
    """Join at once after the first collision for long, later after the next one: chance is hardly why."""

    def __init__(self) -> None:
        self.join_at_s = float("-inf")
        """Not before."""
        self._in_a_row = 0
        self._last_s = float("-inf")

    def collided(self, now: float) -> None:
        """Take in a collision."""
        if now - self._last_s > FORGOTTEN_S:
            self._in_a_row = 0
        self._last_s = now
        wait_s = backoff_s(self._in_a_row, REJECTED_FIRST_S, REJECTED_CEILING_S) if self._in_a_row else 0.0
        self._in_a_row += 1
        self.join_at_s = now + wait_s
