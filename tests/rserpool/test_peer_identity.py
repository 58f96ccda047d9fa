"""Which registrar an association is with, by what its paths prove."""

from dataclasses import dataclass, field

import pytest
from rserpool.aio.sctp import AssociationUp, PathChanged
from rserpool.enrp import Presence
from rserpool.follower import FollowerState, HandlespaceFollower
from rserpool.machine.base import SctpAddress
from rserpool.machine.peer_identity import CLAIM_S, MAX_CLAIMS, MAX_HELD, PeerIdentities
from rserpool.machine.registrar_choice import RegistrarAddress

from rserpool import enrp
from tests.rserpool.paper_enrp import REGISTRAR, presence

HOME, OTHER, STRANGER = ("10.0.0.1", 3863), ("10.0.0.2", 3863), ("10.6.6.6", 3863)


@dataclass
class PaperPaths:
    """The addresses that each association lists, and those that are confirmed."""

    listed: dict[int, list[SctpAddress]] = field(default_factory=dict)
    confirmed: dict[int, list[SctpAddress]] = field(default_factory=dict)

    def peers(self, association: int) -> list[SctpAddress]:
        return self.listed.get(association, [])

    def is_confirmed(self, association: int, peer: SctpAddress) -> bool:
        return peer in self.confirmed.get(association, [])


@pytest.fixture
def identities() -> PeerIdentities[str]:
    return PeerIdentities([HOME, OTHER])


def test_primary_or_confirmed_path_makes_a_registrar(identities: PeerIdentities[str]) -> None:
    paths = PaperPaths({1: [STRANGER, HOME], 2: [STRANGER, HOME]}, {1: [STRANGER], 2: [STRANGER, HOME]})
    assert identities.registrar(paths, 1, HOME) == HOME
    assert identities.registrar(paths, 1, STRANGER) is None
    assert identities.registrar(paths, 1) is None
    assert identities.registrar(paths, 2, STRANGER) == HOME


def test_strangers_that_claim_nothing_are_not_held(identities: PeerIdentities[str]) -> None:
    paths = PaperPaths({1: [STRANGER, ("10.0.0.1", 3864)]})
    assert not identities.hold(paths, 1, 100.0)
    assert not identities.is_held(1)
    assert identities.next_deadline_s is None


def test_a_claim_is_held_for_a_while_with_its_first_messages(identities: PeerIdentities[str]) -> None:
    paths = PaperPaths({1: [STRANGER, HOME], 2: [STRANGER, OTHER]})
    assert identities.hold(paths, 1, 100.0)
    assert identities.hold(paths, 2, 100.5)
    assert identities.hold(paths, 1, 100.9), "held already: that does not prolong it"
    assert identities.next_deadline_s == 100.0 + CLAIM_S
    for number in range(MAX_HELD + 3):
        identities.keep(1, str(number))
    identities.keep(2, "x")
    assert identities.due(100.0 + CLAIM_S - 0.01) == []
    assert identities.due(100.0 + CLAIM_S) == [1]
    assert identities.release(1) == []
    assert identities.is_held(2)
    assert identities.release(2) == ["x"]
    assert not identities.is_held(2)
    identities.hold(paths, 1, 200.0)
    for number in range(MAX_HELD + 3):
        identities.keep(1, str(number))
    assert identities.release(1) == [str(number) for number in range(MAX_HELD)]


def test_more_claims_than_fit_are_aborted_at_once(identities: PeerIdentities[str]) -> None:
    paths = PaperPaths({association: [STRANGER, HOME] for association in range(MAX_CLAIMS + 1)})
    for association in range(MAX_CLAIMS + 1):
        identities.hold(paths, association, 100.0)
    assert identities.due(100.0) == [MAX_CLAIMS]


def test_pretenders_list_an_address_without_proof() -> None:
    paths = PaperPaths(
        {1: [STRANGER, HOME], 2: [HOME], 3: [STRANGER], 4: [OTHER, HOME]}, {1: [STRANGER], 2: [HOME]}
    )
    assert PeerIdentities.pretenders(paths, (1, 2, 3, 4), HOME) == [1, 4]


class PaperEnrpSocket:
    """Stands in for MessageEndpoint."""

    port = 50_000

    def __init__(self) -> None:
        self.paths = PaperPaths()
        self.connected: list[SctpAddress] = []
        self.aborted: list[int] = []
        self.sent: list[tuple[int, object]] = []
        self.peers, self.is_confirmed = self.paths.peers, self.paths.is_confirmed

    def locals(self, _association: int) -> list[SctpAddress]:
        return [("10.0.1.1", self.port)]

    def connect(self, peer: SctpAddress) -> None:
        self.connected.append(peer)

    def send(self, association: int, message: object) -> None:
        self.sent.append((association, message))

    def abort_association(self, association: int) -> None:
        self.aborted.append(association)

    def close(self) -> None:
        pass


@pytest.fixture
def socket(monkeypatch: pytest.MonkeyPatch) -> PaperEnrpSocket:
    socket = PaperEnrpSocket()
    monkeypatch.setattr("rserpool.aio.driver.MessageEndpoint", lambda *_, **__: socket)
    monkeypatch.setattr("rserpool.aio.driver.SctpSocket", lambda **_: None)
    return socket


async def test_a_stranger_that_lists_a_registrars_address_is_not_followed(socket: PaperEnrpSocket) -> None:
    registrar = RegistrarAddress("10.0.0.1")
    follower = HandlespaceFollower([registrar], lambda *_: None)
    follower.start()
    stranger = ("10.6.6.6", 9901)
    socket.paths.listed[7] = [stranger, registrar.enrp_endpoint]
    socket.paths.confirmed[7] = [stranger]
    follower.follow(0)
    assert socket.connected == [registrar.enrp_endpoint]
    follower._driver._notification(AssociationUp(7, stranger))
    follower._driver._message(7, presence(), registrar.enrp_endpoint)
    assert follower.state(0) is FollowerState.CONNECTING
    assert socket.sent == []
    # The purpose: the registrar's other address is confirmed.
    socket.paths.confirmed[7].append(registrar.enrp_endpoint)
    follower._driver._notification(PathChanged(7, stranger))
    assert follower.state(0) is FollowerState.JOINING
    assert [type(message) for _, message in socket.sent] == [Presence, enrp.HandleTableRequest]
    assert follower._machine.registrars[0].sender == REGISTRAR
    follower.close()


async def test_a_stranger_with_a_registrars_address_is_aborted_when_that_registrar_is_wanted(
    socket: PaperEnrpSocket,
) -> None:
    registrar = RegistrarAddress("10.0.0.1")
    follower = HandlespaceFollower([registrar], lambda *_: None)
    follower.start()
    socket.paths.listed[7] = [("10.6.6.6", 9901), registrar.enrp_endpoint]
    follower._driver._notification(AssociationUp(7, ("10.6.6.6", 9901)))
    follower.follow(0)
    assert socket.aborted == [7]
    assert socket.connected == [registrar.enrp_endpoint]
    follower.close()
