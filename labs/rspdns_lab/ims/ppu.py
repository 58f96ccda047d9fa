"""`rspdns-lab ims --ppu`: the same calls and faults, with ppu-agent beside the S-CSCF and without it."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from daemon_kit.control import ControlError, request

from rspdns_lab.chain.hosts import START_TIMEOUT_S, wait_until
from rspdns_lab.chain.plan import APPLICATION_SERVERS, HANDLE, NAME, NETWORK, REGISTRARS, SIP_PORT, TCP_HANDLE
from rspdns_lab.chain.side_by_side.lab import SideBySideLab
from rspdns_lab.ims.calls import CallTrial
from rspdns_lab.ims.faults import FAULTS, VICTIM
from rspdns_lab.ims.hosts import Caller, make_cscf
from rspdns_lab.ims.lab import CALLER, ImsLab
from rspdns_lab.net.network import Host
from rspdns_lab.net.preconditions import SctpRunner
from rspdns_lab.net.processes import Program
from rspdns_lab.report.page import Page, Section, table_of
from rspdns_lab.report.plots import Dots

WITHOUT: Final = "without"
STEER: Final = "steer"
VIA_SCTP: Final = "via-sctp"
KAMAILIO: Final = "kamailio"
SIPP: Final = "sipp"
FRONTS: Final = {"udp": "10.53.0.201", "tcp": "10.53.0.202"}
"""Addresses that no host has."""
DEFAULTS: Final = {"udp": "redirect", "tcp": "refuse"}
"""The value of `on_dead` without the key."""
LATE_MS: Final = 2000.0
PROMISED_MS: Final = {"udp": LATE_MS, "tcp": 4000.0}
"""The latest set-up by transport. Over TCP the request's connection must end first: after 2 s of silence."""
_INTRO: Final = (
    "Callers place calls through S-CSCF stand-ins (Kamailio) that all ask one rspdns name server; an "
    "application server fails. Beside each S-CSCF but the first of a transport runs ppu-agent, "
    "with another on_dead, or one address for the pool (steer, via-sctp). Some callers have no S-CSCF: "
    "SIPp asks no name server, and knows one address. All ways with an agent promise that no call fails and "
    "none is set up later than 2 s, over TCP 4 s. "
    "A call that rang at a server when that died is counted apart (rang): the "
    "servers ring for 1 ms, and RFC 3261 has a client repeat nothing after a provisional response."
)


@dataclass(frozen=True)
class ClientWay:
    """How one client reaches the servers: over this transport, with this of its ppu-agent.

    `approach`: an `on_dead`, or "steer" (one address for the pool) or "via-sctp" (that, embedded in SCTP);
    these two have the default `on_dead`, over TCP "repeat". `client`: Kamailio as S-CSCF, or SIPp, which has
    neither DNS nor a second server. `verify`: the agent probes every member.
    """

    approach: str
    transport: str
    client: str = KAMAILIO
    verify: bool = False

    @property
    def key(self) -> str:
        """Its name in the lab."""
        parts = [self.approach, self.transport]
        parts += [self.client] if self.client != KAMAILIO else []
        return "-".join([*parts, "verify"] if self.verify else parts)

    @property
    def has_front(self) -> bool:
        """Whether the client is given one address for the pool."""
        return self.approach in (STEER, VIA_SCTP)

    @property
    def called(self) -> str:
        """The caller's target: a name for DNS, the pool's front, or, for want of both, one server."""
        if self.has_front:
            return FRONTS[self.transport]
        return NAME if self.client == KAMAILIO else APPLICATION_SERVERS[VICTIM]


WAYS: Final = (
    ClientWay(WITHOUT, "udp"),
    ClientWay("redirect", "udp"),
    ClientWay("refuse", "udp"),
    ClientWay(WITHOUT, "tcp"),
    ClientWay("refuse", "tcp"),
    ClientWay("redirect", "tcp"),
    ClientWay("repeat", "tcp"),
    ClientWay(STEER, "udp"),
    ClientWay(STEER, "tcp"),
    ClientWay(VIA_SCTP, "udp"),
    ClientWay(VIA_SCTP, "tcp"),
    ClientWay("redirect", "udp", SIPP),
    ClientWay(STEER, "udp", SIPP),
    ClientWay("repeat", "tcp", SIPP),
)
PROMISED: Final = frozenset(way.key for way in WAYS if way.approach != WITHOUT)
"""These ways keep the promise: no call is set up later than PROMISED_MS, none fails."""


