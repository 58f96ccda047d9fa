"""The IMS lab: for every approach an S-CSCF that asks its name server, and a caller that calls through it."""

from collections.abc import Iterator, Sequence
from typing import Final

from rspdns_lab.chain.side_by_side.lab import SideBySideLab
from rspdns_lab.ims.hosts import Caller, make_cscf
from rspdns_lab.net.processes import Program

APPROACHES: Final = ("static", "lua", "gdnsd", "rspdns")
"""How DNS is served; each has a name server, an S-CSCF that asks it, and a caller."""

CSCFS: Final = {approach: f"10.53.0.{71 + index}" for index, approach in enumerate(APPROACHES)}
CALLER: Final = ("caller", "10.53.0.81")
CALLER_PORTS: Final = {approach: 5071 + index for index, approach in enumerate(APPROACHES)}


class ImsLab(SideBySideLab):
    """A running IMS lab for some of the approaches; see SideBySideLab."""

    def __init__(self, approaches: Sequence[str] = APPROACHES) -> None:
        super().__init__(approaches, {})
        self.cscfs: dict[str, Program] = {}
        self.callers: dict[str, Caller] = {}

    @property
    def keys(self) -> Sequence[str]:
        """The compared approaches: each has an S-CSCF and a caller of its own."""
        return tuple(self.approach_keys)

    def start(self) -> None:
        """Start every part."""
        super().start()
        for cscf in self.cscfs.values():
            cscf.start()

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        for caller in self.callers.values():
            yield from caller.programs
        yield from self.cscfs.values()
        yield from super().programs()

    def build(self) -> None:
        """Make all hosts with their files."""
        super().build()
        caller = self.network.add_host(*CALLER)
        for index, (key, approach) in enumerate(self.approaches.items()):
            host = self.network.add_host(f"cscf{index}", CSCFS[key])
            self.cscfs[key] = make_cscf(host, approach.host.address, self.made(f"cscf-{key}"))
            self.callers[key] = Caller(caller, CSCFS[key], CALLER_PORTS[key], self.made(f"caller-{key}"))
