"""What a registrar's answer about a pool says of one pool element. Pure."""

from typing import Final

from rserpool import Resolution, Transport

MAX_ITEMS: Final = 128
"""So many elements of a pool a registrar tells at most."""


def is_listed(resolution: Resolution, identifier: int) -> bool | None:
    """Tell whether a registrar lists the PE; None when its answer was cut to the first 128 without it."""
    if any(element.identifier == identifier for element in resolution.pool_elements):
        return True
    return None if is_cut(resolution) else False


def is_cut(resolution: Resolution) -> bool:
    """Tell whether the pool may have more members than the answer."""
    return len(resolution.pool_elements) >= MAX_ITEMS


def is_same_server(listed: Transport, mine: Transport) -> bool:
    """Tell whether a listed transport is ours; a registrar may list fewer addresses than were registered."""
    return (
        listed.protocol is mine.protocol
        and listed.port == mine.port
        and not set(listed.addresses).isdisjoint(mine.addresses)
    )
