"""The other name servers: overrides are set and cleared at each of them by its API, and compared.

Each name server decides for itself: its own pools, its own last member, its own file. So an override that is
set everywhere has an identifier that all name servers know it by, and absolute times. A peer that has it
already does nothing, so every command can be given again.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson
from daemon_kit.errors import printable, reason_of
from daemon_kit.logs import get_logger
from pydantic import TypeAdapter, ValidationError

from rspdns.peers.configuration import PeerConfig, read_token
from rspdns.status.model import OverrideStatus, PeerResult, PeerStatus
from rspdns.status.override_words import title, utc

if TYPE_CHECKING:
    from aiohttp import ClientSession

READ_ONLY = "the token may read only: no override can be set there"
LOOK_S = 10.0
"""Time between two comparisons with a peer."""
TIMEOUT_S = 5.0
SAME_TIME_S = 2.0
"""Ends that differ by less are the same."""
_MOST_BYTES = 4 * 1024 * 1024
_MOST_DIFFERENCES = 20
_MOST_CHARACTERS = 500
"""The length of words from a peer."""
_OVERRIDES = TypeAdapter(list[OverrideStatus])


class PeerError(Exception):
    """A peer could not be asked, or refused; the words are for people."""


class PeerSilentError(PeerError):
    """A peer did not answer: whether it did what it was asked is not known."""


def differences(mine: Iterable[OverrideStatus], theirs: Iterable[OverrideStatus]) -> list[str]:
    """Return in words where the overrides of two name servers differ; the first is this one. Pure."""
    pairs, only_here, only_there = _paired(mine, theirs)
    words = [f"only here: {_called(each)}" for each in only_here]
    words += [f"not here: {_called(each)}, by {each.by}: {each.reason}" for each in only_there]
    for here, there in pairs:
        ends = [_end(each) for each in (here, there)]
        if ends[0] != ends[1] and not abs(ends[0] - ends[1]) < SAME_TIME_S:
            words.append(f"{_title(here)}: it ends {_when(here)} here, {_when(there)} there")
        if here.holds != there.holds and not abs(here.starts_at_s - there.starts_at_s) < SAME_TIME_S:
            begins = [utc(each.starts_at_s) for each in (here, there)]
            words.append(f"{_title(here)}: it begins at {begins[0]} here, at {begins[1]} there")
        if here.problem != there.problem:
            where, problem = ("there", there.problem) if there.problem else ("here", here.problem)
            words.append(f"{_title(here)}: it does not hold {where}: {problem}")
    return [printable(each, _MOST_CHARACTERS) for each in sorted(words)[:_MOST_DIFFERENCES]]


def _paired(
    mine: Iterable[OverrideStatus], theirs: Iterable[OverrideStatus]
) -> tuple[list[tuple[OverrideStatus, OverrideStatus]], list[OverrideStatus], list[OverrideStatus]]:
    """The overrides that are the same, by identifier or else by action and servers; the others of each."""
    here, there, pairs = list(mine), list(theirs), []
    for key in (lambda each: each.id, _title):
        waiting: dict[str, list[OverrideStatus]] = {}
        for each in reversed(there):
            if (name := key(each)) is not None:
                waiting.setdefault(name, []).append(each)
        left = []
        for each in here:
            matching = waiting.get(key(each) or "")
            if matching:
                pairs.append((each, matching.pop()))
            else:
                left.append(each)
        taken = {id(pair[1]) for pair in pairs}
        here, there = left, [each for each in there if id(each) not in taken]
    return pairs, here, there


def _title(override: OverrideStatus) -> str:
    return title(override.action, override.servers, override.share, override.pool)


def _called(override: OverrideStatus) -> str:
    later = "" if override.holds or override.problem else f" from {utc(override.starts_at_s)} on"
    return f"{_title(override)}{later}"


def _end(override: OverrideStatus) -> float:
    return float("inf") if override.ends_at_s is None else override.ends_at_s


def _when(override: OverrideStatus) -> str:
    return "when it is cleared" if override.ends_at_s is None else f"at {utc(override.ends_at_s)}"


class Peer:
    """One other name server. `overrides` gives those of this one."""

    def __init__(self, config: PeerConfig, overrides: Callable[[], Sequence[OverrideStatus]]) -> None:
        self.config = config
        self._overrides = overrides
        self._problem: str | None = None
        self._differences: list[str] = []
        self._compared_s: float | None = None
        self._log = get_logger("peers")

    def status(self, now: float) -> PeerStatus:
        """The peer for the status."""
        age_s = None if self._compared_s is None else round(max(0.0, now - self._compared_s), 3)
        return PeerStatus(self.config.name, self.config.url, self._problem, list(self._differences), age_s)

    async def run(self, session: ClientSession) -> None:
        """Compare with it until this is cancelled."""
        while True:
            await self.compare(session)
            await asyncio.sleep(LOOK_S)

    async def compare(self, session: ClientSession) -> None:
        """Ask for its overrides, and note where they differ from those here."""
        try:
            told = await self._ask(session, "GET", "/v1/overrides")
            try:
                theirs = _OVERRIDES.validate_python(told.get("overrides"))
                found = differences(self._overrides(), theirs)
            except (ValidationError, ValueError, OverflowError):  # no time of a calendar, say
                raise PeerError("it tells overrides of another version") from None
        except PeerError as problem:
            self._note(str(problem), self._differences)
            return
        self._compared_s = time.monotonic()
        self._note(None if told.get("may_write") is True else READ_ONLY, found)

    def _note(self, problem: str | None, found: list[str]) -> None:
        if problem is not None and self._problem is None:
            self._log.warning("peer_failed", peer=self.config.name, problem=problem)
        if found and found != self._differences:
            self._log.warning("peer_differs", peer=self.config.name, differences=found)
        self._problem, self._differences = problem, found

    async def set(self, session: ClientSession, override: Mapping[str, Any]) -> PeerResult:
        """Set an override, as this name server keeps it, there too."""
        keys = ("id", "action", "servers", "reason", "share", "pool", "starts_at_s", "ends_at_s")
        body = {key: override[key] for key in keys if override[key] is not None}
        body |= {"force": override["forced"], "behalf": override["by"]}
        return await self._result_of(session, "POST", "/v1/overrides", body)

    async def clear(self, session: ClientSession, identifier: str, by: str) -> PeerResult:
        """Clear the override that all name servers know by this identifier; `by` wants it."""
        return await self._result_of(
            session, "DELETE", f"/v1/overrides/{identifier}?{urlencode({'behalf': by})}"
        )

    async def _result_of(
        self, session: ClientSession, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> PeerResult:
        try:
            await self._ask(session, method, path, body)
        except PeerSilentError as problem:
            return PeerResult(self.config.name, f"{problem}; it may be done all the same")
        except PeerError as problem:
            return PeerResult(self.config.name, str(problem))
        await self.compare(session)
        return PeerResult(self.config.name, None)

    async def _ask(
        self, session: ClientSession, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the peer's answer. Raises PeerError."""
        from aiohttp import ClientConnectorError, ClientError, ClientTimeout

        try:
            token, context = await asyncio.to_thread(self._files)  # each time: they may be renewed
            async with session.request(
                method,
                self.config.url + path,
                data=None if body is None else orjson.dumps(body),
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                ssl=context,
                allow_redirects=False,
                timeout=ClientTimeout(TIMEOUT_S),
            ) as response:
                status, text = response.status, bytearray()
                async for part in response.content.iter_chunked(64 * 1024):
                    text += part
                    if len(text) > _MOST_BYTES:
                        raise PeerError(f"an answer of more than {_MOST_BYTES} bytes")
        except TimeoutError:
            raise PeerSilentError(f"no answer within {TIMEOUT_S:g} s") from None
        except ClientConnectorError as problem:
            raise PeerError(reason_of(problem.os_error)) from None
        except (ClientError, OSError, ValueError) as problem:
            raise PeerError(str(problem)[:200] or type(problem).__name__) from None
        try:
            answer = orjson.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise PeerError(f"what answers at {self.config.url} is no rspdns (status {status})")
        if status != 200:
            raise PeerError(printable(str(answer.get("error", f"it answered {status}")), _MOST_CHARACTERS))
        return answer

    def _files(self) -> tuple[str, ssl.SSLContext | bool]:
        """The token, and the authorities that its certificate is checked with. Raises ValueError, OSError."""
        token = read_token(self.config.token)
        if self.config.tls_ca is None:
            return token, True
        return token, ssl.create_default_context(cafile=self.config.tls_ca)


