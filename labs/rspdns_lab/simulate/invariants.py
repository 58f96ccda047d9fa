"""The promises that hold in every scenario: each a function whose docstring is the sentence of the docs.

`Watch` knows the truth (who lives, since when, and what was disturbed lately) and has every promise looked at
with each answer, twenty times a second, and at the end. A promise is broken when a function yields words.

The bounds are those of docs/explanation/faults.md. A fault that comes alone has the bound of its row. Several
at once are outside that table: their bounds are wider, and while the network or the name server itself is
disturbed only those promises are looked at that hold always.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Final

from pool_user import PoolView

from rspdns_lab.chain.plan import HANDLE, NETWORK, ZONE
from rspdns_lab.simulate.parts import SimulatedNameServer
from rspdns_lab.simulate.powerdns import Packet
from rspdns_lab.simulate.world import ServerHost, World

LOOKED_EVERY_S: Final = 0.1
"""A changed belief is looked at at once, too."""
MARGIN_S: Final = 0.15
DEAD_S: Final = {"killed": 0.1, "vouched": 0.1, "drained": 0.6, "silent": 1.0}
"""How long a dead server may be named, by how it died, while all else is well."""
DEAD_BESIDE_REGISTRARS_S: Final = 2.0
DEAD_WITH_HOME_S: Final = 1.0
MISSING_S: Final = 1.0
LIED_S: Final = 1.5
CONVERGED_S: Final = 2.0
JOINED_S: Final = 3.0
"""How long a server has to live before it counts as one that should be in."""
SHOWN_S: Final = 0.5
"""How long after a change of the belief the answers may be those of before."""
MOST_SHOWN: Final = 8
"""A pool of up to so many members is named whole."""
WEIGHED_S: Final = 15.0
"""After so long a member's weight follows its load: slow start takes 10 s."""
WEIGHT_TOLERANCE: Final = 60
"""A weight moves by steps of 50."""
MOST_PURGES: Final = 500
MOST_ENDS: Final = 12
"""Associations of one host: a sidecar has one with each registrar for its look-ups, and one or two more."""
DISTURBING: Final = frozenset({"registrar", "network", "name server", "lies"})
UNSEEN: Final = frozenset(
    {
        "registrar-killed",
        "registrar-frozen",
        "registrar-power",
        "registrars-lost",
        "registrars-parted",
        "clock-stepped",
    }
)
"""Faults of which no answer shows anything while they come alone."""
LONGEST_ECHO_S: Final = 15.0
"""After a disturbance the times of several faults at once count for so long."""


@dataclass(slots=True)
class Truth:
    """A server as it is: alive since, or dead since (by how); kernel time."""

    is_live: bool = False
    since_s: float = 0.0
    how: str = "killed"


@dataclass(slots=True)
class Sight:
    """A name server's sight of the servers."""

    members: frozenset[str] = frozenset()
    """The servers that its backend believes in."""
    answer: "ClientAnswer | None" = None
    """The last one."""
    view: object = None
    """The view of which these are the members."""
    believed_since_s: dict[str, float] = field(default_factory=dict)
    missing_since_s: dict[str, float] = field(default_factory=dict)
    established: dict[str, None] = field(default_factory=dict)
    """The servers that it showed since they live."""
    lacked: dict[str, None] = field(default_factory=dict)
    """The drained servers that it named no more."""
    serial: int = 0
    differs_since_s: float | None = None
    down_s: float = 0.0
    """When its backend was seen dead, frozen or without a view last."""
    stale_s: float = 0.0
    """When no registrar could vouch for its view last: then a server stays that answers the probe."""
    was_whole: bool = False
    """Whether it ever named a server."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that was broken."""

    at_s: float
    promise: str
    words: str


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """An answer to the client: its packet, the servers in it, and when the client asked."""

    packet: Packet
    named: Sequence[str]
    asked_at_s: float


