"""The command `rspdns-lab uplink`: connection set-up, DNS and SCTP's INIT beside uploads that fill an uplink,
under the queues that kernels have."""

import asyncio
import contextlib
import itertools
import os
import platform
import socket
import struct
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import click
from daemon_kit.commands import example

from rspdns_lab.chain.lab import LabBase
from rspdns_lab.ending import say
from rspdns_lab.link import Discipline, Link, LinkSetting
from rspdns_lab.net.network import Host, call_in
from rspdns_lab.net.processes import Program
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.files import ReportFiles, report_options
from rspdns_lab.report.page import Columns, Page, Section, table_of
from rspdns_lab.report.plots import Dots
from rspdns_lab.report.trials import LabReport, run_lab

RATE_KBIT: Final = 2000
SHAPED_KBIT: Final = 1900
MODEM: Final = LinkSetting(RATE_KBIT * 1000, delay_ms=15, queue=150)
FIRST_KBIT: Final = 190
REST_KBIT: Final = SHAPED_KBIT - FIRST_KBIT
_HTB: Final = f"""
qdisc add dev eth0 root handle 1: htb default 20
class add dev eth0 parent 1: classid 1:1 htb rate {SHAPED_KBIT}kbit
class add dev eth0 parent 1:1 classid 1:10 htb rate {FIRST_KBIT}kbit ceil {2 * FIRST_KBIT}kbit prio 0
class add dev eth0 parent 1:1 classid 1:20 htb rate {REST_KBIT}kbit ceil {SHAPED_KBIT}kbit prio 1
filter add dev eth0 parent 1: protocol ip u32 match ip protocol 6 0xff match u8 0x02 0x02 at 33 flowid 1:10
filter add dev eth0 parent 1: protocol ip u32 match ip protocol 132 0xff match u8 0x01 0xff at 32 flowid 1:10
filter add dev eth0 parent 1: protocol ip u32 match ip protocol 132 0xff match ip dport 3863 0xffff \
flowid 1:10
filter add dev eth0 parent 1: protocol ip u32 match ip protocol 17 0xff match ip dport 53 0xffff flowid 1:10
"""
QUEUES: Final[Mapping[str, str]] = {
    "the modem's queue": "",
    "HTB, a class": _HTB + "qdisc add dev eth0 parent 1:20 pfifo limit 50",
    "HTB, a class; fq_codel": _HTB + "qdisc add dev eth0 parent 1:20 fq_codel",
    "fq_codel": f"""
qdisc add dev eth0 root handle 1: htb default 1
class add dev eth0 parent 1: classid 1:1 htb rate {SHAPED_KBIT}kbit
qdisc add dev eth0 parent 1:1 fq_codel""",
    "cake": f"qdisc add dev eth0 root cake bandwidth {SHAPED_KBIT}kbit",
    "REDFavor in the modem": "",
}
PROBES: Final = ("TCP connect", "DNS over UDP", "SCTP INIT", "ASAP over SCTP")
_UPLOADS: Final = 8
_EVERY_S, _PATIENCE_S, _WARM_UP_S = 0.1, 5.0, 3.0
_SINK, _DNS, _SCTP, _ASAP = 9000, 53, 132, 3863
_DATA, _INIT = 0, 1
_PACKET: Final = struct.Struct("!HHIIBBHIIHHI")
"""SCTP's header and a chunk: ports, tag, checksum, type, flags, length, the question's number, the rest."""
Delays = Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class UplinkTrial:
    """One queue: the delays of each probe in ms (None: no answer within 5 s), and the rate of the uploads.

    A run can be gone on with on another kernel, which has other queues.
    """

    queue: str
    kernel: str
    seconds: float
    upload_mbit: float
    delays: Delays = field(repr=False)
    load_average: float = 0.0

    def percentile_ms(self, probe: str, percent: int) -> float:
        """The time that so many of a probe's answers did not exceed."""
        return percentile((each for each in self.delays[probe] if each is not None), percent)


