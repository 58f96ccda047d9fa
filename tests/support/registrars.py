"""Real registrars in a namespace, and what they tell of a pool."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from registrar_config import arguments, embedded_commands, embedded_registrars, embedded_settings

from rserpool import RegistrarAddress
from tests.support.namespaces import REPOSITORY, Namespace, end
from tests.support.waiting import until

NUMBERS = (1, 2, 3)


class Registrars:
    """Three registrars at one address, numbered from 1: ASAP ports 3863 and up, ENRP 9901 and up.

    `supervised`: as `rspdns registrar` runs them, with supervisors and sentinels; a registrar is settled when
    it has been up for twice `reregistration_ms`; `gate`: behind the gate, with these rules. Otherwise
    rspregistrar alone, with the options `settings`.
    rspregistrar passes over loopback addresses, so the namespace needs another one.
    """

    def __init__(
        self,
        namespace: Namespace,
        folder: Path,
        address: str,
        *,
        supervised: bool = False,
        reregistration_ms: int | None = None,
        started: bool = True,
        gate: str | None = None,
        **settings: Any,
    ) -> None:
        self.namespace = namespace
        self.addresses_with_enrp = embedded_registrars(address)
        """The registrars as a backend's configuration names them."""
        parsed = map(RegistrarAddress.parse, self.addresses_with_enrp)
        self.addresses = [str(RegistrarAddress(registrar.host, registrar.asap_port)) for registrar in parsed]
        """The registrars as a sidecar's configuration names them."""
        self._folder = folder
        if supervised:
            settling = [] if reregistration_ms is None else [f"--agent-reregistration-ms={reregistration_ms}"]
            if gate is not None:
                (rules := folder / "gate.rules").write_text(gate)
                settling += [f"--gate={rules}", *(["--reports"] if "reports" in gate else [])]
            self._commands = [[*command, *settling, "--log-json"] for command in embedded_commands(address)]
        else:
            self._commands = [
                arguments(replace(registrar, **settings)) for registrar in embedded_settings(address)
            ]
        self.programs = [self._start(number) for number in NUMBERS] if started else []

    def _start(self, number: int) -> subprocess.Popen[str]:
        return self.namespace.start(*self._commands[number - 1], sctp=True, log=self.log(number))

    def start(self, *numbers: int) -> None:
        """Start these anew; without any, all."""
        for number in numbers or NUMBERS:
            self.programs[number - 1 : number] = [self._start(number)]

    def start_ended(self) -> None:
        """Start those anew that have ended."""
        ended = [number for number in NUMBERS if self.programs[number - 1].poll() is not None]
        if ended:
            self.start(*ended)

    def kill(self, *numbers: int) -> None:
        """Kill these, with their supervisors and sentinels; without any, all."""
        for number in numbers or NUMBERS:
            end(self.programs[number - 1], signal.SIGKILL)

    def number_at(self, address: str) -> int:
        """Return the number of the registrar with this address."""
        return self.addresses.index(address) + 1

    def log(self, number: int) -> Path:
        """Return where it logs."""
        return self._folder / f"registrar-{number}.log"

    def said(self, number: int) -> str:
        """Return what it has logged."""
        log = self.log(number)
        return log.read_text(errors="replace") if log.exists() else ""

    def until_ready(self) -> None:
        """Wait until each, unsupervised, serves."""
        until(lambda: all("is ready" in self.said(number) for number in NUMBERS), told="ready registrars")

    def hsdump(self, number: int) -> str:
        """Return its handlespace as rsplib's hsdump prints it: the index."""
        host, port = RegistrarAddress.parse(self.addresses_with_enrp[number - 1]).enrp_endpoint
        where = f"[{host}]" if ":" in host else host
        dump = self.namespace.run("hsdump", f"{where}:{port}", sctp=True)
        assert dump.returncode == 0, dump.stdout + dump.stderr
        return dump.stdout.partition("*-- Index:")[2].partition("*-- Selection:")[0]


def registration_port(index: str, address: str, user_transport: str = "") -> int:
    """Return the SCTP port from which a pool element at `address` registered, by what hsdump printed."""
    port = re.search(rf"{user_transport}\s+regT:\s+\{{{re.escape(address)}\}} (\d+)/SCTP", index)
    assert port, index
    return int(port[1])


PoolListings = dict[str, dict[str, str] | None]
"""The listings of a pool by each registrar's address: policies by PE identifier; None: no answer."""


class PoolWatch:
    """The listings of the pool `handle` by each registrar, over time."""

    def __init__(self, namespace: Namespace, handle: str, registrars: list[str], log: Path) -> None:
        self._log = log
        program = str(REPOSITORY / "tests" / "support" / "pool_watch.py")
        namespace.start(sys.executable, program, handle, *registrars, sctp=True, log=log)

    def changes(self) -> list[dict[str, Any]]:
        """Return every change so far."""
        lines = self._log.read_text().split("\n")[:-1] if self._log.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]

    def now(self) -> PoolListings:
        """Return what is listed now."""
        return {change["registrar"]: change["elements"] for change in self.changes()}

    def until(self, condition: Callable[[PoolListings], bool], timeout_s: float = 40) -> PoolListings:
        """Wait until `condition` holds of what `now()` returns; fail with that when it doesn't."""
        seen: PoolListings = {}

        def holds() -> bool:
            seen.clear()
            seen.update(self.now())
            return condition(seen)

        until(holds, timeout_s, lambda: str(seen))
        return seen
