"""Cells with servers of their own and one handlespace above them: hosts, files, faults, measurements."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import dns.exception
import dns.message
import dns.query
import dns.rdatatype
from daemon_kit.control import ControlError, request

from rspdns_lab.cells.elements import identifier_of
from rspdns_lab.chain import texts
from rspdns_lab.chain.asking import Asker
from rspdns_lab.chain.hosts import NameServerHost, RegistrarHost, wait_until
from rspdns_lab.chain.lab import LabBase
from rspdns_lab.chain.plan import HANDLE, REREGISTRATION_MS, LabSetting
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, LabNetwork, call_in, network_prefix, processes_in
from rspdns_lab.net.preconditions import SctpRunner, check_programs, find_sctp
from rspdns_lab.net.processes import Program

ZONE: Final = "cells.example"
OWNER: Final = f"_sip._udp.as.{ZONE}"
UPPER: Final = 0
"""The number that the upper handlespace has among the cells, in addresses."""
KEEP_ALIVE_MS: Final = 3000
"""How often a cell's servers are asked whether they live: every 300 ms, all would take both processors."""
TTL_S: Final = 30
"""TTL in the cells: chance draws other members into an answer so rarely: none is taken for dead by it."""
PATIENCE_S: Final = 240.0
_PATIENT: Final = LabSetting(slow=10.0)
"""PowerDNS waits this much longer for its backend: sixty programs start on two processors."""
_BEAT_S: Final = 0.001
_WATCH_S: Final = 0.01
_RIGHT_AGAIN_S: Final = 5.0
_DRAWN_AGAIN_S: Final = 1.5
"""By then chance has drawn newcomers into an answer."""


@dataclass(frozen=True)
class CellServerDeath:
    """A server of a cell was killed, and came back. `gone_ms`: until the cell's name server gave SRV records
    without it; `back_ms`: until its name had its address again."""

    trial: int
    cell: str
    gone_ms: float
    back_ms: float
    load_average: float


@dataclass(frozen=True)
class CellLoss:
    """A whole cell was lost. `fault`: "killed", all its programs, or "silent", all its hosts cut off.
    `gone_ms`: until the upper name server named it no more; `others_lost`: answers meanwhile without one of
    the other cells; `back_ms`: from the start of its programs, or its network, until it was named again."""

    trial: int
    cell: str
    fault: str
    gone_ms: float
    others_lost: int
    back_ms: float
    load_average: float


@dataclass(frozen=True)
class UpperLoss:
    """All upper registrars were killed for `seconds`, then started again. `answers`: of the upper name server
    all the while; `wrong`: those that lacked a cell, or had none; `gone_ms`: as of a server's death, of one
    meanwhile."""

    trial: int
    seconds: float
    answers: int
    wrong: int
    gone_ms: float
    load_average: float


def address(number: int, last: int) -> str:
    """Return an address in a cell, or in the upper handlespace."""
    return f"10.60.{number}.{last}"


def registrars_of(number: int, count: int) -> list[str]:
    """Return the addresses of the registrars of a cell."""
    return [address(number, 11 + place) for place in range(count)]


def cell_zone_toml(number: int) -> str:
    """Return the live zone of a cell."""
    return f"""zone = "c{number}.{ZONE}"
static = "zone"
ttl = {TTL_S}

[[pool]]
handle = "{HANDLE}"
label = "u"
service = "_sip._udp"
name = "as"
accept = ["10.60.{number}.0/24"]
when_empty = "nodata"
"""


def upper_zone_toml(numbers: Sequence[int]) -> str:
    """Return the upper live zone."""
    cells = {address(number, 31): f"as.c{number}.{ZONE}" for number in numbers}
    table = ", ".join(f"{json.dumps(gateway)} = {json.dumps(name)}" for gateway, name in cells.items())
    return f"""zone = "{ZONE}"
static = "zone"

[[pool]]
handle = "{HANDLE}"
label = "u"
service = "_sip._udp"
name = "as"
accept = {json.dumps(list(cells))}
cells = {{ {table} }}
when_empty = "nodata"
slow_start_s = 0
"""


def master_file(number: int, cells: Sequence[int] = ()) -> str:
    """Return the fixed records of a cell's zone, or of the upper one, which delegates the `cells`."""
    name = ZONE if number == UPPER else f"c{number}.{ZONE}"
    lines = [f"$ORIGIN {name}.", "$TTL 3600", "@ SOA ns hostmaster 1 3600 600 604800 1", "@ NS ns"]
    lines.append(f"ns A {address(number, 21)}")
    for cell in cells:
        lines += [f"c{cell} NS ns.c{cell}", f"ns.c{cell} A {address(cell, 21)}"]
    return "\n".join(lines) + "\n"


