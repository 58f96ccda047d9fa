"""The SIP hosts of the IMS lab beside its application servers: S-CSCFs (Kamailio) and callers (SIPp)."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rspdns_lab.chain.plan import NAME, SIP_PORT
from rspdns_lab.errors import LabError
from rspdns_lab.ims.calls import SENT_MARK, TIMER_B_MS, read_calls
from rspdns_lab.net.network import Host
from rspdns_lab.net.processes import Program

_SCENARIO: Final = Path(__file__).with_name("uac.xml")
_MOST_CALLS: Final = 10_000
_SIPP_DONE: Final = (0, 1)
"""With these SIPp ends after its last call: all were set up, or some failed."""


def cscf_cfg(address: str, *, tcp: bool = False) -> str:
    """Return the configuration of an S-CSCF stand-in: RFC 3263 location, RFC 3261 timers, no more.

    NAPTR, SRV and address records are looked up, SRV weights are drawn, the next target is tried when one
    does not answer within Timer B. onsend_route runs once for each INVITE sent somewhere, not for its
    retransmissions. `tcp`: it speaks TCP to servers, too.
    """
    transports = f"listen=tcp:{address}:{SIP_PORT}\ntcp_children=2" if tcp else "disable_tcp=yes"
    return f"""#!KAMAILIO
debug=1
log_stderror=yes
children=2
{transports}
auto_aliases=no
dns=no
rev_dns=no
listen=udp:{address}:{SIP_PORT}
use_dns_cache=on
dns_try_naptr=on
dns_srv_lb=on
use_dns_failover=on
dns_cache_negative_ttl=1
dns_retr_time=1
dns_retr_no=2
loadmodule "tm.so"
loadmodule "sl.so"
loadmodule "rr.so"
loadmodule "pv.so"
loadmodule "maxfwd.so"
loadmodule "siputils.so"
loadmodule "textops.so"
loadmodule "xlog.so"
modparam("tm", "fr_timer", {TIMER_B_MS})
modparam("tm", "fr_inv_timer", {2 * TIMER_B_MS})
request_route {{
    if (!mf_process_maxfwd_header("10")) {{ exit; }}
    if (has_totag()) {{
        loose_route();
        t_relay();
        exit;
    }}
    if (is_method("INVITE")) {{ record_route(); }}
    t_relay();
}}
onsend_route {{
    if (is_method("INVITE")) {{ xlog("L_NOTICE", "{SENT_MARK} $TV(Sn) $snd(ip)\\n"); }}
}}
"""


def make_cscf(host: Host, name_server: str, folder: Path, *, tcp: bool = False) -> Program:
    """Return an S-CSCF stand-in whose resolver asks `name_server` and nobody else; `tcp`: it has TCP."""
    (folder / "kamailio.cfg").write_text(cscf_cfg(host.address, tcp=tcp))
    (folder / "resolv.conf").write_text(f"nameserver {name_server}\noptions timeout:1 attempts:2\n")
    command = [
        sys.executable,
        "-m",
        "rspdns_lab.net.private_file",
        str(folder / "resolv.conf"),
        "/etc/resolv.conf",
    ]
    command += ["kamailio", "-f", str(folder / "kamailio.cfg"), "-DD", "-E", "-m", "32", "-M", "4"]
    return Program("cscf", host, [*command, "-w", str(folder), "-Y", str(folder)], folder / "cscf.log")


class Caller:
    """Places calls at a set rate through one S-CSCF, which is to reach the servers over `transport`.

    `name` is who is called. With `is_direct` there is no S-CSCF: `cscf` is the address of a server, or one
    that stands for all.
    """

    def __init__(
        self,
        host: Host,
        cscf: str,
        port: int,
        folder: Path,
        transport: str = "udp",
        *,
        name: str = NAME,
        is_direct: bool = False,
    ) -> None:
        self.host = host
        self.calls = folder / "calls.log"
        self._command = ["sipp", "-sf", str(_SCENARIO), f"{cscf}:{SIP_PORT}", "-s"]
        self._command.append(name if transport == "udp" else f"{name};transport={transport}")
        if is_direct and transport == "tcp":
            self._command += ["-t", "t1"]
        self._command += ["-i", host.address, "-p", str(port), "-nostdin", "-l", str(_MOST_CALLS)]
        self._command += ["-trace_logs", "-log_file", str(self.calls)]
        self._folder = folder
        self._program: Program | None = None
        self._ordered = 0

    @property
    def programs(self) -> Sequence[Program]:
        """The programs that run here."""
        return () if self._program is None else (self._program,)

    def start(self, rate_per_s: int, calls: int) -> None:
        """Begin to place this number of calls; the log of earlier ones is removed."""
        self._ordered = calls
        self.calls.unlink(missing_ok=True)
        command = [*self._command, "-r", str(rate_per_s), "-m", str(calls)]
        self._program = Program("caller", self.host, command, self._folder / "caller.log")
        self._program.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until every call has ended; after `timeout_s` the rest are cut off and count as failed.

        Raises LabError when the caller itself ended too early, as `check` does, or was too slow to place
        all calls.
        """
        end_s = time.monotonic() + timeout_s
        while self._program is not None and self._program.is_running and time.monotonic() < end_s:
            time.sleep(0.1)
        self.check()
        if self._program is not None:
            self._program.stop()
        placed = len(read_calls(self.lines()))
        if placed < self._ordered:
            raise LabError(
                f"{self._folder.name} placed {placed} of {self._ordered} calls in time: this machine is too "
                "slow for them; lower --rate"
            )

    def check(self) -> None:
        """Raise LabError when the caller ended though calls were left to place, or was ended by something.

        The calls it did not place, or did not see answered, tell nothing about DNS.
        """
        status = None if self._program is None else self._program.exit_status
        if self._program is None or status is None:
            return
        placed = len(read_calls(self.lines()))
        if status not in _SIPP_DONE or placed < self._ordered:
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            raise LabError(
                f"{self._folder.name} ended early ({how}) when it had placed {placed} of {self._ordered} "
                f"calls, so there is nothing to judge\n{self._program.log_end()}"
            )

    def lines(self) -> list[str]:
        """Return the log."""
        return self.calls.read_text(errors="replace").splitlines() if self.calls.exists() else []
