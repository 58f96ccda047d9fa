"""Drawing a living member: by weight, or by the client's address. Pure.

The kernel's rules and the agent draw alike: the agent relays part of the flows.
"""

from __future__ import annotations

import functools
import hashlib
import math
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ppu_agent.destinations import Address, Destination

SHARES: Final = 1000
"""Weights are drawn in thousandths."""
SOURCE_SLOTS: Final = 256
"""Clients with `affinity = "source"` are divided into this number of parts, by a hash of their address."""
SOURCE_SEED: Final = 0x70707561
"""Every agent hashes alike."""
_U32: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Target:
    """A living member that takes what was sent to a dead one, and its share: weight 1..65535."""

    destination: Destination
    weight: int


def drawn(targets: Sequence[Target], chance: float) -> Destination | None:
    """One of these by weight; `chance` is 0 to below 1."""
    rest = chance * sum(target.weight for target in targets)
    for target in targets:
        rest -= target.weight
        if rest < 0:
            return target.destination
    return targets[-1].destination if targets else None


def drawn_by_source(targets: Sequence[Target], client: Address) -> Destination | None:
    """The one that the kernel's rules choose for this address, too: the agent relays part of the flows.

    The same while it lives, by every transport and at every agent.
    """
    slot = _slot(client)
    return max(targets, key=lambda target: _score(target, slot)).destination if targets else None


def shares(targets: Sequence[Target]) -> list[tuple[int, int, Destination]]:
    """Divide 0..999 by weight: first and last number of each target; each has one number at least.

    If there are more than 1,000 targets the first 1,000 have a share.
    """
    targets = targets[:SHARES]
    total = sum(target.weight for target in targets)
    spare = SHARES - len(targets)
    found, first, sum_so_far = [], 0, 0
    for number, target in enumerate(targets, start=1):
        sum_so_far += target.weight
        end = number + spare * sum_so_far // total
        found.append((first, end - 1, target.destination))
        first = end
    return found


def slots_by_source(targets: Sequence[Target]) -> list[Destination]:
    """Which target gets each slot of the clients' hash: weighted rendezvous hashing.

    When a target goes, only its own slots move; every agent with the same targets comes to the same slots.
    """
    best = [(0.0, -1)] * SOURCE_SLOTS
    for index, target in enumerate(targets):
        for slot, score in enumerate(_scores(target.destination.where)):
            if target.weight * score > best[slot][0]:
                best[slot] = target.weight * score, index
    return [targets[index].destination for _, index in best]


def _score(target: Target, slot: int) -> float:
    return target.weight * _scores(target.destination.where)[slot]


@functools.lru_cache(maxsize=8192)
def _scores(where: str) -> array[float]:
    """The scores of an address and port, by whatever transport, for each slot at weight 1.

    Weights change often, and these hashes never.
    """
    return array("d", (_drawn_score(where.encode(), slot) for slot in range(SOURCE_SLOTS)))


def _drawn_score(name: bytes, slot: int) -> float:
    digest = hashlib.blake2b(name + slot.to_bytes(16, "big"), digest_size=8).digest()
    chance = (int.from_bytes(digest, "big") + 1) / (2**64 + 2)
    return -1 / math.log(chance)


def _slot(client: Address) -> int:
    """The slot of a client's address, as nftables' jhash expression computes it."""
    return _jhash(client.packed, SOURCE_SEED) * SOURCE_SLOTS >> 32


def _jhash(data: bytes, seed: int) -> int:
    """Bob Jenkins' hash (lookup3) of 4 or 16 bytes, as Linux has it (include/linux/jhash.h)."""
    a = b = c = 0xDEADBEEF + len(data) + seed & _U32
    if len(data) > 12:
        first = [int.from_bytes(data[at : at + 4], sys.byteorder) for at in (0, 4, 8)]
        a, b, c = (start + word & _U32 for start, word in zip((a, b, c), first, strict=True))
        for turn in (4, 6, 8, 16, 19, 4):
            a = (a - c & _U32) ^ _turned(c, turn)
            c = c + b & _U32
            a, b, c = b, c, a
        data = data[12:]
    a = a + int.from_bytes(data, "little") & _U32
    for turn in (14, 11, 25, 16, 4, 14, 24):
        c = (c ^ b) - _turned(b, turn) & _U32
        a, b, c = b, c, a
    return b


def _turned(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _U32
