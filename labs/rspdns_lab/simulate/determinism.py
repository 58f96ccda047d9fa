"""The world outside a scenario, as every part of the chain sees it: clocks, chance, processor time.

`install` replaces them for this whole process, before any part of the product is imported: default arguments
such as `clock=time.monotonic` are bound then. No set's order depends on the hash seed: `simulate` runs its
work in a process with PYTHONHASHSEED=0 (`rspdns_lab.simulate.cli`).
"""

import os
import random
import secrets
import time
from collections.abc import Callable
from typing import Final, Protocol

EPOCH_S: Final = 1_800_000_000.0
"""The wall clock's time at the beginning of every scenario."""
real_s: Callable[[], float] = time.process_time
"""Processor time: for the simulator's own speed, and for nothing else."""


class Clocks(Protocol):
    """The clocks of the simulated process that is running."""

    def monotonic_s(self) -> float: ...  # noqa: D102 - the name says it
    def wall_s(self) -> float: ...  # noqa: D102 - the name says it


class _Frozen:
    """The clocks between scenarios."""

    def monotonic_s(self) -> float:
        return 0.0

    def wall_s(self) -> float:
        return EPOCH_S


_clocks: Clocks = _Frozen()


def use(clocks: Clocks | None, seed: int = 0) -> None:
    """Take these clocks from now on, and begin chance anew; None: the scenario is over."""
    global _clocks
    _clocks = clocks or _Frozen()
    random.seed(seed)


class _SeededRandom(random.Random):
    """A generator that is seeded by the scenario where Python would take the system's entropy."""

    def __init__(self, x: int | str | None = None) -> None:
        super().__init__(random.getrandbits(64) if x is None else x)


def install() -> None:
    """Replace the clocks and the chance of this process, for good."""
    time.monotonic = lambda: _clocks.monotonic_s()
    time.time = lambda: _clocks.wall_s()
    # Work takes no time here: how fast this machine is must not decide which pool has its turn.
    time.thread_time = lambda: 0.0
    os.urandom = random.randbytes
    random.Random = _SeededRandom  # type: ignore[assignment, misc]
    secrets.token_bytes = _token
    secrets.token_hex = lambda nbytes=None: _token(nbytes).hex()
    secrets.randbelow = lambda exclusive_upper_bound: random.randrange(exclusive_upper_bound)  # noqa: S311
    secrets.randbits = lambda k: random.getrandbits(k)
    secrets.choice = random.choice


def _token(nbytes: int | None = None) -> bytes:
    return random.randbytes(32 if nbytes is None else nbytes)  # noqa: S311 - of the seed