def gateway_toml(number: int, registrars: int, upper: int, folder: Path) -> str:
    """Return the configuration of a cell's gateway."""
    return f"""registrars = {json.dumps(registrars_of(number, registrars))}
upper_registrars = {json.dumps(registrars_of(UPPER, upper))}
address = "{address(number, 31)}"
reregistration_ms = {REREGISTRATION_MS}

[control]
path = "{folder}/gateway.sock"

[[pool]]
handle = "{HANDLE}"
accept = ["10.60.{number}.0/24"]
"""


class LabHandlespace:
    """Registrars and a name server; the upper one has nothing else."""

    def __init__(self, lab: CellsLab, number: int, registrars: int, zone: str, master: str) -> None:
        self.number, self.name = number, f"c{number}" if number != UPPER else "up"
        self._network, sctp = lab.network, lab.sctp
        self.hosts: list[Host] = []
        self.registrars: list[RegistrarHost] = []
        addresses = registrars_of(number, registrars)
        for place, own in enumerate(addresses, 1):
            host = self._host(f"r{place}", own)
            folder = lab.made(host.name)
            registrar = RegistrarHost(host, place, [each for each in addresses if each != own], folder, sctp)
            if number != UPPER:
                registrar.program.command.append(f"--keep-alive-ms={KEEP_ALIVE_MS}")
            self.registrars.append(registrar)
        host, folder = self._host("ns", address(number, 21)), lab.made(f"{self.name}-ns")
        self.name_server = NameServerHost(host, addresses, [host.address], folder, sctp, _PATIENT)
        for file in (folder / "zones.d").iterdir():
            file.unlink()
        (folder / "zones.d" / "zone.toml").write_text(zone)
        (folder / "zones.d" / "zone").write_text(master)
        (folder / "rspdns.toml").write_text(texts.backend_toml(addresses, folder))

    def _host(self, name: str, own: str) -> Host:
        host = self._network.add_host(f"{self.name}{name}", own)
        self.hosts.append(host)
        return host

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        yield from self.name_server.programs
        for registrar in self.registrars:
            yield from registrar.programs

    def start(self) -> None:
        """Start everything. Raises LabError."""
        for _ in self.starting():
            pass

    def starting(self) -> Iterator[None]:
        """Start the registrars, then the name server, a step at a time. Raises LabError."""
        for registrar in self.registrars:
            registrar.start()
        yield
        for registrar in self.registrars:
            registrar.wait(PATIENCE_S)
        self.name_server.start()
        yield
        self.name_server.wait(PATIENCE_S)

    def is_settled(self) -> bool:
        """Whether the name server believes all its registrars."""
        return set(self.name_server.registrar_standings()) == {"settled"}


class CellSite(LabHandlespace):
    """A cell: beside registrars and a name server its servers and its gateway."""

    def __init__(self, lab: CellsLab, number: int, registrars: int, servers: int, upper: int) -> None:
        super().__init__(lab, number, registrars, cell_zone_toml(number), master_file(number))
        self.servers = servers
        host, folder = self._host("pes", address(number, 41)), lab.made(f"{self.name}-pes")
        self._control = folder / "elements.sock"
        command = [sys.executable, "-m", "rspdns_lab.cells.elements", host.address, str(servers)]
        command += [str(self._control), *registrars_of(number, registrars)]
        self._elements = _program("elements", host, command, folder, lab.sctp)
        host, folder = self._host("gw", address(number, 31)), lab.made(f"{self.name}-gw")
        (folder / "gateway.toml").write_text(gateway_toml(number, registrars, upper, folder))
        command = [sys.executable, "-m", "rspdns.cli", "gateway", "run", "-c", str(folder / "gateway.toml")]
        self.gateway = _program("gateway", host, [*command, "--log-json"], folder, lab.sctp)
        self.asker: Asker = call_in(lab.client.path, lambda: Asker(address(number, 21)))

    @property
    def zone(self) -> str:
        """The name of its zone."""
        return f"{self.name}.{ZONE}"

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        yield from (self.gateway, self._elements)
        yield from super().programs()

    def starting(self) -> Iterator[None]:
        """Then start the servers and the gateway, until all servers are registered. Raises LabError."""
        yield from super().starting()
        self._control.unlink(missing_ok=True)
        self._elements.start()
        self.gateway.start()
        yield
        wait_until(self._control.exists, f"{self.name}'s servers", PATIENCE_S, self._elements, self.gateway)

    def target(self, index: int) -> str:
        """Return the name whose address a server is."""
        return f"{identifier_of(index):08x}.u.as.{self.zone}"

    @property
    def shown(self) -> list[int]:
        """The servers in an SRV answer of its name server."""
        targets = self.asker.targets(f"_sip._udp.as.{self.zone}")
        return [index for index in range(self.servers) if self.target(index) in targets]

    def tell(self, command: str, index: int) -> float:
        """Have a server die or live; return the time just before. Raises LabError."""
        try:
            return float(request(self._control, command, timeout_s=PATIENCE_S, index=index)["at_s"])
        except ControlError as problem:
            raise LabError(f"{self.name}'s servers: {problem}") from None

    def kill(self) -> float:
        """Kill everything at once; return the time just before."""
        programs = list(self.programs())
        with ThreadPoolExecutor(len(programs)) as threads:
            return min(threads.map(Program.kill, programs))

    def cut(self) -> float:
        """Cut all hosts off, the gateway's first: it has no time to tell; return the time just before."""
        at_s = time.monotonic()
        for host in reversed(self.hosts):
            self._network.cut(host)
        return at_s

    def restore(self) -> float:
        """End `cut`; return the time just before."""
        at_s = time.monotonic()
        for host in self.hosts:
            self._network.restore(host)
        return at_s


