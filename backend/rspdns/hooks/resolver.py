"""Looks hosts' names up in threads of its own: a name server that hangs holds up neither the threads that all
others use, nor the end of the backend."""

from __future__ import annotations

import asyncio
import socket
import threading

from aiohttp.abc import AbstractResolver, ResolveResult

MOST_UNDER_WAY = 64
"""The most look-ups at once; those that were given up count until the system ends them, after 30 s say."""


class DaemonResolver(AbstractResolver):
    """Resolves by getaddrinfo(3)."""

    def __init__(self) -> None:
        self._under_way = threading.BoundedSemaphore(MOST_UNDER_WAY)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of `host`. Raises OSError."""
        if not self._under_way.acquire(blocking=False):
            raise OSError(f"{MOST_UNDER_WAY} look-ups of names hang")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[ResolveResult]] = loop.create_future()

        def tell(found: list[ResolveResult] | OSError) -> None:
            if done.done():
                return  # it was given up
            if isinstance(found, OSError):
                done.set_exception(found)
            else:
                done.set_result(found)

        def look_up() -> None:
            found: list[ResolveResult] | OSError
            try:
                found = _addresses(host, port, family)
            except OSError as problem:
                found = problem
            finally:
                self._under_way.release()
            if not loop.is_closed():
                loop.call_soon_threadsafe(tell, found)

        threading.Thread(target=look_up, name=f"resolve {host}", daemon=True).start()
        return await done

    async def close(self) -> None:
        """Look-ups under way are left to themselves."""


def _addresses(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    return [
        ResolveResult(
            hostname=host,
            host=str(address[0]),
            port=int(address[1]),
            family=of_family,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for of_family, _, protocol, _, address in socket.getaddrinfo(
            host, port, family=family, type=socket.SOCK_STREAM
        )
    ]
