"""Follows registrars by ENRP as a test says: a program with a control socket, and `FollowWatch` to drive it.

python follow_watch.py CONTROL_SOCKET REGISTRAR...
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from daemon_kit.control import CommandHandler, ControlCommand, ControlServer, request

from rserpool import Ended, FollowerEvent, HandlespaceFollower, Joined, RegistrarAddress, Table, Update
from tests.support.members import wait_for_control
from tests.support.namespaces import REPOSITORY, Namespace


class FollowWatch:
    """A follower in a process of its own; it follows nobody before it is told to."""

    def __init__(self, namespace: Namespace, folder: Path, registrars: list[str], name: str) -> None:
        self._control = folder / f"{name}.sock"
        self._log = folder / f"{name}.log"
        self.process: subprocess.Popen[str] = namespace.start(
            *(sys.executable, "-m", "tests.support.follow_watch", str(self._control), *registrars),
            sctp=True,
            log=self._log,
            environment={"PYTHONPATH": str(REPOSITORY)},
        )
        wait_for_control(self._control, self.process, self._log)

    def follow(self, *indexes: int) -> None:
        """Follow the registrars at these indexes."""
        request(self._control, "follow", indexes=indexes)

    def leave(self) -> None:
        """Take leave of all, wait until they have forgotten it, and end."""
        request(self._control, "leave", timeout_s=30)
        self.process.wait(20)

    def states(self) -> list[str]:
        """How far each registrar is followed."""
        found: list[str] = request(self._control, "status")["states"]
        return found

    def events(self) -> list[dict[str, Any]]:
        """The events that it heard: tables, updates and ends."""
        found: list[dict[str, Any]] = request(self._control, "status")["events"]
        return found

    def deleted(self) -> set[int]:
        """The pool elements whose deletion was pushed."""
        return {event["identifier"] for event in self.events() if event["kind"] == "deletion"}


def _as_json(index: int, event: FollowerEvent) -> dict[str, Any]:
    match event:
        case Joined():
            return {"kind": "joined", "index": index}
        case Table(pools=pools):
            identifiers = sorted(element.identifier for pool in pools.values() for element in pool)
            return {"kind": "table", "index": index, "identifiers": identifiers}
        case Update():
            kind = "deletion" if event.is_deletion else "update"
            return {"kind": kind, "index": index, "identifier": event.pool_element.identifier}
        case Ended(reason):
            return {"kind": "end", "index": index, "why": reason}


async def _main(control: str, *texts: str) -> None:
    registrars = [RegistrarAddress.parse(text) for text in texts]
    events: list[dict[str, Any]] = []
    follower = HandlespaceFollower(registrars, lambda index, event: events.append(_as_json(index, event)))
    follower.start()
    left = asyncio.Event()

    async def follow(wanted: dict[str, Any]) -> dict[str, Any]:
        for index in wanted["indexes"]:
            follower.follow(index)
        return {}

    async def leave(_: dict[str, Any]) -> dict[str, Any]:
        await follower.leave()
        left.set()
        return {}

    async def status(_: dict[str, Any]) -> dict[str, Any]:
        states = [follower.state(index).value for index in range(len(registrars))]
        return {"states": states, "events": events}

    commands: dict[str, ControlCommand | CommandHandler] = {
        "follow": ControlCommand(follow, {"indexes": list}),
        "leave": leave,
        "status": status,
    }
    server = ControlServer(control, commands)
    await server.start()
    await left.wait()
    await asyncio.sleep(0.2)
    await server.close()
    follower.close()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
