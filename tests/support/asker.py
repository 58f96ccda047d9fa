"""Asks one registrar for pools, as often as a test wants, over one association.

    python -m tests.support.asker SOCKET REGISTRAR

`ask_registrar.py` is the program that asks once.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from daemon_kit.control import ControlCommand, ControlServer, request

from rserpool import RegistrarAddress, RegistrarClient
from tests.support.ask_registrar import listed
from tests.support.members import wait_for_control
from tests.support.namespaces import REPOSITORY, Namespace


class Asker:
    """Asks the registrar at `address` from a namespace."""

    def __init__(self, namespace: Namespace, folder: Path, address: str) -> None:
        self._control = folder / "asker.sock"
        log = folder / "asker.log"
        process = namespace.start(
            *(sys.executable, "-m", "tests.support.asker", str(self._control), address),
            sctp=True,
            log=log,
            environment={"PYTHONPATH": str(REPOSITORY)},
        )
        wait_for_control(self._control, process, log)

    def pool_elements(self, handle: str) -> list[dict[str, Any]]:
        """Return what the registrar lists now: identifiers, home registrars and addresses."""
        answer = request(self._control, "ask", timeout_s=30, handle=handle)
        found: list[dict[str, Any]] = answer["pool_elements"]
        return found


async def _serve(control: str, address: str) -> None:
    client = RegistrarClient(RegistrarAddress.parse(address), timeout_ms=1000)
    client.start()

    async def ask(wanted: dict[str, Any]) -> dict[str, Any]:
        return await listed(client, wanted["handle"].encode())

    await ControlServer(control, {"ask": ControlCommand(ask, {"handle": str})}).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
