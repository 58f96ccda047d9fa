"""Pool-element and pool-user machines joined to registrars made of paper: no sockets, no waiting."""

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address

from rserpool.element import ElementEvent, ElementEventKind, PoolElementMachine
from rserpool.errors import CauseCode, ErrorCause
from rserpool.machine.base import Close, CloseSocket, Connect, MachineAction, Send
from rserpool.machine.registrar_choice import RegistrarAddress
from rserpool.parameters import PoolElement, Protocol, Transport
from rserpool.policies import LeastUsed

from rserpool import asap
from rserpool import user as pool_user

HANDLE = b"pool-1"
REGISTRARS = [RegistrarAddress(f"10.0.0.{number}") for number in (1, 2, 3)]
HOME = REGISTRARS[0].endpoint


def least_used(load: float) -> LeastUsed:
    """Return the policy with the nearest load that the wire can carry."""
    return LeastUsed(round(load * 0xFFFFFFFF) / 0xFFFFFFFF)


ELEMENT = PoolElement(
    0xA001, 0, 6000, Transport(Protocol.UDP, 5060, (ip_address("10.0.1.1"),)), least_used(0.25)
)


def over_the_wire(message: asap.AsapMessage) -> asap.AsapMessage:
    return asap.decode(asap.encode(message))


@dataclass
class PaperRegistrar:
    """Answers as rspregistrar does; `frozen` keeps what it gets for later, `dead` cannot be reached."""

    identifier: int
    dead: bool = False
    frozen: bool = False
    rejects: tuple[ErrorCause, ...] | None = None
    pools: dict[bytes, dict[int, PoolElement]] = field(default_factory=dict)
    acknowledged: list[asap.EndpointKeepAliveAck] = field(default_factory=list)
    unread: list[asap.AsapMessage] = field(default_factory=list)

    def take(self, message: asap.AsapMessage) -> list[asap.AsapMessage]:
        if self.frozen:
            self.unread.append(message)
            return []
        match message:
            case asap.Registration(handle, element):
                if self.rejects is not None:
                    return [asap.RegistrationResponse(handle, element.identifier, True, self.rejects)]
                self.pools.setdefault(handle, {})[element.identifier] = element
                return [asap.RegistrationResponse(handle, element.identifier)]
            case asap.Deregistration(handle, identifier):
                self.pools.get(handle, {}).pop(identifier, None)
                return [asap.DeregistrationResponse(handle, identifier)]
            case asap.HandleResolution(handle):
                members = tuple(self.pools.get(handle, {}).values())
                if not members:
                    return [asap.HandleResolutionResponse(handle, error=(NOT_FOUND,))]
                return [asap.HandleResolutionResponse(handle, members[0].policy, members)]
            case asap.EndpointKeepAliveAck():
                self.acknowledged.append(message)
        return []

    def thaw(self) -> list[asap.AsapMessage]:
        self.frozen = False
        unread, self.unread = self.unread, []
        return [reply for message in unread for reply in self.take(message)]


NOT_FOUND = ErrorCause(CauseCode.UNKNOWN_POOL_HANDLE)
POLICY_MISMATCH = ErrorCause(CauseCode.INCONSISTENT_POLICY)


