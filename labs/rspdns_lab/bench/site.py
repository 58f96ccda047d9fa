"""A site of the benchmark: registrars on hosts of a network, and programs beside them, which end with it."""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from daemon_kit.control import ControlError, request
from registrar_config import TIMERS_MS, RegistrarSettings, SctpEndpoint, arguments

from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host, LabNetwork
from rspdns_lab.net.preconditions import find_sctp
from rspdns_lab.net.processes import Program, end_programs

KEEP_ALIVE_MS: Final = 60_000
RARELY: Final[Mapping[str, int]] = MappingProxyType(
    {
        "endpointkeepalivetransmissioninterval": KEEP_ALIVE_MS,
        "endpointkeepalivetimeoutinterval": KEEP_ALIVE_MS,
    }
)
"""Timers with which three registrars don't use the whole machine to ask 10,000 elements."""
PATIENCE_S: Final = 180.0
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class BenchSite:
    """Hosts and programs; `programs` in the order in which they were started. See `site`."""

    def __init__(self, network: LabNetwork, folder: Path, cleanup: contextlib.ExitStack) -> None:
        self.network, self.folder, self.cleanup = network, folder, cleanup
        self.programs: list[Program] = []
        self.sctp = find_sctp()
        self.control = folder / "elements.sock"
        """The control socket of the simulated elements."""

    def hosts(self, addresses: Sequence[str]) -> list[Host]:
        """Add a host for each registrar: r1, r2 and so on."""
        return [self.network.add_host(f"r{number}", address) for number, address in enumerate(addresses, 1)]

    def start(
        self, name: str, host: Host, command: Sequence[str], environment: Mapping[str, str] = _NOTHING
    ) -> Program:
        """Start a program that has SCTP. Raises LabError."""
        log = self.folder / f"{name}.log"
        more = {**self.sctp.environment, **environment}
        program = Program(name, host, self.sctp.command(command), log, more)
        program.start()
        self.programs.append(program)
        return program

    def python(
        self, name: str, host: Host, module: str, *words: object, environment: Mapping[str, str] = _NOTHING
    ) -> Program:
        """Start a module of ours with these arguments."""
        return self.start(name, host, [sys.executable, "-m", module, *map(str, words)], environment)

    def registrar(
        self, number: int, host: Host, addresses: Sequence[str], timers_ms: Mapping[str, int]
    ) -> Program:
        """Start the registrar of this number (from 1) of those at `addresses`, with other timers."""
        endpoints = [SctpEndpoint.parse(address, 9901) for address in addresses]
        own = endpoints.pop(number - 1)
        asap = SctpEndpoint.parse(host.address, 3863)
        settings = RegistrarSettings(asap, own, tuple(endpoints), {**TIMERS_MS, **timers_ms})
        return self.start(f"registrar-{number}", host, arguments(settings))

    def sentinel(self, number: int, host: Host) -> None:
        """Start the sentinel of a registrar."""
        words = (f"--number={number}", f"--address={host.address}", "--agent-reregistration-ms=100")
        self.python(f"sentinel-{number}", host, "registrar_config", "sentinel", *words)

    def tell(self, command: str, **arguments: int) -> dict[str, Any]:
        """Give the simulated elements a command. Raises LabError."""
        try:
            return request(self.control, command, timeout_s=PATIENCE_S, **arguments)
        except ControlError as error:
            raise LabError(f"the simulated pool elements: {error}") from None


@contextlib.contextmanager
def site(prefix: str, folder: Path) -> Iterator[BenchSite]:
    """Make a network for registrars; at the end its programs are ended, and it is removed."""
    folder.mkdir(parents=True)
    with LabNetwork(prefix) as network, contextlib.ExitStack() as cleanup:
        made = BenchSite(network, folder, cleanup)
        cleanup.callback(end_programs, made.programs)
        yield made
