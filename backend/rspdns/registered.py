"""Which pools have members: asked of the running backend, or of the registrars themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from daemon_kit.control import ControlError, request
from rserpool.client import RegistrarClient
from rserpool.errors import RSerPoolError
from rserpool.registrar_choice import RegistrarAddress
from rserpool.sctp import SctpUnavailable

from rspdns.configuration import BackendConfig

TIMEOUT_MS = 500
PATIENCE_S = 3.0
"""For one registrar, its association included."""


def registered_handles(config: BackendConfig) -> Collection[str] | None:
    """The configured handles under which somebody is registered; None when nobody could be asked."""
    if not config.accept_by_handle:
        return ()
    told = _told_by_backend(config)
    return asyncio.run(_told_by_registrars(config)) if told is None else told


def _told_by_backend(config: BackendConfig) -> Collection[str] | None:
    """What the running backend knows; None when there is none, or it does not know all these handles."""
    try:
        status = request(config.admin.socket, "status")
        pools = [pool for zone in status["zones"] for pool in zone["pools"]]
        asked = {handle for pool in pools if pool["known"] for handle in pool["handles"]}
        if not asked >= config.accept_by_handle.keys():
            return None
        return {handle for pool in pools if pool["members"] or pool["out"] for handle in pool["handles"]}
    except (ControlError, KeyError, TypeError):
        return None


async def _told_by_registrars(config: BackendConfig) -> Collection[str] | None:
    found: set[str] = set()
    answers = await asyncio.gather(
        *(_told_by(address, list(config.accept_by_handle)) for address in config.registrar_addresses)
    )
    for answer in answers:
        found |= answer or set()
    return None if all(answer is None for answer in answers) else found


async def _told_by(address: RegistrarAddress, handles: Collection[str]) -> set[str] | None:
    """The handles one registrar knows; None when it does not answer."""
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
            resolutions = [await client.resolve(handle.encode()) for handle in handles]
            return {handle for handle, one in zip(handles, resolutions, strict=True) if one.found}
    except (RSerPoolError, TimeoutError, OSError):
        return None
    finally:
        await client.close()
