"""Following registrars as a passive ENRP peer: theory, table, machine and client (RFC 5353).

A peer gets the whole handlespace on request, and from then on every change that the registrar makes,
milliseconds after it was made. This peer owns no pool elements, takes nobody over and mentors nobody. It is a
guest among registrars, and keeps five rules:

1. **It follows only registrars that have the handlespace.** A registrar that is starting would take the peer
   that speaks to it for its mentor, and ask it for the handlespace. So nothing is said before `follow`.
2. **It refuses its own handle table**, rather than giving an empty one that would be taken for the truth.
3. **It acknowledges every takeover**, by whatever name it was addressed: a registrar waits for the word of
   each peer.
4. **It stays known**: a presence goes out every `PRESENCE_S`, and one that is asked for at once.
5. **It takes leave**: after `leave` it acknowledges takeovers until the registrar has forgotten it. A peer
   that just ends is waited for, and the pool elements of a registrar that dies meanwhile are not taken over.

Two checks stand beside the order that SCTP keeps. A presence whose checksum does not fit what was pushed,
twice in a row, makes it ask again for what the registrar owns. After a pause of its own, in which the
registrar may have forgotten it, it asks for everything.

The file holds, in this order: the states and every transition between them, what the owner is told, who owns
which pool element (`Ownership`), a handle table as it comes in, the checks, what is owed to any peer
(`reply_to`), the machine for one registrar (`FollowedRegistrar`), the machine for several of them on one
socket (`FollowerMachine`), and its client for asyncio.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address

from rserpool import enrp
from rserpool.aio.driver import ENRP, Driver
from rserpool.enrp import (
    EnrpMessage,
    HandleTableRequest,
    HandleTableResponse,
    HandleUpdate,
    InitTakeover,
    InitTakeoverAck,
    ListRequest,
    ListResponse,
    Presence,
)
from rserpool.machine.base import (
    Close,
    CloseSocket,
    Connect,
    MachineAction,
    SctpAddress,
    Send,
    TableMachine,
)
from rserpool.machine.registrar_choice import RegistrarAddress, backoff_s
from rserpool.parameters import PoolElement, Protocol, ServerInformation, Transport, fresh_identifier

# The states, and every transition between them


class FollowerState(Enum):
    """How far one registrar is followed."""

    IDLE = "idle"
    """Not followed: the owner did not ask for it yet, or it failed."""
    WAITING = "waiting"
    """To be followed, as soon as the pause after a failure is over."""
    CONNECTING = "connecting"
    """An association is being set up."""
    JOINING = "joining"
    """Presence was sent, and the handle table asked for."""
    FOLLOWING = "following"
    """The table is here, and every change is pushed."""
    LEAVING = "leaving"
    """No presence is sent any more, takeovers are acknowledged until the registrar has forgotten us."""
    LEFT = "left"
    """Over."""


class FollowerInput(Enum):
    """The inputs that move it from one state to another."""

    FOLLOW = "follow"
    """The owner knows that the registrar has the handlespace."""
    CONNECT = "connect"
    """The pause after a failure is over."""
    ASSOCIATED = "associated"
    TABLE = "table"
    """The whole handle table has arrived."""
    FAILED = "failed"
    """The association is gone or was not set up; the registrar is silent, refuses, gives an empty table."""
    LEAVE = "leave"
    FORGOTTEN = "forgotten"
    """The registrar has taken us off its list of peers, or is gone."""
    CLOSE = "close"


TRANSITIONS: Mapping[FollowerState, Mapping[FollowerInput, FollowerState]] = {
    FollowerState.IDLE: {
        FollowerInput.FOLLOW: FollowerState.WAITING,
        FollowerInput.LEAVE: FollowerState.LEFT,
        FollowerInput.CLOSE: FollowerState.LEFT,
    },
    FollowerState.WAITING: {
        FollowerInput.CONNECT: FollowerState.CONNECTING,
        FollowerInput.LEAVE: FollowerState.LEFT,
        FollowerInput.CLOSE: FollowerState.LEFT,
    },
    FollowerState.CONNECTING: {
        FollowerInput.ASSOCIATED: FollowerState.JOINING,
        FollowerInput.FAILED: FollowerState.IDLE,
        FollowerInput.LEAVE: FollowerState.LEFT,
        FollowerInput.CLOSE: FollowerState.LEFT,
    },
    FollowerState.JOINING: {
        FollowerInput.TABLE: FollowerState.FOLLOWING,
        FollowerInput.FAILED: FollowerState.IDLE,
        FollowerInput.LEAVE: FollowerState.LEAVING,
        FollowerInput.CLOSE: FollowerState.LEFT,
    },
    FollowerState.FOLLOWING: {
        FollowerInput.FAILED: FollowerState.IDLE,
        FollowerInput.LEAVE: FollowerState.LEAVING,
        FollowerInput.CLOSE: FollowerState.LEFT,
    },
    FollowerState.LEAVING: {
        FollowerInput.FAILED: FollowerState.LEFT,
        FollowerInput.FORGOTTEN: FollowerState.LEFT,
        FollowerInput.CLOSE: FollowerState.LEFT,
    },
    FollowerState.LEFT: {},
}
"""An input that is not in here changes nothing."""


# Events for the owner

ElementsByPool = dict[bytes, tuple[PoolElement, ...]]


@dataclass(frozen=True, slots=True)
class Joined:
    """The association is there, and the handle table asked for."""


@dataclass(frozen=True, slots=True)
class Table:
    """All pool elements that the registrar lists; with `own_children_only`, all that it owns.

    `sender` is its identifier. It tells of a time between `asked_at_s` and `answered_at_s`: what is pushed
    within that time is newer.
    """

    sender: int
    pools: ElementsByPool
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


FollowerEvent = Joined | Table | Update | Ended
IndexedEvent = tuple[int, FollowerEvent]
"""An event, after the index of its registrar in the list of registrars."""


# The owners of pool elements, and the checksum over them (RFC 5353, section 2.1)

ElementKey = tuple[bytes, int]
"""A pool handle and a PE identifier in it."""

MAX_ELEMENTS = 200_000
"""Pool elements remembered; above it, further ones are left out and the checksums do not fit any more."""


def element_sum(handle: bytes, identifier: int) -> int:
    """Return what one pool element adds to the sum: its 16-bit words."""
    padded = handle + bytes(len(handle) % 2)
    words = sum(int.from_bytes(padded[at : at + 2], "big") for at in range(0, len(padded), 2))
    return words + (identifier >> 16) + (identifier & 0xFFFF)


def finish(total: int) -> int:
    """Return the checksum (0..65535) of a sum; 0xffff is that of no element at all."""
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


NO_ELEMENTS = finish(0)


class Ownership:
    """The home registrar, by its identifier, of every pool element that is known."""

    def __init__(self) -> None:
        self._homes: dict[ElementKey, int] = {}
        self._owned: dict[int, set[ElementKey]] = {}
        """The same the other way round."""
        self._sums: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._homes)

    def add(self, handle: bytes, identifier: int, home: int) -> None:
        """Take note of an element, or of its new home."""
        key = (handle, identifier)
        before = self._homes.get(key)
        if before == home or (before is None and len(self._homes) >= MAX_ELEMENTS):
            return
        self.remove(handle, identifier)
        self._homes[key] = home
        self._owned.setdefault(home, set()).add(key)
        self._sums[home] = self._sums.get(home, 0) + element_sum(handle, identifier)

    def remove(self, handle: bytes, identifier: int) -> None:
        """Forget an element."""
        home = self._homes.pop((handle, identifier), None)
        if home is not None:
            self._sums[home] -= element_sum(handle, identifier)
            self._owned[home].remove((handle, identifier))
            if not self._owned[home]:
                del self._owned[home], self._sums[home]

    def replace(self, home: int, owned: Set[ElementKey], but: Set[ElementKey] = frozenset()) -> None:
        """`home` owns these and no others; of the elements in `but` more is known already."""
        before = set(self._owned.get(home, ()))
        for handle, identifier in before - owned - but:
            self.remove(handle, identifier)
        for handle, identifier in owned - before - but:
            self.add(handle, identifier, home)

    def take_over(self, target: int, home: int) -> None:
        """The elements that `target` owned are `home`'s now."""
        for handle, identifier in tuple(self._owned.get(target, ())):
            self.add(handle, identifier, home)

    def count(self, home: int) -> int:
        """Return how many elements a registrar owns."""
        return len(self._owned.get(home, ()))

    def checksum(self, home: int) -> int:
        """Return the checksum over what a registrar owns."""
        return finish(self._sums.get(home, 0))