def _program(name: str, host: Host, command: Sequence[str], folder: Path, sctp: SctpRunner) -> Program:
    return Program(name, host, sctp.command(command), folder / f"{name}.log", sctp.environment)


class CellsLab(LabBase):
    """The running lab; see LabBase."""

    def __init__(self, cells: int, servers: int, registrars: int, *, is_first: bool = False) -> None:
        check_programs()
        super().__init__()
        self._is_first = is_first
        self.network = LabNetwork(network_prefix(), 16)
        self.sctp = find_sctp()
        self._numbers = list(range(1, cells + 1))
        self._servers, self._registrars = servers, registrars
        self.upper: LabHandlespace | None = None
        self.cells: list[CellSite] = []

    def build(self) -> None:
        """Make all hosts with their files."""
        self.client = self.network.add_host("client", address(UPPER, 61))
        master = master_file(UPPER, self._numbers)
        self.upper = LabHandlespace(self, UPPER, 3, upper_zone_toml(self._numbers), master)
        self.asker: Asker = call_in(self.client.path, lambda: Asker(address(UPPER, 21)))
        for number in self._numbers:
            self.cells.append(CellSite(self, number, self._registrars, self._servers, 3))

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        for space in (*self.cells, *([self.upper] if self.upper is not None else [])):
            yield from space.programs()

    def start(self) -> None:
        """Start every part, and wait until the upper name server has all cells. Raises LabError."""
        for _ in zip_longest(*(space.starting() for space in self.spaces)):
            pass
        for space in self.spaces:
            wait_until(space.is_settled, f"{space.name}'s registrars settled", PATIENCE_S, *space.programs())
        wait_until(lambda: self.shown() == self.names, "all cells in the upper answers", PATIENCE_S)
        self.come_first()

    def come_first(self) -> None:
        """Have what runs now come before the machine's other work, if that is wanted: a start never does."""
        if not self._is_first:
            return
        for host in self.network.hosts.values():
            for pid in processes_in(host.path):
                for task in Path(f"/proc/{pid}/task").glob("*"):
                    _come_first(int(task.name))
        _come_first(0)

    @property
    def spaces(self) -> list[LabHandlespace]:
        """The upper handlespace, then the cells."""
        assert self.upper is not None  # noqa: S101 - `build` made it
        return [self.upper, *self.cells]

    @property
    def names(self) -> frozenset[str]:
        """The names of all cells."""
        return frozenset(f"as.{cell.zone}" for cell in self.cells)

    def shown(self) -> frozenset[str]:
        """The cells in an answer of the upper name server."""
        return self.asker.targets(OWNER)

    def found_by_naptr(self) -> dict[str, set[str]]:
        """Follow the upper NAPTR records as a resolver does; return the servers' addresses by SRV owner."""
        found: dict[str, set[str]] = call_in(self.client.path, lambda: _resolved(address(UPPER, 21)))
        return found


