"""`rspdns-lab ims --transport tcp --shim`: an S-CSCF and a server with two cables, of which one is pulled.

There is no DNS and no registrar: callers name the server's address. The connection between both is compared.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pyroute2 import NetNS

from rspdns_lab.chain.lab import LabBase
from rspdns_lab.chain.plan import SIP_PORT
from rspdns_lab.chain.side_by_side.application_server import UAS_SCENARIO
from rspdns_lab.errors import LabError
from rspdns_lab.ims.calls import TIMER_B_MS, CallTrial, measure, read_calls
from rspdns_lab.ims.hosts import Caller, make_cscf
from rspdns_lab.net.network import Host
from rspdns_lab.net.preconditions import check_programs, find_sctp
from rspdns_lab.net.processes import Program
from rspdns_lab.observe.percentiles import percentile
from rspdns_lab.report.page import Page, Section, table_of
from rspdns_lab.report.plots import Dots

FAULT: Final = "cable-pulled"
KEYS: Final = ("tcp", "shim")
PROMISED_MS: Final = 2000.0
CALM_S: Final = 5
_TAIL_S: Final = 1.5 * TIMER_B_MS / 1000 + 5
_NETWORKS: Final = {"tcp": ("10.54.1", "10.54.2"), "shim": ("10.54.3", "10.54.4")}
_RULES: Final = """addresses = ["{first}", "{second}"]
rto_min_ms = 50
[default]
local = "sctp"
remote = "sctp"
"""


class ShimImsLab(LabBase):
    """The running lab; see LabBase. Each way has an S-CSCF, a server, and two cables between them."""

    def __init__(self) -> None:
        super().__init__()
        self._programs: list[Program] = []
        self.callers: dict[str, Caller] = {}
        self._servers: dict[str, Host] = {}

    def build(self) -> None:
        """Make the hosts, their cables and programs."""
        check_programs({"sipp": "sip-tester", "kamailio": "kamailio"})
        caller = self.network.add_host("caller", "10.53.0.81")
        for number, key in enumerate(KEYS):
            cscf = self.network.add_host(f"cscf-{key}", f"10.53.0.{71 + number}")
            server = self.network.add_host(f"as-{key}", f"10.53.0.{91 + number}")
            self._servers[key] = server
            for cable, network in enumerate(_NETWORKS[key], 1):
                _join(cscf, server, f"eth{cable}", network)
            self._add(key, cscf, server)
            folder = self.made(f"caller-{key}")
            name = f"{_NETWORKS[key][0]}.2"
            self.callers[key] = Caller(caller, cscf.address, 5071 + number, folder, "tcp", name=name)

    def _add(self, key: str, cscf: Host, server: Host) -> None:
        first, second = _NETWORKS[key]
        folder = self.made(f"cscf-{key}")
        proxy = make_cscf(cscf, "127.0.0.1", folder, tcp=True)
        cfg = folder / "kamailio.cfg"
        more = f"listen=tcp:{first}.1:{SIP_PORT}\nloadmodule"
        cfg.write_text(cfg.read_text().replace("loadmodule", more, 1))
        uas = [
            "sipp",
            "-sf",
            str(UAS_SCENARIO),
            "-t",
            "t1",
            "-i",
            f"{first}.2",
            "-p",
            str(SIP_PORT),
            "-nostdin",
        ]
        log = self.folder / f"as-{key}.log"
        agent = Program("as", server, self._shimmed(key, 2, [*uas, "-s", "as1"]), log)
        proxy.command = self._shimmed(key, 1, proxy.command)
        self._programs += [agent, proxy]
        (self.folder / f"{key}-1.toml").write_text(_RULES.format(first=f"{first}.1", second=f"{second}.1"))
        (self.folder / f"{key}-2.toml").write_text(_RULES.format(first=f"{first}.2", second=f"{second}.2"))

    def _shimmed(self, key: str, end: int, command: Sequence[str]) -> list[str]:
        if key != "shim":
            return list(command)
        wrapper = find_sctp().wrapper
        if not wrapper:
            raise LabError("this kernel has SCTP of its own: sctp-run --shim does not work beside it")
        return [*wrapper, "--shim", str(self.folder / f"{key}-{end}.toml"), *command]

    def start(self) -> None:
        """Start all programs."""
        for program in self._programs:
            program.start()
        time.sleep(2)

    def pull(self) -> None:
        """Pull the first cable out of each server."""
        for host in self._servers.values():
            with NetNS(host.namespace) as inside:
                inside.link("set", index=inside.link_lookup(ifname="eth1")[0], state="down")

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        for caller in self.callers.values():
            yield from caller.programs
        yield from reversed(self._programs)


def _join(near: Host, far: Host, name: str, network: str) -> None:
    with NetNS(near.namespace) as inside, NetNS(far.namespace) as there:
        inside.link("add", ifname=name, kind="veth", peer={"ifname": name, "net_ns_fd": far.namespace})
        for end, number in ((inside, 1), (there, 2)):
            (index,) = end.link_lookup(ifname=name)
            end.addr("add", index=index, address=f"{network}.{number}", prefixlen=24)
            end.link("set", index=index, state="up")


def run_shim_trial(trial: int, rate_per_s: int, seconds: int, say: Callable[[str], None]) -> list[CallTrial]:
    """Place calls, pull the cables, go on for `seconds`, wait for the last call. Raises LabError."""
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(ShimImsLab())
        lab.start()
        for caller in lab.callers.values():
            caller.start(rate_per_s, rate_per_s * (CALM_S + seconds))
        time.sleep(CALM_S)
        for key, caller in lab.callers.items():
            caller.check()
            if not any(call.server for call in read_calls(caller.lines())):
                raise LabError(f"{key}: no call came through before the fault")
        say(f"{FAULT}, trial {trial}")
        at_s = time.time()
        lab.pull()
        time.sleep(seconds)
        end_s = time.monotonic() + _TAIL_S
        for caller in lab.callers.values():
            caller.wait(max(0.0, end_s - time.monotonic()))
        return [
            measure(FAULT, key, trial, read_calls(caller.lines()), (), at_s, None)
            for key, caller in lab.callers.items()
        ]


def rows(trials: Sequence[CallTrial]) -> list[dict[str, Any]]:
    """Return a row of figures for each way: all calls of the trials."""
    found = []
    for key in KEYS:
        of = [trial for trial in trials if trial.approach == key]
        delays = [delay for trial in of for _, delay, _ in trial.calls]
        answered = [delay for delay in delays if delay is not None]
        if of:
            found.append(
                {
                    "way": key,
                    "trials": len(of),
                    "calls": len(delays),
                    "failed": len(delays) - len(answered),
                    "over_2_s": sum(delay > PROMISED_MS for delay in answered),
                    "p50_ms": percentile(answered, 50),
                    "max_ms": max(answered, default=0.0),
                }
            )
    return found


def figures(trials: Sequence[CallTrial]) -> dict[str, Any]:
    """Return the figures for programs."""
    return {"rows": rows(trials)}


def problems(trials: Sequence[CallTrial]) -> list[str]:
    """Return broken promises: with the shim no call is lost, none is set up later than 2 s."""
    return [
        f"shim: {row['failed']} calls failed, {row['over_2_s']} took more than 2 s"
        for row in rows(trials)
        if row["way"] == "shim" and (row["failed"] or row["over_2_s"])
    ]


def page_of(trials: Sequence[CallTrial]) -> Page:
    """Return the page."""
    text = (
        "An S-CSCF (Kamailio) and a server (SIPp) have two cables between them and speak SIP over TCP. The "
        "cable of the address that is called is pulled at the server; calls go on. With the shim both run "
        "under `sctp-run --shim`."
    )
    columns = (
        ("way", "{way}"),
        *(("trials", "{trials}"), ("calls", "{calls}"), ("failed", "{failed}"), ("over 2 s", "{over_2_s}")),
        *(("p50 ms", "{p50_ms:,.0f}"), ("max ms", "{max_ms:,.0f}")),
    )
    return Page(
        "IMS calls while a cable of two is pulled",
        text,
        [Section("Calls", "", table_of(columns, rows(trials)), [_plot(trials)])],
    )


def _plot(trials: Sequence[CallTrial]) -> Dots:
    return Dots.of(
        "A dot for each call that was set up; few of those that are alike.",
        "ms",
        trials,
        lambda trial: trial.approach,
        {"calls": lambda trial: [delay_ms for _, delay_ms, _ in trial.calls]},
        never="failed",
    )
