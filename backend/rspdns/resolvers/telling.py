"""Tells a resolver to forget names: one function for each kind. Each raises FlushError, OSError or
TimeoutError when it is not done.

A name with `$` behind it is a zone, with all below it.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from daemon_kit.errors import printable

from rspdns.resolvers import rndc
from rspdns.resolvers.configuration import (
    MOST_RESOLVERS,
    ResolverConfig,
    read_api_key,
    read_rndc_key,
    tls_context,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MOST_BYTES = 64 * 1024
"""The longest reply that is read."""
_DNSMASQ: Final = "uk.org.thekelleys.dnsmasq"
_NO_KNOT_RESOLVER: Final = "it speaks no control protocol of Knot Resolver 5"
_MOST_CHARACTERS = 200
_UNBOUND_SIDE_BY_SIDE: Final = 3
"""Connections to an Unbound at a time. It takes ten, from all that control it."""


class FlushError(Exception):
    """The resolver did not do it; the words are for people."""

    def __init__(self, words: str) -> None:
        super().__init__(printable(words.strip(), _MOST_CHARACTERS))


async def _unbound(config: ResolverConfig, names: Sequence[str]) -> None:
    """One connection for each name: Unbound closes it behind its reply (`unbound-control` does the same).
    Some go side by side: a handshake with the keys of `unbound-control-setup` costs either side 3 ms."""
    context = None if config.endpoint is None else await asyncio.to_thread(_kept_context, config)
    free = asyncio.Semaphore(_UNBOUND_SIDE_BY_SIDE)

    async def flush(name: str) -> None:
        command = f"flush_zone {name[:-1]}" if name.endswith("$") else f"flush {name}"
        async with free, _connection(config, context) as (reader, writer):
            writer.write(f"UBCT1 {command}\n".encode())
            text = (await reader.read(MOST_BYTES)).decode("utf-8", "replace")
        if not text.startswith("ok"):
            raise FlushError(text or "it closed the connection: does it know this certificate?")

    flushes = [asyncio.create_task(flush(name)) for name in names]
    try:
        await asyncio.gather(*flushes)
    except ssl.SSLCertVerificationError as problem:
        words = f"it has another certificate than {config.server_certificate} ({problem.verify_message})"
        raise FlushError(words) from None
    except ssl.SSLError as problem:
        reason = problem.reason or str(problem)
        refuses = f"it refuses the certificate {config.certificate}"
        words = refuses if "ALERT" in reason else "it speaks no TLS of an Unbound's control"
        raise FlushError(f"{words} ({reason})") from None
    except ConnectionResetError:
        if context is None:
            raise
        words = "it resets the connection: a socket as its first control-interface turns TLS off"
        raise FlushError(words) from None
    finally:
        for task in flushes:
            task.cancel()


def _kept_context(config: ResolverConfig) -> ssl.SSLContext:
    """The context of before while its files are the same: to make it costs as much as a handshake."""
    files = (str(config.server_certificate), str(config.certificate), str(config.key))
    try:
        stamps = tuple(Path(file).stat().st_mtime_ns for file in files)
    except OSError:
        return tls_context(config)  # says which can't be read
    return _context(config, stamps)


@lru_cache(MOST_RESOLVERS)
def _context(config: ResolverConfig, _stamps: tuple[int, ...]) -> ssl.SSLContext:
    return tls_context(config)


async def _bind(config: ResolverConfig, names: Sequence[str]) -> None:
    key = await asyncio.to_thread(read_rndc_key, config)
    serial = random.getrandbits(32)
    async with _connection(config) as (reader, writer):

        async def ask(words: str, serial: int, nonce: str | None = None) -> rndc.RndcReply:
            writer.write(rndc.command(key, words, serial, int(time.time()), nonce))
            size = rndc.length(await reader.readexactly(4))
            return rndc.reply(key, await reader.readexactly(size))

        try:
            nonce = (await ask("null", serial)).nonce
            for number, name in enumerate(names, 1):
                words = f"flushtree {name[:-1]}" if name.endswith("$") else f"flushname {name}"
                reply = await ask(words, serial + number, nonce)
                if reply.error is not None:
                    raise FlushError(f"{words}: {reply.error}")
        except asyncio.IncompleteReadError:
            words = "it closed the connection: is the key another one, or do the clocks differ?"
            raise FlushError(words) from None
        except rndc.RndcError as problem:
            raise FlushError(str(problem)) from None


async def _knot_resolver(config: ResolverConfig, names: Sequence[str]) -> None:
    """The control speaks Lua; in binary mode the length of each reply stands before it."""
    async with _connection(config) as (reader, writer):
        writer.write(b"__binary\n")
        try:
            await reader.readuntil(b"> ")
            for name in names:
                exact = "" if name.endswith("$") else ", true"
                writer.write(f"cache.clear('{name.removesuffix('$')}.'{exact})\n".encode())
                size = int.from_bytes(await reader.readexactly(4), "big")
                if size > MOST_BYTES:
                    raise FlushError(_NO_KNOT_RESOLVER)
                text = (await reader.readexactly(size)).decode("utf-8", "replace")
                if "count" not in text:
                    raise FlushError(text)
        except asyncio.IncompleteReadError:
            raise FlushError("it closed the connection") from None
        except asyncio.LimitOverrunError:
            raise FlushError(_NO_KNOT_RESOLVER) from None


async def _recursor(config: ResolverConfig, names: Sequence[str]) -> None:
    def query(name: str) -> dict[str, str]:
        subtree = {"subtree": "true"} if name.endswith("$") else {}
        return {"domain": f"{name.removesuffix('$')}."} | subtree

    await _by_http(config, "PUT", "/api/v1/servers/localhost/cache/flush", map(query, names))


async def _dnsdist(config: ResolverConfig, names: Sequence[str]) -> None:
    def query(name: str) -> dict[str, str]:
        suffix = {"suffix": "1"} if name.endswith("$") else {}
        return {"pool": config.cache_pool, "name": f"{name.removesuffix('$')}."} | suffix

    await _by_http(config, "DELETE", "/api/v1/cache", map(query, names))


async def _dnsmasq(config: ResolverConfig, names: Sequence[str]) -> None:
    """It forgets everything: it knows nothing smaller."""
    del names
    if shutil.which("busctl") is None:
        raise FlushError("busctl is missing: install Debian's package systemd")
    busctl = await asyncio.create_subprocess_exec(
        *("busctl", f"--address=unix:path={config.socket}", "--timeout=2", "call"),
        *(_DNSMASQ, f"/{_DNSMASQ.replace('.', '/')}", _DNSMASQ, "ClearCache"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, told = await busctl.communicate()
    finally:
        if busctl.returncode is None:
            busctl.kill()
            await busctl.wait()
    if busctl.returncode:
        raise FlushError(told.decode("utf-8", "replace") or f"busctl ended with {busctl.returncode}")


TELL: Final[Mapping[str, Callable[[ResolverConfig, Sequence[str]], Awaitable[None]]]] = MappingProxyType(
    {
        "unbound": _unbound,
        "bind": _bind,
        "knot-resolver": _knot_resolver,
        "recursor": _recursor,
        "dnsdist": _dnsdist,
        "dnsmasq": _dnsmasq,
    }
)


@asynccontextmanager
async def _connection(
    config: ResolverConfig, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    at = config.endpoint
    if at is None:
        reader, writer = await asyncio.open_unix_connection(config.socket, limit=MOST_BYTES)
    else:
        reader, writer = await asyncio.open_connection(
            str(at.address), at.port, ssl=context, limit=MOST_BYTES
        )
    try:
        yield reader, writer
    finally:
        writer.transport.abort()  # a resolver that takes no goodbye would hold up the next flush


async def _by_http(config: ResolverConfig, method: str, path: str, queries: map[dict[str, str]]) -> None:
    from aiohttp import ClientError, ClientSession, DummyCookieJar

    key = await asyncio.to_thread(read_api_key, config)
    try:
        async with ClientSession(cookie_jar=DummyCookieJar(), auto_decompress=False) as session:
            for query in queries:
                url = f"http://{config.address}{path}?{urlencode(query)}"
                async with session.request(
                    method, url, headers={"X-API-Key": key}, allow_redirects=False
                ) as response:
                    status = response.status
                    response.close()  # its body is of no interest, and may have no end
                if status == 401:
                    raise FlushError("it refuses the API key")
                if status != 200:
                    raise FlushError(f"it answered {method} {path} with {status}")
    except ClientError as problem:
        raise FlushError(str(problem) or type(problem).__name__) from None
