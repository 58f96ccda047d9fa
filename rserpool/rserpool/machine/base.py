"""The common part of all machines: states that move by a table, the actions they ask for, the inputs of a
socket.

A machine is told what happened, and when (`now`, monotonic, in s). `take_actions` then says what is to be
done. A driver (`rserpool.aio.driver`) does it: it gives every machine the same inputs, does the same four
actions, and hands the events to the owner. An association is the number that the SCTP socket gives it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeAlias, TypeVar

SctpAddress = tuple[str, int]
"""The IP address and the SCTP port of one side of an association."""

M = TypeVar("M")
"""The messages: ASAP's or ENRP's."""
E = TypeVar("E")
"""The events for the machine's owner."""
S = TypeVar("S", bound=Enum)
I = TypeVar("I", bound=Enum)  # noqa: E741 - the inputs of a table


@dataclass(frozen=True, slots=True)
class Connect:
    """Set up an association with this endpoint; open the socket before, should there be none."""

    peer: SctpAddress


@dataclass(frozen=True, slots=True)
class Send(Generic[M]):
    """Send `message` on `association`."""

    association: int
    message: M


@dataclass(frozen=True, slots=True)
class Close:
    """Close `association` gracefully."""

    association: int


@dataclass(frozen=True, slots=True)
class CloseSocket:
    """Close the socket with all its associations, whose ends are not told any more."""


MachineAction: TypeAlias = Connect | Send[M] | Close | CloseSocket | E
"""An event among the actions is for the owner, in this place of the order."""


class Machine(Protocol[M, E]):
    """A machine as its driver sees it."""

    @property
    def next_deadline_s(self) -> float | None:
        """When `advance` has something to do; None: not before something else happens."""

    def take_actions(self) -> list[MachineAction[M, E]]:
        """Return what is to be done, in order, and forget it."""

    def advance(self, now: float) -> None:
        """Do what is due."""

    def associated(
        self, association: int, peer: SctpAddress, now: float, local: Sequence[SctpAddress] = ()
    ) -> None:
        """Take note of a new association, whoever began it.

        `peer` is the registrar that it is proved to be with, or where a stranger is; `local` are all
        endpoints of this side.
        """

    def lost(self, association: int, now: float, reason: str = "the association ended") -> None:
        """Take note that an association is gone."""

    def connect_failed(self, peer: SctpAddress, now: float, reason: str) -> None:
        """Take note that no association with this endpoint could be set up."""

    def received(self, association: int, message: M, now: float) -> None:
        """Take a message."""


class TableMachine(Generic[S, I, M, E]):
    """A machine's state, which moves by its table only, and the actions that wait to be taken."""

    def __init__(self, start: S, transitions: Mapping[S, Mapping[I, S]]) -> None:
        self.state = start
        self._transitions = transitions
        self._actions: list[MachineAction[M, E]] = []

    def take_actions(self) -> list[MachineAction[M, E]]:
        """Return what is to be done, in order, and forget it."""
        actions, self._actions = self._actions, []
        return actions

    def _move(self, what: I) -> bool:
        """Go where the table says; return False, and stay, where it says nothing."""
        target = self._transitions[self.state].get(what)
        if target is None:
            return False
        self.state = target
        return True