def _come_first(task: int) -> None:
    """Before all ordinary work; what the task starts is ordinary again."""
    with contextlib.suppress(ProcessLookupError):
        os.sched_setscheduler(task, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def _resolved(upper: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for naptr in _records(upper, f"as.{ZONE}", dns.rdatatype.NAPTR):
        owner = str(naptr.replacement)
        referral = dns.query.udp(dns.message.make_query(owner, "SRV"), upper, timeout=2.0)
        glue = [each for rrset in referral.additional for each in rrset if each.rdtype == dns.rdatatype.A]
        if referral.answer or not glue:
            raise LabError(f"{upper} delegates nothing at {owner}")
        server = str(glue[0].address)
        targets = [str(srv.target) for srv in _records(server, owner, dns.rdatatype.SRV)]
        found[owner] = {
            str(each.address) for name in targets for each in _records(server, name, dns.rdatatype.A)
        }
    return found


def _records(server: str, name: str, kind: dns.rdatatype.RdataType) -> list[Any]:
    try:
        reply = dns.query.udp(dns.message.make_query(name, kind), server, timeout=2.0)
    except (OSError, dns.exception.DNSException) as problem:
        raise LabError(f"{server}: {problem}") from None
    return [each for rrset in reply.answer for each in rrset if each.rdtype == kind]


class _UpperWatch:
    """Asks the upper name server all the time, in a thread; counts answers that lack one of `needed`."""

    def __init__(self, lab: CellsLab, needed: frozenset[str]) -> None:
        self.answers = self.wrong = 0
        self._needed = needed
        self._ended = threading.Event()
        self._asker: Asker = call_in(lab.client.path, lambda: Asker(address(UPPER, 21)))
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()
        self._asker.close()

    def _look(self) -> None:
        while not self._ended.wait(_WATCH_S):
            self.wrong += not self._asker.targets(OWNER) >= self._needed
            self.answers += 1


def run_death(lab: CellsLab, trial: int) -> CellServerDeath:
    """Kill a server of one of the cells, then let it live. Raises LabError."""
    cell = lab.cells[trial % len(lab.cells)]
    gone_ms, back_ms = _die_and_live(cell)
    return CellServerDeath(trial, cell.name, gone_ms, back_ms, _load())


def run_loss(lab: CellsLab, trial: int, fault: str) -> CellLoss:
    """Kill a whole cell, or cut it off; then have it back. Raises LabError."""
    cell = lab.cells[(trial - 1) % len(lab.cells)]
    name = f"as.{cell.zone}"
    wait_until(lambda: lab.shown() == lab.names, "all cells in the upper answers", PATIENCE_S)
    watch = _UpperWatch(lab, lab.names - {name})
    lost_s = cell.kill() if fault == "killed" else cell.cut()
    gone_ms = _until(lambda: name not in lab.shown(), lost_s, f"{name} out of the upper answers")
    if fault == "killed":
        began_s = time.monotonic()
        cell.start()
        lab.come_first()
    else:
        began_s = cell.restore()
    back_ms = _until(lambda: name in lab.shown(), began_s, f"{name} in the upper answers", _WATCH_S)
    watch.close()
    return CellLoss(trial, cell.name, fault, gone_ms, watch.wrong, back_ms, _load())


def run_upper_loss(lab: CellsLab, trial: int, seconds: float) -> UpperLoss:
    """Kill all upper registrars, and a server of a cell meanwhile; start them again. Raises LabError."""
    upper, cell = lab.spaces[0], lab.cells[0]
    wait_until(lambda: lab.shown() == lab.names, "all cells in the upper answers", PATIENCE_S)
    watch, began_s = _UpperWatch(lab, lab.names), time.monotonic()
    with ThreadPoolExecutor(len(upper.registrars)) as threads:
        list(threads.map(lambda registrar: registrar.program.kill(), upper.registrars))
    time.sleep(seconds / 2)
    gone_ms, _ = _die_and_live(cell)
    time.sleep(max(0.0, began_s + seconds - time.monotonic()))
    for registrar in upper.registrars:
        registrar.start()
    wait_until(upper.is_settled, "upper registrars settled", PATIENCE_S, *upper.programs())
    lab.come_first()
    time.sleep(_RIGHT_AGAIN_S)
    watch.close()
    return UpperLoss(trial, seconds, watch.answers, watch.wrong, gone_ms, _load())


def _die_and_live(cell: CellSite) -> tuple[float, float]:
    time.sleep(_DRAWN_AGAIN_S)
    wait_until(lambda: cell.shown, f"servers of {cell.name}", PATIENCE_S)
    index = cell.shown[0]
    gone_ms = _time(cell, "die", index, lambda: index not in cell.shown)
    # Addresses of a server that left are answered for a second more: clients may have its SRV record.
    wait_until(lambda: not cell.asker.finds(cell.target(index)), f"{cell.target(index)} gone", PATIENCE_S)
    return gone_ms, _time(cell, "live", index, lambda: cell.asker.finds(cell.target(index)))


def _time(cell: CellSite, command: str, index: int, is_right: Callable[[], bool]) -> float:
    at_s = cell.tell(command, index)
    return _until(is_right, at_s, f"{cell.target(index)} after {command}")


def _until(is_right: Callable[[], bool], since_s: float, what: str, beat_s: float = _BEAT_S) -> float:
    """Return after how many ms it was right. Raises LabError."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_right():
        if time.monotonic() > end_s:
            raise LabError(f"{what}: DNS does not follow")
        time.sleep(beat_s)
    return round(1000 * (time.monotonic() - since_s), 1)


def _load() -> float:
    return round(os.getloadavg()[0], 1)
