"""What a host that was let near may say to a registrar, unchecked. Run it where SCTP works.

    python -m tests.support.attacks SOURCE[,CLAIMED...] TARGET PORT PPID FOR_S MESSAGE...

SOURCE is the address that it speaks from; CLAIMED ones are bound, too, so its INIT names them. The
messages, in hex digits, are sent again and again for FOR_S. Exit status 1: there was no association.
`attack` runs it; the functions above that make the messages.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from ipaddress import IPv4Address

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
from tests.support.namespaces import REPOSITORY, Namespace

TIMEOUT_S = 20.0
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
    return [asap.encode(asap.EndpointUnreachable(handle, one)) for one in identifiers for _ in range(3)]


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


def command(
    source: str | Sequence[str], target: tuple[str, int], messages: Sequence[bytes], for_s: float
) -> list[str]:
    """Return the command that sends these from `source` (others: claimed) to a registrar's endpoint."""
    sources = source if isinstance(source, str) else ",".join(source)
    ppid = enrp.PPID if target[1] >= enrp.PORT else asap.PPID
    words = (sources, target[0], target[1], ppid, for_s, *(one.hex() for one in messages))
    return [sys.executable, "-m", "tests.support.attacks", *map(str, words)]


def attack(
    namespace: Namespace,
    source: str | Sequence[str],
    target: tuple[str, int],
    messages: Sequence[bytes],
    for_s: float = 0.0,
) -> None:
    """Run `command` in a namespace to its end."""
    sent = subprocess.run(
        namespace.command(*command(source, target, messages, for_s), sctp=True),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd=REPOSITORY,
    )
    assert sent.returncode == 0, sent.stdout + sent.stderr


def begin_attack(
    namespace: Namespace,
    source: str | Sequence[str],
    target: tuple[str, int],
    messages: Sequence[bytes],
    for_s: float,
) -> subprocess.Popen[str]:
    """Start `command` in a namespace, which ends it."""
    started = command(source, target, messages, for_s)
    return namespace.start(*started, sctp=True, environment={"PYTHONPATH": str(REPOSITORY)})


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
    main(*sys.argv[1:])
