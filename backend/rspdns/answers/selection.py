"""Which members of a pool an answer shows. Pure: chance comes in as a `random.Random`."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import TypeVar

from pool_user import Weighted

Key = TypeVar("Key")


def active(weights: Mapping[Key, Weighted]) -> dict[Key, Weighted]:
    """The members clients are sent to: all but the standbys, who come in when nobody else lives."""
    return {key: w for key, w in weights.items() if not w.standby} or dict(weights)


def in_order(weights: Mapping[Key, Weighted], draw: random.Random) -> list[Key]:
    """The active members in the order in which they find a place in an SRV answer.

    The best SRV priority comes first; within one the first is drawn by weight, the rest follow in any order.
    A client chooses by weight among those it is shown (RFC 2782), so over many answers each member of the
    best priority is chosen exactly in proportion to its weight, however many of them an answer holds: that
    is how samples are drawn for an unbiased ratio (Midzuno, 1952). Were all places drawn by weight, the heavy
    would be favoured twice.
    """
    shown = active(weights)
    order: list[Key] = []
    for priority in sorted({w.priority for w in shown.values()}):
        tier = {key: w.weight for key, w in shown.items() if w.priority == priority}
        first = in_drawn_order(tier, draw)[0]
        rest = [key for key in tier if key != first]
        draw.shuffle(rest)
        order += [first, *rest]
    return order


def first_tier(weights: Mapping[Key, Weighted]) -> dict[Key, Weighted]:
    """The active members of the best priority only.

    For A and AAAA records, which can tell a client neither priority nor order: a standby or overloaded
    server must not be among them while a better one lives.
    """
    shown = active(weights)
    best = min((w.priority for w in shown.values()), default=0)
    return {key: w for key, w in shown.items() if w.priority == best}


def in_drawn_order(weights: Mapping[Key, int], draw: random.Random) -> list[Key]:
    """All keys in the order of a draw by weight without replacement.

    Each gets an exponential waiting time with its weight as the rate; the order of arrival is such a draw
    (Efraimidis and Spirakis, 2006).
    """
    arrivals = {key: -math.log(1.0 - draw.random()) / weight for key, weight in weights.items()}
    return sorted(arrivals, key=lambda key: arrivals[key])
