"""Advice for a server whose registration a registrar refuses. Pure: causes in, words out.

About addresses rspregistrar says one thing only, 0xf008: none that was registered is the association's. Its
0xf005 (no address or no port left) and 0xf007 (none for ASAP) can't follow once it has found one that is.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ppe_agent.config_types import name_of
from rserpool import CauseCode, ErrorCause, PoolElement, Protocol

IDENTIFIER_TAKEN: Final = frozenset({int(CauseCode.NON_UNIQUE_PE_IDENTIFIER), 0xF001, 0xF002})
"""Causes that say that another pool element has the PE identifier; from 0xf000 on they are rsplib's."""


def advice(causes: Sequence[ErrorCause], mine: PoolElement, other: PoolElement | None) -> str:
    """Return what to change in agent.toml, "" when nothing there helps.

    `other` is another member of the pool, None when none is known.
    """
    for cause in causes:
        words = _ADVICE.get(cause.code)
        if words is not None:
            return words(mine, other)
    return ""


def _policy(mine: PoolElement, other: PoolElement | None) -> str:
    own = name_of(mine.policy)
    if other is None:
        return f'set policy to that of the pool\'s other members (here it is "{own}"), or take another handle'
    return (
        f'the pool\'s other members have policy "{name_of(other.policy)}", this one "{own}": '
        "make them agree, or take another handle"
    )


def _transport(mine: PoolElement, other: PoolElement | None) -> str:
    own = _protocol(mine)
    if other is None:
        return (
            f'set transport to that of the pool\'s other members (here it is "{own}"), or take another handle'
        )
    return (
        f'the pool\'s other members have transport "{_protocol(other)}", this one "{own}": '
        "take a handle of its own for each transport"
    )


def _control_channel(mine: PoolElement, other: PoolElement | None) -> str:
    del mine, other
    return (
        "the pool's other members speak ASAP on the service's own transport (rsplib's servers can), which a "
        "sidecar can't: take another handle"
    )


def _address(mine: PoolElement, other: PoolElement | None) -> str:
    del other
    addresses = ", ".join(str(address) for address in mine.user_transport.addresses)
    return (
        f"the registrar sees this host under another address than {addresses}: set address to the one that "
        'faces the registrars (or "auto"), and let no address translation stand between'
    )


def _identifier(mine: PoolElement, other: PoolElement | None) -> str:
    del mine, other
    return "another host has this PE identifier (a copied state directory?): a new one is taken"


def _resources(mine: PoolElement, other: PoolElement | None) -> str:
    del mine, other
    return "look at the registrar's memory and log"


def _protocol(element: PoolElement) -> str:
    protocol = element.user_transport.protocol
    return protocol.name.lower() if isinstance(protocol, Protocol) else str(protocol)


_ADVICE: Final[dict[int, Callable[[PoolElement, PoolElement | None], str]]] = {
    CauseCode.INCONSISTENT_POLICY: _policy,
    0x100B: _policy,
    0xF003: _policy,
    CauseCode.INCONSISTENT_TRANSPORT: _transport,
    0x100A: _transport,
    CauseCode.INCONSISTENT_CONTROL_CHANNEL: _control_channel,
    0xF008: _address,
    CauseCode.LACK_OF_RESOURCES: _resources,
    **dict.fromkeys(IDENTIFIER_TAKEN, _identifier),
}
