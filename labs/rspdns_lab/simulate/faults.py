"""The faults of a scenario: each begins at a moment, lasts for a time, and ends.

A fault kind is a function that begins it and returns how to end it. `plan` chooses, by the seed alone, which
kinds a scenario has ("swarm": not every scenario has all, so that rare combinations come), when, and for how
long; several at once is the rule. Each planned fault has chance of its own, so that it does the same when
others are left out (`shrink`).

`touches` of a fault say what the invariants must not expect meanwhile: "server", "registrar", "network",
"name server", "lies". Others ("load") hurt no promise.
"""

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from ppe_agent.state import Drain

from rserpool import sentinel_handle
from rspdns_lab.chain.plan import HANDLE
from rspdns_lab.simulate.kernel import SimulatedProcess
from rspdns_lab.simulate.network import SimulatedHost
from rspdns_lab.simulate.parts import SimulatedRegistrar
from rspdns_lab.simulate.world import IDLE_LOAD, World

SETTLE_S: Final = 12.0
"""Before the first fault: registrars look for each other for 5 s, their sentinels wait for two renewals."""
LAST_S: Final = 20.0
"""After the last fault."""
LONGEST_S: Final = 20.0
LIES: Final = ("takeover", "steal", "ghosts")
"""Those of `lying_registrar` about which no promise is weaker without keys."""
STATE_FILES: Final = ("last-known-good.json", "serial", "serial.copy")

End = Callable[[], None]
Begin = Callable[[World, random.Random], tuple[str, End]]
"""Begins a fault; returns its words for the trace, and how to end it."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault."""

    name: str
    touches: str
    begin: Begin


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault of a scenario; `index` is its place in the whole plan."""

    index: int
    kind: FaultKind
    at_s: float
    ends_s: float

    def __str__(self) -> str:
        return f"{self.index}: {self.kind.name} at {self.at_s:.3f} s for {self.ends_s - self.at_s:.3f} s"


# Servers


def _server_killed(world: World, chance: random.Random) -> tuple[str, End]:
    server = chance.choice(world.servers)
    process = server.server.process
    process.kill()

    def end() -> None:
        if server.host.is_up and server.server.process is process:
            server.start_server()

    return server.host.name, end


def _frozen(process: SimulatedProcess, name: str) -> tuple[str, End]:
    process.freeze()
    return name, lambda: process.wake() if process.is_alive and process.is_frozen else None


def _server_frozen(world: World, chance: random.Random) -> tuple[str, End]:
    server = chance.choice(world.servers)
    return _frozen(server.server.process, server.host.name)


def _sidecar_killed(world: World, chance: random.Random) -> tuple[str, End]:
    server = chance.choice(world.servers)
    process = server.sidecar.process
    process.kill()

    def end() -> None:
        if server.host.is_up and server.sidecar.process is process:
            server.sidecar.start()

    return server.host.name, end


def _sidecar_frozen(world: World, chance: random.Random) -> tuple[str, End]:
    server = chance.choice(world.servers)
    return _frozen(server.sidecar.process, server.host.name)


def _server_power(world: World, chance: random.Random) -> tuple[str, End]:
    server = chance.choice(world.servers)
    server.host.power_off()

    def end() -> None:
        if not server.host.is_up:
            server.host.power_on()
            server.start_server()
            server.sidecar.start()

    return server.host.name, end


def _drained(world: World, chance: random.Random) -> tuple[str, End]:
    server = chance.choice(world.servers)
    if server.is_drained or not server.sidecar.can_be_told:
        return f"{server.host.name} (not)", lambda: None
    server.is_drained = True
    server.sidecar.drain(Drain("operator", "", world.kernel.wall_s(), None))

    def end() -> None:
        if server.sidecar.can_be_told:
            server.is_drained = False
            server.sidecar.drain(None)
        else:
            world.kernel.after(1.0, end)

    return server.host.name, end


def _load_changed(world: World, chance: random.Random) -> tuple[str, End]:
    server, load = chance.choice(world.servers), round(chance.random(), 3)
    server.set_load(load)
    return f"{server.host.name} {load}", lambda: server.set_load(IDLE_LOAD)


def _stranger(world: World, chance: random.Random) -> tuple[str, End]:
    numbers = range(1, len(world.registrars) + 1)
    handle = chance.choice((HANDLE, *map(sentinel_handle, numbers)))
    process = world.start_stranger(handle, chance.randrange(1, 1 << 32))
    return f"{world.stranger.name} in {handle}", process.kill


def _overridden(world: World, chance: random.Random) -> tuple[str, End]:
    """An administrator takes a server out at every name server, or lets it serve only when no other lives."""
    server, action = chance.choice(world.servers), chance.choice(("down", "drain"))
    address = server.host.address
    for name_server in world.name_servers:
        if name_server.backend is not None and name_server.process.is_responsive:
            name_server.override(action, address)

    def end() -> None:
        for name_server in world.name_servers:
            name_server.clear(address)

    return f"{server.host.name} {action}", end


# Registrars


def _registrar_killed(world: World, chance: random.Random) -> tuple[str, End]:
    registrar = chance.choice(world.registrars)
    registrar.process.kill()
    return registrar.host.name, lambda: None


def _registrar_frozen(world: World, chance: random.Random) -> tuple[str, End]:
    registrar = chance.choice(world.registrars)
    return _frozen(registrar.process, registrar.host.name)


def _registrar_power(world: World, chance: random.Random) -> tuple[str, End]:
    registrar = chance.choice(world.registrars)
    registrar.host.power_off()

    def end() -> None:
        if not registrar.host.is_up:
            registrar.host.power_on()
            registrar.boot()

    return registrar.host.name, end


def _server_and_home(world: World, chance: random.Random) -> tuple[str, End]:
    """A server's host and that of its home registrar lose their power together."""
    server = chance.choice(world.servers)
    registrar = world.home_of(server)
    if registrar is None or not (server.host.is_up and registrar.host.is_up):
        return f"{server.host.name} (not)", lambda: None
    server.host.power_off()
    registrar.host.power_off()

    def end() -> None:
        if not registrar.host.is_up:
            registrar.host.power_on()
            registrar.boot()
        if not server.host.is_up:
            server.host.power_on()
            server.start_server()
            server.sidecar.start()

    return f"{server.host.name} and {registrar.host.name}", end


