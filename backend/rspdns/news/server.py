"""The service `rspdns news`: one process beside the backend, which sleeps while there is no news."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import socket
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from daemon_kit import notify
from daemon_kit.control import ControlError, ask
from daemon_kit.errors import FatalError
from daemon_kit.files import open_regular, remove_unfinished, replace_file
from daemon_kit.logs import get_logger

from rspdns.news.configuration import NewsConfig, key_of, ports_of
from rspdns.news.message import MOST_SUBSCRIPTION_BYTES, MalformedError, read_subscription, reply
from rspdns.news.topic import OpenPort, Topic, concerned, restored
from rspdns.next_change import ALL_POOLS, WAIT_S
from rspdns.pending_changes import PendingChanges

DIRECTORY = "news"
"""The directory of the state, below `[state] path`."""
LEAST_PAUSE_S = 0.25
"""Time between two pieces of news of a pool: so many ports are open at once as go into `time_to_live_s`."""
BACKLOG = 4096
CLIENTS_AT_ONCE = 64
"""The clients that are answered before anything else gets its turn."""
DATA_WITHIN_S = 2
"""How long the kernel waits for a client's subscription before it drops the connection (TCP_DEFER_ACCEPT)."""
SEND_BUFFER_BYTES = 512 * 1024
ASK_AGAIN_S = 0.5
_MOST_STATE_BYTES = 64 * 1024 * 1024
_log = get_logger("news")


