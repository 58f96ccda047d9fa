"""The other registrars as the model of one knows them: a silent one is searched for, then taken over once the
others agree."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rserpool import Presence, enrp
from rspdns_lab.simulate.sctp_socket import SctpAddress

LAST_HEARD_S = NO_RESPONSE_S = TAKEOVER_EXPIRY_S = 1.0
BLOCKED_S: Final = 10.0
"""How long a takeover waits for peers that are silent themselves; one acknowledgement is always needed."""


@dataclass(slots=True)
class _Peer:
    endpoint: SctpAddress
    timer: asyncio.TimerHandle | None = None
    was_asked: bool = False


@dataclass(slots=True)
class _Takeover:
    """A takeover under way: the peers whose acknowledgement is missing."""

    missing: dict[int, None]
    began_s: float
    is_acknowledged: bool = False


class RegistrarPeers:
    """The peers of the registrar `own`. `say_to` sends a message to an endpoint, `presence` makes one for a
    peer, `take_over` is called when a peer's elements are to be taken."""

    def __init__(
        self,
        own: int,
        loop: asyncio.AbstractEventLoop,
        say_to: Callable[[SctpAddress, enrp.EnrpMessage], None],
        presence: Callable[[int, bool], Presence],
        take_over: Callable[[int], None],
    ) -> None:
        self._own = own
        self._loop = loop
        self._say_to = say_to
        self._presence = presence
        self._take_over = take_over
        self._peers: dict[int, _Peer] = {}
        self._takeovers: dict[int, _Takeover] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._peers))

    @property
    def by_endpoint(self) -> dict[SctpAddress, int]:
        """Their identifiers."""
        return {peer.endpoint: identifier for identifier, peer in self._peers.items()}

    def endpoint(self, identifier: int) -> SctpAddress:
        """The place at which it is."""
        return self._peers[identifier].endpoint

    def say(self, identifier: int, message: enrp.EnrpMessage) -> None:
        """Send it a message, if it is known."""
        if identifier in self._peers:
            self._say_to(self._peers[identifier].endpoint, message)

    def note_message(self, message: enrp.EnrpMessage) -> None:
        """A registrar said something; with its first presence it becomes a peer."""
        peer = self._peers.get(message.sender)
        if peer is None and isinstance(message, Presence) and message.server is not None:
            transport = message.server.transport
            peer = self._peers[message.sender] = _Peer((str(transport.addresses[0]), transport.port))
        if peer is not None:
            peer.was_asked = False
            self._watch(message.sender, peer, LAST_HEARD_S)

    def forget(self, identifier: int) -> None:
        """It is no more."""
        self._takeovers.pop(identifier, None)
        peer = self._peers.pop(identifier, None)
        if peer is not None and peer.timer is not None:
            peer.timer.cancel()
        for takeover in self._takeovers.values():
            takeover.missing.pop(identifier, None)

    # Takeovers

    def give_up(self, target: int) -> None:
        """The target of a takeover lives."""
        self._takeovers.pop(target, None)

    def yield_to(self, sender: int, target: int) -> None:
        """A peer wants to take another over. This registrar does not agree if it wants to and comes first."""
        if target not in self._takeovers or self._own < sender:
            self._takeovers.pop(target, None)
            self.say(sender, enrp.InitTakeoverAck(self._own, sender, target))

    def acknowledged(self, sender: int, target: int) -> None:
        """A peer agrees that this one takes the target over."""
        takeover = self._takeovers.get(target)
        if takeover is not None:
            takeover.missing.pop(sender, None)
            takeover.is_acknowledged = True
            if not takeover.missing:
                self._take_over(target)

    def _watch(self, identifier: int, peer: _Peer, delay_s: float) -> None:
        if peer.timer is not None:
            peer.timer.cancel()
        peer.timer = self._loop.call_later(delay_s, self._silent, identifier)

    def _silent(self, identifier: int) -> None:
        peer = self._peers[identifier]
        if not peer.was_asked:
            peer.was_asked = True
            self.say(identifier, self._presence(identifier, True))
            self._watch(identifier, peer, NO_RESPONSE_S)
            return
        others = [other for other in self._peers if other != identifier]
        now = self._loop.time()
        takeover = self._takeovers.get(identifier)
        if takeover is None:
            takeover = self._takeovers[identifier] = _Takeover({}, now)
        if takeover.is_acknowledged and now >= takeover.began_s + BLOCKED_S:
            self._take_over(identifier)
            return
        takeover.missing = dict.fromkeys(others)
        for other in others:
            self.say(other, enrp.InitTakeover(self._own, other, identifier))
        self._watch(identifier, peer, TAKEOVER_EXPIRY_S)
