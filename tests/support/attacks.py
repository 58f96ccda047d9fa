"""Messages that a host that was let near may send to a registrar, unchecked. Run it where SCTP works.

    python -m tests.support.attacks SOURCE[,CLAIMED...] TARGET PORT PPID FOR_S MESSAGE...
    python -m tests.support.attacks --control SOCKET

SOURCE is the address that it speaks from; CLAIMED ones are bound, too, so its INIT names them. The
messages, in hex digits, are sent again and again for FOR_S. Exit status 1: there was no association.
`attack` runs it; the functions above that make the messages. With `--control` it forks an attack whenever
`Attacker` asks for one, so that attacks don't wait for a Python to start.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from daemon_kit.control import ControlCommand, ControlServer, request
from registrar_config import SCTPD_OPTIONS

from rserpool import (
    AssociationUp,
    Policy,
    PoolElement,
    Protocol,
    RoundRobin,
    SctpSocket,
    ServerInformation,
    Transport,
    asap,
    enrp,
)
from tests.support.members import wait_for_control
from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.waiting import until

TIMEOUT_S = 20.0
PATIENCE_S = 60.0
AGAIN_S = 0.2


def element(
    identifier: int, address: str, port: int = 5060, *, home: int = 0, policy: Policy | None = None
) -> PoolElement:
    """A pool element over UDP; in ENRP it has a home, and an ASAP transport."""
    where = (IPv4Address(address),)
    return PoolElement(
        identifier,
        home,
        60_000,
        Transport(Protocol.UDP, port, where),
        policy or RoundRobin(),
        Transport(Protocol.SCTP, 5999, where) if home else None,
    )


def reports(handle: bytes, *identifiers: int) -> list[bytes]:
    """Three reports that each of these pool elements can't be reached."""
    return [
        asap.encode(asap.EndpointUnreachable(handle, identifier))
        for identifier in identifiers
        for _ in range(3)
    ]


def registration(handle: bytes, registered: PoolElement) -> list[bytes]:
    """One registration."""
    return [asap.encode(asap.Registration(handle, registered))]


def presence(sender: int, address: str, checksum: int = 0) -> bytes:
    """A registrar, or a follower, tells that it is there."""
    transport = Transport(Protocol.SCTP, 9901, (IPv4Address(address),))
    return enrp.encode(enrp.Presence(sender, 0, checksum, ServerInformation(sender, transport)))


def update(sender: int, action: enrp.UpdateAction, handle: bytes, changed: PoolElement) -> bytes:
    """A registrar tells its peers that a pool element came or went."""
    return enrp.encode(enrp.HandleUpdate(sender, 0, action, handle, changed))


def takeover(sender: int, target: int) -> bytes:
    """A registrar says that it has taken over the pool elements of another."""
    return enrp.encode(enrp.TakeoverServer(sender, 0, target))


def long_handle(length: int = 33) -> bytes:
    """A handle resolution that makes rspregistrar abort."""
    return asap.encode(asap.HandleResolution(b"x" * length))


def words(
    source: str | Sequence[str], target: tuple[str, int], messages: Sequence[bytes], for_s: float
) -> list[str]:
    """Return the arguments to send these from `source` (others: claimed) to a registrar's endpoint."""
    sources = source if isinstance(source, str) else ",".join(source)
    ppid = enrp.PPID if target[1] >= enrp.PORT else asap.PPID
    return [*map(str, (sources, *target, ppid, for_s)), *(message.hex() for message in messages)]


def attack(
    namespace: Namespace,
    source: str | Sequence[str],
    target: tuple[str, int],
    messages: Sequence[bytes],
    for_s: float = 0.0,
) -> None:
    """Send these in a namespace from `source`, for `for_s`."""
    arguments = words(source, target, messages, for_s)
    sent = subprocess.run(
        namespace.command(sys.executable, "-m", "tests.support.attacks", *arguments, sctp=True),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd=REPOSITORY,
    )
    assert sent.returncode == 0, sent.stdout + sent.stderr