class NewsServer:
    """Tells news of the pools of those zones that have a key. `control` is the backend's control socket."""

    def __init__(self, config: NewsConfig, keys: Mapping[str, bytes], control: str, state: Path) -> None:
        self._config = config
        self._keys = keys
        self._control = control
        self._directory = state / DIRECTORY
        self._topics: dict[str, Topic] = {}
        self._sockets: dict[int, socket.socket] = {}
        """The ports that are taken: bound, so that the kernel refuses connections, or listening."""
        self._bodies: dict[str, dict[tuple[int | None, bool], bytes]] = {}
        """The bodies of replies by owner, then by what their clients know: see `_body`."""
        self._by_handle: dict[str, list[Topic]] = {}
        self._terms = {"poll_every_ms": config.poll_every_ms, "time_to_live_s": config.time_to_live_s}
        self._counts: Counter[str] = Counter()
        self._publishing: asyncio.TimerHandle | None = None
        self._has_backend = True
        self._listener: socket.socket | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises FatalError."""
        loop = asyncio.get_running_loop()
        try:
            self._directory.mkdir(mode=0o750, exist_ok=True)
            remove_unfinished(self._directory / "x")
        except OSError as problem:
            raise FatalError(f"{self._directory}: can't be made: {problem.strerror or problem}") from None
        following = loop.create_task(self._follow(), name="follow")
        stopping = loop.create_task(stop.wait())
        try:
            await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
        finally:
            following.cancel()
            stopping.cancel()
            await asyncio.gather(following, stopping, return_exceptions=True)
            if self._publishing is not None:
                self._publishing.cancel()
            for taken in [*self._sockets.values(), *([self._listener] if self._listener else [])]:
                loop.remove_reader(taken)
                taken.close()
            self._sockets.clear()  # timers find nothing to close
            for topic in self._topics.values():
                self._save(topic)

    async def _follow(self) -> None:
        cursor: dict[str, Any] = {}
        while True:
            try:
                answer = await self._ask(pool=ALL_POOLS, wait_s=WAIT_S, **cursor)
                await self._take(answer, is_whole=answer["missed"] or answer["life"] != cursor.get("life"))
                cursor = {"life": answer["life"], "after": answer["number"]}
            except ControlError as problem:
                if self._has_backend:
                    _log.warning("news_interrupted", problem=str(problem))
                self._has_backend = False
                await asyncio.sleep(ASK_AGAIN_S)
                continue
            if not self._has_backend:
                _log.info("news_go_on")
            self._has_backend = True
            if self._listener is None:
                self._listen()
                notify.sd_notify(f"READY=1\nSTATUS={self.status}")
                _log.info("news_ready", pools=len(self._topics), listen=self._config.listen)

    @property
    def status(self) -> str:
        """The pools, ports and clients, for systemd."""
        still_open = sum(len(topic.open) for topic in self._topics.values())
        counts = self._counts
        return (
            f"{len(self._topics)} pools, {counts['news']} news, {still_open} ports open; "
            f"{counts['told']} clients told, {counts['asked']} asked, {counts['refused']} refused, "
            f"{counts['cut']} cut off"
        )

    async def _ask(self, **keys: Any) -> dict[str, Any]:
        return await ask(self._control, "changes", timeout_s=WAIT_S + 5.0, **keys)

    async def _take(self, answer: Mapping[str, Any], *, is_whole: bool) -> None:
        """Take the events of all pools: ask for each pool that they are about."""
        owners = {owner for owner in answer["owners"] if key_of(owner, self._keys) is not None}
        for owner in self._topics.keys() - owners:
            self._drop(self._topics.pop(owner))
        added = [topic for owner in sorted(owners - self._topics.keys()) if (topic := self._topic(owner))]
        self._topics |= {topic.owner: topic for topic in added}
        asked = list(self._topics.values()) if is_whole else concerned(self._topics, iter(answer["changes"]))
        for owner in dict.fromkeys(topic.owner for topic in (*asked, *added)):
            await self._refresh(self._topics[owner])
        self._by_handle.clear()
        for topic in self._topics.values():
            for handle in topic.pending.pool.get("handles", ()):
                self._by_handle.setdefault(handle, []).append(topic)
        self._publish_due()

    async def _refresh(self, topic: Topic) -> None:
        known = {} if topic.source_life is None else {"life": topic.source_life, "after": topic.source_number}
        topic.take(await self._ask(pool=topic.owner, **known))
        self._bodies.pop(topic.owner, None)
        if topic.is_due(time.monotonic()):
            self._publish(topic)

    def _publish_due(self) -> None:
        """Publish what is due, and come again when the next is."""
        now = time.monotonic()
        waiting = []
        for topic in self._topics.values():
            if topic.is_due(now):
                self._publish(topic)
            elif topic.is_due(topic.pending.due_s):
                waiting.append(topic.pending.due_s)
        if self._publishing is not None:
            self._publishing.cancel()
        self._publishing = None
        if waiting:
            loop = asyncio.get_running_loop()
            self._publishing = loop.call_later(max(0.0, min(waiting) - now), self._publish_due)

    def _publish(self, topic: Topic) -> None:
        next_port = self._reserve()
        if next_port is None:
            topic.pending.due_s = time.monotonic() + 1.0  # ports close with time
            _log.warning("news_without_port", owner=topic.owner, ports=self._config.ports)
            return
        changes = len(topic.pending.changes)
        opened = topic.publish(time.monotonic(), time.time(), next_port, self._config.time_to_live_s)
        self._bodies.pop(topic.owner, None)
        self._open(topic, opened)
        self._counts["news"] += 1
        _log.info("news_published", owner=topic.owner, number=topic.number, changes=changes)
        self._save(topic)

    def _open(self, topic: Topic, opened: OpenPort) -> None:
        listener = self._sockets[opened.port]
        try:
            listener.listen(BACKLOG)
        except OSError:  # another program listens there: clients ask the open port
            _log.warning("news_without_port", owner=topic.owner, ports=str(opened.port))
            return
        loop = asyncio.get_running_loop()
        loop.add_reader(listener, self._tell, listener, topic, opened)
        loop.call_later(max(0.0, opened.until_s - time.time()), self._expire, topic)

    def _expire(self, topic: Topic) -> None:
        for over in topic.expire(time.time() + 0.01):
            self._close(over.port)
        self._bodies.pop(topic.owner, None)

    def _drop(self, topic: Topic) -> None:
        """The pool is served no more."""
        for port in [topic.next_port, *(opened.port for opened in topic.open)]:
            self._close(port)
        topic.open.clear()
        self._bodies.pop(topic.owner, None)
        self._file(topic.owner).unlink(missing_ok=True)

    def _tell(self, listener: socket.socket, topic: Topic, opened: OpenPort) -> None:
        """Tell the news to those who found the port open."""
        message = reply(self._key(topic), self._body(topic, opened.after))
        for _ in range(CLIENTS_AT_ONCE):
            client = _accepted(listener)
            if client is None:
                return
            with client:
                self._send(client, message, "told")

    def _answer(self) -> None:
        """Answer those who ask at the open port; the kernel hands them over when their line is there."""
        assert self._listener is not None  # noqa: S101 - its reader is called
        for _ in range(CLIENTS_AT_ONCE):
            client = _accepted(self._listener)
            if client is None:
                return
            with client:
                try:
                    line = client.recv(MOST_SUBSCRIPTION_BYTES + 1, socket.MSG_DONTWAIT)
                    subscription = read_subscription(line)
                    topic = self._named(subscription.pool)
                except OSError:
                    self._counts["refused"] += 1
                    continue
                except MalformedError as problem:
                    self._send(client, f"error: {problem}\n".encode(), "refused")
                    continue
                is_first = subscription.life is None
                body = self._body(topic, topic.last_known(subscription), is_first=is_first)
                self._send(client, reply(self._key(topic), body, subscription.nonce), "asked")

    def _named(self, pool: str) -> Topic:
        """Return the topic by the name of its SRV records, or by a handle. Raises MalformedError."""
        topic = self._topics.get(pool)
        found = [topic] if topic is not None and topic.pending.pool else self._by_handle.get(pool, [])
        if len(found) != 1:
            why = "is the handle of several pools" if found else "is no pool that news are told of"
            raise MalformedError(f"{pool[:80]!r} {why}")
        return found[0]

    def _body(self, topic: Topic, after: int | None, *, is_first: bool = False) -> bytes:
        """Return the body for clients with the news up to `after`. It is made once: anybody may ask."""
        bodies = self._bodies.setdefault(topic.owner, {})
        after = topic.oldest(after)
        key = after, is_first
        if key not in bodies:
            bodies[key] = topic.body(after, self._terms, is_first=is_first)
        return bodies[key]

    def _key(self, topic: Topic) -> bytes:
        key = key_of(topic.owner, self._keys)
        assert key is not None  # noqa: S101 - topics are those with a key
        return key

    def _send(self, client: socket.socket, message: bytes, what: str) -> None:
        try:
            # MSG_MORE: one packet with the end of the connection, which follows.
            sent = client.send(message, socket.MSG_DONTWAIT | socket.MSG_MORE)
        except OSError:
            sent = -1
        self._counts[what if sent == len(message) else "cut"] += 1

    def _listen(self) -> None:
        address = self._config.address
        listener = self._socket()
        try:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, DATA_WITHIN_S)
            listener.bind((str(address.address), address.port))
            listener.listen(BACKLOG)
        except OSError as problem:
            listener.close()
            raise FatalError(f"news.listen: {address.refusal(problem)}") from None
        self._listener = listener
        asyncio.get_running_loop().add_reader(listener, self._answer)

    def _socket(self) -> socket.socket:
        made = socket.socket(socket.AF_INET6 if self._config.address.address.version == 6 else socket.AF_INET)
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        return made

    def _take_port(self, port: int) -> bool:
        """Bind the port without listening: the kernel refuses connections, and no other program takes it."""
        if port in self._sockets or port not in ports_of(self._config.ports):
            return False
        taken = self._socket()
        try:
            taken.bind((str(self._config.address.address), port))
        except OSError:
            taken.close()
            return False
        self._sockets[port] = taken
        return True

    def _reserve(self) -> int | None:
        """Take a free port, at random, so that a port tells another pool's news as late as can be."""
        ports = ports_of(self._config.ports)
        first = random.randrange(len(ports))  # noqa: S311 - no secret
        rotated = (ports[(first + step) % len(ports)] for step in range(len(ports)))
        return next((port for port in rotated if self._take_port(port)), None)

    def _close(self, port: int) -> None:
        taken = self._sockets.pop(port, None)
        if taken is not None:
            asyncio.get_running_loop().remove_reader(taken)
            taken.close()

    def _topic(self, owner: str) -> Topic | None:
        """Return the topic as it was kept, its ports taken again, or a new one; None if no port is free."""
        topic = self._kept(owner) or Topic(owner, secrets.token_hex(8), 0, PendingChanges(LEAST_PAUSE_S))
        if not self._take_port(topic.next_port):
            port = self._reserve()
            if port is None:
                _log.warning("news_without_port", owner=owner, ports=self._config.ports)
                return None
            topic.next_port = port
        topic.open = [opened for opened in topic.open if self._take_port(opened.port)]
        for opened in topic.open:
            self._open(topic, opened)
        self._expire(topic)
        return topic

    def _file(self, owner: str) -> Path:
        return self._directory / f"{quote(owner, safe='')}.json"

    def _kept(self, owner: str) -> Topic | None:
        path = self._file(owner)
        try:
            with open_regular(path) as file:
                state = json.loads(file.read(_MOST_STATE_BYTES))
            topic = restored(state, PendingChanges(LEAST_PAUSE_S))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as problem:
            _log.warning("news_unreadable", file=str(path), problem=type(problem).__name__)
            return None
        return topic if topic.owner == owner else None

    def _save(self, topic: Topic) -> None:
        try:
            replace_file(self._file(topic.owner), json.dumps(topic.state()).encode())
        except OSError as problem:
            _log.warning("news_not_kept", owner=topic.owner, problem=problem.strerror or str(problem))


def _accepted(listener: socket.socket) -> socket.socket | None:
    try:
        return listener.accept()[0]
    except OSError:
        return None
