"""Writes the desired state to the kernel, at every change and again and again, and says what is wrong."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from daemon_kit.errors import FatalError
from daemon_kit.logs import get_logger
from pool_user import Network

from ppu_agent.answering import Answering, Connection, answering
from ppu_agent.destinations import Address, Destination, Endpoint
from ppu_agent.kernel import (
    Command,
    Flow,
    Flows,
    IsMeant,
    LocalSockets,
    Nftables,
    NftablesError,
    PacketCopies,
)
from ppu_agent.ruleset import (
    CLAIM_TABLE,
    COPY_TABLE,
    FAMILY,
    KEEPING_CHAIN,
    RELAY_TABLE,
    RELAY_ZONES,
    TABLE,
    ZONES,
    copy_chains,
    copying,
    keeping,
    keeping_no_more,
    moves_connections,
    passing,
    passing_no_more,
    relay_chains,
    relaying,
    ruleset,
)
from ppu_agent.steering import Copied, Steering
from rserpool import Protocol

COPY_AGAIN_AFTER_S: Final = 30.0


class Writer:
    """The kernel's side of the agent. A command that the kernel refuses is reported once, and tried again.

    `is_ours` says of which addresses and ports connections may have been redirected, also by an agent before.
    """

    def __init__(self, is_ours: Callable[[Address, int], bool] = lambda address, port: True) -> None:
        self.problem: str | None = None
        """The commands that the kernel refused the last time, for status; None when all is done."""
        self.writes = 0
        self.copies = PacketCopies()
        self.refused_requests = 0
        """SIP requests over TCP that were answered with 503 in the place of a dead server."""
        self._copied = Copied()
        self._nftables: Nftables | None = None
        self._is_closed = threading.Event()
        self._sockets = LocalSockets(self._note, self._is_closed.is_set)
        self._flows = Flows(self._note, self._is_closed.is_set)
        self._is_ours = is_ours
        self._is_empty = self._is_kept = self._is_removed = False
        self._is_claimed = self._keeps_in_claim = False
        self._keeps_connections = self._relays = False
        self._generation = random.randrange(len(ZONES))  # noqa: S311 - chance, not a secret
        self._relay_zone = random.choice(RELAY_ZONES)  # noqa: S311 - as above
        self._dead: frozenset[Destination] = frozenset()
        self._copy_problem: str | None = None
        self._copy_again_s = 0.0
        self._log = get_logger("kernel")

    def open(self, *, is_kept: bool = False, is_alone: bool = False) -> None:
        """Begin. Raises FatalError without the right to; with `is_alone`, also when another agent runs here.

        Rules of an agent that was killed are removed, but for `is_kept`: fronts serve until there is news.
        Connections that it redirected go on.
        """
        self._nftables = Nftables()
        try:
            chains = self._nftables.commit([{"list": {"chains": None}}])
            if is_alone:
                self._claim()
            self._keeps_connections = _has_keeping_chain(chains)
            self.find_connections()
            if not is_kept:
                self._commit(Steering())
        except NftablesError as problem:
            raise FatalError(
                f"nftables can't be used: {problem}; it needs CAP_NET_ADMIN and a kernel with nf_tables"
            ) from None
        self._is_kept = is_kept

    def _claim(self) -> None:
        """Two agents would take each other's rules back. Raises FatalError."""
        if self._nftables is not None:
            try:
                self._nftables.own(FAMILY, CLAIM_TABLE)
                self._is_claimed = True
            except NftablesError as problem:
                if "not permitted" not in str(problem):
                    return  # a kernel that knows no owner of tables (before Linux 5.12)
                raise FatalError(
                    "another ppu-agent runs on this host, and each would take back the rules of the other: "
                    "stop that one, or name its pools in this configuration"
                ) from None

    def write(self, steering: Steering, responder_port: int | None = None) -> None:
        """Replace what is in the kernel, also when nothing changed: that renews the lease."""
        if self._nftables is None or ((self._is_empty or self._is_kept) and steering == Steering()):
            return
        self._is_kept = False
        self._count_generation(steering)
        self._keeps_connections = self._keeps_connections or moves_connections(steering)
        try:
            self._commit(steering, responder_port)
        except NftablesError as problem:
            self._note(f"nftables refused the rules: {problem}")
            return
        self.writes += 1
        self.problem = None

    def _commit(self, steering: Steering, responder_port: int | None = None) -> None:
        if self._nftables is not None:
            keeps = self._keeps_connections
            if self._is_claimed and keeps != self._keeps_in_claim:
                change = keeping(CLAIM_TABLE) if keeps else keeping_no_more(CLAIM_TABLE)
                self._nftables.commit(change)
                self._keeps_in_claim = keeps
            self._nftables.commit(
                ruleset(steering, self._generation, responder_port, keeps_connections=keeps)
            )
            self._is_empty = steering == Steering() and not keeps

    def open_relay(self) -> None:
        """Make the table of relayed connections, which ends with this process. Raises FatalError."""
        if self._nftables is None:
            return
        try:
            self._nftables.own(FAMILY, RELAY_TABLE)
            self._nftables.commit(relay_chains())
            self._relays = True
        except NftablesError as problem:
            raise FatalError(
                f"connections can't be relayed (on_dead tcp = 'repeat', Linux 5.12): {problem}"
            ) from None

    def relay(
        self,
        destinations: Collection[Destination],
        port: int,
        fronts: Mapping[Destination, int] | None = None,
        clients: Mapping[Destination, Sequence[Network]] | None = None,
    ) -> None:
        """Have new connections to these go to the relay at `port`, also when nothing changed: a lease.

        Traffic to `fronts` goes to a port of this agent each; to some only that of these `clients`.
        """
        if self._nftables is not None and self._relays:
            try:
                self._nftables.commit(relaying(destinations, port, fronts, self._relay_zone, clients))
            except NftablesError as problem:
                self._note(f"nftables refused to relay: {problem}")

    def copy(self, wanted: Copied, now: float) -> None:
        """Have packets copied, so that requests are known that a server leaves unanswered when it dies.

        A command that the kernel refused is tried again after 30 s. `now` is monotonic seconds.
        """
        if self._nftables is None or (wanted == self._copied and (self.copies.is_open or not wanted.ports)):
            return
        if now < self._copy_again_s:
            return
        try:
            if not self.copies.is_open:
                self._nftables.own(FAMILY, COPY_TABLE)
                self._nftables.commit(copy_chains())
                self.copies.open()
            if self.copies.is_open:
                self._nftables.commit(copying(wanted))
                self._copied = wanted
                self._note_of_copies(None)
                return
            problem = self.copies.problem
            self._nftables.remove(FAMILY, COPY_TABLE)
        except NftablesError as refused:
            problem = f"nftables refused to copy packets (Linux 5.12): {refused}"
        self._copy_again_s = now + COPY_AGAIN_AFTER_S
        self._note_of_copies(problem)

    def _note_of_copies(self, problem: str | None) -> None:
        if problem is not None and problem != self._copy_problem:
            self._log.warning("requests_not_known", problem=problem)
        self._copy_problem = self.copies.problem = problem

    def let_pass(self, servers: Collection[Destination]) -> None:
        """Let pass what connections send to servers that died now, until `stop_passing()`.

        That is a lease at most. The rules would end them before their clients have an answer.
        """
        self._commit_of_copies(passing(servers))

    def stop_passing(self) -> None:
        """End `let_pass()`."""
        self._commit_of_copies(passing_no_more())

    def _commit_of_copies(self, commands: Sequence[Command]) -> None:
        if self._nftables is not None and self.copies.is_open and commands:
            with contextlib.suppress(NftablesError):  # the table was removed: copy() makes it again
                self._nftables.commit(commands)

    def end_connections(self, servers: Collection[Destination]) -> int:
        """End this host's TCP connections to dead servers; return how many.

        Before, the requests in them are answered with 503, as far as they are known; in connections that this
        host forwards, too. Those that conntrack sent elsewhere stay: the redirected ones, and those of the
        relay, also when it has not accepted them yet. If there are thousands this takes seconds: it is for
        a thread beside the event loop.
        """

        def find_meant(connections: Collection[tuple[Endpoint, Endpoint]]) -> IsMeant:
            is_any = self._keeps_connections or self._relays
            elsewhere = self._flows.moved(servers, connections) if is_any else ()
            return lambda source, server: (source, server) not in elsewhere

        endpoints = [server.endpoint for server in servers]
        with self._answering(endpoints) as answers:
            if answers is None:
                return self._sockets.end_connections(endpoints, find_meant)
            known = answers.known
            is_meant = find_meant([(one.client, one.asked) for one in known])
            meant = [one for one in known if is_meant(one.client, one.asked)]
            answers.answer_all(meant)
            ended = self._sockets.end_connections(
                endpoints,
                find_meant,
                lambda client, server: answers.answer(Connection(client, server, server)),
            )
            answers.end_of_others(meant)
            self._take_answers(answers)
            return ended

    def move_flows(self, asked: Collection[Destination], dead: Collection[Destination]) -> tuple[int, int]:
        """Have conntrack forget the flows to what was asked that went to dead servers.

        Return how many, and how many connections of this host were ended. A datagram goes to a living server
        next. A connection of another host is reset, at its next packet unless it was overheard. If there
        are thousands this takes seconds: it is for a thread beside the event loop.
        """
        flows = self._flows.forget(asked, dead, self._answer_moved)
        moved = {(one.source, one.asked.endpoint) for one in flows if one.asked.protocol is Protocol.TCP}
        return len(flows), self._sockets.end_connections(
            {server for _, server in moved}, lambda found: lambda source, server: (source, server) in moved
        )

    def _answer_moved(self, flows: Collection[Flow]) -> None:
        """Answer requests in connections that went elsewhere than they asked; conntrack knows them yet."""
        moved = [
            Connection(one.source, one.asked.endpoint, one.server)
            for one in flows
            if one.asked.protocol is Protocol.TCP
        ]
        if moved:
            asked = {one.asked for one in moved}
            with self._answering(asked) as answers:
                if answers is not None:
                    answers.answer_all(moved)
                    answers.end_of_others(moved)
                    self._take_answers(answers)

    def _answering(self, asked: Iterable[Endpoint]) -> AbstractContextManager[Answering | None]:
        spoken_for = set(asked) - self._copied.left_alone
        return answering(self.copies, spoken_for, self._is_closed.is_set)

    def _take_answers(self, answers: Answering) -> None:
        self.refused_requests += answers.answered
        if answers.problem is not None:
            self._note_of_copies(answers.problem)

    def forget_begun_by(self, dead: Collection[Destination]) -> None:
        """Have conntrack forget the flows that dead servers began. For a thread, as above.

        Conntrack takes what a client sends as the answers in such a flow, whatever the packet's zone: it
        would go to the dead server. Servers begin flows whenever they send from the port that they serve at.
        SCTP associations that a client began are forgotten alike: see `Flows.forget_begun_by()`.
        """
        self._flows.forget_begun_by(dead)

    def find_connections(self) -> None:
        """Find out whether connections that were redirected are still up. For a thread, as above."""
        if self._keeps_connections:
            self._keeps_connections = self._flows.has_moved_connection(self._is_ours)

    def remove(self) -> None:
        """Take every rule back. Rules that can't be removed end by themselves within the lease."""
        self._is_kept, self._is_removed = False, True
        self.write(Steering())

    def close(self) -> None:
        """Give everything back; safe to repeat."""
        if self._nftables is not None and not self._is_removed:
            self.find_connections()
        self._is_closed.set()
        self.copies.close()
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


def _has_keeping_chain(listed: str) -> bool:
    """Whether an agent before redirected connections; `listed` are all chains, as libnftables tells them."""
    chains = [one.get("chain", {}) for one in json.loads(listed or "{}").get("nftables", [])]
    return any((one.get("table"), one.get("name")) == (TABLE, KEEPING_CHAIN) for one in chains)
