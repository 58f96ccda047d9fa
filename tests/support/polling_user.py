"""A pool user that only polls its registrars, as ppu-agents do, in a process of its own.

    python -m tests.support.polling_user PROBE HANDLE NETWORK KEY REGISTRAR...

PROBE is "sip-options", or "" for servers that no probe reaches. KEY is the key file of a keyed pool, else "".
It writes a line whenever the members change: monotonic seconds, and their ports.
"""

import asyncio
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

import uvloop
from pool_user import Belief, BeliefChange, Intervals, PoolProbing, PoolRules, PoolUser, ProbePlan, Prober

from rserpool import PoolKey, RegistrarAddress, read_pool_keys
from tests.support.namespaces import REPOSITORY, Namespace

HOT_EVERY_S = 10.0


@dataclass(frozen=True)
class Shown:
    """The ports of the members from `since_s` on (monotonic)."""

    since_s: float
    ports: frozenset[int]


class PollingUser:
    """Runs until the namespace is removed."""

    def __init__(
        self, namespace: Namespace, words: Sequence[str], log: Path, *, is_probed: bool = True
    ) -> None:
        """`words` are those of the program: handle, network, key file and registrars."""
        self.log = log
        self.process = namespace.start(
            *(sys.executable, "-m", "tests.support.polling_user", "sip-options" * is_probed, *words),
            sctp=True,
            log=log,
            environment={"PYTHONPATH": str(REPOSITORY)},
        )

    def shown(self) -> list[Shown]:
        """All changes so far."""
        lines = (self.log.read_text() if self.log.exists() else "").split("\n")[:-1]
        changes = (line.split()[1:] for line in lines if line.startswith("members "))
        return [Shown(float(at_s), frozenset(map(int, ports))) for at_s, *ports in changes]

    @property
    def ports(self) -> frozenset[int]:
        """The ports of the members now."""
        changes = self.shown()
        return changes[-1].ports if changes else frozenset()

    def gaps_s(self, port: int, began_s: float, ended_s: float) -> list[float]:
        """How long the port was missing each time between these two moments."""
        gaps_s: list[float] = []
        gone_s = None
        for change in [*self.shown(), Shown(ended_s, frozenset({port}))]:
            at_s = min(max(change.since_s, began_s), ended_s)
            if port not in change.ports:
                gone_s = at_s if gone_s is None else gone_s
            elif gone_s is not None:
                gaps_s.append(at_s - gone_s)
                gone_s = None
        return gaps_s

    def strangers(self, allowed: Collection[int], began_s: float) -> set[int]:
        """The other ports than these that it ever showed since then."""
        shown = [change.ports for change in self.shown() if change.since_s >= began_s]
        return set().union(*shown) - set(allowed)


async def main(probe: str, keys: Sequence[PoolKey], handle: str, network: str, *addresses: str) -> None:
    """Poll until killed."""
    belief = Belief(addresses, {handle: PoolRules(accept=(ip_network(network),), keys=keys)})

    def changed(change: BeliefChange) -> None:
        ports = (member.port for member in change.views[handle].members)
        print("members", time.monotonic(), *sorted(ports), flush=True)
        prober.changed()

    user = PoolUser(
        [RegistrarAddress.parse(address) for address in addresses],
        [handle],
        belief,
        changed,
        is_to_follow=False,
        intervals=Intervals(),
        timeout_ms=300,
        on_events=lambda events: None,
    )
    plans = {handle: PoolProbing(ProbePlan("sip-options"), handle)} if probe else {}
    prober = Prober(belief, plans, user.look)
    user.start()
    probing = asyncio.create_task(prober.run())
    while not probing.done():
        user.note_query(handle)
        await asyncio.sleep(HOT_EVERY_S)


if __name__ == "__main__":
    probe, handle, network, key, *addresses = sys.argv[1:]
    keys = read_pool_keys(Path(key).read_text()) if key else ()
    uvloop.run(main(probe, keys, handle, network, *addresses))