class JoinedElement:
    """One pool element and several registrars on a clock that the test moves with `run`."""

    def __init__(
        self,
        *,
        registrars: list[RegistrarAddress] | None = None,
        pinned: bool = False,
        new_identifier: Callable[[], int] | None = None,
        is_keyed: bool = False,
    ) -> None:
        self.now = 100.0
        self.addresses = REGISTRARS if registrars is None else registrars
        self.registrars = {
            address.endpoint: PaperRegistrar(0x100 + i) for i, address in enumerate(self.addresses)
        }
        self.machine = PoolElementMachine(
            self.addresses, HANDLE, ELEMENT, pinned=pinned, new_identifier=new_identifier, is_keyed=is_keyed
        )
        self.events: list[ElementEvent] = []
        self.associations: dict[int, tuple[str, int]] = {}
        self.closed: list[tuple[float, int]] = []
        self.is_closed = False
        self.sent: list[tuple[float, int, asap.AsapMessage]] = []
        self._last_association = 0

    @property
    def kinds(self) -> list[ElementEventKind]:
        return [event.kind for event in self.events]

    def at(self, address: RegistrarAddress | None) -> PaperRegistrar:
        assert address is not None
        return self.registrars[address.endpoint]

    def start(self) -> "JoinedElement":
        self.machine.start(self.now)
        self.settle()
        return self

    def settle(self) -> None:
        while actions := self.machine.take_actions():
            for action in actions:
                self._do(action)

    def run(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        """Let time pass, stopping at every deadline of the machine."""
        end = self.now + seconds
        for _ in range(10_000):
            deadline = self.machine.next_deadline_s
            if deadline is None or deadline > end:
                self.now = end
                return
            self.now = max(self.now, deadline)
            self.machine.advance(self.now)
            self.settle()
            each()
        raise AssertionError("the machine asks to be woken without end")

    def associate(self, endpoint: tuple[str, int]) -> int:
        self._last_association += 1
        self.associations[self._last_association] = endpoint
        self.machine.associated(self._last_association, endpoint, self.now)
        self.settle()
        return self._last_association

    def receive(self, association: int, message: asap.AsapMessage) -> None:
        self.machine.received(association, over_the_wire(message), self.now)
        self.settle()

    def kill(self, address: RegistrarAddress | None) -> None:
        registrar = self.at(address)
        registrar.dead = True
        for association, endpoint in list(self.associations.items()):
            if self.registrars.get(endpoint) is registrar:
                self.lose(association)

    def lose(self, association: int) -> None:
        del self.associations[association]
        self.machine.lost(association, self.now)
        self.settle()

    def association_with(self, address: RegistrarAddress | None) -> int:
        assert address is not None
        return next(number for number, other in self.associations.items() if other == address.endpoint)

    def _do(self, action: MachineAction[asap.AsapMessage, ElementEvent]) -> None:
        match action:
            case Connect(peer):
                if self.registrars[peer].dead:
                    self.machine.connect_failed(peer, self.now, "refused")
                else:
                    self.associate(peer)
            case Send(association, message):
                self.sent.append((self.now, association, message))
                registrar_there = self.registrars.get(self.associations[association])
                for reply in registrar_there.take(over_the_wire(message)) if registrar_there else []:
                    self.machine.received(association, over_the_wire(reply), self.now)
            case Close(association):
                self.closed.append((self.now, association))
                del self.associations[association]
                self.machine.lost(association, self.now)
            case CloseSocket():
                self.is_closed = True
                self.associations.clear()
            case ElementEvent() as event:
                self.events.append(event)


class JoinedUser:
    """One pool user and one registrar, on a clock that the test moves with `run`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.registrar = PaperRegistrar(0x100)
        self.user = pool_user.RegistrarClientMachine(HOME, timeout_s=0.3)
        self.answers: dict[int, pool_user.Resolution | Exception] = {}
        self.connects: list[float] = []
        self.disconnects: list[float] = []
        self.hangs = False
        self.association = 0
        self.links: list[bool] = []

    def start(self) -> "JoinedUser":
        self.run(0)
        return self

    def ask(self, handle: bytes = HANDLE) -> int:
        number = self.user.resolve(handle, self.now)
        self.settle()
        return number

    def receive(self, *messages: asap.AsapMessage) -> None:
        for message in messages:
            self.user.received(self.association, over_the_wire(message), self.now)
            self.settle()

    def lose(self) -> None:
        self.user.lost(self.association, self.now)

    def settle(self) -> None:
        while actions := self.user.take_actions():
            for action in actions:
                self._do(action)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        for _ in range(10_000):
            deadline = self.user.next_deadline_s
            if deadline is None or deadline > end:
                self.now = end
                return
            self.now = max(self.now, deadline)
            self.user.advance(self.now)
            self.settle()
        raise AssertionError("the machine asks to be woken without end")

    def _do(self, action: MachineAction[asap.AsapMessage, pool_user.ClientEvent]) -> None:
        match action:
            case Connect(peer):
                assert peer == HOME
                self.connects.append(self.now)
                if self.registrar.dead:
                    self.user.connect_failed(peer, self.now, "refused")
                elif not self.hangs:
                    self.association += 1
                    self.user.associated(self.association, peer, self.now)
            case CloseSocket():
                self.disconnects.append(self.now)
            case Send(association, message):
                assert association == self.association
                for reply in self.registrar.take(over_the_wire(message)):
                    self.user.received(association, over_the_wire(reply), self.now)
            case pool_user.QuestionAnswered(number, resolution):
                self.answers[number] = resolution
            case pool_user.QuestionFailed(number, error):
                self.answers[number] = error
            case pool_user.LinkChanged(is_up):
                self.links.append(is_up)


def others(joined: JoinedElement) -> list[int]:
    """Return the positions of the registrars that are not in charge."""
    return [i for i, address in enumerate(REGISTRARS) if address != joined.machine.registrar]


def keep_alive(*, home: bool = False, registrar: int = 0x100) -> asap.EndpointKeepAlive:
    return asap.EndpointKeepAlive(registrar, HANDLE, ELEMENT.identifier, home)


def registrations(joined: JoinedElement) -> list[tuple[float, int]]:
    return [(at_s, number) for at_s, number, message in joined.sent if isinstance(message, asap.Registration)]