class UplinkLab(LabBase):
    """A branch behind a modem of 2 Mbit/s, whose queue holds 0.9 s, and a server; see LabBase.

    Uploads, probes and their other ends are in this process; sockets belong to the hosts that made them.
    """

    def __init__(self, queue: str) -> None:
        super().__init__()
        self._queue = queue
        self._links: list[Program] = []
        self._received = 0
        self._numbers = itertools.count()
        self._answers: dict[int, asyncio.Future[None]] = {}

    def build(self) -> None:
        """Make hosts, modem and the branch's queue. Raises CalledProcessError where tc refuses it."""
        self.branch = self.network.add_host("branch", "10.53.0.1")
        self.server = self.network.add_host("server", "10.53.0.2")
        modem = MODEM
        if self._queue == "REDFavor in the modem":
            modem = replace(MODEM, discipline=Discipline.RED_FAVOR, syn_share=0.1)
        down = LinkSetting(RATE_KBIT * 10_000, delay_ms=15)
        self._links.append(Link(self.network, self.branch, self.folder, modem, down).start())
        for command in QUEUES[self._queue].strip().splitlines():
            full = ["nsenter", f"--net={self.branch.path}", "--", "tc", *command.split()]
            subprocess.run(full, check=True, capture_output=True, text=True)

    def programs(self) -> Iterator[Program]:
        """Yield the link."""
        yield from self._links

    async def measure(self, seconds: float) -> tuple[Delays, float]:
        """Upload and ask; return the delays and the uploads' rate in Mbit/s."""
        loop = asyncio.get_running_loop()
        sink = self._socket(self.server, socket.SOCK_STREAM, 0, _SINK)
        server = await asyncio.start_server(self._swallow, sock=sink)
        uploads = [loop.create_task(self._connect(uploads=True)) for _ in range(_UPLOADS)]
        pairs = []
        for kind in ((socket.SOCK_DGRAM, 0, _DNS), (socket.SOCK_RAW, _SCTP, 0)):
            far, near = self._socket(self.server, *kind), self._socket(self.branch, *kind[:2], 0)
            loop.add_reader(far, self._echo, far)
            loop.add_reader(near, self._hear, near)
            pairs += [far, near]
        _, dns, _, sctp = pairs
        probes: Mapping[str, Callable[[], Awaitable[object]]] = {
            "TCP connect": self._connect,
            "DNS over UDP": lambda: self._ask(dns, 0, 0),
            "SCTP INIT": lambda: self._ask(sctp, _INIT, _SINK),
            "ASAP over SCTP": lambda: self._ask(sctp, _DATA, _ASAP),
        }
        await asyncio.sleep(_WARM_UP_S)
        delays: dict[str, list[float | None]] = {name: [] for name in probes}
        began_s, before = time.monotonic(), self._received
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < began_s + seconds:
                for name, probe in probes.items():
                    group.create_task(self._timed(delays[name], probe()))
                await asyncio.sleep(_EVERY_S)
        rate = (self._received - before) * 8 / 1e6 / (time.monotonic() - began_s)
        for upload in uploads:
            upload.cancel()
        await asyncio.gather(*uploads, return_exceptions=True)
        server.close()
        for sock in pairs:
            loop.remove_reader(sock)
            sock.close()
        return delays, rate

    def _socket(self, host: Host, kind: int, protocol: int, port: int) -> socket.socket:
        made: socket.socket = call_in(host.path, lambda: socket.socket(socket.AF_INET, kind, protocol))
        made.setblocking(False)
        made.bind((host.address, port))
        return made

    async def _timed(self, delays: list[float | None], probe: Awaitable[object]) -> None:
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await probe
        except (TimeoutError, OSError):
            delays.append(None)
        else:
            delays.append((time.monotonic() - began_s) * 1000)

    async def _connect(self, *, uploads: bool = False) -> None:
        loop = asyncio.get_running_loop()
        with self._socket(self.branch, socket.SOCK_STREAM, 0, 0) as sock:
            await loop.sock_connect(sock, (self.server.address, _SINK))
            while uploads:
                await loop.sock_sendall(sock, bytes(65536))

    async def _ask(self, sock: socket.socket, chunk: int, port: int) -> None:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        packet = _PACKET.pack(_SINK, port, 0, 0, chunk, 0, 20, number, 0, 0, 0, 0)
        sock.sendto(packet, (self.server.address, _DNS))
        await answer

    def _echo(self, sock: socket.socket) -> None:
        """Answer a packet with itself; for its checksum of 0, a kernel's own SCTP leaves it alone."""
        packet, sender = sock.recvfrom(2048)
        with contextlib.suppress(BlockingIOError):  # full: it is lost, as in a queue
            sock.sendto(packet[-_PACKET.size :], sender)

    def _hear(self, sock: socket.socket) -> None:
        answer = self._answers.pop(_PACKET.unpack(sock.recv(2048)[-_PACKET.size :])[7], None)
        if answer is not None and not answer.done():
            answer.set_result(None)

    async def _swallow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):  # at the end of the measurement
            while data := await reader.read(65536):
                self._received += len(data)
        writer.close()


