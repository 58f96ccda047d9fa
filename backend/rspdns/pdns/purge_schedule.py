"""What to purge at one PowerDNS, and when. Pure: no clock, no socket.

A changed name is purged three times: at once, and again 10 and 50 ms later. A look-up that was under way
during a purge puts the old answer back into PowerDNS's caches; the repeats remove that. Names that change
while a command is under way go together into the next one, and repeats that are due soon go with it: each
command is a connection of its own, for which PowerDNS clears a megabyte, and that costs more than the purges.
So when changes come all the time, commands are `SPACING_S` apart and take along what gathered meanwhile, a
name is purged twice (each purge makes PowerDNS ask for it again), and repeats wait for a change to go along
with, but not for longer than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

GAPS_S = (0.0, 0.010, 0.040)
"""From the change to the first purge, and from each purge to the next."""
EARLY_S = 0.003
"""A repeat that is due within this time goes along with a command that is made anyway."""
SPACING_S = 0.020
"""Between two commands, on the long run: so long a change waits at most when very many come."""
BURST = 10
"""Commands that may come one right after the other: changes that come now and then never wait."""
RETRY_S = 0.25
"""After a command that did not get through."""
MAX_NAMES = 2000
"""In one command: PowerDNS needs about 30 ms for so many, and reads a line of a megabyte at most."""
_RETRY = len(GAPS_S)


@dataclass(frozen=True, slots=True)
class Command:
    """Names to purge now; `turns` says for each which of its purges it is, from 0."""

    turns: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """The names."""
        return tuple(self.turns)


class PurgeSchedule:
    """Each name waits in one queue, of its first, second or third purge, or of its retry.

    All names of a queue wait for the same time, so each queue is in the order of its times.
    """

    def __init__(self) -> None:
        self._queues: tuple[dict[str, float], ...] = tuple({} for _ in (*GAPS_S, RETRY_S))
        self._spaced_until_s = float("-inf")
        """When the next command would come if all were `SPACING_S` apart; up to `BURST` may come sooner."""

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def add(self, names: Iterable[str], now: float) -> None:
        """These names changed: all their purges begin anew."""
        first, *later = self._queues
        for name in names:
            for queue in later:
                queue.pop(name, None)
            first.setdefault(name, now)

    @property
    def next_due_s(self) -> float | None:
        """When the next command is due, None when there is nothing to purge."""
        first, *later, retry = (next(iter(queue.values())) if queue else None for queue in self._queues)
        free_at_s = self.free_at_s
        due = [max(at_s, free_at_s) for at_s in (first, retry) if at_s is not None]
        due += [at_s if at_s >= free_at_s else free_at_s + SPACING_S for at_s in later if at_s is not None]
        return min(due, default=None)

    @property
    def free_at_s(self) -> float:
        """From when on a command may be made."""
        return self._spaced_until_s - BURST * SPACING_S

    def take(self, now: float) -> Command | None:
        """Return what is due, to be told its end by `done()` or `failed()`."""
        due_s = self.next_due_s
        if due_s is None or due_s > now:
            return None
        self._spaced_until_s = max(self._spaced_until_s, now) + SPACING_S
        turns: dict[str, int] = {}
        for turn, queue in enumerate(self._queues):
            for name, due_s in queue.items():
                if due_s > now + EARLY_S or len(turns) == MAX_NAMES:
                    break
                turns[name] = 0 if turn == _RETRY else turn
            for name in turns.keys() & queue.keys():
                del queue[name]
        return Command(turns)

    def done(self, command: Command, now: float) -> None:
        """PowerDNS purged them: the next turn of each, unless it changed again meanwhile."""
        turns = 2 if self.free_at_s > now else 1  # the second purge is left out where commands are spaced
        for name, turn in command.turns.items():
            following = turn + 1 if turn else turns
            if following < len(GAPS_S) and name not in self._queues[0]:
                self._queues[following][name] = now + GAPS_S[following]

    def failed(self, command: Command, now: float) -> None:
        """It is not known to have got through: all purges of these names begin anew after a pause."""
        for name in command.turns:
            if name not in self._queues[0]:
                self._queues[_RETRY][name] = now + RETRY_S

    def clear(self) -> None:
        """Nothing is to be purged any more."""
        for queue in self._queues:
            queue.clear()
