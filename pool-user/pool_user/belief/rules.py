"""What the configuration says about a pool, what the belief asks and tells, and every time the rules know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from pool_user.views import Member

SILENT_AFTER_S = 0.5
"""A registrar that answers nothing for so long after a question is silent: others speak for its pool
elements."""
WAKING_S = 1.0
"""After a silence a registrar first hears what it missed; for so long it is not settled."""
OLD_SENTINEL_TRUSTED_AFTER_S = 10.0
"""A sentinel known from before the link was lost counts again when it was listed for so long. A restarted
registrar may list the one of its former life, copied from a peer, until it is purged (about 2 s)."""
CROWD_WINDOW_S = 0.5
"""More than half of a pool gone within this time is questioned, ..."""
CROWD_QUESTIONED_S = 1.0
"""... for so long at most."""
ORPHAN_AFTER_S = 0.2
"""A live member whose home registrar is lost registers elsewhere within 100 ms; one that has not after so
long is probed by the backend itself, ..."""
ORPHAN_PROBED_S = 10.0
"""... for so long at most (by then it was taken over, or its registration life has ended): a registrar may be
out of reach from here for days, while its members answer to it."""
ORPHAN_OUT_S = 30.0
"""One that is not reached is out for so long at most while settled registrars list it: a takeover takes some
seconds, one that is held up 10 s, a registration life 6 s. Who is listed still answers to its home."""
ADOPTED_AFTER_S = 1.0
"""One that another registrar took over counts as vouched for after so long: it has answered a keep-alive."""
RECENT_S = 10.0
"""Who was in so lately is among the last good ones of a pool that became empty."""
BLINK_S = 1.0
"""Who comes back within this time was never away: its `since_s` stays."""
OUT_SHOWN_S = 60.0
"""How long a member that left is shown with its reason."""
MAX_MEMBERS = 1000
"""Of one pool handle, unless configured."""
RENEW_STALE_S = 60.0
"""While only registrars without a sentinel vouch, `stale_since_s` follows at steps of this length."""


def pool_name(handle: bytes) -> str:
    """A pool handle as the configuration has it; one that no configuration can hold has no such text."""
    return handle.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class PoolRules:
    """What the configuration says about one pool: a PE counts only inside the `accept` networks (rule 6).

    `verified`: the backend's own probe has a say all the time, not only while registrars are lost.
    `max_members`: further PEs are refused before anything about them is stored.
    """

    accept: Sequence[IPv4Network | IPv6Network]
    verified: bool = False
    max_members: int = MAX_MEMBERS


@dataclass(frozen=True, slots=True)
class Question:
    """An answer the belief waits for: it should be asked at once."""

    registrar: int
    handle: str


@dataclass(frozen=True, slots=True)
class BeliefEvent:
    """Something that a person following the pools wants to read.

    `kind` is one of joined, left, moved, refused, questioned, and of a registrar (no handle, its number as
    `identifier`) registrar and misplaced; `words` say why. `member` is the one that joined, left or moved.
    """

    at_s: float
    kind: str
    handle: str
    identifier: int | None
    words: str
    member: Member | None = None
