"""`rspdns-lab chaos --ppu`: faults of ppu-agent and of servers that its client sends to.

The agent's treatment of packets to a living server must end after the first kind, and begin after the other
kind.

The lab is that of `ims --ppu`, with one client's host and its agent. There a prober asks every server all the
time, by UDP datagrams and by new TCP connections, at the server's own address. The answer says which server
gave it. A probe is *right* when the server that it was sent to has answered. To each server one more TCP
connection stays up: it must not end while its server lives.
"""

from __future__ import annotations

import contextlib
import functools
import random
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from daemon_kit.control import ControlError, request
from daemon_kit.sip import ResponseStream, new_request, parse_response

from rspdns_lab.chain.hosts import START_TIMEOUT_S, RegistrarHost, wait_until
from rspdns_lab.chain.plan import APPLICATION_SERVERS, HANDLE, SIP_PORT, TCP_HANDLE
from rspdns_lab.ims.ppu import ClientWay, PpuLab
from rspdns_lab.net.network import Host, call_in, lose_no_packets, lose_packets
from rspdns_lab.net.processes import Program
from rspdns_lab.report.page import Columns, Page, Section, table_of
from rspdns_lab.report.plots import Dots
from rspdns_lab.report.trials import LabReport

VICTIM: Final = "as1"
OTHER: Final = "as2"
_EVERY_S: Final = 0.005
_CONNECT_EVERY_S: Final = 0.05
_ANSWER_TIMEOUT_S: Final = 1.0
_WATCH_S: Final = 5.0
_SETTLED_S: Final = 1.0
_PUT_AGAIN_S: Final = 3.0
_INVENTED: Final = "10.53.0.99"
"""The address at which a lying registrar places the victim; no host has it."""
WAY: Final = ClientWay("repeat", "tcp")
"""Over UDP redirected, over TCP relayed: all that the agent can do to a packet."""
VERIFYING: Final = replace(WAY, verify=True)
REFUSING: Final = ClientWay("refuse", "tcp")
"""Connections are not relayed: they end with a server that counts as dead."""
_TALK_EVERY_S: Final = 0.2
_GLITCHES: Final = 4
_BETWEEN_GLITCHES_S: Final = 1.0
_LOSS_PERCENT: Final = 30.0
_LOSS_S: Final = 8.0


@dataclass(frozen=True)
class Asked:
    """One probe: when it was sent (monotonic, s), to whom, and who answered; empty: nobody did."""

    at_s: float
    server: str
    transport: str
    answered_by: str = ""

    def is_right(self, *, is_dead: bool = False) -> bool:
        """Whether the server that was asked has answered; of a dead one, whether another one has."""
        return self.answered_by not in ("", self.server) if is_dead else self.answered_by == self.server