@dataclass(frozen=True)
class WayRow:
    """The result of one fault under one way: all calls of the trials, those under way at the fault, too.

    `rang` are calls without an answer that had rung at the server that died; they don't count as `failed`.
    """

    approach: str
    fault: str
    transport: str
    client: str
    calls: int
    failed: int
    over_2_s: int
    p50_ms: float
    max_ms: float
    rang: int = 0


def agent_toml(way: ClientWay, folder: Path) -> str:
    """ppu-agent.toml of a way: as the how-to pages have it, and nothing more that makes it faster."""
    more = "verify = true\n" if way.verify else ""
    if way.has_front:
        more += 'on_dead = { tcp = "repeat" }\n'
    elif way.approach != DEFAULTS[way.transport]:
        more += f'on_dead = {{ {way.transport} = "{way.approach}" }}\n'
    if way.approach == VIA_SCTP:
        more += 'via = "sctp"\n'
    pools = ""
    for transport, handle in (("udp", HANDLE), ("tcp", TCP_HANDLE)):
        pools += f'[[pool]]\nhandle = "{handle}"\naccept = ["{NETWORK}"]\nports = [{SIP_PORT}]\n{more}'
        pools += f'steer = "{FRONTS[transport]}:{SIP_PORT}"\n' if way.has_front else ""
    registrars = json.dumps(list(REGISTRARS.values()))
    tables = f'[control]\npath = "{folder}/ppu.sock"\n[state]\npath = "{folder}"\n'
    return f"registrars = {registrars}\n{tables}{pools}"


class ClientAgent:
    """ppu-agent beside an S-CSCF."""

    def __init__(self, host: Host, way: ClientWay, folder: Path, sctp: SctpRunner) -> None:
        self.control = folder / "ppu.sock"
        config = folder / "ppu-agent.toml"
        config.write_text(agent_toml(way, folder))
        command = [sys.executable, "-m", "ppu_agent.cli", "run", "-c", str(config), "--log-json"]
        self.program = Program(
            "ppu-agent", host, sctp.command(command), folder / "ppu-agent.log", sctp.environment
        )

    def sees_all(self) -> bool:
        """Whether every server is alive for it, over UDP and TCP, and it does nothing to their packets."""
        try:
            status = request(self.control, "status")
        except ControlError:
            return False
        alive = [len(pool["members"]) for pool in status["pool"]]
        treated = {destination["endpoint"].rpartition(":")[0] for destination in status["treated"]}
        return alive == [len(APPLICATION_SERVERS)] * 2 and not treated & set(APPLICATION_SERVERS.values())


class PpuLab(ImsLab):
    """One rspdns name server; for each way an S-CSCF that asks it, its agent, and a caller."""

    def __init__(self, ways: Sequence[ClientWay]) -> None:
        SideBySideLab.__init__(self, ("rspdns",), {}, tcp=True)
        self.cscfs = {}
        self.callers = {}
        self.agents: dict[str, ClientAgent] = {}
        self._ways = ways

    @property
    def keys(self) -> Sequence[str]:
        """The keys of the compared ways."""
        return tuple(way.key for way in self._ways)

    def start(self) -> None:
        """Start every part."""
        for agent in self.agents.values():
            agent.program.start()
        super().start()

    def program_beside(self, host: Host, name: str, command: Sequence[str]) -> Program:
        """Return a program with SCTP on one of the hosts, not started yet."""
        return Program(
            name, host, self._sctp.command(command), self.folder / f"{name}.log", self._sctp.environment
        )

    def wait_until_all_are_named(self) -> None:
        """Wait until DNS names every server, and every agent knows it."""
        super().wait_until_all_are_named()
        for key, agent in self.agents.items():
            wait_until(agent.sees_all, f"the agent of {key} sees all servers", START_TIMEOUT_S, agent.program)

    def _names_all(self, key: str) -> bool:
        """A SIPp may end with its TCP connections, seconds after it is reached again: it is started anew."""
        for server in self.servers.values():
            server.start_ended()
        return super()._names_all(key)

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        for agent in self.agents.values():
            yield agent.program
        yield from super().programs()

    def build(self) -> None:
        """Make all hosts with their files."""
        SideBySideLab.build(self)
        caller = self.network.add_host(*CALLER)
        name_server = self.approaches["rspdns"].host.address
        for number, way in enumerate(self._ways):
            host = self.network.add_host(f"cscf{number}", f"10.53.0.{100 + number}")
            folder, port = self.made(f"caller-{way.key}"), 5071 + number
            if way.client == SIPP:
                self.callers[way.key] = Caller(
                    host, way.called, port, folder, way.transport, name=way.called, is_direct=True
                )
            else:
                cscf = self.made(f"cscf-{way.key}")
                self.cscfs[way.key] = make_cscf(host, name_server, cscf, tcp=way.transport == "tcp")
                self.callers[way.key] = Caller(
                    caller, host.address, port, folder, way.transport, name=way.called
                )
            if way.approach != WITHOUT:
                self.agents[way.key] = ClientAgent(host, way, self.made(f"ppu-{way.key}"), self._sctp)


