"""The whole chain, or as much of it as a test wants, on one host: a network namespace.

    chain = Chain(namespace, tmp_path)     # three registrars
    chain.start_sip(5060)                  # a server
    chain.start_sidecar([5060])            # its sidecar
    chain.start()                          # backend and PowerDNS
    until(lambda: chain.targets_at(OWNER) == {5060})

Each part is an object of its own: `registrars`, `sidecar`, `backend`, `pdns`. `Members` and `Crowd` are pool
elements without a sidecar. A backend whose pools a test plays, without registrars, is in `served.py`.
"""

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from functools import cached_property
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal

import dns.rcode

from tests.ppe_agent.servers import DATA, TCP_SERVER
from tests.support.backend import ADDRESS, HANDLE, OWNER, POOL, ZONE, Backend
from tests.support.namespaces import Namespace
from tests.support.pdns import Pdns
from tests.support.registrars import PoolWatch, Registrars
from tests.support.second_try import BrokenError
from tests.support.sidecar import PATIENCE_S, Sidecar, server_text
from tests.support.waiting import until

SIP_PORTS = (5060, 5061, 5062)
TCP_PORTS = (5070, 5071)
SCTP_OWNER = OWNER.replace("_udp", "_sctp")
TCP_OWNER = OWNER.replace("_udp", "_tcp")


class Chain:
    """Registrars now, the other parts when they are asked for. Everything logs into `folder/*.log`.

    `more` are keys of the pool and more pools as TOML text, `pdns` settings of pdns-config. `address`: where
    all of it is, IPv4 or IPv6. `registrars`: "supervised" as `rspdns registrar` runs them, rspregistrar
    "alone", or started "later" by the test; or those of another host: then the test gives this one its
    address.
    """

    def __init__(
        self,
        namespace: Namespace,
        folder: Path,
        more: str = "",
        *,
        address: str = ADDRESS,
        registrars: Registrars | Literal["supervised", "alone", "later"] = "supervised",
        reregistration_ms: int = 300,
        gate: str | None = None,
        **pdns: Any,
    ) -> None:
        self.namespace = namespace
        self.folder = folder
        self.address = address
        if isinstance(registrars, Registrars):
            self.registrars = registrars
        else:
            namespace.give_address(address)
            self.registrars = Registrars(
                namespace,
                folder,
                address,
                supervised=registrars == "supervised",
                started=registrars != "later",
                reregistration_ms=reregistration_ms,
                gate=gate,
            )
        self._pools = POOL + more
        self._pdns_settings = pdns

    @cached_property
    def sidecar(self) -> Sidecar:
        """The sidecar of all servers here, not started."""
        return Sidecar(self.namespace, self.folder, self.registrars.addresses)

    @cached_property
    def pdns(self) -> Pdns:
        """PowerDNS, not started."""
        return Pdns(self.namespace, self.folder, **self._pdns_settings)

    @cached_property
    def backend(self) -> Backend:
        """The backend, not started; its zone is written."""
        made = Backend(self.namespace, self.folder, self.registrars.addresses_with_enrp, self.pdns.control)
        network = ip_network(f"{self.address}/{64 if ':' in self.address else 32}", strict=False)
        made.write_zone(self._pools.replace(f"{ADDRESS}/32", str(network)))
        return made

    @cached_property
    def watch(self) -> PoolWatch:
        """The registrars' listings of the pool HANDLE, from now on."""
        return PoolWatch(self.namespace, HANDLE, self.registrars.addresses, self.folder / "watch.log")

    def start(self) -> subprocess.Popen[str]:
        """Start backend and PowerDNS, and wait until every pool is known and the page is there."""
        process = self.backend.start()
        self.pdns.start(ZONE)
        until(self.backend.is_known, 40, self.backend.log, every_s=0.1)
        until(lambda: '"serving"' in self.backend.log.read_text(), told=self.backend.log)
        return process

    def targets(self, owner: str = OWNER) -> set[int] | str:
        """Return the PE identifiers DNS gives, or the status of an answer without any."""
        reply = self.pdns.ask(owner, "SRV")
        if reply is None:
            return ""
        targets = [record.target.labels[0] for rrset in reply.answer for record in rrset]
        found = {int(label, 16) for label in targets if len(label) == 8}
        return found or dns.rcode.to_text(reply.rcode())

    def targets_at(self, owner: str) -> set[int]:
        """Return the ports in the SRV records of `owner`."""
        return {int(line.split()[2]) for line in self.pdns.short(owner, "SRV")}

    def start_sip(
        self, port: int, scenario: str = "options.xml", transport: Literal["u1", "s1"] = "u1"
    ) -> subprocess.Popen[str]:
        """Start SIPp, answering OPTIONS as the scenario says: over UDP, or SCTP with "s1"."""
        own = f"[{self.address}]" if ":" in self.address else self.address
        return self.namespace.start(
            *("sipp", "-sf", str(DATA / scenario), "-i", own, "-p", str(port), "-t", transport, "-nostdin"),
            sctp=transport == "s1",
            log=self.folder / f"sipp-{port}.out",
        )

    def start_tcp(self, port: int = 5060) -> subprocess.Popen[str]:
        """Start a server that accepts TCP connections and holds them."""
        return self.namespace.start(sys.executable, "-c", TCP_SERVER, str(port), "-1", self.address)

    def start_rspserver(self, name: str) -> subprocess.Popen[str]:
        """Start rsplib's echo server, which registers itself."""
        return self.namespace.start(
            *("rspserver", "-echo", "-policy=LeastUsed", "-poolhandle=sip-sctp", f"-local={self.address}:0"),
            *(f"-registrar={registrar}" for registrar in self.registrars.addresses),
            *("-asapannounce=off", "-rereginterval=1000"),
            sctp=True,
            log=self.folder / f"{name}.log",
        )

    def start_sidecar(
        self, udp: Sequence[int] = SIP_PORTS, tcp: Sequence[int] = (), registrars: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Start the sidecar of SIP servers at the ports of `udp` and TCP servers at those of `tcp`."""
        sip = [server_text(f"udp-{port}", HANDLE, "udp", port, "sip-options") for port in udp]
        others = [server_text(f"tcp-{port}", "sip-tcp", "tcp", port, "tcp-hold") for port in tcp]
        self.sidecar.configure(*sip, *others, registrars=registrars)
        return self.sidecar.start()

    def until_in(self) -> str:
        """Wait until every registrar lists the same one element; return its identifier."""
        addresses = self.registrars.addresses
        listings = self.watch.until(lambda now: all(len(now.get(each) or {}) == 1 for each in addresses))
        (identifier,) = {next(iter(listings[each] or {})) for each in addresses}
        return identifier

    def until_out(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until no registrar lists an element."""
        addresses = self.registrars.addresses
        self.watch.until(lambda now: all(now.get(each) == {} for each in addresses), timeout_s)

    def processes(self) -> dict[int, str]:
        """Return every process of the namespace, with its command line."""
        found = {}
        for pid in self.namespace.pids():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                found[pid] = b" ".join(words).decode(errors="replace").strip()
        return found

    def assert_calm(self, before: dict[int, str]) -> None:
        """Every process of `before` lives, and no log holds a traceback."""
        now = self.processes()
        assert not {pid: command for pid, command in before.items() if pid not in now}, "these died"
        for log in sorted(self.folder.rglob("*.log")):
            text = log.read_text(errors="replace")
            if "Traceback" in text:
                raise BrokenError(f"{log.name}:\n{text[-4000:]}")
