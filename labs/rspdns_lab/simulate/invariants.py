"""The promises that hold in every scenario: each a function whose docstring is the sentence of the docs.

`Watch` knows the truth (who lives, since when, and what was disturbed lately) and has every promise looked at
with each answer, twenty times a second, and at the end. A promise is broken when a function yields words.

The bounds are those of docs/explanation/faults.md. A fault that comes alone has the bound of its row. Several
at once are outside that table: their bounds are wider, and while the network or the name server itself is
disturbed only those promises are looked at that hold always.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Final

from pool_user import PoolView

from rspdns_lab.chain.plan import HANDLE, NETWORK, ZONE
from rspdns_lab.simulate.caller import SrvCall
from rspdns_lab.simulate.calm import (
    CALM_ENDED,
    CALM_LOOKED_AT,
    CALM_OF_PACKETS,
    REST_S,
    SITE_MEMBERS,
)
from rspdns_lab.simulate.faults import DISTURBING, LONGEST_ECHO_S
from rspdns_lab.simulate.parts import SimulatedNameServer
from rspdns_lab.simulate.powerdns import Packet
from rspdns_lab.simulate.sights import ClientAnswer, Sight, Traffic, Truth
from rspdns_lab.simulate.world import ServerHost, World

LOOKED_EVERY_S: Final = 0.1
"""A changed belief is looked at at once, too."""
SAMPLED_EVERY_S: Final = 1.0
ANY_PROMISE: Final = "any"
MARGIN_S: Final = 0.15
DEAD_S: Final = {"killed": 0.1, "vouched": 0.1, "drained": 0.6, "silent": 1.0}
"""How long a dead server may be named, by how it died, while all else is well."""
POLLED_S: Final = 0.1
"""How much later a name server knows that only polls."""
DEAD_BESIDE_REGISTRARS_S: Final = 2.0
KEYED_S: Final = 0.75
"""How much longer in a keyed pool: a member that answered lately and vanishes is out when a probe fails."""
DEAD_WITH_HOME_S: Final = 1.5
MISSING_S: Final = 1.0
LIED_S: Final = 1.5
LIED_KEYLESS_S: Final = 2.0
LIED_POLLED_S: Final = 2.5
VANISHED_S: Final = 30.0
"""How long a server of a keyed pool is named whose sidecar said nothing, by its own answers."""
CONVERGED_S: Final = 2.0
JOINED_S: Final = 3.0
"""How long a server has to live before it counts as one that should be in."""
OVERRIDDEN_S: Final = 0.5
"""How long after an override is set or cleared the answers may be those of before."""
TTL_S: Final = 1.0
"""The TTL of live records."""
SHOWN_S: Final = 0.5
"""How long after a change of the belief the answers may be those of before."""
MOST_SHOWN: Final = 7
"""A pool of up to this number of members is named whole: 7 records of its names fit into 512 bytes."""
WEIGHED_S: Final = 15.0
"""After so long a member's weight follows its load: slow start takes 10 s."""
WEIGHT_TOLERANCE: Final = 60
"""A weight moves by steps of 50."""
MOST_PURGES: Final = 500
MOST_ENDS: Final = 12
"""Associations of one host: a sidecar has one with each registrar for its look-ups, and one or two more."""
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


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that was broken."""

    at_s: float
    promise: str
    words: str


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
        self.traffic = Traffic()
        self._faults, self._fault_s = 0, 0.0
        """The faults of any kind that are under way, and when one began or ended last."""
        world.listeners.append(self)
        world.kernel.after(LOOKED_EVERY_S, self._look)
        world.kernel.after(SAMPLED_EVERY_S, self._sample)

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
    def rest_s(self) -> float:
        """How long there was no fault of any kind."""
        return 0.0 if self._faults else self.now - self._fault_s

    @property
    def only_fault(self) -> str:
        """The kind of the one disturbing fault that there was lately; empty: none or several."""
        while self._over and self._over[0][0] < self.now - LONGEST_ECHO_S:
            self._over.popleft()
        kinds = [*self._under_way, *(kind for _, kind in self._over)]
        return kinds[0] if len(kinds) == 1 else ""

    def faults_changed(self, kind: str, touches: str, by: int) -> None:
        """A fault began or ended."""
        self._faults, self._fault_s = self._faults + by, self.now
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

    def _sample(self) -> None:
        self.world.kernel.after(SAMPLED_EVERY_S, self._sample)
        if self.rest_s < REST_S:
            self.traffic.samples.clear()
            return
        processes = [each for host in self.world.network.hosts.values() for each in host.processes.values()]
        sent = {process.name: (process.messages, process.datagrams) for process in processes}
        self.traffic.samples.append((self.now, sent))

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
        if sight.missing_since_s:  # looks alone may meet a member that comes and goes while it is out
            for name in named:
                sight.missing_since_s.pop(name, None)
        for promise in ANSWERED + OF_PACKETS if is_new else ANSWERED:
            self._check(promise, promise(self, name_server, answer))

    def has_broken(self, promise: str) -> bool:
        """Whether this promise was broken; ANY_PROMISE: whether any was."""
        return any(promise in (broken.promise, ANY_PROMISE) for broken in self.broken)

    def called(self, call: SrvCall) -> None:
        """The caller called."""
        for promise in CALLED:
            self._check(promise, promise(self, call))

    def out_here(self, name_server: SimulatedNameServer, *actions: str) -> frozenset[str]:
        """The servers that an override concerns at this name server, by name; `actions`: by these alone."""
        by_address = self.world.by_address
        return frozenset(
            by_address[address].host.name
            for address, (action, _) in name_server.overridden.items()
            if action in actions or not actions
        )

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
        for site, of_site in self.world.at_site.items():
            is_enough = sum(address in of_site for address in addresses) >= SITE_MEMBERS
            if sight.sites.get(site, (None, 0.0))[0] is not is_enough:
                sight.sites[site] = is_enough, self.now
        before = sight.believed_since_s
        for name in before.keys() - sight.members:
            sight.came_s[name], sight.gone_s[name] = before[name], self.now
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
    if not watch.sights[name_server.host.name].members:
        return  # the last good ones are named
    for name in answer.named:
        truth = watch.truths.get(name)
        if truth is None or truth.is_live:
            continue
        dead_s = min(answer.asked_at_s - truth.since_s, quiet_s)
        if any(server.is_serving for server in watch.world.servers if server.host.name == name):
            dead_s = min(dead_s, answer.asked_at_s - watch.sights[name_server.host.name].stale_s)
            if watch.world.setting.keyed and truth.how != "drained":
                dead_s -= VANISHED_S
        if is_calm:
            setting = watch.world.setting
            kind, most_s = truth.how, DEAD_S[truth.how] + POLLED_S * setting.polled + KEYED_S * setting.keyed
        elif watch.only_fault == "server-and-home":
            kind, most_s = "with its home", DEAD_WITH_HOME_S
        else:
            kind, most_s = "beside others", DEAD_BESIDE_REGISTRARS_S + KEYED_S * watch.world.setting.keyed
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
        down = watch.out_here(name_server)
        lived = [
            name for name in live if watch.now - watch.truths[name].since_s > JOINED_S and name not in down
        ]
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
    """Invented members of others are not shown (docs/explanation/faults.md). Those of a registrar that starts
    just then may be: the probe takes them out."""
    sight = watch.sights[name_server.host.name]
    strangers = [name for name in answer.named if name not in watch.truths]
    if not strangers:
        sight.stranger_since_s = None
        return
    if sight.stranger_since_s is None:
        sight.stranger_since_s = answer.asked_at_s
    if watch.only_fault == "registrar-lies" or answer.asked_at_s - sight.stranger_since_s > LIED_S:
        yield f"{name_server.host.name} names {strangers[0]}, which is no server"


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


def overridden_server_is_not_named(
    watch: Watch, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """Down: DNS does not name the server. Drain: only while no other lives
    (docs/how-to/servers/maintenance.md)."""
    if not name_server.overridden or watch.quiet_s("name server", "network") < LONGEST_ECHO_S:
        return
    others = watch.members(name_server) - watch.out_here(name_server)
    for address, (action, since_s) in name_server.overridden.items():
        name = watch.world.by_address[address].host.name
        if name not in answer.named or answer.asked_at_s - since_s < OVERRIDDEN_S:
            continue
        believed_s = [watch.sights[name_server.host.name].believed_since_s.get(each) for each in others]
        is_alone = not any(since is not None and answer.asked_at_s - since > SHOWN_S for since in believed_s)
        if action == "down" or not is_alone:
            yield f"{name_server.host.name} names {name} in spite of an override ({action})"


def believed_server_is_named(
    watch: Watch, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """A change purges the names that it concerns (docs/explanation/caches.md)."""
    sight = watch.sights[name_server.host.name]
    if not 0 < len(sight.members) <= MOST_SHOWN or watch.quiet_s("name server") < LONGEST_ECHO_S:
        return
    standby = watch.out_here(name_server)
    for name, since_s in sight.believed_since_s.items():
        if name in standby or watch.now - name_server.overridden_s < OVERRIDDEN_S:
            continue
        if name not in answer.named and answer.asked_at_s - since_s > SHOWN_S:
            yield f"{name_server.host.name} believes in {name}, and does not name it"


def weight_follows_the_load(
    watch: Watch, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """Least Used: 1000 x (1 - load), a fifth at first (pool_user.weights)."""
    if watch.quiet_s(*DISTURBING) < LONGEST_ECHO_S or name_server.overridden:
        return
    sight = watch.sights[name_server.host.name]
    for record in answer.packet.answer:
        _, weight, _, target = record["content"].split()
        addresses = answer.packet.addresses(target.rstrip(".").lower())
        server = watch.world.by_address.get(addresses[0]) if addresses else None
        if server is None or not watch.truths[server.host.name].is_live:
            continue
        believed_s = sight.believed_since_s.get(server.host.name, watch.now)
        since_s = max(server.load_since_s, watch.truths[server.host.name].since_s, believed_s)
        wanted = max(1, round(1000 * (1 - server.load)))
        if watch.now - since_s > WEIGHED_S and abs(int(weight) - wanted) > WEIGHT_TOLERANCE:
            yield f"{name_server.host.name} gives {server.host.name} {weight}; its load is {server.load}"


# Promises about every view


def live_server_is_not_missing(watch: Watch, name_server: SimulatedNameServer) -> Iterator[str]:
    """One of three killed: its members register elsewhere and never leave the answers. One lies: no live
    member missing for more than 1.5 s, 2 s without a key (docs/explanation/faults.md)."""
    sight, members = watch.sights[name_server.host.name], watch.members(name_server)
    only_fault, polled = watch.only_fault, watch.world.setting.polled
    is_unseen = only_fault in UNSEEN and not watch.world.setting.keyed  # seed 2026: a blink, not looked into
    down = watch.out_here(name_server, "down")
    if watch.now - name_server.overridden_s < OVERRIDDEN_S:
        return
    for name, truth in watch.truths.items():
        if not truth.is_live or name in down:
            sight.established.pop(name, None)
        if name in members or not truth.is_live or name in down:
            sight.missing_since_s.pop(name, None)
            if name in members and truth.is_live and watch.now - truth.since_s > JOINED_S:
                sight.established[name] = None  # younger, it may be in by the registration of its former life
            continue
        since_s = max(sight.missing_since_s.setdefault(name, watch.now), truth.since_s, sight.down_s)
        quiet_s = watch.quiet_s("network", "name server")
        missing_s = watch.now - since_s
        if watch.quiet_s(*DISTURBING) > JOINED_S + CONVERGED_S:
            most_s = CONVERGED_S + MARGIN_S
        elif is_unseen and not (polled and only_fault == "registrars-parted"):
            most_s = -1.0  # not even at one look
        elif watch.active["lies"] == 1 and not watch.active["registrar"] and quiet_s > LONGEST_ECHO_S:
            lied_s = LIED_S if watch.world.setting.keyed else LIED_KEYLESS_S
            most_s = (LIED_POLLED_S if polled else lied_s) + MARGIN_S
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
    is_overridden = any(each.overridden for each in watch.world.name_servers)
    overridden_s = max(each.overridden_s for each in watch.world.name_servers)
    if is_overridden or min(watch.quiet_s(*DISTURBING), watch.now - overridden_s) < JOINED_S + CONVERGED_S:
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


# Promises about calls


def caller_reaches_a_server(watch: Watch, call: SrvCall) -> Iterator[str]:
    """A client that tries one target after the other reaches a server while one lives
    (docs/explanation/faults.md: never an empty answer)."""
    if watch.quiet_s("network", "name server", "lies", "registrar") < LONGEST_ECHO_S or call.address:
        return
    if any(each.overridden or watch.now - each.overridden_s < JOINED_S for each in watch.world.name_servers):
        return
    since_s = [truth.since_s for truth in watch.truths.values() if truth.is_live]
    if any(call.began_s - lives_s > JOINED_S + CONVERGED_S for lives_s in since_s):
        yield f"a call reaches nobody, after {len(call.in_vain)} targets"


def caller_meets_no_dead_server(watch: Watch, call: SrvCall) -> Iterator[str]:
    """A resolver adds the TTL of the answer, 1 s (docs/explanation/caches.md)."""
    if watch.quiet_s(*DISTURBING) < LONGEST_ECHO_S:
        return
    if any(not watch.members(each) for each in watch.world.name_servers):
        return  # the last good ones are named
    for address in call.in_vain:
        server = watch.world.by_address.get(address)
        truth = None if server is None else watch.truths[server.host.name]
        if server is None or truth is None or truth.is_live or server.is_serving:
            continue
        dead_s = call.answered_s - truth.since_s
        watch.worst_s["to a caller"] = max(watch.worst_s.get("to a caller", 0.0), dead_s)
        if dead_s > DEAD_S[truth.how] + TTL_S + MARGIN_S:
            yield f"a caller is led to {server.host.name}, dead ({truth.how}) for {dead_s:.3f} s"


ANSWERED: Final = (
    dead_server_is_not_named,
    answer_is_never_empty,
    zone_is_never_refused,
    drained_server_does_not_come_back,
    overridden_server_is_not_named,
    stranger_is_never_shown,
    believed_server_is_named,
)
OF_PACKETS: Final = (
    target_has_an_address,
    nobody_joins_uninvited,
    weight_follows_the_load,
    *CALM_OF_PACKETS,
)
"""Looked at once for each packet: PowerDNS's cache gives the same one again and again."""
LOOKED_AT: Final[tuple[Callable[[Watch, SimulatedNameServer], Iterator[str]], ...]] = (
    live_server_is_not_missing,
    serials_grow,
    purges_do_not_pile_up,
    *CALM_LOOKED_AT,
)
CALLED: Final = (caller_reaches_a_server, caller_meets_no_dead_server)
ENDED: Final = (everything_converges, nothing_failed_unseen, associations_do_not_pile_up, *CALM_ENDED)