def rows(trials: Sequence[CallTrial]) -> list[WayRow]:
    """Sum up, by fault and way, in their order. Pure."""
    found = []
    for fault in (each.name for each in FAULTS):
        for way in WAYS:
            of_way = [trial for trial in trials if (trial.fault, trial.approach) == (fault, way.key)]
            calls = [delay_ms for trial in of_way for _, delay_ms, _ in trial.calls]
            answered = sorted(delay_ms for delay_ms in calls if delay_ms is not None)
            if calls:
                late = sum(delay_ms > LATE_MS for delay_ms in answered)
                middle = answered[len(answered) // 2] if answered else 0.0
                latest = answered[-1] if answered else 0.0
                rang = sum(trial.rang for trial in of_way)
                failed = len(calls) - len(answered) - rang
                found.append(
                    WayRow(
                        way.approach,
                        fault,
                        way.transport,
                        way.client,
                        len(calls),
                        failed,
                        late,
                        middle,
                        latest,
                        rang,
                    )
                )
    return found


def problems(trials: Sequence[CallTrial]) -> list[str]:
    """The broken promises, in words."""
    return [
        f"{row.fault}, {row.approach} over {row.transport} ({row.client}): "
        f"{row.failed} calls failed, {row.over_2_s} took more than 2 s, the latest {row.max_ms:.0f} ms"
        for row in rows(trials)
        if ClientWay(row.approach, row.transport, row.client).key in PROMISED
        and (row.failed or row.max_ms > PROMISED_MS[row.transport])
    ]


def figures(trials: Sequence[CallTrial]) -> dict[str, object]:
    """The figures for programs."""
    return {"rows": [asdict(row) for row in rows(trials)]}


def page_of(trials: Sequence[CallTrial]) -> Page:
    """The table as a page."""
    return Page(
        "IMS calls with ppu-agent beside the S-CSCF, and without",
        _INTRO,
        [
            Section(
                f"{fault.name}: {fault.title}",
                "",
                table_of(_COLUMNS, of),
                [_plot([trial for trial in trials if trial.fault == fault.name])],
            )
            for fault in FAULTS
            if (of := [row for row in rows(trials) if row.fault == fault.name])
        ],
    )


def _plot(trials: Sequence[CallTrial]) -> Dots:
    titles = {way.key: f"{way.approach}, {way.transport}, {way.client}" for way in WAYS}
    return Dots.of(
        "A dot for each call that was set up; few of those that are alike.",
        "ms",
        sorted(trials, key=lambda trial: list(titles).index(trial.approach)),
        lambda trial: titles[trial.approach],
        {"calls": lambda trial: [delay_ms for _, delay_ms, _ in trial.calls]},
        never="failed or rang",
    )


_COLUMNS: Final = (
    ("ppu-agent, transport, client", "{approach}, {transport}, {client}"),
    *(("calls", "{calls}"), ("failed", "{failed}"), ("rang", "{rang}"), ("over 2 s", "{over_2_s}")),
    *(("p50 ms", "{p50_ms:,.0f}"), ("max ms", "{max_ms:,.0f}")),
)