def _registrars_lost(world: World, chance: random.Random) -> tuple[str, End]:
    """All registrars end at one moment, and start again at others."""
    for registrar in world.registrars:
        registrar.host.power_off()

    def boot(registrar: SimulatedRegistrar) -> None:
        if not registrar.host.is_up:
            registrar.host.power_on()
            registrar.boot()

    def end() -> None:
        for registrar in world.registrars:
            world.kernel.after(chance.choice((0.0, 0.5, 2.0)) * chance.random(), boot, registrar)

    return "all", end


def _clock_stepped(world: World, chance: random.Random) -> tuple[str, End]:
    registrar, step_s = chance.choice(world.registrars), chance.uniform(-3600, 3600)
    registrar.host.clock.step_s += step_s
    registrar.process.kill()  # the supervisor ends a registrar whose time of day was set
    return f"{registrar.host.name} by {step_s:.0f} s", lambda: None


def _liar(world: World, chance: random.Random) -> tuple[str, End]:
    """A registrar that lies takes the place of a true one."""
    registrar, kind = chance.choice(world.registrars), chance.choice(LIES)
    if not registrar.host.is_up or registrar.is_lying:
        return f"{registrar.host.name} (not)", lambda: None
    process = registrar.lie(kind, HANDLE)
    return f"{registrar.host.name} {kind}", lambda: registrar.end_lie(process)


# The network


def _ways(hosts: Sequence[SimulatedHost], sides: Sequence[int]) -> list[tuple[str, str]]:
    pairs = zip(hosts, sides, strict=True)
    return [(source.name, target.name) for (source, a), (target, b) in permutations(pairs, 2) if a != b]


def _cut(world: World, ways: list[tuple[str, str]], words: str) -> tuple[str, End]:
    world.network.cut(ways)
    return words, lambda: world.network.join(ways)


def _registrars_parted(world: World, chance: random.Random) -> tuple[str, End]:
    hosts = [registrar.host for registrar in world.registrars]
    sides = [chance.randrange(len(hosts)) for _ in hosts]
    return _cut(world, _ways(hosts, sides), f"registrars {sides}")


def _parted(world: World, chance: random.Random) -> tuple[str, End]:
    hosts = [host for host in world.network.hosts.values() if host is not world.stranger]
    share = chance.random()
    sides = [int(chance.random() < share) for _ in hosts]
    alone = [host.name for host, side in zip(hosts, sides, strict=True) if side]
    return _cut(world, _ways(hosts, sides), f"{' '.join(alone)} | the others")


def _cable(world: World, chance: random.Random) -> tuple[str, End]:
    host = chance.choice([registrar.host for registrar in world.registrars] + [s.host for s in world.servers])
    others = [other for other in world.network.hosts if other != host.name]
    return _cut(
        world, [way for other in others for way in ((host.name, other), (other, host.name))], host.name
    )


def _one_way(world: World, chance: random.Random) -> tuple[str, End]:
    source, target = chance.sample([*world.network.hosts], 2)
    return _cut(world, [(source, target)], f"{source} -> {target}")