class Watch:
    """Looks at a scenario. `broken` are the broken promises, the first of each kind."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.truths = {server.host.name: Truth() for server in world.servers}
        self.sights = {each.host.name: Sight() for each in world.name_servers}
        self.active = dict.fromkeys(DISTURBING, 0)
        self.disturbed_s = dict.fromkeys(DISTURBING, 0.0)
        """When a fault that touches this was there last."""
        self._under_way: list[str] = []
        self._over: deque[tuple[float, str]] = deque()
        """The disturbing faults that are over, and since when; the oldest first."""
        self.broken: list[Broken] = []
        self.worst_s: dict[str, float] = {}
        """How long a dead server was named at most, by how it died and what else was disturbed."""
        world.listeners.append(self)
        world.kernel.after(LOOKED_EVERY_S, self._look)

    @property
    def now(self) -> float:
        """The kernel's time."""
        return self.world.kernel.now

    def quiet_s(self, *touched: str) -> float:
        """How long nothing of this was disturbed."""
        last_s = 0.0
        for each in touched:
            if self.active[each]:
                return 0.0
            last_s = max(last_s, self.disturbed_s[each])
        return self.now - last_s

    @property
    def only_fault(self) -> str:
        """The kind of the one disturbing fault that there was lately; empty: none or several."""
        while self._over and self._over[0][0] < self.now - LONGEST_ECHO_S:
            self._over.popleft()
        kinds = [*self._under_way, *(kind for _, kind in self._over)]
        return kinds[0] if len(kinds) == 1 else ""

    def faults_changed(self, kind: str, touches: str, by: int) -> None:
        """A fault began or ended."""
        if touches in self.active:
            self.active[touches] += by
            self.disturbed_s[touches] = self.now
            if by > 0:
                self._under_way.append(kind)
            else:
                self._under_way.remove(kind)
                self._over.append((self.now, kind))
        self._update_truths()

    def _update_truths(self) -> None:
        for server in self.world.servers:
            truth, is_live = self.truths[server.host.name], server.is_serving and server.is_vouched_for
            if truth.is_live != is_live:
                truth.is_live, truth.since_s = is_live, self.now
            if not is_live:
                truth.how = _how(server)

    def _look(self) -> None:
        self.world.kernel.after(LOOKED_EVERY_S, self._look)
        self._update_truths()
        for name_server in self.world.name_servers:
            self.believed(name_server)
        self._check(name_servers_agree, name_servers_agree(self))

    def believed(self, name_server: SimulatedNameServer) -> None:
        """Look at the belief of a name server: it may have changed."""
        backend, process = name_server.backend, name_server.process
        sight = self.sights[name_server.host.name]
        view = None if backend is None else backend.belief.views[HANDLE]
        if view is None or not process.is_responsive or not view.known:
            sight.down_s = self.now
            sight.missing_since_s.clear()
            sight.view, sight.believed_since_s = None, {}
            return
        self._take_view(sight, view)
        if view.stale_since_s is not None:
            sight.stale_s = self.now
        for promise in LOOKED_AT:
            self._check(promise, promise(self, name_server))

    def answered(self, name_server: SimulatedNameServer, packet: Packet, asked_at_s: float) -> None:
        """The client got an answer."""
        sight, backend = self.sights[name_server.host.name], name_server.backend
        if backend is not None and sight.view is not None:
            self._take_view(sight, backend.belief.views[HANDLE])
        former = sight.answer
        is_new = former is None or former.packet is not packet
        named = self.world.named(packet) if former is None or is_new else former.named
        answer = sight.answer = ClientAnswer(packet, named, asked_at_s)
        for promise in ANSWERED + OF_PACKETS if is_new else ANSWERED:
            self._check(promise, promise(self, name_server, answer))

    def has_broken(self, promise: str) -> bool:
        """Whether this promise was broken."""
        return any(broken.promise == promise for broken in self.broken)

    def end(self) -> None:
        """The scenario is over."""
        for promise in ENDED:
            self._check(promise, promise(self))

    def _check(self, promise: Callable[..., Iterator[str]], words: Iterator[str]) -> None:
        for each in words:
            if not self.has_broken(promise.__name__):
                self.broken.append(Broken(self.now, promise.__name__, each))
                self.world.tell("", f"BROKEN {promise.__name__}: {each}")

    def _take_view(self, sight: Sight, view: PoolView) -> None:
        if view is sight.view:
            return
        addresses = [str(member.addresses[0]) for member in view.members]
        servers = [self.world.by_address[each] for each in addresses if each in self.world.by_address]
        sight.view, sight.members = view, frozenset(server.host.name for server in servers)
        before = sight.believed_since_s
        sight.believed_since_s = {name: before.get(name, self.now) for name in sorted(sight.members)}

    def members(self, name_server: SimulatedNameServer) -> frozenset[str]:
        """The names of the servers that a backend believes in."""
        return self.sights[name_server.host.name].members


