"""Why mutants survive, as far as reading tells, by the name of the mutant."""

from collections.abc import Mapping
from typing import Final

REASONS: Final[Mapping[str, str]] = {
    "pool_user.belief.admission#7": "A short cut for one address: the way for several gives the same.",
    "pool_user.belief.crowd#19": "A member that was held back and returned counts as held since then: it "
    "matters when it leaves in a crowd again.",
    "pool_user.belief.decisions#62": "Matters while no registrar lists a member at all: the pool is empty "
    "then, and names its last good members, which are the same.",
    "pool_user.belief.homes#43": "A contested member leaves at once and has registered again within 0.5 s: "
    "the page of faults allows 1.5 s.",
    "pool_user.belief.identities#85": "A server that dies within 5 s after a drain is told as drained.",
    "pool_user.belief.moves#1": "Matters when a registrar tells a server at another address: no such lie is "
    "among the faults.",
    "pool_user.belief.pool#14": "After a restart of a backend whose pool has a key.",
    "pool_user.belief.reachability#44": "An orphan is probed 0.2 s sooner or later.",
    "pool_user.belief.rules#2": "A crowd waits for so long only beside a registrar that answers nothing.",
}
