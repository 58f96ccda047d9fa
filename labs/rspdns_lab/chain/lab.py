"""The whole chain in one lab: three registrars, two name servers, three application servers, one client."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from rspdns_lab.chain import fast_path
from rspdns_lab.chain.hosts import (
    START_TIMEOUT_S,
    ApplicationServerHost,
    NameServerHost,
    RegistrarHost,
    wait_until,
)
from rspdns_lab.chain.plan import (
    A_QUESTION,
    CLIENT,
    NAME_SERVERS,
    QUESTIONS,
    REGISTRARS,
    SRV_QUESTION,
    LabSetting,
)
from rspdns_lab.chain.texts import write_keys
from rspdns_lab.ending import uninterrupted, warn_of_full_disk
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import LabNetwork, network_prefix
from rspdns_lab.net.preconditions import check_programs, find_sctp
from rspdns_lab.net.processes import Program, end_programs
from rspdns_lab.net.wall_clock import build_wall_clock
from rspdns_lab.observe.observations import Recorder, start_prober

CONVERGE_TIMEOUT_S: Final = 60.0
MOST_SHOWN: Final = 7
"""Members in an SRV answer of this zone."""
_STOP_TIMEOUT_S: Final = 4.0


class LabBase:
    """A running lab. Use it as a context manager; leaving it removes every process, namespace and file of it.

    Raises LabError when the machine lacks something, or a part does not start.
    """

    def __init__(self) -> None:
        self.network = LabNetwork(network_prefix())
        self.folder = Path()

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix=f"rspdns-lab-{os.getpid()}-"))
        try:
            self.network.__enter__()
            self.build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def build(self) -> None:
        """Make all hosts with their files; nothing runs yet."""
        raise NotImplementedError

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        raise NotImplementedError

    def made(self, name: str) -> Path:
        """Make a folder for a part's files."""
        folder = self.folder / name
        folder.mkdir()
        return folder

    def close(self) -> None:
        """End all programs, remove namespaces and files. Safe to repeat; not interrupted by Ctrl-C."""
        with uninterrupted():
            end_programs(list(self.programs()), _STOP_TIMEOUT_S)
            self.network.close()
            if self.folder != Path():
                warn_of_full_disk(self.folder)
                shutil.rmtree(self.folder, ignore_errors=True)


