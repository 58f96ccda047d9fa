"""The processor time that each kind of message takes a real rspregistrar, on this machine.

Three registrars and their sentinels; simulated elements that answer keep-alives, then register again every
2 s; beside them the pool users of name servers. Four parts differ in one thing each: elements alone, with
name servers, with registrations, registrations without name servers.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from daemon_kit.control import ControlError, request
from registrar_config import KEEP_ALIVE, TIMERS_MS

from rspdns_lab.bench.registrars import RegistrarsSite, Watched
from rspdns_lab.bench.site import PATIENCE_S, site
from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.scale.figures import MessageCosts

_NAME_SERVERS: Final = "10.79.0.41"
_HANDLE: Final = "pool-0"
_SETTLED_S: Final = 3.0
_TOLD_US: Final = 3.0
"""Telling a name server is a difference of larger times, 0 to 3 us in six measurements: a registrar with more
to do wakes less often. At least this counts, so that no simulation is too kind."""


def measure_costs(
    prefix: str, folder: Path, name_servers: int, elements: int, seconds: float, say: Callable[[str], None]
) -> MessageCosts:
    """Measure; four parts of `seconds` each. Raises LabError."""
    with site(prefix, folder / "costs") as made:
        say(f"three registrars, {elements} elements: the time of a keep-alive")
        registrars = RegistrarsSite(made, elements, TIMERS_MS[KEEP_ALIVE])
        for number, host in enumerate(registrars.hosts, 1):
            made.sentinel(number, host)
        time.sleep(_SETTLED_S)
        alone = registrars.watch(seconds)
        say(f"{name_servers} name servers follow them")
        control = folder / "followers.sock"
        host = made.network.add_host("ns", _NAME_SERVERS)
        words = (_NAME_SERVERS, name_servers, _HANDLE, control, *(each.address for each in registrars.hosts))
        followers = made.python("followers", host, "rspdns_lab.scale.followers", *words)
        wait_until(control.exists, "the name servers", PATIENCE_S, followers)
        time.sleep(_SETTLED_S)
        followed = registrars.watch(seconds)
        made.tell("again")
        time.sleep(_SETTLED_S)
        both = registrars.watch(seconds)
        try:
            request(control, "leave", timeout_s=PATIENCE_S)
        except ControlError as problem:
            raise LabError(f"the name servers: {problem}") from None
        time.sleep(_SETTLED_S)
        return _costs(alone, followed, both, registrars.watch(seconds), name_servers, elements)


def _costs(
    alone: Watched, followed: Watched, both: Watched, registering: Watched, name_servers: int, elements: int
) -> MessageCosts:
    keep_alive_s = sum(alone.registrars_s) / max(1, alone.keep_alives)

    def busy(part: Watched) -> float:
        """All registrars' time each second, less that of keep-alives."""
        return (sum(part.registrars_s) - keep_alive_s * part.keep_alives) / part.took_s

    def each(part: Watched) -> float:
        """Registrations a second."""
        return max(1, part.registrations) / part.took_s

    count = len(alone.registrars_s)
    registration_s = busy(registering) / each(registering) / count
    told_s = busy(both) - busy(followed) - registration_s * count * each(both)
    return MessageCosts(
        keep_alive_us=round(1e6 * keep_alive_s, 1),
        registration_us=round(1e6 * registration_s, 1),
        update_us=round(max(_TOLD_US, 1e6 * told_s / each(both) / name_servers), 2),
        name_server_us=round(max(0.0, 1e6 * busy(followed) / count / name_servers), 1),
        name_servers=name_servers,
        elements=elements,
        sctp_percent=round(100 * max(both.sctp_s) / both.took_s, 1),
        load_average=round(os.getloadavg()[0], 1),
    )