# A handle table, as it comes in

LEAST_PAGES, ELEMENTS_PER_PAGE = 64, 4
"""A table may have LEAST_PAGES pages, and one more for each ELEMENTS_PER_PAGE elements. rspregistrar puts
about a hundred into each."""
MAX_TABLE_ELEMENTS = 100_000
MAX_POOL_ELEMENTS = 20_000
"""The most PEs kept of one pool. A pool with this many was cut off, and tells nobody's absence."""


@dataclass(slots=True)
class HandleTable:
    """A handle table under way, asked for and its last page received at these times.

    `is_leftover`: the rest of one that broke off, nothing of which is kept; a whole one follows. `owned` is
    what the registrar owns by the table, `pushed` what it has told of itself since it was asked.
    """

    own_children_only: bool
    asked_at_s: float
    page_at_s: float
    is_leftover: bool
    owned: set[ElementKey] = field(default_factory=set)
    pushed: set[ElementKey] = field(default_factory=set)
    pages: int = 0
    elements: int = 0
    _pools: dict[bytes, list[PoolElement]] = field(default_factory=dict)

    def add(self, page: HandleTableResponse, is_wanted: Callable[[bytes], bool], now: float) -> None:
        """Take a page; of pools that are not wanted, only who owns whom."""
        self.page_at_s = now
        self.pages += 1
        for pool in page.pools:
            self.elements += len(pool.pool_elements)
            if self.is_leftover:
                continue
            if is_wanted(pool.handle):
                kept = self._pools.setdefault(pool.handle, [])
                kept.extend(pool.pool_elements[: MAX_POOL_ELEMENTS - len(kept)])
            self.owned |= {
                (pool.handle, element.identifier)
                for element in pool.pool_elements
                if element.home_registrar == page.sender
            }

    def note_push(self, key: ElementKey) -> None:
        """The registrar told of this element by itself: it is newer than the table."""
        if len(self.pushed) < MAX_TABLE_ELEMENTS:
            self.pushed.add(key)

    @property
    def has_no_end(self) -> bool:
        """Whether it is larger than any registrar's can be."""
        most_pages = LEAST_PAGES + self.elements // ELEMENTS_PER_PAGE
        return self.pages > most_pages or self.elements > MAX_TABLE_ELEMENTS

    @property
    def pools(self) -> ElementsByPool:
        """The pools that are wanted."""
        return {handle: tuple(elements) for handle, elements in self._pools.items()}


