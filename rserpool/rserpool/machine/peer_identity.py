"""Which registrar an association is with (RFC 9260, section 5.4). No sockets, no clocks.

A host that sets up an association names its own addresses, and may name those of others: a stranger that
has bound a registrar's address on its loopback interface lists it in its INIT. So a registrar is known by
three things only: it is the primary path (where its cookie went, or where we connected to), or the path is
confirmed. An association whose registrar's address is a mere claim is **held** until that path is
confirmed: a registrar with several addresses proves it within a round trip, a stranger never does. Until
then none of its messages counts. A claim that is not proved within CLAIM_S is aborted, and at once when we
want to connect to that registrar ourselves: SCTP allows one association for each pair of addresses, so it
is in the way.

A host that answers ARP for the address of a dead registrar has that address. Against that helps a network
of its own, or WireGuard.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from rserpool.machine.base import SctpAddress

CLAIM_S = 1.0
"""A registrar's other addresses are confirmed by a HEARTBEAT within one RTO (SCTP's timers here: 0.1 s)."""
MAX_CLAIMS = 16
"""Associations held at a time; further ones are aborted at once."""
MAX_HELD = 8
"""Messages kept of each held association, to be taken when it is a registrar's."""

M = TypeVar("M")


class Paths(Protocol):
    """The knowledge about the addresses of an association's other side."""

    def peers(self, association: int) -> list[SctpAddress]: ...  # noqa: D102 - `SctpSocket` says it
    def is_confirmed(self, association: int, peer: SctpAddress) -> bool: ...  # noqa: D102 - `SctpSocket` says it


@dataclass(slots=True)
class _Claim(Generic[M]):
    ends_s: float
    messages: list[M] = field(default_factory=list)


class PeerIdentities(Generic[M]):
    """Tells the associations of the `registrars` (IP address and port, as configured) from all others."""

    def __init__(self, registrars: Iterable[SctpAddress]) -> None:
        self.registrars = frozenset(registrars)
        self._claims: dict[int, _Claim[M]] = {}

    def registrar(
        self, paths: Paths, association: int, primary: SctpAddress | None = None
    ) -> SctpAddress | None:
        """Return the registrar that the association is proved to be with, None for any other.

        `primary` is the association's primary path, where it is known; never the address that a packet came
        from, which anybody can forge.
        """
        if primary in self.registrars:
            return primary
        return next(
            (registrar for registrar in self.registrars if paths.is_confirmed(association, registrar)), None
        )

    def hold(self, paths: Paths, association: int, now: float) -> bool:
        """Hold an association of no proved registrar; return False when it does not even claim to be one."""
        if not self.registrars.intersection(paths.peers(association)):
            return False
        self._claims.setdefault(association, _Claim(now + CLAIM_S if len(self._claims) < MAX_CLAIMS else now))
        return True

    def is_held(self, association: int) -> bool:
        """Whether the association waits for its proof."""
        return association in self._claims

    def keep(self, association: int, message: M) -> None:
        """Keep a message of a held association."""
        claim = self._claims[association]
        if len(claim.messages) < MAX_HELD:
            claim.messages.append(message)

    def release(self, association: int) -> list[M]:
        """Hold the association no more: it is proved, or gone. Return the messages kept of it."""
        claim = self._claims.pop(association, None)
        return claim.messages if claim else []

    @property
    def next_deadline_s(self) -> float | None:
        """When `due` has something to give."""
        return min((claim.ends_s for claim in self._claims.values()), default=None)

    def due(self, now: float) -> list[int]:
        """Return the associations to abort, whose claims were not proved in time; they are held no more."""
        due = [association for association, claim in self._claims.items() if now >= claim.ends_s]
        for association in due:
            del self._claims[association]
        return due

    @staticmethod
    def pretenders(paths: Paths, associations: Iterable[int], registrar: SctpAddress) -> list[int]:
        """Return those of `associations` that list the address of `registrar` without having proved it."""
        return [
            association
            for association in associations
            if registrar in paths.peers(association) and not paths.is_confirmed(association, registrar)
        ]