class Peers:
    """All peers. `overrides` gives those of this name server."""

    def __init__(self, overrides: Callable[[], Sequence[OverrideStatus]]) -> None:
        self._overrides = overrides
        self._peers: dict[str, tuple[Peer, asyncio.Task[None]]] = {}
        self._session: ClientSession | None = None

    async def start(self, configs: Sequence[PeerConfig]) -> None:
        """Begin to compare."""
        from aiohttp import ClientSession, DummyCookieJar, TCPConnector

        from rspdns.hooks.resolver import DaemonResolver

        self._session = ClientSession(
            connector=TCPConnector(resolver=DaemonResolver()), cookie_jar=DummyCookieJar()
        )
        self.set_peers(configs)

    def set_peers(self, configs: Sequence[PeerConfig]) -> None:
        """Let these be the peers from now on."""
        if self._session is None:
            return  # it begins with the configuration of then
        for name, (peer, task) in list(self._peers.items()):
            if peer.config not in configs:
                task.cancel()
                del self._peers[name]
        for config in configs:
            if config.name not in self._peers:
                peer = Peer(config, self._overrides)
                task = asyncio.get_running_loop().create_task(peer.run(self._session))
                self._peers[config.name] = peer, task

    async def close(self) -> None:
        """End it."""
        tasks = [task for _, task in self._peers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def statuses(self) -> list[PeerStatus]:
        """Every peer for the status."""
        now = time.monotonic()
        return [peer.status(now) for peer, _ in self._peers.values()]

    async def set(self, override: Mapping[str, Any]) -> list[PeerResult]:
        """Set an override, as this name server keeps it, at all peers side by side."""
        return await self._at_each(lambda peer, session: peer.set(session, override))

    async def clear(self, identifiers: Sequence[str], by: str) -> list[PeerResult]:
        """Clear the overrides of these identifiers at all peers; `by` wants it."""

        async def clear(peer: Peer, session: ClientSession) -> PeerResult:
            result = PeerResult(peer.config.name, None)
            for identifier in identifiers:
                result = await peer.clear(session, identifier, by)
                if result.problem is not None:
                    break
            return result

        return await self._at_each(clear)

    async def _at_each(
        self, work: Callable[[Peer, ClientSession], Awaitable[PeerResult]]
    ) -> list[PeerResult]:
        session = self._session
        if session is None:
            return []
        return list(await asyncio.gather(*(work(peer, session) for peer, _ in self._peers.values())))