# The check on what was pushed

MISMATCHES = 2
AUDIT_FIRST_S, AUDIT_CEILING_S = 2.0, 60.0
"""Time between two handle tables asked for because of a checksum, at first and at most, while they do not
mend it."""


class Audit:
    """The checksums of one registrar's presences, held against what it pushed."""

    def __init__(self) -> None:
        self._mismatches = 0
        self._asked = 0
        self._not_before_s = float("-inf")

    def reset(self) -> None:
        """Forget what did not fit: the registrar is joined, or a checksum fits."""
        self._mismatches = self._asked = 0

    def table_came(self) -> None:
        """A whole handle table is here: what did not fit before does not count any more."""
        self._mismatches = 0

    def asks(self, fits: bool, now: float) -> bool:
        """Take a checksum; return whether a handle table is to be asked for now."""
        if fits:
            self.reset()
            return False
        self._mismatches += 1
        if self._mismatches < MISMATCHES or now < self._not_before_s:
            return False
        self._asked += 1
        self._not_before_s = now + backoff_s(self._asked, AUDIT_FIRST_S, AUDIT_CEILING_S)
        return True


# Replies that are owed to any peer


def reply_to(message: EnrpMessage, identifier: int) -> EnrpMessage | None:
    """Return what to answer, None where nothing is owed. `identifier` is our own."""
    ours = getattr(message, "receiver", 0) or identifier
    match message:
        case InitTakeover(sender=sender, target=target) if target not in (ours, identifier):
            return InitTakeoverAck(ours, sender, target)
        case HandleTableRequest(sender=sender):
            return HandleTableResponse(ours, sender, rejected=True)
        case ListRequest(sender=sender):
            return ListResponse(ours, sender, rejected=True)
    return None


