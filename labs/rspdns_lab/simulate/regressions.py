"""The scenarios that found something once: each is run by the tests, and breaks nothing any more."""

from dataclasses import dataclass
from typing import Final

SIZE: Final = "3,10,2"
"""Registrars, servers, name servers."""


@dataclass(frozen=True, slots=True)
class Regression:
    """A scenario by its seed; `left_out` are the faults without which it failed all the same.

    `rspdns-lab simulate` prints the line of a seed that breaks a promise.
    """

    seed: int
    minutes: float
    faults: str = ""
    left_out: str = ""
    size: str = SIZE

    @property
    def words(self) -> list[str]:
        """The worker's command line."""
        options = ["--faults", self.faults, "--leave-out", self.left_out, "--size", self.size]
        return [str(self.seed), str(self.seed), str(self.minutes), *options]


REGRESSIONS: Final[tuple[Regression, ...]] = (
    # Eight members: seven fit into an answer, and the promise expected all.
    Regression(seed=2, minutes=2),
)
