"""What is known of the configured pools: asked of the running backend, and of the registrars themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from daemon_kit.control import ControlError, request

from rserpool import PoolElement, RegistrarAddress, RegistrarClient, RSerPoolError, SctpUnavailable
from rspdns.configuration import BackendConfig
from rspdns.status.model import OtherVersionError, ZoneStatus, read

TIMEOUT_MS = 500
PATIENCE_S = 3.0
"""For one registrar, its association included."""
Elements = dict[str, dict[int, PoolElement]]
"""By handle and identifier, the pool elements that registrars list."""


@dataclass(frozen=True, slots=True)
class Registered:
    """`handles` are the configured ones under which somebody is registered; None when nobody could be asked.

    `unknown` are those that the running backend does not know, when no registrar answers either.
    `zones` are those of the running backend as its status tells them, `elements` what registrars list under
    the handles that it does not know.
    """

    handles: Collection[str] | None = None
    zones: tuple[ZoneStatus, ...] = ()
    elements: Mapping[str, tuple[PoolElement, ...]] = field(default_factory=dict)
    unknown: Collection[str] = ()


def registered(config: BackendConfig) -> Registered:
    """Ask the running backend, and the registrars about what it does not know."""
    zones, known, used = _told_by_backend(config)
    missing = [handle for handle in config.accept_by_handle if handle not in known]
    if not missing:
        return Registered(used, zones)
    found = asyncio.run(_told_by_registrars(config, missing))
    if found is None:
        return Registered(used, zones, unknown=missing) if known else Registered(None, zones)
    elements = {handle: tuple(of_handle.values()) for handle, of_handle in found.items()}
    return Registered({*used, *(handle for handle, some in elements.items() if some)}, zones, elements)


def _told_by_backend(
    config: BackendConfig,
) -> tuple[tuple[ZoneStatus, ...], Collection[str], Collection[str]]:
    """The zones of the running backend, the handles that it knows, and those that somebody registered."""
    try:
        zones = tuple(read(request(config.admin.socket, "status")).zones)
    except (ControlError, OtherVersionError):
        return (), (), ()
    pools = [pool for zone in zones for pool in zone.pools]
    known = {handle for pool in pools if pool.known for handle in pool.handles}
    used = {handle for pool in pools if pool.members or pool.out for handle in pool.handles}
    return zones, known, used


async def _told_by_registrars(config: BackendConfig, handles: Collection[str]) -> Elements | None:
    """What the registrars list under these handles; None when none of them answers."""
    answers = await asyncio.gather(*(_told_by(address, handles) for address in config.registrar_addresses))
    if all(answer is None for answer in answers):
        return None
    found: Elements = {handle: {} for handle in handles}
    for answer in answers:
        for handle, elements in (answer or {}).items():
            found[handle] |= {element.identifier: element for element in elements}
    return found


async def _told_by(
    address: RegistrarAddress, handles: Collection[str]
) -> dict[str, tuple[PoolElement, ...]] | None:
    """What one registrar lists; None when it does not answer."""
    up = asyncio.Event()
    client = RegistrarClient(
        address, timeout_ms=TIMEOUT_MS, on_link=lambda is_up: up.set() if is_up else up.clear()
    )
    try:
        client.start()
    except (SctpUnavailable, OSError):
        return None
    try:
        async with asyncio.timeout(PATIENCE_S):
            await up.wait()
            return {handle: (await client.resolve(handle.encode())).pool_elements for handle in handles}
    except (RSerPoolError, TimeoutError, OSError):
        return None
    finally:
        await client.close()
