"""The load of the server, 0..1: smoothed, and when a change is worth an update. Pure: takes `now`.

Every update goes to all registrars and from there to all DNS backends: small changes are held back.
"""

import math

from ppe_agent.load_config import LoadConfig

_AT_REST = 0.001
"""Two readings in a row, and what is made of them, that differ by less are the same."""
_REST_CHANGE = 0.01


class LoadReporter:
    """Smooths a load and says when to report it.

    Smoothing is exponential with time constant `smoothing_ms`. A value is due when it differs by
    `min_change` or more from the last one reported, and `min_update_interval_ms` have passed; one that has
    come to rest already when it differs by a hundredth, or smoothing would hide the last of a change. A
    source that fails counts as `when_unknown`, or as it last was if that was more: a file at once, a source
    that has to be asked when its last answer is older than `max_age_ms`. Without readings (source "none")
    the load stays 0.
    """

    def __init__(self, config: LoadConfig) -> None:
        self._config = config
        self._smoothed = 0.0
        self._is_known = False
        self._reading = math.nan
        self._is_at_rest = False
        self._sampled_at_s = -math.inf
        self._reported_at_s = -math.inf
        self.reported = 0.0
        self.problem: str | None = None
        """Why there is no reading, in words; None while there is one."""

    def go_on_from(self, before: "LoadReporter") -> None:
        """Begin with what `before` knew, until the first reading of one's own or until that is too old."""
        self._smoothed = before._smoothed
        self._is_known = before._is_known
        self._sampled_at_s = before._sampled_at_s
        self.reported = before.reported

    @property
    def is_known(self) -> bool:
        """False while `when_unknown` is reported instead of a reading."""
        return self._is_known

    @property
    def read(self) -> float | None:
        """The last reading, not smoothed; None if there is none, or if the source failed since."""
        return None if self.problem is not None or math.isnan(self._reading) else round(self._reading, 4)

    def sample(self, load: float, now: float) -> None:
        """Take in a reading."""
        is_first = math.isnan(self._reading)
        if is_first or not self._is_known or self._config.smoothing_ms == 0:
            self._smoothed = load
        else:
            passed_ms = max(0.0, now - self._sampled_at_s) * 1000
            share = 1 - math.exp(-passed_ms / self._config.smoothing_ms)
            self._smoothed += share * (load - self._smoothed)
        self._is_at_rest = max(abs(load - self._reading), abs(load - self._smoothed)) < _AT_REST
        self._reading = load
        self._is_known = True
        self._sampled_at_s = now
        self.problem = None

    def unknown(self, problem: str, now: float) -> None:
        """Take in that there is no reading."""
        self.problem = problem
        patience_ms = self._config.max_age_ms if self._config.is_asked else 0
        if (now - self._sampled_at_s) * 1000 >= patience_ms:
            self._is_known = False

    def due(self, now: float) -> float | None:
        """Return the load to report now, None when the last one still serves."""
        value = self._smoothed if self._is_known else max(self._config.when_unknown, self._smoothed)
        is_first = self._reported_at_s == -math.inf
        if not is_first:
            at_least = min(self._config.min_change, _REST_CHANGE if self._is_at_rest else 1.0)
            if abs(value - self.reported) < at_least:
                return None
            if (now - self._reported_at_s) * 1000 < self._config.min_update_interval_ms:
                return None
        self.reported = value
        self._reported_at_s = now
        return value
