"""A lab of application servers behind several ways to serve DNS at once.

The same servers and the same faults at the same moments for every approach; only the name server differs.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Final

import dns.exception
import dns.message
import dns.query

from rspdns_lab.chain.asking import look_up
from rspdns_lab.chain.hosts import RegistrarHost, wait_until
from rspdns_lab.chain.lab import LabBase
from rspdns_lab.chain.plan import APPLICATION_SERVERS, REGISTRARS
from rspdns_lab.chain.side_by_side.application_server import ApplicationServer
from rspdns_lab.chain.side_by_side.approaches import NAME_SERVERS, TITLES, Approach, Gdnsd, Rspdns, ZoneFile
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import call_in
from rspdns_lab.net.preconditions import check_programs, find_sctp
from rspdns_lab.net.processes import Program

_NEEDED: Final = MappingProxyType({"sipp": "sip-tester"})
_CONVERGE_TIMEOUT_S: Final = 240.0
"""By its defaults gdnsd takes a server in again after 20 checks, 10 s apart."""


class SideBySideLab(LabBase):
    """A running lab; see LabBase.

    `needed`: programs, and the Debian packages they are in, that a lab built on this one needs besides.
    `tcp`: the servers are in a pool for TCP, too.
    """

    def __init__(
        self,
        approaches: Sequence[str],
        needed: Mapping[str, str] = MappingProxyType({}),
        *,
        tcp: bool = False,
    ) -> None:
        programs = {**_NEEDED, **needed}
        if any(key.startswith("gdnsd") for key in approaches):
            programs["gdnsd"] = "gdnsd"
        if any(key != "rspdns" and not key.startswith("gdnsd") for key in approaches):
            programs["pdns_control"] = "pdns-server pdns-backend-bind"
        check_programs(programs)
        super().__init__()
        self._sctp = find_sctp()
        self.registrars: list[RegistrarHost] = []
        self.servers: dict[str, ApplicationServer] = {}
        self.approach_keys = tuple(approaches)
        self._tcp = tcp
        self.approaches: dict[str, Approach] = {}

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
        for server in self.servers.values():
            yield from server.programs
        for approach in self.approaches.values():
            yield from approach.programs
        for registrar in self.registrars:
            yield from registrar.programs

    def build(self) -> None:
        """Make all hosts with their files; nothing runs yet. Labs built on this one add theirs."""
        if self.approach_keys:
            registrars = list(REGISTRARS.values())
            for number, (name, address) in enumerate(REGISTRARS.items(), start=1):
                host = self.network.add_host(name, address)
                self.registrars.append(RegistrarHost(host, number, registrars, self.made(name), self._sctp))
            for name, address in APPLICATION_SERVERS.items():
                host = self.network.add_host(name, address)
                folder = self.made(name)
                self.servers[name] = ApplicationServer(host, registrars, folder, self._sctp, tcp=self._tcp)
        for key in self.approach_keys:
            self.approaches[key] = self._make_approach(key)

    def _make_approach(self, key: str) -> Approach:
        if key not in TITLES:
            raise LabError(f"no approach is called {key}; there are {', '.join(TITLES)}")
        # An interface's name holds at most 15 characters: the number stands for the approach.
        index = list(TITLES).index(key)
        host = self.network.add_host(f"dns{index}", NAME_SERVERS[key])
        folder = self.made(f"ns-{key}")
        tuned = not key.endswith("-default")
        if key == "rspdns":
            return Rspdns(host, folder, self._sctp, self._drain_at_agent, tcp=self._tcp)
        if key.startswith("gdnsd"):
            return Gdnsd(host, folder, tuned=tuned)
        return ZoneFile(host, folder, lua=key.startswith("lua"), tuned=tuned)

    def _drain_at_agent(self, name: str, drained: bool) -> None:
        self.servers[name].drain(drained=drained)

    def _names_all(self, key: str) -> bool:
        """Tell whether somebody who asks this name server can find every application server."""
        asker = self.approaches[key].host

        def ask(query: dns.message.Message) -> dns.message.Message:
            asking = functools.partial(dns.query.udp, query, asker.address, timeout=0.5)
            answer: dns.message.Message = call_in(asker.path, asking)
            return answer

        try:
            return look_up(ask) == set(APPLICATION_SERVERS.values())
        except (OSError, dns.exception.DNSException):
            return False


def at_once(doings: Sequence[Callable[[], None]]) -> None:
    """Do all at the same time, lest one approach has the fault later than another; raise the first error."""
    with ThreadPoolExecutor(max(1, len(doings))) as threads:
        for done in [threads.submit(doing) for doing in doings]:
            done.result()
