"""What following one registrar gives: things to be done, and things to be told."""

from dataclasses import dataclass

from rserpool.enrp import EnrpMessage
from rserpool.parameters import PoolElement

Pools = dict[bytes, tuple[PoolElement, ...]]


@dataclass(frozen=True, slots=True)
class Connect:
    """Set up an association with the registrar."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send `message` on the association."""

    association: int
    message: EnrpMessage


@dataclass(frozen=True, slots=True)
class Close:
    """Close the association gracefully."""

    association: int


@dataclass(frozen=True, slots=True)
class Table:
    """All pool elements that the registrar lists; with `own_children_only`, all that it owns.

    `sender` is its identifier. It tells of a time between `asked_at_s` and `answered_at_s`: what is pushed
    within that time is newer.
    """

    sender: int
    pools: Pools
    own_children_only: bool
    asked_at_s: float
    answered_at_s: float


@dataclass(frozen=True, slots=True)
class Update:
    """The registrar `sender` tells that a pool element came or changed, or (`is_deletion`) that it left."""

    sender: int
    handle: bytes
    pool_element: PoolElement
    is_deletion: bool
    at_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The registrar is not followed any more, or could not be."""

    reason: str


Event = Table | Update | Ended
Action = Connect | Send | Close | Event