class ServerProber:
    """Asks every server from a client's host, in two threads; a context manager."""

    def __init__(self, host: Host) -> None:
        self.asked: list[Asked] = []
        self.ended: list[str] = []
        """The server of each connection that ended, though nobody here closed it."""
        self._host = host
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=call_in, args=(host.path, part), daemon=True)
            for part in (
                self._ask_by_udp,
                *(functools.partial(self._ask_by_tcp, name) for name in APPLICATION_SERVERS),
                *(functools.partial(self._stay_connected, name) for name in APPLICATION_SERVERS),
            )
        ]

    def __enter__(self) -> ServerProber:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask_by_udp(self) -> None:
        with contextlib.ExitStack() as cleanup:
            selector = cleanup.enter_context(selectors.DefaultSelector())
            sockets = {}
            for name, address in APPLICATION_SERVERS.items():
                made = cleanup.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                made.setblocking(False)
                made.bind((self._host.address, 0))
                selector.register(made, selectors.EVENT_READ, name)
                sockets[name] = (made, address)
            under_way: dict[str, Asked] = {}
            next_s = time.monotonic()
            while not self._stop.is_set():
                now = time.monotonic()
                if now >= next_s:
                    next_s = now + _EVERY_S
                    for name, (made, address) in sockets.items():
                        question = new_request((address, SIP_PORT), made.getsockname(), sender="chaos")
                        under_way[question.call_id] = Asked(now, name, "udp")
                        with contextlib.suppress(OSError):  # refused: nobody answers
                            made.sendto(question.encode(), (address, SIP_PORT))
                    self._forget(under_way, now)
                for key, _ in selector.select(max(0.0, next_s - time.monotonic())):
                    self._take(key.fileobj, under_way)

    def _take(self, listening: Any, under_way: dict[str, Asked]) -> None:
        with contextlib.suppress(OSError):
            while True:
                answer = parse_response(listening.recv(4096))
                asked = under_way.pop(answer.call_id, None) if answer is not None else None
                if asked is not None and answer is not None:
                    by = answer.headers.get("server", "")
                    self.asked.append(Asked(asked.at_s, asked.server, asked.transport, by))

    def _forget(self, under_way: dict[str, Asked], now: float) -> None:
        for call_id, probe in list(under_way.items()):
            if now - probe.at_s < _ANSWER_TIMEOUT_S:
                return  # they stand in the order in which they were asked
            self.asked.append(under_way.pop(call_id))

    def _ask_by_tcp(self, name: str) -> None:
        address = APPLICATION_SERVERS[name]
        while not self._stop.wait(_CONNECT_EVERY_S):
            now = time.monotonic()
            by = ""
            with contextlib.suppress(OSError), socket.create_connection((address, SIP_PORT), 1.0) as made:
                here = made.getsockname()
                question = new_request((address, SIP_PORT), here, sender="chaos", transport="TCP")
                made.sendall(question.encode())
                answers = ResponseStream()
                while not by and (data := made.recv(4096)):
                    by = next((response.headers.get("server", "?") for response in answers.feed(data)), "")
            self.asked.append(Asked(now, name, "tcp", by))

    def _stay_connected(self, name: str) -> None:
        """Have one connection up, and ask in it again and again. A connection that ends is made anew."""
        address = APPLICATION_SERVERS[name]
        while not self._stop.wait(_CONNECT_EVERY_S):
            with contextlib.suppress(OSError), socket.create_connection((address, SIP_PORT), 1.0) as made:
                made.settimeout(_TALK_EVERY_S)
                self._talk(name, made)

    def _talk(self, name: str, made: socket.socket) -> None:
        here = made.getsockname()
        while not self._stop.is_set():
            question = new_request(
                (APPLICATION_SERVERS[name], SIP_PORT), here, sender="chaos", transport="TCP"
            )
            try:
                made.sendall(question.encode())
                is_up = bool(made.recv(4096))
                self._stop.wait(_TALK_EVERY_S)
            except TimeoutError:
                continue  # the server is silent; the connection is up
            except OSError:
                is_up = False
            if not is_up:
                self.ended.append(name)
                return


@dataclass(frozen=True)
class PpuTrial:
    """One trial: from the moment that counts until the last wrong probe, in ms.

    `ended`: connections to servers that lived all the time which ended.
    """

    fault: str
    trial: int
    wrong_udp_ms: float
    wrong_tcp_ms: float
    probes: int
    ended: int = 0
    problem: str = ""

    def __str__(self) -> str:
        wrong = f"{self.wrong_udp_ms:,.0f} ms by UDP, {self.wrong_tcp_ms:,.0f} ms by TCP"
        words = f"{self.fault}: wrong for {wrong}, {self.probes} probes, {self.ended} connections ended"
        return f"{words}; {self.problem}" if self.problem else words


def wrong_for_ms(
    asked: Sequence[Asked], server: str, transport: str, since_s: float, *, is_dead: bool = False
) -> float:
    """How long after `since_s` a probe to `server` was still wrong; 0.0: never. Pure."""
    to_server = [probe for probe in asked if (probe.server, probe.transport) == (server, transport)]
    wrong = [probe.at_s for probe in to_server if not probe.is_right(is_dead=is_dead)]
    return round(max((at_s - since_s for at_s in wrong if at_s >= since_s), default=0.0) * 1000, 1)