class Attacker:
    """Attacks from one namespace, at once and side by side."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self._control = folder / "attacker.sock"
        log = folder / "attacker.log"
        process = namespace.start(
            *(sys.executable, "-m", "tests.support.attacks", "--control", str(self._control)),
            sctp=True,
            log=log,
            environment={
                "PYTHONPATH": str(REPOSITORY),
                # It must outlast pauses between attacks.
                "SCTPD_OPTIONS": f"{SCTPD_OPTIONS} --idle-exit 3600",
            },
        )
        wait_for_control(self._control, process, log)

    def begin(
        self,
        source: str | Sequence[str],
        target: tuple[str, int],
        messages: Sequence[bytes],
        for_s: float = 60,
    ) -> "Attack":
        """Begin to send these from `source` (others: claimed) to a registrar's endpoint, for `for_s`."""
        begun = request(
            self._control,
            "begin",
            timeout_s=PATIENCE_S,
            words=" ".join(words(source, target, messages, for_s)),
        )
        return Attack(self._control, begun["pid"])

    def attack(self, source: str | Sequence[str], target: tuple[str, int], *messages: bytes) -> None:
        """Send these once."""
        attack = self.begin(source, target, messages, 0)
        until(lambda: attack.status() is not None)
        assert attack.status() == 0, "there was no association with the registrar"


class Attack:
    """An attack that goes on."""

    def __init__(self, control: Path, pid: int) -> None:
        self._control = control
        self._pid = pid

    def status(self) -> int | None:
        """Return its exit status; None while it goes on."""
        status: int | None = request(self._control, "status", timeout_s=PATIENCE_S, pid=self._pid)["status"]
        return status

    def kill(self) -> None:
        """End it without a word. It must not have ended by itself."""
        assert self.status() is None, "there was no association with the registrar"
        os.kill(self._pid, signal.SIGKILL)
        until(lambda: self.status() is not None)


class _Program:
    """Forks an attack for each request."""

    def __init__(self) -> None:
        self._ended: dict[int, int] = {}

    async def begin(self, wanted: dict[str, Any]) -> dict[str, Any]:
        if pid := os.fork():
            return {"pid": pid}
        try:
            main(*wanted["words"].split())
        except BaseException as problem:
            print(problem, flush=True)
            os._exit(1)
        os._exit(0)

    async def status(self, wanted: dict[str, Any]) -> dict[str, Any]:
        pid = wanted["pid"]
        if pid not in self._ended:
            ended, status = os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - does not wait
            if not ended:
                return {"status": None}
            self._ended[pid] = os.waitstatus_to_exitcode(status)
        return {"status": self._ended[pid]}


async def _serve(control: str) -> None:
    program = _Program()
    commands = {
        "begin": ControlCommand(program.begin, {"words": str}),
        "status": ControlCommand(program.status, {"pid": int}),
    }
    await ControlServer(control, commands).start()
    await asyncio.Event().wait()


def main(sources: str, address: str, port: str, ppid: str, for_s: str, *messages: str) -> None:
    # A registrar takes a presence only from the port that it names.
    own_port = enrp.PORT if int(ppid) == enrp.PPID else 0
    endpoint = SctpSocket(local_addresses=sources.split(","), port=own_port, listens=True)
    endpoint.connect((address, int(port)))
    association = None
    deadline_s = time.monotonic() + TIMEOUT_S
    while association is None and time.monotonic() < deadline_s:
        with contextlib.suppress(BlockingIOError):
            if isinstance(came := endpoint.receive(), AssociationUp):
                association = came.association
        time.sleep(0.005)
    if association is None:
        sys.exit(f"no association with {address}:{port} within {TIMEOUT_S:g} s")
    end_s = time.monotonic() + float(for_s)
    while True:
        for message in messages:
            with contextlib.suppress(OSError):  # a registrar that has just died
                endpoint.send(association, int(ppid), bytes.fromhex(message))
            time.sleep(0.01)
        time.sleep(AGAIN_S)
        if time.monotonic() >= end_s:
            return


if __name__ == "__main__":
    if sys.argv[1] == "--control":
        asyncio.run(_serve(sys.argv[2]))
    else:
        main(*sys.argv[1:])
