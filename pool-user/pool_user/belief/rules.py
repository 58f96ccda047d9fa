"""The configuration of a pool, and every time that the rules about pools know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from rserpool import PoolKey

CROWD_WINDOW_S = 0.5
"""When more than half of a pool leaves within this time, all registrars are asked before the members go."""
CROWD_QUESTIONED_S = 1.0
"""How long a crowd that leaves is held back at most."""
ORPHAN_AFTER_S = 0.2
"""How long a member whose home registrar is lost (an orphan) has to register elsewhere; after that the
backend probes it. A live member needs 100 ms."""
ORPHAN_PROBED_S = 10.0
"""How long an orphan is probed at most. By then it was taken over, or its registration life has ended. A
registrar may be out of reach from here for days, while its members answer to it."""
ORPHAN_OUT_S = 30.0
"""How long an orphan that the probe did not reach stays out at most while settled registrars list it. A
takeover takes some seconds, one that is held up 10 s, a registration life 6 s. A member that is listed after
that answers to its home."""
CONTESTED_S = 2.2
"""How long a member stays that others than its home took out. A live one looks for itself at its registrar
twice a second, and registers again at once; at the latest it renews every 2 s."""
RESTLESS_WITHIN_S = 5.0
"""A server is restless if it is back within this time after its home, which is only polled, answered without
it."""
RESTLESS_S = 60.0
"""How long a server is restless: another such answer makes it contested, and not leave at once."""
ESTABLISHED_AFTER_S = 10.0
"""How long a registrar must list a PE as its own until it speaks for it alone, while the former home
answers."""
UNKNOWN_HOME_LIFE_S = 600.0
"""How long a PE counts at most whose home was never settled, where it registered for longer than this. No
one renews it: only a shorter registration life proves that it was registered again, or an answer to the probe
that it lives."""
LAST_GOOD_AFTER_S = 5.0
"""How long a member must have been in to be one of the last good ones, where such members are known."""
LAST_GOOD_REPLACED_AFTER_S = 120.0
"""Members that were in for so long, or for as long as the last good ones, replace these."""
ADOPTED_AFTER_S = 1.0
"""How long after a takeover a member counts as vouched for: by then it has answered a keep-alive."""
RECENT_S = 10.0
"""Members that were in within this time are the last good ones of a pool that became empty."""
BLINK_S = 1.0
"""A member that comes back within this time keeps its `since_s`, as if it had never left."""
MOVED_AFTER_S = 1.0
"""How long a member that is told elsewhere under the same identifier stays at its old place unless that
answers the probe, from the start of the first probe: three probes that time out."""
MOVED_UNPROBED_S = 30.0
"""How long it stays at most while no probe of it has begun: 1,000 probes a second start, of all pools."""
VANISHED_AFTER_S = 0.2
"""How long a member of a keyed pool that vanished is out, though it answers the probe: its sidecar's word
that it leaves may be on its way."""
VANISHED_KEPT_S = 30.0
"""How long such a member is shown at most by its own answers alone; it counts from when a settled registrar
listed it last."""
ANSWERED_LATELY_S = 10.0
"""How long after a vanished server registered anew its answer to the probe counts, should it vanish again."""
FAREWELL_HEEDED_S = 5.0
"""How long after a farewell a member that leaves counts as drained; a crowd is held back for 1 s."""
FAREWELL_KEPT_S = 60.0
"""How long a farewell is remembered, so that it is not taken for a new one: it is listed for 2 s, and for its
registration life of 49 s at most."""
LEFT_KEPT_S = 120.0
"""How long a member's word that it leaves holds against a registrar that still lists it."""
MAX_MEMBERS = 1000
"""The most members of one pool handle, unless configured."""
RENEW_STALE_S = 60.0
"""While only registrars without a sentinel vouch, `stale_since_s` follows at steps of this length."""


def pool_name(handle: bytes, handlespace: str = "") -> str:
    """The name of a pool: its handle, or `handlespace/handle` in a handlespace that has a name. A handle that
    no configuration can hold gives a name of no pool."""
    text = handle.decode(errors="replace")
    return f"{handlespace}/{text}" if handlespace else text


def pool_handle(name: str, handlespace: str = "") -> bytes:
    """The handle of a pool as registrars know it; a registrar's own sentinel pool has no other name."""
    return (name.removeprefix(f"{handlespace}/") if handlespace else name).encode()


def handlespace_of(name: str, handle: bytes) -> str:
    """The name of the handlespace of the pool that registrars know by this handle; empty if it has none."""
    return name.removesuffix(handle.decode()).removesuffix("/")


@dataclass(frozen=True, slots=True)
class PoolRules:
    """The configuration of one pool: a PE counts only inside the `accept` networks (rule 6).

    `verified`: the backend's own probe has a say all the time, not only while registrars are lost.
    `max_members`: further PEs are refused before anything about them is stored.
    `remote_agents`: hosts whose PEs are servers elsewhere (`spoken_for()`).
    `ports`: those at which its servers may be; empty: any.
    `keys`: of a keyed pool, whose PEs prove who they are by their identifiers; a second one while keys roll.
    """

    accept: Sequence[IPv4Network | IPv6Network]
    verified: bool = False
    max_members: int = MAX_MEMBERS
    remote_agents: frozenset[IPv4Address | IPv6Address] = frozenset()
    ports: frozenset[int] = frozenset()
    keys: Sequence[PoolKey] = ()