class PpuScene:
    """A lab in which all live, an agent that sees it, and a prober."""

    def __init__(self, lab: PpuLab, way: ClientWay, prober: ServerProber, draw: random.Random) -> None:
        self.lab = lab
        self.agent = lab.agents[way.key]
        self.server = lab.servers[VICTIM]
        self._prober = prober
        self._draw = draw
        self._lying: tuple[RegistrarHost, Program] | None = None

    def kill_server(self) -> None:
        """Kill the victim, and wait until what is sent to it reaches others."""
        self.server.kill()
        wait_until(
            lambda: self.is_moved("udp") and self.is_moved("tcp"), f"{VICTIM} to be left", START_TIMEOUT_S
        )
        time.sleep(self._draw.uniform(0, 1.0))

    def start_server(self) -> float:
        """Start the victim again; return when it answered whoever asks it directly (monotonic, s)."""
        self.server.start_sip()
        address = APPLICATION_SERVERS[VICTIM]
        other_host = self.lab.servers[OTHER].host
        wait_until(
            lambda: call_in(other_host.path, lambda: _answers(address)),
            f"{VICTIM} to answer",
            START_TIMEOUT_S,
        )
        return time.monotonic()

    def status(self) -> dict[str, Any]:
        """The agent's status; empty when it gives none."""
        with contextlib.suppress(ControlError):
            return request(self.agent.control, "status")
        return {}

    def start_liar(self) -> None:
        """Have another program take the place of the victim's home registrar, and deny the victim to all.

        Returns when the agent believes it, as an invented member shows. That the victim left, it may believe
        until the victim's sidecar has found another registrar.
        """
        home = self.server.registrar()
        number, registrar = next(
            (number, registrar)
            for number, registrar in enumerate(self.lab.registrars, start=1)
            if registrar.host.address == home or number == len(self.lab.registrars)
        )
        honest = next(other.host.address for other in self.lab.registrars if other is not registrar)
        registrar.program.kill()
        words = [registrar.host.address, str(number), honest]
        words += [APPLICATION_SERVERS[VICTIM], _INVENTED, HANDLE, TCP_HANDLE]
        program = [sys.executable, "-m", "rspdns_lab.chain.lying_registrar", "deny"]
        liar = self.lab.program_beside(registrar.host, "liar", [*program, *words])
        self._lying = (registrar, liar)
        liar.start()
        wait_until(
            lambda: _is_member(self.status(), f"{_INVENTED}:{SIP_PORT}"),
            "the agent to believe the lying registrar",
            START_TIMEOUT_S,
            liar,
        )

    def stop_liar(self) -> None:
        """The registrar is itself again."""
        if self._lying is not None:
            registrar, liar = self._lying
            liar.kill()
            registrar.program.start()

    def flush_rules(self) -> None:
        """Somebody removes every rule of the client's host that he may remove."""
        for table in ("ppu_agent", "ppu_agent_relay"):
            command = [
                "ip",
                "netns",
                "exec",
                self.agent.program.host.namespace,
                "nft",
                "delete",
                "table",
                "inet",
                table,
            ]
            subprocess.run(command, capture_output=True, check=False)

    def is_moved(self, transport: str, since_s: float = 0.0) -> bool:
        """Whether another server answers what is sent to the victim."""
        probes = (probe for probe in reversed(self._prober.asked) if probe.server == VICTIM)
        last = next((probe for probe in probes if probe.transport == transport), None)
        return last is not None and last.at_s >= since_s and last.answered_by not in ("", VICTIM)


