"""The faults of sites: of two, with four application servers each, one is first. Judged by A answers."""

import time
from typing import Final

from rspdns_lab.chain.hosts import START_TIMEOUT_S, ApplicationServerHost, wait_until
from rspdns_lab.chain.plan import SITE_BACK_S
from rspdns_lab.chaos.faults.servers import hide, is_shown, show
from rspdns_lab.chaos.scene import ChaosFault, ChaosScene, Strike
from rspdns_lab.chaos.summary import Bounds
from rspdns_lab.errors import LabError

SITE_MEMBERS: Final = 8
_FLAPS: Final = 3
_NO_SWING_S: Final = 3.0
_OVERLOAD, _BETWEEN, _RELIEF = 0.9, 0.7, 0.2


def _servers(scene: ChaosScene, site: str) -> list[ApplicationServerHost]:
    addresses = scene.lab.setting.at_site[site]
    return [each for each in scene.lab.application_servers.values() if each.host.address in addresses]


def _first_is(scene: ChaosScene, site: str, at_s: float) -> Strike:
    """The strike of a fault after which this site is first."""
    first = frozenset(scene.lab.setting.at_site[site])
    return Strike(at_s, first, scene.lab.addresses - first, of_addresses=True)


def _kill(scene: ChaosScene, *servers: ApplicationServerHost) -> None:
    """Kill them, and wait until no name server shows one."""
    for server in servers:
        server.sip.kill()
    addresses = [server.host.address for server in servers]
    wait_until(
        lambda: not any(is_shown(scene.lab, address) for address in addresses),
        f"{', '.join(addresses)} to leave DNS",
        START_TIMEOUT_S,
    )


def _lose(scene: ChaosScene) -> Strike:
    """Kill three of the four; judged from the third on, since two are enough."""
    victims = scene.draw.sample(_servers(scene, "eu"), 3)
    _kill(scene, *victims[:2])
    if not scene.lab.is_first("eu"):
        raise LabError("two servers of a site are enough, and another site is first")
    scene.pause(1.0)  # the purges of the first two are repeated for 50 ms: a look-up meets them
    return _first_is(scene, "us", victims[2].sip.kill())


def _flap(scene: ChaosScene) -> Strike:
    """Kill three, start them, kill them again: judged from when the other site is first."""
    victims = scene.draw.sample(_servers(scene, "eu"), 3)
    _kill(scene, *victims)
    scene.lab.wait_until_first("us")
    at_s = time.monotonic()
    for _ in range(_FLAPS):
        for server in victims:
            server.start_sip()
        time.sleep(scene.draw.uniform(0.2, 0.5) * SITE_BACK_S)
        for server in victims:
            server.sip.kill()
        scene.pause(1.0)
    return _first_is(scene, "us", at_s)


def _start(scene: ChaosScene) -> None:
    for server in _servers(scene, "eu"):
        if not server.sip.is_running:
            server.start_sip()


def _overload(scene: ChaosScene) -> Strike:
    """Raise the load of a site, then lower it to where it neither spills nor ends that: both sites are told
    all the while. Judged from when the second is."""

    def spills() -> bool:
        return not scene.lab.is_first("eu")

    def set_loads(load: float) -> None:
        for server in _servers(scene, "eu"):
            server.set_load(load)

    set_loads(_OVERLOAD)
    wait_until(spills, "the second site to get a part of the calls", START_TIMEOUT_S)
    at_s = time.monotonic()
    set_loads(_BETWEEN)
    time.sleep(_NO_SWING_S)
    wait_until(spills, "the second site to keep its part: it swings", _NO_SWING_S)
    return Strike(at_s, scene.lab.addresses, of_addresses=True)


def _relieve(scene: ChaosScene) -> None:
    """Lower the load, and wait until the site no longer spills: `back_after_s` later."""
    for server in _servers(scene, "eu"):
        server.set_load(_RELIEF)
    scene.lab.wait_until_first("eu")


def _hide_site(scene: ChaosScene) -> Strike:
    return _first_is(scene, "eu", hide(scene, [server.host for server in _servers(scene, "eu")]))


SITE_FAULTS: Final = (
    ChaosFault(
        "site-lost",
        "SIGKILL to three of the four SIP servers of the first site; times from the third to the other site "
        "being first",
        _lose,
        Bounds(p50_ms=40, p99_ms=80),
        _start,
        enrp=Bounds(p50_ms=20, p99_ms=60),
        sizes=(SITE_MEMBERS,),
        sites=True,
    ),
    ChaosFault(
        "site-flaps",
        f"three of the four SIP servers of the first site killed and started {_FLAPS} times within seconds; "
        "from the first time on, the other site stays first",
        _flap,
        Bounds(max_ms=0, missing_ms=None),
        _start,
        sizes=(SITE_MEMBERS,),
        sites=True,
    ),
    ChaosFault(
        "site-overloaded",
        "the servers of the first site report a load of 0.9, then 0.7; both sites get calls all the while",
        _overload,
        Bounds(max_ms=0, missing_ms=None),
        _relieve,
        sizes=(SITE_MEMBERS,),
        sites=True,
    ),
    ChaosFault(
        "site-unreachable-from-name-servers",
        "the name servers hear nothing of the first site, which the registrars reach: no switch",
        _hide_site,
        Bounds(max_ms=0),
        show,
        watch_s=4,
        sizes=(SITE_MEMBERS,),
        sites=True,
    ),
)
