"""Writes the desired state to the kernel, at every change and again and again, and says what is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger

from ppu_agent.destinations import Address, Destination
from ppu_agent.kernel import Flows, LocalSockets, Nftables, NftablesError
from ppu_agent.ruleset import FAMILY, RELAY_TABLE, RELAY_ZONES, relay_chains, relaying, removal, ruleset
from ppu_agent.steering import Steering


class Writer:
    """The kernel's side of the agent. What the kernel refuses is told once, and tried again."""

    def __init__(self) -> None:
        self.problem: str | None = None
        """What the kernel refused the last time, for status; None when all is done."""
        self.writes = 0
        self._nftables: Nftables | None = None
        self._is_closed = threading.Event()
        self._sockets = LocalSockets(self._note, self._is_closed.is_set)
        self._flows = Flows(self._note, self._is_closed.is_set)
        self._is_empty = self._is_kept = False
        self._generation = 0
        self._relay_zone = RELAY_ZONES[time.time_ns() // 10**9 % len(RELAY_ZONES)]
        self._dead: frozenset[Destination] = frozenset()
        self._log = get_logger("kernel")

    def open(self, *, is_kept: bool = False) -> None:
        """Begin. Raises FatalError without the right to.

        Rules of an agent that was killed are removed, but for `is_kept`: fronts serve until there is news.
        """
        self._nftables = Nftables()
        try:
            self._nftables.commit([{"list": {"tables": None}}] if is_kept else removal())
        except NftablesError as problem:
            raise FatalError(
                f"nftables can't be used: {problem}; it needs CAP_NET_ADMIN and a kernel with nf_tables"
            ) from None
        self._is_empty, self._is_kept = not is_kept, is_kept

    def write(self, steering: Steering, responder_port: int | None = None) -> None:
        """Replace what is in the kernel, also when nothing changed: that renews the lease."""
        if self._nftables is None or ((self._is_empty or self._is_kept) and steering == Steering()):
            return
        self._is_kept = False
        self._count_generation(steering)
        try:
            self._nftables.commit(ruleset(steering, self._generation, responder_port))
        except NftablesError as problem:
            self._note(f"nftables refused the rules: {problem}")
            return
        self.writes += 1
        self._is_empty = steering == Steering()
        self.problem = None

    def open_relay(self) -> None:
        """Make the table of relayed connections, which ends with this process. Raises FatalError."""
        if self._nftables is None:
            return
        try:
            self._nftables.own(FAMILY, RELAY_TABLE)
            self._nftables.commit(relay_chains())
        except NftablesError as problem:
            raise FatalError(
                f"connections can't be relayed (on_dead tcp = 'repeat', Linux 5.12): {problem}"
            ) from None

    def relay(
        self,
        destinations: Collection[Destination],
        port: int,
        fronts: Mapping[Destination, int] | None = None,
    ) -> None:
        """Have new connections to these go to the relay at `port`, also when nothing changed: a lease.

        What is sent to `fronts` goes to a port of this agent each.
        """
        if self._nftables is not None:
            try:
                self._nftables.commit(relaying(destinations, port, fronts, self._relay_zone))
            except NftablesError as problem:
                self._note(f"nftables refused to relay: {problem}")

    def end_connections(self, destination: Destination, spared: Collection[tuple[Address, int]] = ()) -> int:
        """End this host's TCP connections to a destination, but from the `spared`; return how many.

        Of thousands this takes seconds: it is for a thread beside the event loop.
        """
        return self._sockets.end_connections(destination.address, destination.port, spared)

    def move_flows(self, front: Destination, dead: Collection[Destination]) -> int:
        """Have conntrack forget the flows to a front that went to dead servers; return how many.

        Their next packet goes to a living server: a datagram is answered by that, a TCP connection reset. Of
        thousands this takes seconds: it is for a thread beside the event loop.
        """
        return self._flows.forget(front, dead)

    def remove(self) -> None:
        """Take every rule back. What can't be removed ends by itself within the lease."""
        self._is_kept = False
        self.write(Steering())

    def close(self) -> None:
        """Give everything back; safe to repeat."""
        self._is_closed.set()
        if self._nftables is not None:
            self.remove()
            self._nftables.close()
            self._nftables = None

    def _count_generation(self, steering: Steering) -> None:
        """Have redirected flows drawn anew when a server died: they may have been sent on to that one."""
        dead = frozenset(one.destination for one in steering.treatments)
        if dead - self._dead:
            self._generation += 1
        self._dead = dead

    def _note(self, words: str) -> None:
        if words != self.problem:
            self._log.warning("refused_by_kernel", problem=words)
        self.problem = words