def _answers(address: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.connect((address, SIP_PORT))
        made.settimeout(0.2)
        question = new_request((address, SIP_PORT), made.getsockname(), sender="chaos")
        with contextlib.suppress(OSError):
            made.send(question.encode())
            return parse_response(made.recv(4096)) is not None
    return False


@dataclass(frozen=True)
class PpuFault:
    """A fault. `strike` does it, and returns since when all probes to `servers` should be right, in seconds.

    `bound_ms`: the time after that in which they may still be wrong. `is_dead`: they died, and others should
    answer. `way`: whose client's host it is. `unharmed`: the servers that live all the time.
    `ends_relayed`: the agent relays connections and dies itself, which ends them.
    """

    name: str
    what: str
    strike: Callable[[PpuScene], float]
    bound_ms: float
    servers: tuple[str, ...] = (VICTIM, OTHER)
    undo: Callable[[PpuScene], None] = field(default=lambda scene: None)
    is_dead: bool = False
    way: ClientWay = WAY
    unharmed: tuple[str, ...] = tuple(name for name in APPLICATION_SERVERS if name != VICTIM)
    ends_relayed: bool = False


def _hang_server(scene: PpuScene) -> float:
    at_s = time.monotonic()
    scene.server.hang()
    return at_s


def _wake_server(scene: PpuScene) -> None:
    scene.server.wake()


def _cut_server(scene: PpuScene) -> float:
    at_s = time.monotonic()
    scene.lab.network.cut(scene.server.host)
    return at_s


def _restore_server(scene: PpuScene) -> None:
    scene.lab.network.restore(scene.server.host)


def _cable_out(for_s: float, times: int) -> Callable[[PpuScene], float]:
    """The victim's cable is out for a moment, that many times. Judged from when it is in again."""

    def strike(scene: PpuScene) -> float:
        for number in range(times):
            if number:
                time.sleep(_BETWEEN_GLITCHES_S)
            scene.lab.network.cut(scene.server.host)
            time.sleep(for_s)
            scene.lab.network.restore(scene.server.host)
        return time.monotonic()

    return strike


def _lose(scene: PpuScene) -> float:
    """The victim's host loses packets for some time. Judged from when it loses none."""
    lose_packets(scene.server.host, _LOSS_PERCENT)
    time.sleep(_LOSS_S)
    lose_no_packets(scene.server.host)
    return time.monotonic()


def _glitching(name: str, what: str, strike: Callable[[PpuScene], float]) -> tuple[PpuFault, ...]:
    """A server lives, and is not reached for a moment: by a host that refuses, and one that relays."""
    ways = {"": REFUSING, "-verify": replace(REFUSING, verify=True), "-relayed-verify": VERIFYING}
    return tuple(
        PpuFault(
            f"ppu-{name}{suffix}",
            f"{what}; {'with' if way.verify else 'without'} `verify`",
            strike,
            3000,
            way=way,
            unharmed=tuple(APPLICATION_SERVERS),
        )
        for suffix, way in ways.items()
    )


def _dying(name: str, what: str, strike: Callable[[PpuScene], float], **more: Any) -> tuple[PpuFault, ...]:
    """A server dies in silence. With `verify` within the bound of the name servers; without, the agent's own
    probe of 300 ms comes after what the registrars took."""
    died: dict[str, Any] = {"servers": (VICTIM,), "is_dead": True, **more}
    return (
        PpuFault(f"ppu-{name}", what, strike, 1500, **died),
        PpuFault(
            f"ppu-{name}-verify", f"{what}, in a pool with `verify`", strike, 1000, way=VERIFYING, **died
        ),
    )


def _kill_agent(scene: PpuScene) -> float:
    scene.kill_server()
    scene.agent.program.kill()
    return scene.start_server()


def _freeze_agent(scene: PpuScene) -> float:
    scene.kill_server()
    scene.agent.program.freeze()
    return scene.start_server()


def _start_agent(scene: PpuScene) -> None:
    if scene.agent.program.is_running:
        scene.agent.program.kill()
    scene.agent.program.start()


def _kill_registrars(scene: PpuScene) -> float:
    scene.kill_server()
    for registrar in scene.lab.registrars:
        registrar.program.kill()
    return scene.start_server()


def _start_registrars(scene: PpuScene) -> None:
    for registrar in scene.lab.registrars:
        registrar.program.start()


def _take_out(scene: PpuScene) -> float:
    """The registrars say that a server which lives has left."""
    at_s = time.monotonic()
    scene.server.drain(drained=True)
    return at_s


def _lie(scene: PpuScene) -> float:
    at_s = time.monotonic()
    scene.start_liar()
    return at_s


def _put_in(scene: PpuScene) -> None:
    scene.server.drain(drained=False)


def _come_back(scene: PpuScene) -> float:
    """Judged from when the agent knows it as a member again."""
    scene.kill_server()
    scene.start_server()
    endpoint = f"{APPLICATION_SERVERS[VICTIM]}:{SIP_PORT}"
    wait_until(
        lambda: _is_member(scene.status(), endpoint), f"{VICTIM} to be a member again", START_TIMEOUT_S
    )
    return time.monotonic()


def _is_member(status: dict[str, Any], endpoint: str) -> bool:
    return bool(status) and all(
        any(endpoint in member["endpoints"] for member in pool["members"]) for pool in status["pool"]
    )


def _remove_rules(scene: PpuScene) -> float:
    """The agent puts them again, and takes them back when the server lives. Raises LabError."""
    scene.kill_server()
    at_s = time.monotonic()
    scene.flush_rules()
    wait_until(lambda: scene.is_moved("udp", at_s), "the rules to be put again", _PUT_AGAIN_S)
    return scene.start_server()


PPU_FAULTS: Final[tuple[PpuFault, ...]] = (
    PpuFault(
        "ppu-killed",
        "SIGKILL to ppu-agent while it redirects; the server comes back",
        _kill_agent,
        3000,
        ends_relayed=True,
        undo=_start_agent,
    ),
    PpuFault(
        "ppu-frozen",
        "SIGSTOP to ppu-agent while it redirects; the server comes back",
        _freeze_agent,
        3000,
        ends_relayed=True,
        undo=_start_agent,
    ),
    PpuFault(
        "ppu-registrars-gone",
        "all registrars killed while it redirects; the server comes back",
        _kill_registrars,
        3000,
        undo=_start_registrars,
    ),
    PpuFault(
        "ppu-member-out",
        "a server that lives is drained",
        _take_out,
        0,
        undo=_put_in,
        unharmed=tuple(APPLICATION_SERVERS),
    ),
    PpuFault(
        "ppu-registrar-lies",
        "a registrar says that a server which lives has left, and that it is somewhere else",
        _lie,
        0,
        undo=PpuScene.stop_liar,
        unharmed=tuple(APPLICATION_SERVERS),
    ),
    PpuFault("ppu-member-back", "a dead member comes back; from when it is in again", _come_back, 50),
    PpuFault(
        "ppu-rules-removed",
        "somebody deletes the agent's nftables tables while it redirects; the server comes back",
        _remove_rules,
        3000,
    ),
    *_dying("server-hung", "SIGSTOP to a server", _hang_server, undo=_wake_server),
    *_dying("server-silent", "a server's network cable is pulled", _cut_server, undo=_restore_server),
    *_glitching(
        "cable-out-250-ms", "a server's cable is out for 250 ms, four times", _cable_out(0.25, _GLITCHES)
    ),
    *_glitching("cable-out-1-s", "a server's cable is out for 1 s, four times", _cable_out(1.0, _GLITCHES)),
    *_glitching("loss", "a server's host loses 30 % of the packets to it, for 8 s", _lose),
)


def run_ppu_chaos(
    faults: Sequence[PpuFault],
    trials: int,
    earlier: Sequence[PpuTrial],
    say: Callable[[str], object],
) -> Iterator[Sequence[PpuTrial]]:
    """Run what was not found `earlier`; yield each trial. Raises LabError."""
    done = {(trial.fault, trial.trial) for trial in earlier}
    left = [
        (fault, trial)
        for trial in range(1, trials + 1)
        for fault in faults
        if (fault.name, trial) not in done
    ]
    if not left:
        return
    say(f"a lab with ppu-agent, {len(left)} trials to go")
    with PpuLab(tuple(dict.fromkeys(fault.way for fault, _ in left))) as lab:
        for name, server in lab.servers.items():
            program = [sys.executable, "-m", "rspdns_lab.chain.named_server", "sip"]
            server.serve_tcp_by([*program, server.host.address, str(SIP_PORT), name])
        lab.start()
        for number, (fault, trial) in enumerate(left, start=1):
            lab.wait_until_all_are_named()
            draw = random.Random(f"{fault.name} {trial}")  # noqa: S311 - chance, not a secret
            with ServerProber(lab.agents[fault.way.key].program.host) as prober:
                scene = PpuScene(lab, fault.way, prober, draw)
                time.sleep(_SETTLED_S)
                since_s = fault.strike(scene)
                time.sleep(_WATCH_S)
                asked = tuple(prober.asked)
                ended = tuple(prober.ended)
                fault.undo(scene)
            wrong_udp_ms, wrong_tcp_ms = (
                max(
                    wrong_for_ms(asked, server, transport, since_s, is_dead=fault.is_dead)
                    for server in fault.servers
                )
                for transport in ("udp", "tcp")
            )
            found = PpuTrial(
                fault.name,
                trial,
                wrong_udp_ms,
                wrong_tcp_ms,
                sum(probe.at_s >= since_s for probe in asked),
                sum(name in fault.unharmed for name in ended),
            )
            say(f"  {number} of {len(left)}: {found}")
            yield [found]


def rows(found: Sequence[PpuTrial]) -> list[dict[str, Any]]:
    """One row for each fault: the worst of its trials, and the bound."""
    summed = []
    for fault in PPU_FAULTS:
        trials = [trial for trial in found if trial.fault == fault.name]
        if trials:
            summed.append(
                {
                    "fault": fault.name,
                    "trials": len(trials),
                    "wrong_udp_ms": max(trial.wrong_udp_ms for trial in trials),
                    "wrong_tcp_ms": max(trial.wrong_tcp_ms for trial in trials),
                    "bound_ms": fault.bound_ms,
                    "probes": sum(trial.probes for trial in trials),
                    "ended": sum(trial.ended for trial in trials),
                }
            )
    return summed


def ppu_report(slack: float) -> LabReport[PpuTrial]:
    """The report; `slack` multiplies the bounds."""

    def problems(found: Sequence[PpuTrial]) -> list[str]:
        broken = []
        relayed = {fault.name for fault in PPU_FAULTS if fault.ends_relayed}
        for row in rows(found):
            worst_ms = max(row["wrong_udp_ms"], row["wrong_tcp_ms"])
            if worst_ms > row["bound_ms"] * slack or row["probes"] == 0:
                broken.append(
                    f"{row['fault']}: the right server was not reached for {worst_ms:.0f} ms, "
                    f"{row['bound_ms'] * slack:.0f} ms are the bound"
                )
            if row["ended"] and row["fault"] not in relayed:
                broken.append(f"{row['fault']}: {row['ended']} connections to servers that lived were ended")
        return broken

    return LabReport(
        lambda fields: PpuTrial(**fields),
        lambda found: {"ok": not problems(found), "rows": rows(found)},
        lambda found: Page(
            "Faults of ppu-agent",
            _INTRO,
            [Section("Faults", "", table_of(_COLUMNS, rows(found)), [_plot(found)])],
        ),
        problems,
    )


def _plot(found: Sequence[PpuTrial]) -> Dots:
    return Dots.of(
        "Time to the last wrong probe, a dot for each trial; a red line is the bound.",
        "ms",
        sorted(found, key=lambda trial: list(_WHAT).index(trial.fault)),
        lambda trial: trial.fault,
        {"UDP": lambda trial: [trial.wrong_udp_ms], "TCP": lambda trial: [trial.wrong_tcp_ms]},
        bounds={fault.name: fault.bound_ms for fault in PPU_FAULTS},
    )


_WHAT: Final = {fault.name: fault.what for fault in PPU_FAULTS}
_COLUMNS: Final[Columns[dict[str, Any]]] = (
    ("fault", "{fault}"),
    ("what is done", lambda row: _WHAT[row["fault"]]),
    ("trials", "{trials:,}"),
    *(("UDP wrong for, ms", "{wrong_udp_ms:,.0f}"), ("TCP wrong for, ms", "{wrong_tcp_ms:,.0f}")),
    *(("bound, ms", "{bound_ms:,.0f}"), ("connections ended", "{ended:,}")),
)
_INTRO: Final = (
    "A client's host with ppu-agent, which redirects UDP and relays TCP (`repeat`) of servers that died. "
    "Every server is asked all the time, at its own address, by UDP and by new TCP connections. *Wrong*: a "
    "server that lives was not the one that answered; or, asked for one that died, no other server answered. "
    "Times are from when the server lives, is reached, or died; where neither changed, from the fault; "
    "the worst trial counts. *Connections ended*: to each server a TCP connection stays up; those that "
    "ended in all trials, though their server lived. An agent that is killed ends what it relays."
)
