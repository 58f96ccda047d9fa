"""The gate in front of rspregistrar: how it is loaded, what it tells, and its rules file.

The gate is a C library (`registrar-config/gate/`) that stands before rspregistrar's system calls. It decides
which messages rspregistrar gets to read, by a rules file that `gate_rules` makes from an inventory.
`GateReport` takes in the lines that the gate writes. `Gate`, at the end, loads the library into rspregistrar
and reads these lines.
"""

import asyncio
import contextlib
import ctypes
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from daemon_kit.control import ControlServer
from daemon_kit.errors import FatalError
from structlog.typing import FilteringBoundLogger

from registrar_config.inventory import AgentEntry, ClientEntry, Inventory, PoolKindEntry
from rserpool import POLICY_KINDS, sentinel_handle

LIBRARY: Final = Path(__file__).with_name("lib") / "librspdns-gate.so"
NOT_BUILT: Final = f"the gate, {LIBRARY}, is not built: make -C registrar-config (Debian: libsctp-dev)"
WITHOUT_GATE: Final = (
    "rspregistrar believes every host that the packet filter lets through: each may take every pool, and "
    "each that speaks ENRP may delete every server"
)
MOST_TOLD: Final = 20
"""Log events about dropped messages in `TOLD_EVERY_S`; the totals in status and metrics are always whole."""
TOLD_EVERY_S: Final = 60.0
MOST_COUNTERS: Final = 4096
LOADED_WITHIN_S: Final = 5.0
LOOK_EVERY_S: Final = 1.0
_PROBLEM_BYTES: Final = 256
_SENTINELS: Final = 100
"""Registrations of a registrar's host in its sentinel's pool: each life has one, and some still count."""
_LETTERS: Final = frozenset(b"-_.:@+=/~!$&'();?[]{}|^<>\"`\\") | frozenset(
    letter for letter in range(128) if chr(letter).isalnum()
)


def gate_rules(inventory: Inventory, own: str) -> str:
    """Return the rules file of the registrar that the inventory names `own`."""
    return (
        f"# The hosts of registrar {own}, and what each may say.\n"
        "# Made from the inventory by `rspdns-registrar render`: change that, not this file.\n"
        f"# A running registrar reads it within a second, when it is whole.\n{rules_of(inventory)}"
    )


def rules_of(inventory: Inventory) -> str:
    """Return the rules themselves, to the last line."""
    lines = [f"life {inventory.longest_life_s}"]
    for position, (_, settings) in enumerate(inventory.registrars.items(), start=1):
        address = settings.asap.address
        lines.append(f"registrar {address}")
        lines.append(f"element {address} handles {sentinel_handle(position)} most {_SENTINELS}")
    for backend in inventory.followers:
        role = "follower" if backend.follow == "enrp" else "user"
        lines += [f"{role} {network}{_reports(backend)}" for network in backend.addresses]
    for agent in inventory.agent:
        lines += _of_agent(agent)
    lines += map(_of_pool, inventory.pool)
    return "".join(f"{line}\n" for line in (*dict.fromkeys(lines), "end"))


def _of_pool(pool: PoolKindEntry) -> str:
    policy = f" policy 0x{POLICY_KINDS[pool.policy].TYPE:08x}" if pool.policy else ""
    transport = f" transport {pool.transport}" if pool.transport else ""
    said = f"  # {pool.policy}" if pool.policy else ""
    return f"pool {_escaped(*pool.handles)}{policy}{transport}{said}"


def _of_agent(agent: AgentEntry) -> Iterator[str]:
    handles = _escaped(*agent.handles)
    addresses = ",".join(agent.addresses)
    for network in agent.addresses:
        yield (
            f"element {network} handles {handles} addresses {addresses} "
            f"most {agent.registrations}{_reports(agent)}"
        )


def _reports(client: ClientEntry) -> str:
    return f" reports {client.reports_per_s}" if client.reports_per_s else ""


def _escaped(*handles: str) -> str:
    """Return handles, or beginnings of handles with "*" behind them, as the rules file has them."""

    def escaped(handle: str) -> str:
        stem, star = (handle[:-1], "*") if handle.endswith("*") else (handle, "")
        return "".join(chr(byte) if byte in _LETTERS else f"%{byte:02X}" for byte in stem.encode()) + star

    return ",".join(map(escaped, handles))


def gate_is_built() -> bool:
    """Whether this installation has the gate: it needs a C compiler."""
    return LIBRARY.exists()


def check_rules(path: Path) -> None:
    """Raise FatalError when the gate would not take this rules file, or is not there."""
    if not gate_is_built():
        raise FatalError(NOT_BUILT)
    problem = ctypes.create_string_buffer(_PROBLEM_BYTES)
    if ctypes.CDLL(str(LIBRARY)).rspdns_gate_check(os.fsencode(path), problem) != 0:
        raise FatalError(f"{path}: {problem.value.decode(errors='replace')}")


