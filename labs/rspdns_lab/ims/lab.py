"""The IMS lab: application servers behind every approach at once, each approach with an S-CSCF and a caller.

The same servers, the same faults at the same moments, the same calls; only the name server differs.
"""

import functools
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import dns.exception
import dns.message
import dns.query
import dns.rdatatype

from rspdns_lab.errors import LabError
from rspdns_lab.hosts import RegistrarHost, wait_until
from rspdns_lab.ims.approaches import Approach, Gdnsd, Rspdns, ZoneFile
from rspdns_lab.ims.hosts import ApplicationServer, Caller, make_cscf
from rspdns_lab.ims.plan import APPROACHES, CALLER, CALLER_PORTS, CSCFS, NAME_SERVERS
from rspdns_lab.lab import uninterrupted
from rspdns_lab.network import Network, call_in
from rspdns_lab.plan import APPLICATION_SERVERS, REGISTRARS, SRV_OWNER
from rspdns_lab.preconditions import check_programs, find_sctp
from rspdns_lab.processes import Program

PROGRAMS: Final = {"sipp": "sip-tester", "unshare": "util-linux"}
_CONVERGE_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 4.0


class ImsLab:
    """A running IMS lab for some of the approaches. A context manager: leaving it removes all of it.

    Raises LabError when the machine lacks something, or a part does not start.
    """

    def __init__(self, approaches: Sequence[str] = APPROACHES) -> None:
        needs = dict(PROGRAMS)
        if "gdnsd" in approaches:
            needs["gdnsd"] = "gdnsd"
        if {"static", "lua"} & set(approaches):
            needs["pdns_control"] = "pdns-server pdns-backend-bind"
        check_programs(needs)
        self._sctp = find_sctp()
        self.network = Network(f"rspdns-{os.getpid()}-{secrets.token_hex(2)}")
        self.folder = Path()
        self.registrars: list[RegistrarHost] = []
        self.servers: dict[str, ApplicationServer] = {}
        self._keys = tuple(approaches)
        self.approaches: dict[str, Approach] = {}
        self.cscfs: dict[str, Program] = {}
        self.callers: dict[str, Caller] = {}

    def __enter__(self) -> "ImsLab":
        self.folder = Path(tempfile.mkdtemp(prefix=f"rspdns-lab-{os.getpid()}-"))
        try:
            self.network.__enter__()
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start every part, and wait until every name server names every application server."""
        for registrar in self.registrars:
            registrar.start()
        for registrar in self.registrars:
            registrar.wait()
        for server in self.servers.values():
            server.start()
        for approach in self.approaches.values():
            approach.start()
        self.wait_until_all_are_named()
        for cscf in self.cscfs.values():
            cscf.start()

    def wait_until_all_are_named(self) -> None:
        """Wait until every name server names every application server's address."""
        for key, approach in self.approaches.items():
            wait_until(
                functools.partial(self._names_all, key),
                f"{key} names all application servers",
                _CONVERGE_TIMEOUT_S,
                *approach.programs,
            )

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        for caller in self.callers.values():
            yield from caller.programs
        yield from self.cscfs.values()
        for server in self.servers.values():
            yield from server.programs
        for approach in self.approaches.values():
            yield from approach.programs
        for registrar in self.registrars:
            yield from registrar.programs

    def close(self) -> None:
        """End all programs, remove namespaces and files. Safe to repeat; not interrupted by Ctrl-C."""
        with uninterrupted():
            programs = list(self.programs())
            for program in programs:
                program.terminate()
            end_s = time.monotonic() + _STOP_TIMEOUT_S
            while any(program.is_running for program in programs) and time.monotonic() < end_s:
                time.sleep(0.02)
            for program in programs:
                program.ended()
            self.network.close()
            if self.folder != Path():
                shutil.rmtree(self.folder, ignore_errors=True)

    def _build(self) -> None:
        registrars = list(REGISTRARS.values())
        for number, (name, address) in enumerate(REGISTRARS.items(), start=1):
            host = self.network.add_host(name, address)
            self.registrars.append(RegistrarHost(host, number, registrars, self._made(name), self._sctp))
        for name, address in APPLICATION_SERVERS.items():
            host = self.network.add_host(name, address)
            self.servers[name] = ApplicationServer(host, registrars, self._made(name), self._sctp)
        caller = self.network.add_host(*CALLER)
        for key in self._keys:
            self.approaches[key] = self._make_approach(key)
            host = self.network.add_host(f"c-{key}", CSCFS[key])
            self.cscfs[key] = make_cscf(host, NAME_SERVERS[key], self._made(f"cscf-{key}"))
            folder = self._made(f"caller-{key}")
            self.callers[key] = Caller(caller, CSCFS[key], CALLER_PORTS[key], folder)

    def _make_approach(self, key: str) -> Approach:
        host = self.network.add_host(f"n-{key}", NAME_SERVERS[key])
        folder = self._made(f"ns-{key}")
        if key == "gdnsd":
            return Gdnsd(host, folder)
        if key == "rspdns":
            return Rspdns(host, folder, self._sctp, self._drain_at_agent)
        if key in ("static", "lua"):
            return ZoneFile(host, folder, lua=key == "lua")
        raise LabError(f"no approach is called {key}; there are {', '.join(APPROACHES)}")

    def _drain_at_agent(self, name: str, drained: bool) -> None:
        self.servers[name].drain(drained=drained)

    def _made(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir()
        return folder

    def _names_all(self, key: str) -> bool:
        """Tell whether an S-CSCF that asks this name server can find every application server."""
        address, asker = NAME_SERVERS[key], self.network.hosts[f"n-{key}"]
        found: set[str] = set()
        questions = [(SRV_OWNER, "SRV")]
        try:
            while questions:
                query = dns.message.make_query(*questions.pop())
                reply = call_in(asker.path, functools.partial(dns.query.udp, query, address, timeout=0.5))
                for rrset in reply.answer:
                    for record in rrset:
                        if record.rdtype == dns.rdatatype.SRV:
                            questions.append((record.target.to_text(), "A"))
                        elif record.rdtype == dns.rdatatype.A:
                            found.add(record.address)
        except (OSError, dns.exception.DNSException):
            return False
        return found == set(APPLICATION_SERVERS.values())
