"""Paper sockets for the driver: they reach the paper registrars of `paper_registrars.py`, and can break."""

import errno
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from rserpool.aio import driver
from rserpool.aio.sctp import (
    AssociationFailed,
    AssociationLost,
    AssociationUp,
    Notification,
    PathChanged,
    SctpMessage,
    SctpUnavailable,
)
from rserpool.machine.base import SctpAddress

from rserpool import asap
from tests.rserpool.paper_registrars import PaperRegistrar


class PaperNetwork:
    """The registrars there are, and every socket that was opened."""

    def __init__(self) -> None:
        self.registrars: dict[SctpAddress, PaperRegistrar] = {}
        self.sockets: list[PaperSocket] = []
        self.is_broken = False

    def socket(self, **options: object) -> "PaperSocket":
        if self.is_broken:
            raise SctpUnavailable("no SCTP here")
        self.sockets.append(PaperSocket(self, options))
        return self.sockets[-1]

    @property
    def open_sockets(self) -> list["PaperSocket"]:
        return [each for each in self.sockets if each.fileno() >= 0]


class PaperSocket:
    """Stands in for SctpSocket; readable, for the event loop, while there is something to receive."""

    def __init__(self, network: PaperNetwork, options: dict[str, object]) -> None:
        self.network = network
        self.options = options
        self.port = 50_000 + len(network.sockets)
        self.associations: dict[int, SctpAddress] = {}
        self.other_addresses: dict[int, list[SctpAddress]] = {}
        self.claimed: dict[int, list[SctpAddress]] = {}
        """Listed by the other side of an association, and not confirmed."""
        self.aborted: list[int] = []
        self.sent: list[bytes] = []
        self.is_full = False
        self.incoming: deque[SctpMessage | Notification | OSError] = deque()
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)

    def fileno(self) -> int:
        return self._ours.fileno()

    def deliver(self, what: SctpMessage | Notification | OSError) -> None:
        self.incoming.append(what)
        self._theirs.send(b"!")

    def connect(self, peer: SctpAddress) -> None:
        registrar = self.network.registrars.get(peer)
        if any(
            peer in self.peers(association)
            for association in self.associations
            if association not in self.aborted
        ):
            return  # SCTP says EISCONN: there is that association
        if registrar is None:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")
        if registrar.dead:
            self.deliver(AssociationFailed(0, peer))
        else:
            self.associate(peer)

    def associate(self, peer: SctpAddress) -> int:
        association = len(self.associations) + 1
        self.associations[association] = peer
        self.deliver(AssociationUp(association, peer))
        return association

    def lose(self, association: int) -> None:
        self.deliver(AssociationLost(association, self.associations[association], "the association broke"))

    def send(self, association: int, ppid: int, data: bytes) -> None:
        if self.is_full:
            raise BlockingIOError
        assert ppid == asap.PPID
        self.sent.append(data)
        peer = self.associations[association]
        if peer not in self.network.registrars:
            return
        for reply in self.network.registrars[peer].take(asap.decode(data)):
            self.deliver(SctpMessage(association, asap.PPID, asap.encode(reply), peer))

    def receive(self) -> SctpMessage | Notification | None:
        self._ours.recv(1)
        received = self.incoming.popleft()
        if isinstance(received, OSError):
            raise received
        return received

    def peers(self, association: int) -> list[SctpAddress]:
        return [*self._confirmed(association), *self.claimed.get(association, [])]

    def locals(self, _association: int) -> list[SctpAddress]:
        return [("10.0.1.1", self.port)]

    def is_confirmed(self, association: int, peer: SctpAddress) -> bool:
        return peer in self._confirmed(association)

    def _confirmed(self, association: int) -> list[SctpAddress]:
        return [self.associations[association], *self.other_addresses.get(association, [])]

    def confirm(self, association: int, peer: SctpAddress) -> None:
        self.claimed[association].remove(peer)
        self.other_addresses.setdefault(association, []).append(peer)
        self.deliver(PathChanged(association, self.associations[association]))

    def abort_association(self, association: int) -> None:
        self.aborted.append(association)

    def forget(self, association: int) -> None:
        pass

    def close_association(self, association: int) -> None:
        self.lose(association)

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


def install(set_to: Callable[[Any, str, Any], None], network: PaperNetwork) -> None:
    """Let the clients open sockets of this network; `set_to` is `setattr`, or a monkeypatch's."""
    set_to(driver, "SctpSocket", network.socket)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> PaperNetwork:
    """Let the clients open paper sockets."""
    network = PaperNetwork()
    install(monkeypatch.setattr, network)
    return network