# The machine for one registrar

PRESENCE_S = 0.75
"""Registrars ask after a peer that was silent for 1 s (tuned; 5 s by default), and forget it 1 s later."""
FORGOTTEN_AFTER_S = 1.75
"""Time without a presence of ours after which a registrar may have forgotten us, and pushed nothing
meanwhile."""
ASK_SILENT_AFTER_S = 3.5
"""Silence after which a registrar is asked. It sends presences every 1 s (tuned; 2.4 s by default)."""
GIVE_UP_SILENT_AFTER_S = 6.0
"""Silence after which a registrar is given up."""
CONNECT_TIMEOUT_S = 2.0
PAGE_TIMEOUT_S = 2.0
"""The longest time between two pages of a handle table."""
RETRY_FIRST_S, RETRY_CEILING_S = 0.5, 30.0
LEAVE_AT_MOST_S = 12.0
MAX_ELEMENTS_PER_S = 10_000
"""A registrar that goes on telling of more pool elements than this floods us, and is not followed any
more. A takeover tells of all that it moves, and every message of one at least."""
ELEMENTS_AT_ONCE = 2 * MAX_TABLE_ELEMENTS
"""Pool elements that may come at once all the same: a handle table, and a takeover of all."""


class FollowedRegistrar(TableMachine[FollowerState, FollowerInput, EnrpMessage, FollowerEvent]):
    """Follows the registrar at `registrar` under our own ENRP `identifier`.

    `ownership` is shared by all that are followed. Tables tell of the pools that `is_wanted` only.
    """

    def __init__(
        self,
        registrar: SctpAddress,
        identifier: int,
        ownership: Ownership,
        is_wanted: Callable[[bytes], bool] = lambda handle: True,
    ) -> None:
        super().__init__(FollowerState.IDLE, TRANSITIONS)
        self.endpoint = registrar
        self.identifier = identifier
        self.sender: int | None = None
        """The registrar's identifier, once it is known."""
        self.problem = ""
        """Why it is not followed."""
        self.association: int | None = None
        self._ownership = ownership
        self._is_wanted = is_wanted
        self._transport: Transport | None = None
        self._asked: HandleTable | None = None
        self._again = False
        self._broke_off = False
        self._failures = 0
        self._timer_s = float("-inf")
        """The end of the pause, of the attempt to connect, or of the leave."""
        self._heard_s = self._presence_s = float("-inf")
        self._asked_whether_alive = False
        self._audit = Audit()
        self._room, self._room_s = float(ELEMENTS_AT_ONCE), float("-inf")
        """How many elements it may tell of at once, at that time."""

    # Wishes of the owner

    def follow(self, now: float) -> None:
        """Follow the registrar, which must have the handlespace already: never one that is starting."""
        if self._move(FollowerInput.FOLLOW):
            self.advance(now)

    def ask_for_everything(self, now: float) -> None:
        """Ask for the whole handle table again; after the one that is under way, if one is."""
        if self._asked is not None:
            self._again = True
        elif self.state is FollowerState.FOLLOWING:
            self._ask(own_children_only=False, now=now)

    def leave(self, now: float) -> None:
        """Stop following, but serve takeovers until the registrar has forgotten us; ends in LEFT."""
        if self._move(FollowerInput.LEAVE):
            self._asked = None
            self._timer_s = now + LEAVE_AT_MOST_S

    def close(self) -> None:
        """End at once."""
        self._move(FollowerInput.CLOSE)

    # Events of the socket

    def associated(self, association: int, transport: Transport, now: float) -> None:
        """Take note of an association, whoever began it. `transport`: where we can be reached on it."""
        self.association, self._transport = association, transport
        if self.state is FollowerState.CONNECTING:
            self._join(now)

    def lost(self, association: int, now: float, reason: str = "the association ended") -> None:
        """Take note that an association is gone."""
        if association == self.association:
            self.association = None
            self._fail(reason, now)

    def connect_failed(self, now: float, reason: str) -> None:
        """Take note that no association could be set up."""
        if self.state is FollowerState.CONNECTING:
            self._fail(reason, now)

    def received(self, message: EnrpMessage, now: float) -> None:
        """Take a message of the registrar; while it is not followed, none of them counts."""
        if self.state is FollowerState.LEAVING:
            if isinstance(message, Presence) and message.reply_required:
                # It waits for our answer as long again as it has waited before it asked.
                wait_s = 0.1 + 1.25 * (now - self._presence_s)
                self._timer_s = min(self._timer_s, now + wait_s)
            return
        if self.state not in (FollowerState.JOINING, FollowerState.FOLLOWING):
            return
        if isinstance(message, enrp.EnrpError):
            return
        sender = message.sender
        if self.sender is not None and sender != self.sender:
            self._fail(f"registrar {sender:08x} answers in place of {self.sender:08x}", now)
            return
        self.sender = sender
        self._heard_s, self._asked_whether_alive = now, False
        if self._is_flooded(self._cost_of(message), now):
            self._fail(f"it tells of more than {MAX_ELEMENTS_PER_S:,} pool elements a second", now)
            return
        match message:
            case HandleUpdate():
                self._update(message, now)
            case HandleTableResponse():
                self._page(message, now)
            case Presence():
                if message.reply_required:
                    self._send_presence(now)
                self._check(message.checksum, now)
            case enrp.TakeoverServer():
                self._ownership.take_over(message.target, sender)

    # Events of the clock

    @property
    def next_deadline_s(self) -> float | None:
        """When `advance` has something to do; None: not before something else happens."""
        match self.state:
            case FollowerState.WAITING | FollowerState.CONNECTING | FollowerState.LEAVING:
                return self._timer_s
            case FollowerState.JOINING | FollowerState.FOLLOWING:
                silent_s = GIVE_UP_SILENT_AFTER_S if self._asked_whether_alive else ASK_SILENT_AFTER_S
                page_s = self._asked.page_at_s + PAGE_TIMEOUT_S if self._asked else float("inf")
                return min(self._presence_s + PRESENCE_S, self._heard_s + silent_s, page_s)
        return None

    def advance(self, now: float) -> None:
        """Do what is due."""
        match self.state:
            case FollowerState.WAITING if now >= self._timer_s:
                self._move(FollowerInput.CONNECT)
                if self.association is not None:
                    self._join(now)
                else:
                    self._timer_s = now + CONNECT_TIMEOUT_S
                    self._actions.append(Connect(self.endpoint))
            case FollowerState.CONNECTING if now >= self._timer_s:
                self._fail("it does not answer", now)
            case FollowerState.LEAVING if now >= self._timer_s:
                self._move(FollowerInput.FORGOTTEN)
            case FollowerState.JOINING | FollowerState.FOLLOWING:
                self._tend(now)

    # Joining, and staying

    def _join(self, now: float) -> None:
        self._move(FollowerInput.ASSOCIATED)
        self.sender = None
        self._heard_s, self._asked_whether_alive = now, False
        self._audit.reset()
        self._send_presence(now)
        self._ask(own_children_only=False, now=now)
        self._actions.append(Joined())

    def _tend(self, now: float) -> None:
        if now >= self._heard_s + GIVE_UP_SILENT_AFTER_S and self._asked_whether_alive:
            self._fail(f"silent for {GIVE_UP_SILENT_AFTER_S:.0f} s", now)
        elif self._asked and now >= self._asked.page_at_s + PAGE_TIMEOUT_S:
            self._fail("it does not give its handle table", now)
        elif now >= self._heard_s + ASK_SILENT_AFTER_S and not self._asked_whether_alive:
            self._asked_whether_alive = True
            self._send_presence(now, reply_required=True)
        else:
            self._keep_present(now)

    def _keep_present(self, now: float) -> None:
        """Send a presence if one is due. After a pause of our own in which the registrar may have forgotten
        us ask for everything: of what happened meanwhile it told us nothing."""
        if now < self._presence_s + PRESENCE_S:
            return
        was_away = now >= self._presence_s + FORGOTTEN_AFTER_S
        self._send_presence(now)
        if was_away:
            self.ask_for_everything(now)

    def _send_presence(self, now: float, *, reply_required: bool = False) -> None:
        if self._transport is None:
            return
        server = ServerInformation(self.identifier, self._transport)
        self._presence_s = now
        self._send(Presence(self.identifier, self.sender or 0, NO_ELEMENTS, server, reply_required))

    def _check(self, checksum: int, now: float) -> None:
        """Hold a presence's checksum against what was pushed."""
        if self.state is not FollowerState.FOLLOWING or self._asked or self.sender is None:
            return
        if self._audit.asks(checksum == self._ownership.checksum(self.sender), now):
            self._ask(own_children_only=True, now=now)

    def _update(self, message: HandleUpdate, now: float) -> None:
        element = message.pool_element
        is_deletion = message.action is enrp.UpdateAction.DELETE
        if is_deletion:
            self._ownership.remove(message.handle, element.identifier)
        else:
            self._ownership.add(message.handle, element.identifier, element.home_registrar)
        if self._asked:
            self._asked.note_push((message.handle, element.identifier))
        self._actions.append(Update(message.sender, message.handle, element, is_deletion, now))

    # Handle tables

    def _ask(self, *, own_children_only: bool, now: float) -> None:
        """Ask for a handle table. One at a time: a registrar keeps one position in it for each peer."""
        self._asked = HandleTable(own_children_only, now, now, self._broke_off)
        self._broke_off = True
        self._send_request(now)

    def _send_request(self, now: float) -> None:
        """Ask for the next page, and be known when it is asked for: a registrar refuses it to strangers."""
        self._keep_present(now)
        if self._asked is not None:
            self._send(HandleTableRequest(self.identifier, self.sender or 0, self._asked.own_children_only))

    def _page(self, page: HandleTableResponse, now: float) -> None:
        asked = self._asked
        if asked is None:
            return
        if page.rejected:
            self._fail("it refuses its handle table", now)
            return
        asked.add(page, self._is_wanted, now)
        if asked.has_no_end:
            self._fail(f"its handle table has no end: {asked.elements} pool elements so far", now)
        elif page.more_to_send:
            self._send_request(now)
        else:
            self._broke_off = False
            self._asked = None
            if asked.is_leftover:
                self._ask(own_children_only=asked.own_children_only, now=now)
            elif not asked.elements and not asked.own_children_only:
                self._fail("its handle table is empty", now)
            else:
                self._take(asked, page.sender, now)

    def _take(self, asked: HandleTable, sender: int, now: float) -> None:
        """The table is whole."""
        self._ownership.replace(sender, asked.owned, but=asked.pushed)
        self._audit.table_came()
        if self._move(FollowerInput.TABLE):
            self._failures = 0
            self.problem = ""
        table = Table(sender, asked.pools, asked.own_children_only, asked.asked_at_s, now)
        self._actions.append(table)
        if self._again:
            self._again = False
            self._ask(own_children_only=False, now=now)

    # Helpers

    def _is_flooded(self, elements: int, now: float) -> bool:
        """Take note of how many elements it tells of. Return whether that is too much by now."""
        passed_s, self._room_s = now - self._room_s, now
        self._room = min(self._room + passed_s * MAX_ELEMENTS_PER_S, ELEMENTS_AT_ONCE) - elements
        self._room = max(self._room, -1.0)
        return self._room < 0

    def _cost_of(self, message: EnrpMessage) -> int:
        """Return the pool elements that a message makes us work on; no message is free."""
        match message:
            case HandleTableResponse():
                return max(1, sum(len(pool.pool_elements) for pool in message.pools))
            case enrp.TakeoverServer():
                return max(1, self._ownership.count(message.target))
        return 1

    def _send(self, message: EnrpMessage) -> None:
        if self.association is not None:
            self._actions.append(Send(self.association, message))

    def _fail(self, reason: str, now: float) -> None:
        if not self._move(FollowerInput.FAILED):
            return
        self._asked = None
        self._again = False
        self.sender = None
        self.problem = reason
        self._failures += 1
        self._timer_s = now + backoff_s(self._failures, RETRY_FIRST_S, RETRY_CEILING_S)
        if self.association is not None:
            self._actions.append(Close(self.association))
            self.association = None
        self._actions.append(Ended(reason))


