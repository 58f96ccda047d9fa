"""Advice for a server whose registration a registrar refuses. Pure: causes in, words out.

About addresses rspregistrar says one thing only, 0xf008: none that was registered is the association's. Its
0xf005 (no address or no port left) and 0xf007 (none for ASAP) can't follow once it has found one that is.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ppe_agent.config_types import name_of
from rserpool import CauseCode, ErrorCause, PoolElement

IDENTIFIER_TAKEN: Final = frozenset({int(CauseCode.NON_UNIQUE_PE_IDENTIFIER), 0xF001, 0xF002})
"""Causes that say that another pool element has the PE identifier; from 0xf000 on they are rsplib's."""


def advice(causes: Sequence[ErrorCause], mine: PoolElement, other: PoolElement | None) -> str:
    """Return what to change in agent.toml, "" when nothing there helps.

    `other` is another member of the pool, None when none is known.
    """
    return next(filter(None, (_advice(cause.code, mine, other) for cause in causes)), "")


def _advice(code: int, mine: PoolElement, other: PoolElement | None) -> str:
    match code:
        case CauseCode.INCONSISTENT_POLICY | 0x100B | 0xF003:
            return _at_odds("policy", _policy, mine, other, "make them agree, or take another handle")
        case CauseCode.INCONSISTENT_TRANSPORT | 0x100A:
            return _at_odds(
                "transport", _transport, mine, other, "take a handle of its own for each transport"
            )
        case CauseCode.INCONSISTENT_CONTROL_CHANNEL:
            return (
                "the pool's other members speak ASAP on the service's own transport (rsplib's servers can), "
                "which a sidecar can't: take another handle"
            )
        case 0xF008:
            addresses = ", ".join(str(address) for address in mine.user_transport.addresses)
            return (
                f"the registrar sees this host under another address than {addresses}: set address to the "
                'one that faces the registrars (or "auto"), and let no address translation stand between'
            )
        case CauseCode.LACK_OF_RESOURCES:
            return "look at the registrar's memory and log"
    if code in IDENTIFIER_TAKEN:
        return "another host has this PE identifier (a copied state directory?): a new one is taken"
    return ""


def _at_odds(
    key: str,
    value: Callable[[PoolElement], str],
    mine: PoolElement,
    other: PoolElement | None,
    remedy: str,
) -> str:
    own = value(mine)
    if other is None:
        return f'set {key} to that of the pool\'s other members (here it is "{own}"), or take another handle'
    return f'the pool\'s other members have {key} "{value(other)}", this one "{own}": {remedy}'


def _policy(element: PoolElement) -> str:
    return name_of(element.policy)


def _transport(element: PoolElement) -> str:
    return element.user_transport.protocol.name.lower()