@cache
def _is_invited(address: str) -> bool:
    return ip_address(address) in ip_network(NETWORK)


def _how(server: ServerHost) -> str:
    process, sidecar = server.host.processes["server"], server.host.processes["sidecar"]
    if not server.host.is_up or sidecar.is_frozen or (process.is_alive and process.is_frozen):
        return "silent"
    if not process.is_alive:
        return "killed" if sidecar.is_alive else "silent"
    return "drained" if server.is_drained else "vouched"


# Promises about every answer


def dead_server_is_not_named(
    watch: Watch, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """Times are from the fault to the last wrong answer of the name server (docs/explanation/faults.md)."""
    if watch.active["network"] or watch.active["name server"] or watch.active["lies"]:
        return
    quiet_s = watch.quiet_s("network", "name server", "lies")
    is_calm = watch.quiet_s(*DISTURBING) > LONGEST_ECHO_S
    for name in answer.named:
        truth = watch.truths.get(name)
        if truth is None or truth.is_live:
            continue
        dead_s = min(answer.asked_at_s - truth.since_s, quiet_s)
        if any(server.is_serving for server in watch.world.servers if server.host.name == name):
            dead_s = min(dead_s, answer.asked_at_s - watch.sights[name_server.host.name].stale_s)
        if is_calm:
            kind, most_s = truth.how, DEAD_S[truth.how]
        elif watch.only_fault == "server-and-home":
            kind, most_s = "with its home", DEAD_WITH_HOME_S
        else:
            kind, most_s = "beside others", DEAD_BESIDE_REGISTRARS_S
        watch.worst_s[kind] = max(watch.worst_s.get(kind, 0.0), dead_s)
        if dead_s > most_s + MARGIN_S:
            yield f"{name_server.host.name} names {name}, dead ({truth.how}) for {dead_s:.3f} s"


def answer_is_never_empty(
    watch: Watch, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """Never in any of these: an empty answer where there should be servers (docs/explanation/faults.md)."""
    sight = watch.sights[name_server.host.name]
    if answer.packet.answer:
        sight.was_whole = True
    elif answer.packet.rcode == "NOERROR" and sight.was_whole:
        live = [name for name, truth in watch.truths.items() if truth.is_live]
        lived = [name for name in live if watch.now - watch.truths[name].since_s > JOINED_S]
        if lived:
            yield f"{name_server.host.name} answers with nobody, and {' '.join(lived)} live"


def zone_is_never_refused(
    watch: Watch, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """Never in any of these: a whole zone refused (docs/explanation/faults.md)."""
    sight = watch.sights[name_server.host.name]
    up_s = min(watch.now - sight.down_s, watch.quiet_s("name server"))
    if answer.packet.rcode == "SERVFAIL" and sight.was_whole and up_s > CONVERGED_S:
        yield f"{name_server.host.name} answers SERVFAIL, and its backend runs"


def target_has_an_address(
    watch: Watch, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """No answer names a target without an address (rspdns.pdns.responder)."""
    up_s = min(watch.now - watch.sights[name_server.host.name].down_s, watch.quiet_s("name server"))
    for target in answer.packet.targets:
        if not answer.packet.addresses(target) and up_s > CONVERGED_S:
            yield f"{name_server.host.name} names {target} without an address"


def nobody_joins_uninvited(
    watch: Watch, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """Rule 6: nobody joins uninvited (docs/explanation/belief.md)."""
    del watch
    for record in answer.packet.additional:
        if not _is_invited(record["content"]):
            yield f"{name_server.host.name} answers with {record['content']}"


def stranger_is_never_shown(
    watch: Watch, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """Invented members of others are not shown (docs/explanation/faults.md)."""
    for name in answer.named:
        if name not in watch.truths:
            yield f"{name_server.host.name} names {name}, which is no server"


def drained_server_does_not_come_back(
    watch: Watch, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """Drained: out; undrain lets it in again (docs/how-to/servers/maintenance.md)."""
    sight, named = watch.sights[name_server.host.name], frozenset(answer.named)
    for server in watch.world.servers:
        name = server.host.name
        if not server.is_drained:
            sight.lacked.pop(name, None)
        elif name in named:
            quiet_s = min(answer.asked_at_s - watch.truths[name].since_s, watch.quiet_s(*DISTURBING))
            if name in sight.lacked and quiet_s > CONVERGED_S:
                yield f"{name_server.host.name} names {name} again, which is drained"
        elif answer.packet.answer:
            sight.lacked[name] = None


def believed_server_is_named(
    watch: Watch, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """A change purges the names that it concerns (docs/explanation/caches.md)."""
    sight = watch.sights[name_server.host.name]
    if not 0 < len(sight.members) <= MOST_SHOWN or watch.quiet_s("name server") < LONGEST_ECHO_S:
        return
    for name, since_s in sight.believed_since_s.items():
        if name not in answer.named and answer.asked_at_s - since_s > SHOWN_S:
            yield f"{name_server.host.name} believes in {name}, and does not name it"


def weight_follows_the_load(
    watch: Watch, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """Least Used: 1000 x (1 - load), a fifth at first (pool_user.weights)."""
    if watch.quiet_s(*DISTURBING) < LONGEST_ECHO_S:
        return
    for record in answer.packet.answer:
        _, weight, _, target = record["content"].split()
        addresses = answer.packet.addresses(target.rstrip(".").lower())
        server = watch.world.by_address.get(addresses[0]) if addresses else None
        if server is None or not watch.truths[server.host.name].is_live:
            continue
        since_s = max(server.load_since_s, watch.truths[server.host.name].since_s)
        wanted = max(1, round(1000 * (1 - server.load)))
        if watch.now - since_s > WEIGHED_S and abs(int(weight) - wanted) > WEIGHT_TOLERANCE:
            yield f"{name_server.host.name} gives {server.host.name} {weight}; its load is {server.load}"


# Promises about every view


def live_server_is_not_missing(watch: Watch, name_server: SimulatedNameServer) -> Iterator[str]:
    """One of three killed: its members register elsewhere and never leave the answers. One lies: no live
    member missing for more than 1.5 s (docs/explanation/faults.md)."""
    sight, members = watch.sights[name_server.host.name], watch.members(name_server)
    only_fault = watch.only_fault
    for name, truth in watch.truths.items():
        if not truth.is_live:
            sight.established.pop(name, None)
        if name in members or not truth.is_live:
            sight.missing_since_s.pop(name, None)
            if name in members and truth.is_live:
                sight.established[name] = None
            continue
        since_s = max(sight.missing_since_s.setdefault(name, watch.now), truth.since_s, sight.down_s)
        quiet_s = watch.quiet_s("network", "name server")
        missing_s = watch.now - since_s
        if watch.quiet_s(*DISTURBING) > JOINED_S + CONVERGED_S:
            most_s = CONVERGED_S + MARGIN_S
        elif only_fault in UNSEEN:
            most_s = -1.0  # not even at one look
        elif watch.active["lies"] and not watch.active["registrar"] and quiet_s > LONGEST_ECHO_S:
            most_s = LIED_S + MARGIN_S
        elif not watch.active["lies"] and quiet_s > LONGEST_ECHO_S and watch.quiet_s("lies") > LONGEST_ECHO_S:
            most_s = MISSING_S + MARGIN_S
        else:
            continue
        if name in sight.established or watch.quiet_s(*DISTURBING) > JOINED_S + CONVERGED_S:
            watch.worst_s["missing"] = max(watch.worst_s.get("missing", 0.0), missing_s)
            if missing_s > most_s:
                yield f"{name_server.host.name} lacks {name}, which lives, for {missing_s:.3f} s"


def serials_grow(watch: Watch, name_server: SimulatedNameServer) -> Iterator[str]:
    """The zones' SOA serial moves with every change and never goes back, across restarts too
    (rspdns.answers.serial_number)."""
    backend, sight = name_server.backend, watch.sights[name_server.host.name]
    zone = None if backend is None else backend.publisher.snapshot.zone_answers.get(ZONE)
    if zone is None:
        return
    if zone.serial < sight.serial:
        yield f"{name_server.host.name}: serial {zone.serial} after {sight.serial}"
    sight.serial = zone.serial


def purges_do_not_pile_up(_: Watch, name_server: SimulatedNameServer) -> Iterator[str]:
    """Names that change while a command is under way go together into the next one (rspdns.pdns.purge)."""
    backend = name_server.backend
    waiting = 0 if backend is None else sum(socket.waiting for socket in backend.caches.purger.sockets)
    if waiting > MOST_PURGES:
        yield f"{name_server.host.name}: {waiting} names wait to be purged"


# Promises about all name servers together, and about the end


def name_servers_agree(watch: Watch) -> Iterator[str]:
    """Each backend sees every registrar: they differ for no longer than a change takes
    (docs/explanation/belief.md)."""
    if watch.quiet_s(*DISTURBING) < JOINED_S + CONVERGED_S:
        for sight in watch.sights.values():
            sight.differs_since_s = None
        return
    first, *others = watch.world.name_servers
    members = watch.members(first)
    for other in others:
        sight, theirs = watch.sights[other.host.name], watch.members(other)
        if members == theirs:
            sight.differs_since_s = None
            continue
        if sight.differs_since_s is None:
            sight.differs_since_s = watch.now
        if watch.now - sight.differs_since_s > CONVERGED_S:
            yield f"{first.host.name} and {other.host.name} differ about {' '.join(sorted(members ^ theirs))}"


def everything_converges(watch: Watch) -> Iterator[str]:
    """After the last fault every name server shows who lives, and nobody else."""
    for server in watch.world.servers:
        if not server.sidecar.is_in and watch.truths[server.host.name].is_live:
            yield f"{server.host.name} is not registered"
    live = {name for name, truth in watch.truths.items() if truth.is_live}
    for name_server in watch.world.name_servers:
        if name_server.backend is None:
            yield f"{name_server.host.name} has no backend"
        elif (members := watch.members(name_server)) != live:
            yield f"{name_server.host.name} is wrong about {' '.join(sorted(members ^ live))}"


def nothing_failed_unseen(watch: Watch) -> Iterator[str]:
    """No exception is lost in a callback."""
    for host in watch.world.network.hosts.values():
        for process in host.processes.values():
            yield from process.failures[:1]


def associations_do_not_pile_up(watch: Watch) -> Iterator[str]:
    """An old association is closed after a move (rserpool.element)."""
    for server in watch.world.servers:
        count = watch.world.network.sctp_ends(server.host)
        if count > MOST_ENDS:
            yield f"{server.host.name} has {count} associations"


ANSWERED: Final = (
    dead_server_is_not_named,
    answer_is_never_empty,
    zone_is_never_refused,
    drained_server_does_not_come_back,
    believed_server_is_named,
)
OF_PACKETS: Final = (
    target_has_an_address,
    nobody_joins_uninvited,
    stranger_is_never_shown,
    weight_follows_the_load,
)
"""Looked at once for each packet: PowerDNS's cache gives the same one again and again."""
LOOKED_AT: Final[tuple[Callable[[Watch, SimulatedNameServer], Iterator[str]], ...]] = (
    live_server_is_not_missing,
    serials_grow,
    purges_do_not_pile_up,
)
ENDED: Final = (everything_converges, nothing_failed_unseen, associations_do_not_pile_up)