class Lab(LabBase):
    """The running chain; see LabBase."""

    def __init__(self, setting: LabSetting | None = None) -> None:
        check_programs()
        super().__init__()
        self.setting = setting or LabSetting()
        if self.setting.fastpath and (why := fast_path.why_not()):
            raise LabError(f"the kernel can't answer here: {why}")
        self.start_timeout_s = START_TIMEOUT_S * self.setting.slow
        self.sctp = find_sctp()
        self.recorder = Recorder(complete=[question.startswith("SRV:") for question in QUESTIONS])
        self.registrars: dict[str, RegistrarHost] = {}
        self.name_servers: dict[str, NameServerHost] = {}
        self.application_servers: dict[str, ApplicationServerHost] = {}
        self._prober: Program | None = None

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses of all application servers."""
        return frozenset(self.setting.application_servers.values())

    @property
    def environment(self) -> dict[str, str]:
        """The environment for programs that speak SCTP."""
        return {**os.environ, **self.sctp.environment}

    @property
    def most_shown(self) -> int:
        """How many application servers one answer shows when all live: no more fit into 512 bytes."""
        return min(len(self.addresses), MOST_SHOWN)

    def start_registrars(self) -> None:
        """Start the registrars."""
        for registrar in self.registrars.values():
            registrar.start()
        for registrar in self.registrars.values():
            registrar.wait(self.start_timeout_s)

    def start_application_servers(self) -> None:
        """Start the SIP servers and their agents."""
        for server in self.application_servers.values():
            server.start()
        for server in self.application_servers.values():
            server.wait_for_sip(self.start_timeout_s)

    def start_name_servers(self) -> None:
        """Start backends and PowerDNS, and the client that asks them every millisecond."""
        for server in self.name_servers.values():
            server.start()
        for server in self.name_servers.values():
            server.wait(self.start_timeout_s)
        client = self.network.hosts[CLIENT[0]]
        self._prober = start_prober(
            client,
            list(NAME_SERVERS.values()),
            QUESTIONS,
            self.recorder,
            self.folder,
            interval_ms=self.setting.beat_ms,
        )

    def expect_asked(self) -> None:
        """Raise LabError when the client asks no more: nothing it was told would be wrong."""
        if self._prober is not None:
            self._prober.expect_running()

    def wait_until_all_are_answered(self, timeout_s: float = CONVERGE_TIMEOUT_S) -> None:
        """Wait until every name server names every application server; of a large pool, as many as fit.

        Raises LabError when they don't.
        """

        def converged() -> bool:
            return all(
                len(self._answered(server)) == self.most_shown
                and self._answered(server) <= self.addresses
                and (self.most_shown == len(self.addresses) or host.members() == self.addresses)
                for server, host in enumerate(self.name_servers.values())
            )

        try:
            wait_until(converged, "DNS answers with all application servers", timeout_s * self.setting.slow)
        except LabError as error:
            raise LabError(f"{error}\n{self._who_is_missing()}") from None

    def wait_until_settled(self, timeout_s: float = CONVERGE_TIMEOUT_S) -> None:
        """Wait until both backends take every registrar for settled: only then they believe in absences."""

        def settled() -> bool:
            states = [server.registrar_standings() for server in self.name_servers.values()]
            return all(standings == ["settled"] * len(self.registrars) for standings in states)

        wait_until(settled, "backends that take every registrar for settled", timeout_s * self.setting.slow)

    def is_first(self, site: str) -> bool:
        """Whether the latest answers of all name servers have addresses of this site alone."""
        readings = (self.recorder.latest.get((server, A_QUESTION)) for server in range(len(NAME_SERVERS)))
        addresses = frozenset(self.setting.at_site[site])
        return all(reading is not None and set() < reading.names <= addresses for reading in readings)

    def wait_until_first(self, site: str, timeout_s: float = CONVERGE_TIMEOUT_S) -> None:
        """Wait until all name servers have this site first."""
        wait_until(lambda: self.is_first(site), f"{site} to be first", timeout_s * self.setting.slow)

    def wait_until_kernels_answer(self, timeout_s: float = CONVERGE_TIMEOUT_S) -> None:
        """Wait until the kernels answer, where they should."""

        def answer() -> bool:
            return all(server.is_answered_by_kernel() for server in self.name_servers.values())

        wait_until(answer, "answers from the kernel", timeout_s * self.setting.slow)

    def busiest_registrar(self) -> str:
        """Return the registrar that is home to most application servers."""
        homes = [server.registrar_address() for server in self.application_servers.values()]
        return max(REGISTRARS, key=lambda name: homes.count(REGISTRARS[name]))

    def names(self) -> dict[str, str]:
        """Return the names of hosts and pool elements, by address and identifier."""
        hosts = {**self.setting.registrars, **NAME_SERVERS, **self.setting.application_servers}
        found = {address: name for name, address in hosts.items()}
        return found | {server.identifier: name for name, server in self.application_servers.items()}

    def programs(self) -> Iterator[Program]:
        """Yield all programs, in the order in which they are best ended."""
        if self._prober is not None:
            yield self._prober
        for application_server in self.application_servers.values():
            yield from application_server.programs
        for name_server in self.name_servers.values():
            yield from name_server.programs
        for registrar in self.registrars.values():
            yield from registrar.programs

    def build(self) -> None:
        """Make all hosts with their files."""
        for name, address in (
            *self.setting.registrars.items(),
            *NAME_SERVERS.items(),
            *self.setting.application_servers.items(),
            CLIENT,
        ):
            self.network.add_host(name, address)
            (self.folder / name).mkdir()
        if self.setting.keyed:
            write_keys(self.folder, self.setting.application_servers)
        hosts, cells = self.network.hosts, self.setting.handlespaces
        clock = build_wall_clock(self.folder) if self.setting.clocks else None
        for cell in cells.values():
            for number, name in enumerate(cell, start=1):
                peers, folder = list(cell.values()), self.folder / name
                self.registrars[name] = RegistrarHost(
                    hosts[name], number, peers, folder, self.sctp, clock, self.setting.slow
                )
        for name in NAME_SERVERS:
            self.name_servers[name] = NameServerHost(
                hosts[name],
                list(self.setting.registrars.values()),
                list(NAME_SERVERS.values()),
                self.folder / name,
                self.sctp,
                self.setting,
            )
        for name in self.setting.application_servers:
            self.application_servers[name] = ApplicationServerHost(
                hosts[name],
                list(cells[self.setting.cell_of(name)].values()),
                self.setting.load(name),
                self.folder / name,
                self.sctp,
                self.setting.slow,
                self.folder / name / "server.key" if self.setting.keyed else None,
            )

    def _answered(self, server: int) -> frozenset[str]:
        reading = self.recorder.latest.get((server, SRV_QUESTION))
        return reading.names if reading else frozenset()

    def _who_is_missing(self) -> str:
        lines = []
        for number, name in enumerate(NAME_SERVERS):
            missing = sorted(self.addresses - self._answered(number))
            lines.append(f"  {name} lacks {', '.join(missing) or 'nobody'}")
        lines += [
            f"  {program.host.name} {program.name}, end of its log:\n{program.log_end(5)}"
            for program in self.programs()
            if not program.is_running or program.name in ("agent", "backend")
        ]
        return "\n".join(lines)
