"""Real registrars in a namespace, and a watch on what they tell of a pool."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from registrar_config.options import Endpoint, RegistrarSettings, arguments
from rserpool.machine.registrar_choice import RegistrarAddress

from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.stalls import Deadline


def start_registrars(
    namespace: Namespace, directory: Path, address: str, count: int = 3
) -> dict[str, subprocess.Popen[str]]:
    """Start registrars on `address`, ports 3863 and up, logging into `directory`; return them by address.

    rspregistrar passes over loopback addresses, so the namespace needs another one.
    """
    host = ip_address(address)
    enrp = [Endpoint(host, 9901 + position) for position in range(count)]
    registrars = {}
    for position in range(count):
        asap = Endpoint(host, 3863 + position)
        peers = tuple(peer for peer in enrp if peer != enrp[position])
        options = arguments(RegistrarSettings(asap=asap, enrp=enrp[position], peers=peers))
        log = directory / f"registrar-{asap.port}.log"
        registrars[str(RegistrarAddress(address, asap.port))] = namespace.start(*options, sctp=True, log=log)
    return registrars


class PoolWatch:
    """What each registrar tells of the pool `handle`, over time."""

    def __init__(self, namespace: Namespace, handle: str, registrars: list[str], log: Path) -> None:
        self._log = log
        program = str(REPOSITORY / "tests" / "support" / "pool_watch.py")
        namespace.start(sys.executable, program, handle, *registrars, sctp=True, log=log)

    def changes(self) -> list[dict[str, Any]]:
        """Return every change so far."""
        lines = self._log.read_text().split("\n")[:-1] if self._log.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]

    def now(self) -> dict[str, dict[str, str] | None]:
        """Return, by registrar (None: no answer), each element of the pool: policy by identifier."""
        return {change["registrar"]: change["elements"] for change in self.changes()}

    def until(
        self, condition: Callable[[dict[str, dict[str, str] | None]], bool], timeout_s: float = 40
    ) -> dict[str, dict[str, str] | None]:
        """Wait until `condition` holds of what `now()` returns; fail with that when it doesn't."""
        deadline = Deadline(timeout_s)
        while not deadline.is_over:
            view = self.now()
            if condition(view):
                return view
            time.sleep(0.02)
        raise AssertionError(f"after {timeout_s} s: {self.now()}")