class GateReport:
    """The gate's reports: its state, and how many messages it dropped, by reason and host."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self.pid: int | None = None
        """The process of rspregistrar into which the gate was loaded last."""
        self.rules = 0
        self.problem = ""
        """Why the newest rules file is not in force; empty when it is."""
        self._dropped: dict[tuple[str, str], int] = {}
        """Dropped by rspregistrar's present process."""
        self._before: dict[tuple[str, str], int] = {}
        """Dropped by its former processes."""
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}
        self._window_s = float("-inf")
        self._logged_in_window = 0

    @property
    def dropped(self) -> dict[tuple[str, str], int]:
        """How many messages were dropped, by reason and host ("::": hosts above the gate's bound)."""
        keys = dict.fromkeys((*self._before, *self._dropped))
        return {key: self._before.get(key, 0) + self._dropped.get(key, 0) for key in keys}

    def take(self, line: str, now: float) -> None:
        """Take in a line that the gate wrote. `now` is in s, of a monotonic clock."""
        match line.split(" ", 1):
            case ["ready", rest]:
                pid, rules = rest.split()
                self.pid, self.rules, self.problem = int(pid), int(rules), ""
                self._before, self._dropped = self.dropped, {}  # it counts from 0
                self._log.info("gate_loaded", rules=self.rules)
            case ["rules", rules]:
                self.rules, self.problem = int(rules), ""
                self._log.info("gate_rules_read", rules=self.rules)
            case ["wrong", problem]:
                self.problem = problem
                self._log.error("gate_rules_wrong", problem=problem, action="the rules of before hold")
            case ["dropped", rest]:
                reason, host, number = rest.split()
                self._count(reason, host, int(number), now)

    def _count(self, reason: str, host: str, number: int, now: float) -> None:
        if (reason, host) not in self._dropped and len(self._dropped) >= MOST_COUNTERS:
            return
        self._dropped[reason, host] = number
        total = self._before.get((reason, host), 0) + number
        logged_s, logged = self._logged.get((reason, host), (float("-inf"), 0))
        if now - self._window_s >= TOLD_EVERY_S:
            self._window_s, self._logged_in_window = now, 0
        if now - logged_s < TOLD_EVERY_S or self._logged_in_window >= MOST_TOLD:
            return
        self._logged_in_window += 1
        self._logged[reason, host] = (now, total)
        self._log.warning("gate_dropped", reason=reason, host=host, messages=total - logged, total=total)

    def status(self) -> dict[str, Any]:
        """Return all of it, for `rspdns-registrar status`."""
        return {
            "rules": self.rules,
            "problem": self.problem,
            "dropped": [
                {"reason": reason, "host": host, "messages": number}
                for (reason, host), number in sorted(self.dropped.items())
            ],
        }


class Gate:
    """Loads the gate into rspregistrar, and reads what it tells. `rules`: the rules file."""

    def __init__(self, rules: Path, log: FilteringBoundLogger) -> None:
        check_rules(rules)
        self._rules = rules.resolve()
        self.report = GateReport(log)
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._rest = b""
        self._pid: int | None = None
        self._due_s = float("inf")
        self._library = os.environ.get("RSPDNS_GATE_LIBRARY", str(LIBRARY))

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that rspregistrar inherits."""
        return (self._writer,)

    def environment(self) -> dict[str, str]:
        """Return the environment of rspregistrar. The gate stands before all other preloaded libraries."""
        preloaded = os.environ.get("LD_PRELOAD", "")
        return {
            **os.environ,
            "LD_PRELOAD": f"{self._library}:{preloaded}" if preloaded else self._library,
            "RSPDNS_GATE_RULES": str(self._rules),
            "RSPDNS_GATE_FD": str(self._writer),
        }

    def started(self, pid: int | None) -> None:
        """Take in that rspregistrar was started (again), as the process `pid`."""
        self._pid = pid
        self._due_s = time.monotonic() + LOADED_WITHIN_S

    async def run(self, stop: asyncio.Event) -> None:
        """Read what the gate tells until `stop` is set.

        Raises FatalError when rspregistrar runs without the gate: ld.so only warns of a library that it can't
        load.
        """
        loop = asyncio.get_running_loop()
        loop.add_reader(self._reader, self._read)
        try:
            while not stop.is_set():
                if self.report.pid != self._pid and time.monotonic() > self._due_s:
                    raise FatalError(f"rspregistrar runs without the gate; ld.so can't load {self._library}")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await stop.wait()
        finally:
            loop.remove_reader(self._reader)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            *lines, self._rest = (self._rest + os.read(self._reader, 65536)).split(b"\n")
            for line in lines:
                self.report.take(line.decode(errors="replace"), time.monotonic())


async def answer(socket: Path, gate: Gate | None, stop: asyncio.Event) -> None:
    """Answer the command `status` at the control socket until `stop` is set. Raises FatalError."""

    async def status(_request: dict[str, Any]) -> dict[str, Any]:
        return {"gate": gate.report.status() if gate else None}

    server = ControlServer(socket, {"status": status})
    await server.start()
    try:
        await stop.wait()
    finally:
        await server.close()


def in_words(status: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield lines that say what `GateReport.status` returned; None: there is no gate."""
    if status is None:
        yield f"gate: none: {WITHOUT_GATE}"
        return
    yield f"gate: {status['rules']} rules"
    if status["problem"]:
        yield f"gate: the rules file is wrong, those of before hold: {status['problem']}"
    for dropped in status["dropped"]:
        yield f"gate: {dropped['messages']:,} messages of {dropped['host']} dropped: {dropped['reason']}"


def exposition(number: int, status: Mapping[str, Any] | None) -> str:
    """Return what `GateReport.status` of registrar `number` returned as Prometheus's text."""
    stands = int(status is not None and not status["problem"])
    lines = [
        "# HELP rspdns_registrar_gate 1: the gate stands before rspregistrar, and its rules file is right.",
        "# TYPE rspdns_registrar_gate gauge",
        f'rspdns_registrar_gate{{registrar="{number}"}} {stands}',
        "# HELP rspdns_registrar_gate_dropped_total Messages that the gate kept from rspregistrar.",
        "# TYPE rspdns_registrar_gate_dropped_total counter",
    ]
    for drop in status["dropped"] if status else ():
        labels = f'registrar="{number}",reason="{drop["reason"]}",host="{drop["host"]}"'
        lines.append(f"rspdns_registrar_gate_dropped_total{{{labels}}} {drop['messages']}")
    return "".join(f"{line}\n" for line in lines)
