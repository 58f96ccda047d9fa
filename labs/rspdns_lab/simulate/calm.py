"""Promises about a chain at rest, or nearly so: each a function, as in `invariants`, which looks at them.

They say what a fault leaves behind (tables, traffic) and what people see of one that came alone (the cause of
a departure, the first weight of a server, the answer of an empty pool).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import pairwise
from typing import Any, Final

from pool_user import Code

from rspdns_lab.chain.plan import HANDLE, SITE_BACK_S
from rspdns_lab.simulate.parts import SimulatedNameServer
from rspdns_lab.simulate.sights import MEASURED_S, ClientAnswer, WatchedScenario

REST_S: Final = 15.0
"""After so long without any fault the chain is at rest."""
MOST_ENTRIES: Final = 200
"""Entries of one table, with ten servers, after some minutes: those of every stay of a server, at most."""
SIDECAR_PER_S: Final = (1.5, 5.0)
FOLLOWED_PER_S: Final = (3.0, 8.0)
POLLED_PER_S: Final = (20.0, 50.0)
"""Messages to each registrar in a second, at least and at most."""
CHECKS_PER_S: Final = (2.0, 10.0)
"""Datagrams of one sidecar."""
VERIFIES_PER_S: Final = (1.0, 12.0)
"""Datagrams of a backend to each server that it verifies."""
SLOW_START_S, SLOW_START_FROM = 10.0, 0.2
SLOW_TOLERANCE: Final = 130
BLINK_S: Final = 1.0
"""A server that was out for less is no newcomer."""
SITE_MEMBERS: Final = 2
"""A site is enough with so many servers (`min_in` of the lab's zone)."""
SITE_SPILL_BACK: Final = 0.6
SITE_SHOWN_S: Final = 1.5
_PACKAGES: Final = ("pool_user", "rserpool", "rspdns", "ppe_agent", "registrar_config")
_MODELS: Final = ("rspdns_lab.simulate.handlespace", "rspdns_lab.simulate.registrar")


def rest_is_cheap(watch: WatchedScenario) -> Iterator[str]:
    """A sidecar looks its server up twice a second (ppe_agent.lookup); a followed registrar is asked about a
    pool once a second, one that is polled 20 times (docs/explanation/belief.md)."""
    if watch.rest_s < REST_S + MEASURED_S:
        return
    setting, count = watch.world.setting, len(watch.world.registrars)
    asked = POLLED_PER_S if setting.polled else FOLLOWED_PER_S
    least, most = VERIFIES_PER_S
    verifies = (
        least * setting.verified,
        most * (setting.verified or setting.keyed),
    )  # keyed: some are suspects
    servers = len(watch.world.servers)
    wanted = {
        f"{each.host.name} sidecar": (count, SIDECAR_PER_S, 1, CHECKS_PER_S) for each in watch.world.servers
    }
    wanted |= {
        f"{each.host.name} backend": (count, asked, servers, verifies) for each in watch.world.name_servers
    }
    for process, (peers, messages, targets, datagrams) in wanted.items():
        rates = watch.traffic.per_s(process)
        if rates is None:
            continue
        for rate, number, (least, most), what in (
            (rates[0], peers, messages, "messages"),
            (rates[1], targets, datagrams, "datagrams"),
        ):
            if not least <= rate / number <= most:
                yield f"{process} sends {rate / number:.2f} {what} a second to each"


def tables_are_bounded(watch: WatchedScenario) -> Iterator[str]:
    """Memory that faults leave behind is bounded (docs/explanation/limits.md)."""
    roots: dict[str, Any] = {}
    for name_server in watch.world.name_servers:
        roots[f"{name_server.host.name} backend"] = name_server.backend
    for server in watch.world.servers:
        roots[f"{server.host.name} sidecar"] = server.sidecar.servers
    for registrar in watch.world.registrars:
        roots[f"{registrar.host.name} registrar"] = registrar.model
    for name, root in roots.items():
        for path, size in sizes(root):
            if size > MOST_ENTRIES:
                yield f"{name}{path} has {size} entries"


def sizes(root: object) -> Iterator[tuple[str, int]]:
    """Yield every table below an object of the product, by its path, and how many entries it has."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        path, value = waiting.pop()
        if id(value) in seen or value is None or isinstance(value, str | bytes | int | float | Enum):
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            yield path, len(value)
            waiting += [(f"{path}[]", each) for each in value.values()]
        elif isinstance(value, list | set | deque | tuple | frozenset):
            if not isinstance(value, tuple) and getattr(value, "maxlen", None) is None:
                yield path, len(value)
            waiting += [(f"{path}[]", each) for each in value]
        elif _is_ours(type(value)):
            waiting += [(f"{path}.{name}", each) for name, each in _attributes(value)]


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _PACKAGES or kind.__module__ in _MODELS


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    if is_dataclass(value) and not hasattr(value, "__dict__"):
        for each in fields(value):
            yield each.name, getattr(value, each.name)


def departure_tells_a_drain(watch: WatchedScenario, name_server: SimulatedNameServer) -> Iterator[str]:
    """A drained server is shown as drained, any other that left is missing
    (docs/how-to/servers/maintenance.md)."""
    backend = name_server.backend
    if backend is None or watch.quiet_s("registrar", "network", "name server", "lies") < REST_S:
        return
    for departure in backend.belief.views[HANDLE].departures:
        server = watch.world.by_address.get(str(departure.member.addresses[0]))
        age_s = name_server.process.time() - departure.left_s
        if server is None or not 1.0 < age_s < 5.0 or server.host.address in name_server.overridden:
            continue
        truth, name = watch.truths[server.host.name], server.host.name
        is_older = truth.is_live or watch.now - truth.since_s < age_s
        if is_older or name in watch.sights[name_server.host.name].members:
            continue
        is_drained = departure.cause.code is Code.DRAINED
        if truth.how == "drained" and server.is_drained and not is_drained:
            yield f"{name_server.host.name}: {name} was drained, and is told as {departure.cause.code}"
        if truth.how != "drained" and not server.is_drained and is_drained:
            yield f"{name_server.host.name}: {name} died, and is told as drained"


def newcomer_starts_slowly(
    watch: WatchedScenario, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """Comes back: in, at a fifth of its weight, whole after slow_start_s (docs/explanation/faults.md)."""
    sight = watch.sights[name_server.host.name]
    if watch.quiet_s("registrar", "network", "name server", "lies") < REST_S or name_server.overridden:
        return
    oldest_s = min(sight.believed_since_s.values(), default=watch.now)
    for record in answer.packet.answer:
        _, weight, _, target = record["content"].split()
        addresses = answer.packet.addresses(target.rstrip(".").lower())
        server = watch.world.by_address.get(addresses[0]) if addresses else None
        since_s = None if server is None else sight.believed_since_s.get(server.host.name)
        if server is None or since_s is None or since_s < oldest_s + SLOW_START_S:
            continue
        age_s, name = watch.now - since_s, server.host.name
        if since_s - sight.gone_s.get(name, since_s) < 2 * BLINK_S or not 0.3 < age_s < SLOW_START_S / 2:
            continue
        if watch.now - server.load_since_s < SLOW_START_S:
            continue
        whole = 1000 * (1 - server.load)
        least, most = (_part(age_s - 1.5) * whole, _part(age_s + 0.2) * whole)
        if not least - SLOW_TOLERANCE <= int(weight) <= most + SLOW_TOLERANCE:
            yield f"{name_server.host.name} gives {name} {weight} after {age_s:.1f} s, at load {server.load}"


def _part(age_s: float) -> float:
    return SLOW_START_FROM + (1 - SLOW_START_FROM) * min(1.0, max(0.0, age_s) / SLOW_START_S)


def last_good_ones_are_named(
    watch: WatchedScenario, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """All of a pool dead: those that were in last are named (docs/explanation/faults.md), and none that was
    drained (docs/explanation/belief.md)."""
    sight = watch.sights[name_server.host.name]
    if sight.members or not sight.was_whole:
        return
    if watch.quiet_s("registrar", "network", "name server", "lies") < REST_S:
        return
    lately = [
        name
        for name, gone_s in sight.gone_s.items()
        if gone_s - sight.came_s.get(name, gone_s) > 8.0 and watch.now - gone_s > 1.0
    ]
    died = [name for name in lately if watch.truths[name].how in ("killed", "silent")]
    last_s = max(sight.gone_s.values(), default=0.0)
    if watch.world.setting.keyed or not any(last_s - sight.gone_s[name] < 8.0 for name in died):
        return
    if not answer.named:
        yield f"{name_server.host.name} answers with nobody, and {' '.join(died)} were in last"
    drained = [name for name in answer.named if name in watch.truths and watch.truths[name].how == "drained"]
    if drained and watch.now - last_s > 1.0:
        yield f"{name_server.host.name} names {' '.join(drained)}, drained, in an empty pool"


def sites_stand_in_their_order(
    watch: WatchedScenario, name_server: SimulatedNameServer, answer: ClientAnswer
) -> Iterator[str]:
    """The first site that has enough servers gets the calls, the others stand behind it
    (docs/how-to/dns/sites.md)."""
    sight = watch.sights[name_server.host.name]
    if watch.quiet_s("registrar", "network", "name server", "lies") < REST_S or name_server.overridden:
        return
    loaded_s = watch.now - SITE_BACK_S - SITE_SHOWN_S
    if any(each.load >= SITE_SPILL_BACK or each.load_since_s > loaded_s for each in watch.world.servers):
        return
    for _, since_s in sight.sites.values():
        if watch.now - since_s < SITE_BACK_S + SITE_SHOWN_S:
            return
    places = sorted(sight.sites, key=lambda site: not sight.sites[site][0])
    found: dict[str, list[int]] = {}
    for record in answer.packet.answer:
        priority, _, _, target = record["content"].split()
        addresses = answer.packet.addresses(target.rstrip(".").lower())
        for site in places:
            if addresses and addresses[0] in watch.world.at_site[site]:
                found.setdefault(site, []).append(int(priority))
    shown = [site for site in places if site in found]
    for first, second in pairwise(shown):
        if max(found[first]) >= min(found[second]):
            yield f"{name_server.host.name} gives {second} before {first}: {found}"


CALM_ENDED: Final[Sequence[Any]] = (rest_is_cheap, tables_are_bounded)
CALM_LOOKED_AT: Final[Sequence[Any]] = (departure_tells_a_drain,)
CALM_OF_PACKETS: Final[Sequence[Any]] = (
    newcomer_starts_slowly,
    last_good_ones_are_named,
    sites_stand_in_their_order,
)
