"""An emulated link in place of a host's cable: rate, delay, loss and a queue with a discipline, both ways.

    with LabNetwork(network_prefix()) as network:
        host = network.add_host("phone", "10.53.0.5")
        uplink = LinkSetting(rate_bps=1.5e6, delay_ms=17.5, loss=0.02, queue=50)
        with Link(network, host, folder, uplink) as link:   # the same in both directions
            from_host, to_host = link.counters()

All that the host exchanges with others passes the link; its address stays. The program (`link.c`) forwards
frames between two TAP devices beside the lab's switch. The queue is chosen by `Discipline` (`queue.h`).
"""

import struct
from contextlib import suppress
from dataclasses import astuple, dataclass
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, LabNetwork
from rspdns_lab.net.preconditions import compile_c
from rspdns_lab.net.processes import Program

SOURCE: Final = Path(__file__).with_name("link.c")
_READY_WITHIN_S: Final = 10.0


class Discipline(IntEnum):
    """The way in which a queue chooses what to drop: `enum discipline` in `queue.h`."""

    DROP_TAIL = 0
    RED = 1
    CHOKE = 2
    RED_FAVOR = 3


@dataclass(frozen=True)
class LinkSetting:
    """One direction of a link; `struct setting` in `queue.h` explains each. RED's defaults are those of ns-2.

    `rate_bps` counts IP packets without their Ethernet header; 0: unlimited. `loss`: a share, 0 to 1, lost
    behind the queue. `queue`: packets that wait, without the one that is sent.
    """

    rate_bps: float = 0.0
    delay_ms: float = 0.0
    loss: float = 0.0
    queue: int = 1000
    discipline: Discipline = Discipline.DROP_TAIL
    min: float = 5.0
    max: float = 15.0
    weight: float = 0.002
    max_p: float = 0.1
    gentle: bool = True
    wait: bool = True
    mean_packet: float = 500.0
    syn_share: float = 1.0

    @property
    def numbers(self) -> str:
        """The fields in their order, for the program."""
        return ",".join(repr(float(number)) for number in astuple(self))


class DirectionCounters(NamedTuple):
    """The counters of one direction: `struct counters` in `link.c`. `matched`: dropped by CHOKe; `displaced`:
    by REDFavor for a SYN; `late`: delivered more than 1 ms after its time, since this machine is too busy;
    `length`: that of the queue now."""

    arrived: int
    delivered: int
    delivered_bytes: int
    lost: int
    full: int
    early: int
    matched: int
    displaced: int
    syns: int
    syns_dropped: int
    length: int
    late: int

    @property
    def dropped(self) -> int:
        """Packets that the queue dropped, for whatever reason."""
        return self.full + self.early + self.matched + self.displaced


_COUNTERS: Final = struct.Struct(f"={len(DirectionCounters._fields)}Q")


def build_link(made: Path) -> Path:
    """Compile the program to `made`, and return that. Raises LabError."""
    return compile_c(SOURCE, made, "-std=gnu11", libraries=["-lm"])


class Link:
    """A link between `host` and the switch. A context manager; leaving it gives the host its cable back.

    `from_host` is the direction from the host to the others, `to_host` the other one (default: the same).
    `program`: the program, if it was built before. The same `seed` loses the same packets. Raises LabError.
    """

    def __init__(
        self,
        network: LabNetwork,
        host: Host,
        folder: Path,
        from_host: LinkSetting,
        to_host: LinkSetting | None = None,
        *,
        seed: int = 1,
        program: Path | None = None,
    ) -> None:
        self._network, self._host = network, host
        self._near, self._far = f"{host.port[:12]}-h", f"{host.port[:12]}-s"
        self._file = folder / f"link-{host.name}.counters"
        command = [str(program or build_link(folder / f"link-{host.name}")), self._near, self._far]
        command += [str(self._file), str(seed), from_host.numbers, (to_host or from_host).numbers]
        self.program = Program("link", network.switch, command, folder / f"link-{host.name}.log")

    def __enter__(self) -> "Link":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def start(self) -> Program:
        """Begin, for good: until the network ends. Return the program. Raises LabError."""
        self._file.unlink(missing_ok=True)
        self.program.log.write_bytes(b"")
        self.program.start()
        log = self.program.log
        wait_until(lambda: "ready" in log.read_text(), "a link", _READY_WITHIN_S, self.program)
        self._network.lead_through(self._host, self._near, self._far)
        return self.program

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the link; safe to repeat."""
        self.program.stop()
        with suppress(LabError, OSError):  # the network may be gone before
            self._network.lead_directly(self._host)

    def counters(self) -> tuple[DirectionCounters, DirectionCounters]:
        """Return the counters from and to the host. Raises LabError when the link has ended."""
        self.program.expect_running()
        from_host, to_host = _COUNTERS.iter_unpack(self._file.read_bytes())
        return DirectionCounters(*from_host), DirectionCounters(*to_host)
