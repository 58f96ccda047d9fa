"""Tells when a registrar's keep-alives have stopped. Sans-IO.

A registrar sends a pool element keep-alives in even steps, counted from the last acknowledgement or
registration, as long as it lists the element; to one that it removed it says nothing. So an element that
hears none may be listed no more. It costs little to renew the registration then; it is done once for each
silence.
"""

from typing import Final

STEPS: Final = 2
SHORTEST_STEP_S: Final = 0.3
"""What rspregistrar takes at least; sooner come only those that were held up on the way."""
MARGIN_S: Final = 0.05


class Silence:
    """Follows the keep-alives of the registrar in charge. Times are in s."""

    def __init__(self) -> None:
        self.is_heeded = False
        """Whether silence is to be told: by who has no better means of knowing that it is listed."""
        self._last_sign_s: float | None = None
        self._step_s: float | None = None

    @property
    def deadline_s(self) -> float | None:
        """When it has been silent for too long; None while that is not known, or nobody heeds it."""
        if not self.is_heeded or self._step_s is None or self._last_sign_s is None:
            return None
        return self._last_sign_s + STEPS * self._step_s + MARGIN_S

    def begin_anew(self) -> None:
        """Take in that another registrar is in charge."""
        self._last_sign_s = self._step_s = None

    def confirmed(self, now: float) -> None:
        """Take in that the registrar confirmed the registration."""
        self._last_sign_s = now

    def kept_alive(self, now: float) -> None:
        """Take in a keep-alive, and how long its step was."""
        if self._last_sign_s is not None:
            self._step_s = max(SHORTEST_STEP_S, now - self._last_sign_s)
        self._last_sign_s = now

    def take_due(self, now: float) -> bool:
        """Return whether it is silent for too long; once, until the next keep-alive."""
        if self.deadline_s is None or now < self.deadline_s:
            return False
        self._step_s = None
        return True