# The machine for several registrars

MAX_STRANGERS = 64
"""Associations with others than the configured registrars; further ones are closed."""
MAX_OWN_ADDRESSES = 16


class FollowerMachine:
    """Follows several registrars, given by their ENRP endpoints, over one socket under one `identifier`.

    Each association belongs to the registrar of its registrar; of others nothing counts.
    """

    def __init__(
        self,
        registrars: Sequence[SctpAddress],
        identifier: int,
        is_wanted: Callable[[bytes], bool] = lambda handle: True,
    ) -> None:
        if len(set(registrars)) < len(registrars):
            raise ValueError("two registrars have the same address and ENRP port")
        ownership = Ownership()
        self.registrars = tuple(
            FollowedRegistrar(registrar, identifier, ownership, is_wanted) for registrar in registrars
        )
        self._by_endpoint = {registrar.endpoint: registrar for registrar in self.registrars}
        self._by_association: dict[int, FollowedRegistrar] = {}
        self._strangers: set[int] = set()
        self._actions: list[MachineAction[EnrpMessage, IndexedEvent]] = []

    @property
    def has_left(self) -> bool:
        """True when no registrar waits for us any more."""
        return all(registrar.state is FollowerState.LEFT for registrar in self.registrars)

    # Wishes of the owner

    def ask_for_everything(self, now: float) -> None:
        """Ask all that are followed for their whole handle table again."""
        for registrar in self.registrars:
            registrar.ask_for_everything(now)

    def leave(self, now: float) -> None:
        """Stop following; `has_left` says when no registrar waits for us any more."""
        for registrar in self.registrars:
            registrar.leave(now)

    def close(self) -> None:
        """End at once."""
        for registrar in self.registrars:
            registrar.close()
        self._actions.append(CloseSocket())

    # Events of the socket

    def associated(
        self, association: int, peer: SctpAddress, now: float, local: Sequence[SctpAddress] = ()
    ) -> None:
        """Take note of a new association, whoever began it."""
        registrar = self._by_endpoint.get(peer)
        if registrar is not None:
            self._strangers.discard(association)
            self._by_association[association] = registrar
            registrar.associated(association, own_transport(local), now)
        elif len(self._strangers) < MAX_STRANGERS:
            self._strangers.add(association)
        else:
            self._actions.append(Close(association))

    def lost(self, association: int, now: float, reason: str = "the association ended") -> None:
        """Take note that an association is gone."""
        self._strangers.discard(association)
        registrar = self._by_association.pop(association, None)
        if registrar is not None:
            registrar.lost(association, now, reason)

    def connect_failed(self, peer: SctpAddress, now: float, reason: str) -> None:
        """Take note that no association with this endpoint could be set up."""
        registrar = self._by_endpoint.get(peer)
        if registrar is not None:
            registrar.connect_failed(now, reason)

    def received(self, association: int, message: EnrpMessage, now: float) -> None:
        """Take a message; of a stranger none counts."""
        registrar = self._by_association.get(association)
        if registrar is not None:
            registrar.received(message, now)

    # Events of the clock, and the actions to be done

    @property
    def next_deadline_s(self) -> float | None:
        """When `advance` has something to do; None: not before something else happens."""
        deadlines = (registrar.next_deadline_s for registrar in self.registrars)
        return min((each for each in deadlines if each is not None), default=None)

    def advance(self, now: float) -> None:
        """Do what is due."""
        for registrar in self.registrars:
            registrar.advance(now)

    def take_actions(self) -> list[MachineAction[EnrpMessage, IndexedEvent]]:
        """Return what is to be done, in order, and forget it."""
        actions, self._actions = self._actions, []
        for index, registrar in enumerate(self.registrars):
            for action in registrar.take_actions():
                actions.append((index, action) if isinstance(action, FollowerEvent) else action)
        return actions


