"""A follower of one registrar on a clock that the test moves, and ENRP messages as a registrar sends them."""

from ipaddress import ip_address

from rserpool.enrp import (
    EnrpMessage,
    HandleTableRequest,
    HandleTableResponse,
    HandleUpdate,
    PoolEntry,
    Presence,
    UpdateAction,
)
from rserpool.follower import (
    NO_ELEMENTS,
    FollowedRegistrar,
    FollowerEvent,
    FollowerState,
    Ownership,
)
from rserpool.machine.base import MachineAction, Send
from rserpool.parameters import PoolElement, Protocol, Transport
from rserpool.policies import LeastUsed

from rserpool import enrp

OWN, REGISTRAR, OTHER = 0x0F, 0xA1, 0xB2
HANDLE = b"pool-1"
ENDPOINT = ("10.0.0.1", 9901)
TRANSPORT = Transport(Protocol.SCTP, 40_000, (ip_address("10.0.0.9"),))


def pe(identifier: int, home: int = REGISTRAR) -> PoolElement:
    transport = Transport(Protocol.UDP, 5060, (ip_address("10.0.1.1"),))
    return PoolElement(identifier, home, 6000, transport, LeastUsed(0.0), asap_transport=TRANSPORT)


def page(*elements: PoolElement, more: bool = False, rejected: bool = False) -> HandleTableResponse:
    pools = (PoolEntry(HANDLE, elements),) if elements else ()
    return HandleTableResponse(REGISTRAR, OWN, pools, rejected, more)


def presence(checksum: int = NO_ELEMENTS, *, asks: bool = False, sender: int = REGISTRAR) -> Presence:
    return Presence(sender, OWN, checksum, None, asks)


def update(element: PoolElement, action: UpdateAction = UpdateAction.ADD) -> HandleUpdate:
    return HandleUpdate(REGISTRAR, OWN, action, HANDLE, element)


class Paper:
    """The follower `machine`; what it asked for is in `actions`, everything over the wire and back."""

    def __init__(self) -> None:
        self.ownership = Ownership()
        self.machine = FollowedRegistrar(ENDPOINT, OWN, self.ownership)
        self.now = 100.0
        self.association = 0
        self.actions: list[MachineAction[EnrpMessage, FollowerEvent]] = []

    def do(self) -> None:
        self.actions += self.machine.take_actions()

    def follow(self) -> None:
        self.machine.follow(self.now)
        self.do()

    def associate(self) -> None:
        self.association += 1
        self.machine.associated(self.association, TRANSPORT, self.now)
        self.do()

    def lose(self) -> None:
        self.machine.lost(self.association, self.now)
        self.do()

    def hear(self, message: EnrpMessage) -> None:
        self.machine.received(enrp.decode(enrp.encode(message)), self.now)
        self.do()

    def wait(self, seconds: float, step_s: float = 0.05) -> None:
        end_s = self.now + seconds
        while self.now < end_s:
            self.now += step_s
            self.machine.advance(self.now)
            self.do()

    def join(self, *elements: PoolElement) -> None:
        """Follow, with these elements in the registrar's table."""
        self.follow()
        self.associate()
        self.hear(page(*(elements or (pe(1),))))
        assert self.machine.state is FollowerState.FOLLOWING
        self.actions.clear()

    def state(self) -> FollowerState:
        return self.machine.state

    @property
    def sent(self) -> list[EnrpMessage]:
        return [action.message for action in self.actions if isinstance(action, Send)]

    @property
    def events(self) -> list[FollowerEvent]:
        return [action for action in self.actions if isinstance(action, FollowerEvent)]

    def requests(self) -> list[HandleTableRequest]:
        return [message for message in self.sent if isinstance(message, HandleTableRequest)]

    def presences(self) -> list[Presence]:
        return [message for message in self.sent if isinstance(message, Presence)]