def _lossy(world: World, chance: random.Random) -> tuple[str, End]:
    part = chance.choice((0.01, 0.05, 0.2))
    ways = list(permutations(world.network.hosts, 2))
    chosen = chance.sample(ways, max(1, int(len(ways) * chance.random())))
    for way in chosen:
        world.network.loss[way] = part
    return f"{part:.0%} on {len(chosen)} ways", lambda: _drop(world.network.loss, chosen)


def _late(world: World, chance: random.Random) -> tuple[str, End]:
    most_s = chance.choice((0.005, 0.02, 0.08))
    ways = list(permutations(world.network.hosts, 2))
    chosen = chance.sample(ways, max(1, int(len(ways) * chance.random())))
    for way in chosen:
        world.network.slowness_s[way] = most_s
    return f"up to {most_s * 1000:.0f} ms on {len(chosen)} ways", lambda: _drop(
        world.network.slowness_s, chosen
    )


def _drop(values: dict[tuple[str, str], float], ways: Collection[tuple[str, str]]) -> None:
    for way in ways:
        values.pop(way, None)


def _doubled(world: World, _: random.Random) -> tuple[str, End]:
    world.network.doubling = 0.2

    def end() -> None:
        world.network.doubling = 0.0

    return "a fifth of all packets", end


def _drifting(world: World, chance: random.Random) -> tuple[str, End]:
    host, rate = chance.choice([*world.network.hosts.values()]), 1 + chance.uniform(-0.01, 0.01)
    host.clock.drift(rate)
    return f"{host.name} {rate:.4f}", lambda: host.clock.drift(1.0)


def _slow(world: World, chance: random.Random) -> tuple[str, End]:
    name, turn_s = chance.choice(("sidecar", "backend", "registrar")), chance.choice((0.001, 0.005, 0.02))
    hosts = [host for host in world.network.hosts.values() if name in host.processes]
    host = chance.choice(hosts)
    process = host.processes[name]
    process.turn_s = turn_s

    def end() -> None:
        process.turn_s = 0.0

    return f"{process.name}, {turn_s * 1000:.0f} ms a turn", end


# Name servers


def _backend_killed(world: World, chance: random.Random) -> tuple[str, End]:
    name_server = chance.choice(world.name_servers)
    process = name_server.process
    process.kill()
    return (
        name_server.host.name,
        lambda: name_server.start_backend() if name_server.process is process else None,
    )


def _backend_frozen(world: World, chance: random.Random) -> tuple[str, End]:
    name_server = chance.choice(world.name_servers)
    return _frozen(name_server.process, name_server.host.name)


def _powerdns_killed(world: World, chance: random.Random) -> tuple[str, End]:
    name_server = chance.choice(world.name_servers)
    process = name_server.powerdns.process
    process.kill()

    def end() -> None:
        if name_server.powerdns.process is process:
            name_server.start_powerdns()

    return name_server.host.name, end


def _control_stuck(world: World, chance: random.Random) -> tuple[str, End]:
    model = chance.choice(world.name_servers).powerdns
    model.is_control_stuck = True

    def end() -> None:
        model.is_control_stuck = False

    return model.process.name, end


def _reloaded(world: World, chance: random.Random) -> tuple[str, End]:
    name_server = chance.choice(world.name_servers)
    name_server.reload()
    return name_server.host.name, lambda: None


def _state_torn(world: World, chance: random.Random) -> tuple[str, End]:
    """The disk loses a part of one file."""
    name_server = chance.choice(world.name_servers)
    process = name_server.process
    process.kill()
    torn = name_server.folder / "state" / chance.choice(STATE_FILES)
    data = torn.read_bytes() if torn.is_file() else b""
    if data:
        torn.write_bytes(data[: chance.randrange(len(data))])
    return (
        f"{name_server.host.name} {torn.name}",
        lambda: name_server.start_backend() if name_server.process is process else None,
    )


def _disk_full(world: World, chance: random.Random) -> tuple[str, End]:
    hosts = [each.host for each in world.name_servers] + [each.host for each in world.servers]
    host = chance.choice(hosts)
    host.is_disk_full = True

    def end() -> None:
        host.is_disk_full = False

    return host.name, end


