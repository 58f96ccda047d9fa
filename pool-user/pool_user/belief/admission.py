"""No PE joins uninvited (rule 6), and the registrations of strangers must not fill memory and time.

`accepted` and `why_refused` apply the `accept` networks. `PoolAdmission` says which PEs are noted at all.

A registrar's word about any other PE is refused at the door: nothing of it is stored, nothing is judged anew.
It is counted, and told of now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from pool_user.cause import Cause, Code
from pool_user.views import BeliefEvent
from rserpool import PoolElement, Transport


def spoken_for(element: PoolElement, remote_agents: Collection[IPv4Address | IPv6Address]) -> PoolElement:
    """Return the PE with the address of its server, when one of the `remote_agents` registered it.

    A registrar takes a PE at an address of its association only: that of the agent, where the server is
    elsewhere. Such an agent registers it at its own address, and the PE identifier is the server's IPv4
    address. `accept` is then applied to the latter.
    """
    transport = element.user_transport
    if not remote_agents or len(transport.addresses) != 1 or transport.addresses[0] not in remote_agents:
        return element
    return replace(element, user_transport=replace(transport, addresses=(IPv4Address(element.identifier),)))


def accepted(
    addresses: Sequence[IPv4Address | IPv6Address], accept: Sequence[IPv4Network | IPv6Network]
) -> tuple[IPv4Address | IPv6Address, ...]:
    """Return the addresses that are in one of the networks, each once, in their order.

    The first and the last address of any of these networks are no server's: its own and the broadcast
    address, in IPv6 anycast addresses (RFC 4291 section 2.6.1, RFC 2526).
    """
    if len(addresses) == 1:
        return tuple(addresses) if _is_in(addresses[0], accept) else ()
    return tuple(dict.fromkeys(address for address in addresses if _is_in(address, accept)))


def _is_in(address: IPv4Address | IPv6Address, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    containing = [
        network for network in networks if address.version == network.version and address in network
    ]
    return bool(containing) and not any(
        address in (network.network_address, network.broadcast_address)
        for network in containing
        if network.prefixlen < network.max_prefixlen - 1
    )


def why_refused(
    transport: Transport, accept: Sequence[IPv4Network | IPv6Network], ports: Collection[int] = ()
) -> Cause | None:
    """Return why a PE with this user transport does not count, None if it does. Empty `ports`: any port."""
    if not transport.port:
        return Cause(Code.NO_PORT)
    if ports and transport.port not in ports:
        return Cause(Code.OTHER_PORT, count=transport.port)
    if accepted(transport.addresses, accept):
        return None
    listed = ", ".join(str(address) for address in transport.addresses[:4]) or "none"
    return Cause(Code.NOT_ACCEPTED, detail=listed)


MAX_FOREIGN = 64
"""PEs outside `accept` that are known of one pool, so that an administrator sees who is refused and why."""
TOLD_EVERY_S = 10.0
"""The least time between two events about refusals at the door, for each pool and kind."""


class PoolAdmission:
    """The known PEs of one pool, by identifier: at most `max_members`, and MAX_FOREIGN outside `accept`."""

    def __init__(self, handle: str) -> None:
        self.refused: Counter[Code] = Counter()
        """The PEs refused at the door since the start, counted: FOREIGN, TOO_MANY or UNPROVEN."""
        self._handle = handle
        self._own: set[int] = set()
        self._foreign: set[int] = set()
        self._told_s: dict[Code, float] = {}
        self._untold: Counter[Code] = Counter()

    def __len__(self) -> int:
        return len(self._own) + len(self._foreign)

    def takes(self, identifier: int, *, is_foreign: bool, most: int) -> bool:
        """Whether a registrar's word about this PE counts; then it is known from now on. `is_foreign`: the
        rules refuse its place; `most`: the most PEs that they don't refuse."""
        # A known PE that is told outside the networks keeps its seat: a registrar that lies may say so.
        if identifier in self._own or (is_foreign and identifier in self._foreign):
            return True
        if is_foreign:
            if len(self._foreign) >= MAX_FOREIGN:
                return False
            self._foreign.add(identifier)
            return True
        if len(self._own) >= most:
            return False
        self._foreign.discard(identifier)
        self._own.add(identifier)
        return True

    def remember(self, identifier: int) -> None:
        """Take note of a PE of the last-known-good file."""
        self._own.add(identifier)

    def release(self, identifier: int) -> None:
        """The PE is not claimed any more."""
        self._own.discard(identifier)
        self._foreign.discard(identifier)

    def others(self, needed: Collection[int]) -> list[int]:
        """The known PEs inside `accept` that are not among the `needed`."""
        return list(self._own.difference(needed))

    def refuse(self, element: PoolElement, code: Code, max_members: int, now: float) -> BeliefEvent | None:
        """Count a refusal: FOREIGN, TOO_MANY or UNPROVEN. Return the event about it and those before, if it
        is time."""
        self.refused[code] += 1
        self._untold[code] += 1
        if now < self._told_s.get(code, float("-inf")) + TOLD_EVERY_S:
            return None
        self._told_s[code] = now
        count, self._untold[code] = self._untold[code], 0
        addresses = element.user_transport.addresses
        last = f"{addresses[0] if addresses else 'no address'} port {element.user_transport.port}"
        most = MAX_FOREIGN if code is Code.FOREIGN else max_members
        cause = Cause(code, identifier=element.identifier, detail=last, count=count, most=most)
        return BeliefEvent(now, "refused", self._handle, None, cause)