@click.command(epilog=example("rspdns-lab uplink --quick"))
@click.option("--seconds", type=click.FloatRange(2, 3600), default=60, show_default=True, help="Measured.")
@click.option("--quick", is_flag=True, help="10 s of each queue only.")
@report_options
def uplink(seconds: float, quick: bool, report: ReportFiles) -> None:
    """Fill an uplink with uploads, and time connection set-up, DNS and SCTP's INIT under the kernel's queues.

    Queues that this kernel lacks are named and left out. Exit status: 0, or 2 if the lab can't run here.
    """
    seconds = 10.0 if quick else seconds

    def measure(earlier: Sequence[UplinkTrial]) -> Iterable[Sequence[UplinkTrial]]:
        kernel = _kernel()
        done = {trial.queue for trial in earlier if trial.kernel == kernel}
        for queue in (queue for queue in QUEUES if queue not in done):
            try:
                with UplinkLab(queue) as lab:
                    say(f"{queue}: {seconds:g} s")
                    delays, rate = asyncio.run(lab.measure(seconds))
            except subprocess.CalledProcessError as error:
                say(f"{queue}: not in this kernel ({error.stderr.strip()})")
                continue
            yield [UplinkTrial(queue, kernel, seconds, rate, delays, os.getloadavg()[0])]

    run_lab(report, REPORT, {"seconds": seconds}, measure)


def _kernel() -> str:
    """Return the version of this kernel, and whether it is a guest's."""
    is_guest = "User Mode Linux" in Path("/proc/cpuinfo").read_text()
    return platform.release().partition("-")[0] + (", UML" if is_guest else "")


_TEXT: Final = (
    f"{_UPLOADS} uploads fill a modem of {RATE_KBIT / 1000:g} Mbit/s, 30 ms from the server, whose queue "
    f"holds {MODEM.queue} packets. The queues of the table stand before it on the same host, at "
    f"{SHAPED_KBIT / 1000:g} Mbit/s; with *a class*, SYNs, SCTP's INIT, ASAP and DNS go first, up to a "
    "fifth of the rate. Each is asked for ten times a second. A time is the median, and in parentheses "
    "what 95 % do not exceed. *UML*: User-Mode Linux, far slower, with a load average of its own."
)


def _times(probe: str) -> Callable[[UplinkTrial], str]:
    return lambda trial: f"{trial.percentile_ms(probe, 50):,.0f} ({trial.percentile_ms(probe, 95):,.0f})"


_COLUMNS: Final[Columns[UplinkTrial]] = (
    *(("queue", "{queue}"), ("Linux", "{kernel}")),
    *((f"{probe}, ms", _times(probe)) for probe in PROBES),
    ("asked", lambda trial: f"{sum(map(len, trial.delays.values())):,}"),
    ("unanswered", lambda trial: f"{sum(of.count(None) for of in trial.delays.values()):,}"),
    *(("uploads Mbit/s", "{upload_mbit:.2f}"), ("load average", "{load_average:.1f}")),
)


def _delays(probe: str) -> Callable[[UplinkTrial], Sequence[float | None]]:
    return lambda trial: trial.delays[probe]


def page_of(found: Sequence[UplinkTrial]) -> Page:
    """Return the page."""
    plot = Dots.of(
        "A dot for each answer; few of those that are alike.",
        "ms",
        found,
        lambda trial: f"{trial.queue} ({trial.kernel})",
        {probe: _delays(probe) for probe in PROBES[:3]},
    )
    times = Section("Times", "", table_of(_COLUMNS, found), [plot])
    return Page("Connection set-up on a full uplink", _TEXT, [times])


REPORT: Final = LabReport(lambda fields: UplinkTrial(**fields), lambda _: {}, page_of)