KINDS: Final = tuple(
    FaultKind(name, touches, begin)
    for name, touches, begin in (
        ("server-killed", "server", _server_killed),
        ("server-frozen", "server", _server_frozen),
        ("server-power", "server", _server_power),
        ("sidecar-killed", "server", _sidecar_killed),
        ("sidecar-frozen", "server", _sidecar_frozen),
        ("drained", "server", _drained),
        ("load-changed", "load", _load_changed),
        ("overridden", "load", _overridden),
        ("stranger", "load", _stranger),
        ("registrar-killed", "registrar", _registrar_killed),
        ("registrar-frozen", "registrar", _registrar_frozen),
        ("registrar-power", "registrar", _registrar_power),
        ("server-and-home", "registrar", _server_and_home),
        ("registrars-lost", "registrar", _registrars_lost),
        ("clock-stepped", "registrar", _clock_stepped),
        ("registrar-lies", "lies", _liar),
        ("registrars-parted", "registrar", _registrars_parted),
        ("parted", "network", _parted),
        ("cable-pulled", "network", _cable),
        ("one-way", "network", _one_way),
        ("lossy", "network", _lossy),
        ("late", "network", _late),
        ("doubled", "load", _doubled),
        ("drifting", "load", _drifting),
        ("slow", "network", _slow),
        ("backend-killed", "name server", _backend_killed),
        ("backend-frozen", "name server", _backend_frozen),
        ("powerdns-killed", "name server", _powerdns_killed),
        ("control-stuck", "name server", _control_stuck),
        ("reloaded", "load", _reloaded),
        ("state-torn", "name server", _state_torn),
        ("disk-full", "load", _disk_full),
    )
)
BY_NAME: Final = {kind.name: kind for kind in KINDS}
DISTURBING: Final = frozenset({"registrar", "network", "name server", "lies"})
"""Faults that touch one of these widen the bounds of most promises."""
LONGEST_ECHO_S: Final = 15.0
"""After a disturbance the times of several faults at once count for so long."""


@dataclass(frozen=True, slots=True)
class Theme:
    """Faults of these kinds; none: the seed chooses. `alone`: those that disturb come one after the other, so
    far apart that each has the bounds of a fault that comes alone."""

    names: Sequence[str] = ()
    alone: bool = False


_REGISTRARS: Final = (
    "registrar-killed",
    "registrar-frozen",
    "registrar-power",
    "registrars-parted",
    "clock-stepped",
)
THEMES: Final = (
    Theme(("server-killed", "server-frozen", "server-power", "sidecar-killed", "drained", "load-changed")),
    Theme((*_REGISTRARS, "server-killed", "drained"), alone=True),
    Theme(("server-and-home",), alone=True),
    Theme(("registrars-lost", "server-killed", "server-power"), alone=True),
    Theme(("registrar-lies", "server-killed", "stranger"), alone=True),
    Theme(("backend-killed", "control-stuck", "state-torn", "server-killed", "load-changed", "reloaded")),
    Theme(("server-killed", "server-power", "overridden", "backend-killed", *_REGISTRARS)),
    Theme(),
)
"""Faults that belong together, for `mutants`: under each, other promises are looked at."""


def plan(
    seed: int, length_s: float, names: Collection[str] = (), *, alone: bool = False
) -> list[PlannedFault]:
    """Choose the faults of a scenario: of the kinds with these `names`, or of some that the seed chooses.
    `alone`: see `Theme`."""
    chance = random.Random(f"plan {seed}")  # noqa: S311 - a scenario, no secret
    chosen = [kind for kind in KINDS if kind.name in names]
    if not names:
        chosen = chance.sample(KINDS, chance.choice((1, 2, 3, 4, 6, 9)))
    pause_s = chance.choice((2.0, 5.0, 12.0))
    planned: list[PlannedFault] = []
    at_s = free_s = SETTLE_S
    while True:
        at_s += chance.expovariate(1 / pause_s)
        ends_s = at_s + min(LONGEST_S, chance.choice((0.2, 1.0, 4.0, 15.0)) * (0.5 + chance.random()))
        kind = chance.choice(chosen)
        if ends_s > length_s - LAST_S:
            return planned
        if alone and kind.touches in DISTURBING:
            if at_s < free_s:
                continue
            free_s = ends_s + LONGEST_ECHO_S
        planned.append(PlannedFault(len(planned), kind, at_s, ends_s))


def schedule(world: World, seed: int, faults: Sequence[PlannedFault]) -> None:
    """Have these faults come."""
    for fault in faults:
        world.kernel.at(fault.at_s, _begin, world, fault, seed)


def _begin(world: World, fault: PlannedFault, seed: int) -> None:
    chance = random.Random(f"fault {seed} {fault.index}")  # noqa: S311 - a scenario, no secret
    words, end = fault.kind.begin(world, chance)
    world.tell("", f"fault {fault.index} begins: {fault.kind.name} {words}")
    world.faults_changed(fault.kind.name, fault.kind.touches, 1)

    def over() -> None:
        end()
        world.tell("", f"fault {fault.index} ends: {fault.kind.name} {words}")
        world.faults_changed(fault.kind.name, fault.kind.touches, -1)

    world.kernel.at(fault.ends_s, over)