def own_transport(local: Sequence[SctpAddress]) -> Transport:
    """Return where we can be reached: a registrar passes over loopback and link-local addresses."""
    addresses = [ip_address(host) for host, _ in local]
    usable = [
        address for address in addresses if not address.is_loopback and not address.is_link_local
    ] or addresses
    port = local[0][1] if local else 0
    return Transport(Protocol.SCTP, port, tuple(dict.fromkeys(usable))[:MAX_OWN_ADDRESSES])


# The machine on a socket


LEFT_EVERY_S = 0.05
"""How often `leave` looks whether the registrars have forgotten us; that takes them seconds."""


class HandlespaceFollower:
    """Follows `registrars`, each from the moment in which `follow` is called for it.

    A registrar must have the handlespace by then: before, its mentor discovery would choose us, and we have
    nothing to give. `on_event` is called with the registrar's index in `registrars` and what it tells. After
    `Ended` it may be followed again; a growing pause is kept. `on_event` must not raise. `is_wanted` picks
    the pools that tables tell of. The registrars send their own messages to the port that this socket listens
    at, should the association be gone.
    """

    def __init__(
        self,
        registrars: Sequence[RegistrarAddress],
        on_event: Callable[[int, FollowerEvent], None],
        *,
        is_wanted: Callable[[bytes], bool] = lambda handle: True,
        local_addresses: Sequence[str] = (),
    ) -> None:
        self.identifier = fresh_identifier()
        endpoints = [registrar.enrp_endpoint for registrar in registrars]
        self._machine = FollowerMachine(endpoints, self.identifier, is_wanted)
        self._driver: Driver[EnrpMessage, IndexedEvent] = Driver(
            self._machine,
            ENRP,
            lambda event: on_event(*event),
            registrars=endpoints,
            local_addresses=local_addresses,
            reply=lambda message: reply_to(message, self.identifier),
        )

    def start(self) -> None:
        """Open the socket; must run in an event loop. Raise SctpUnavailable, or OSError."""
        self._driver.start()

    def follow(self, index: int) -> None:
        """Follow the registrar with this index from now on; again and again does no harm."""
        self._machine.registrars[index].follow(time.monotonic())
        self._driver.run()

    def ask_for_everything(self) -> None:
        """Ask all that are followed for their whole handle table again (other pools are wanted, say)."""
        self._machine.ask_for_everything(time.monotonic())
        self._driver.run()

    def state(self, index: int) -> FollowerState:
        """How far a registrar is followed."""
        return self._machine.registrars[index].state

    async def leave(self, timeout_s: float = LEAVE_AT_MOST_S) -> None:
        """Stop following, and return when no registrar waits for us any more: then `close` harms nobody."""
        self._machine.leave(time.monotonic())
        self._driver.run()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._machine.has_left:  # noqa: ASYNC110 - an event would be one more shape
                    await asyncio.sleep(LEFT_EVERY_S)

    def close(self) -> None:
        """Close the socket at once; registrars that were followed last may wait for us for two seconds."""
        self._machine.close()
        self._driver.run()
