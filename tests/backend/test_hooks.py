"""Hooks: a journal that is written, web services that take, refuse or hang, and what arrives there."""

import asyncio
import json
import re
import socket
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from daemon_kit.config_file import ConfigurationErrors
from pool_user import BeliefChange, Cause, Code, Departure, Member, PoolChange, PoolView
from rspdns import journal as journal_module
from rspdns.admin.openapi import description
from rspdns.check import warnings
from rspdns.configuration import BackendConfig, differing, load_configuration
from rspdns.hooks import HookConfig, Hooks, delivery
from rspdns.hooks.delivery import MOST_EVENTS, MOST_REFUSALS, pause_s
from rspdns.journal import FILE_NAME, Journal
from rspdns.status.model import HookStatus, PoolStatus
from rspdns.zones.zone import Pool
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from tests.backend.making import member, zone
from tests.backend.statuses import member_status, pool_status
from tests.support.json_schema import differences
from tests.support.waiting import until_async

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" + "AAAAAAAA"
HANDLE = "sip-udp"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "BATCH_S", 0.01)
    monkeypatch.setattr(delivery, "GATHER_S", 0.05)
    monkeypatch.setattr(delivery, "LOOK_S", 0.2)
    monkeypatch.setattr(delivery, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(delivery, "MOST_PAUSE_S", 0.2)
    monkeypatch.setattr(delivery, "TIMEOUT_S", 1.0)


def joined(*members: Member, handle: str = HANDLE) -> BeliefChange:
    view = PoolView(handle)
    return BeliefChange({handle: PoolChange(view, view, joined=members)}, {})


def left(*members: Member, handle: str = HANDLE) -> BeliefChange:
    view = PoolView(handle)
    departures = tuple(Departure(server, time.monotonic(), Cause(Code.REMOVED)) for server in members)
    return BeliefChange({handle: PoolChange(view, view, left=departures)}, {})


class Receiver:
    """A web service. `answer` gives the answer to each request."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answer: Callable[[], web.StreamResponse | None] = lambda: web.Response(status=204)
        self.taken: list[dict[str, Any]] = []
        """The messages that were taken."""

    async def _post(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append((dict(request.headers), body))
        answer = self.answer()
        if answer is None:  # a body without an end
            endless = web.StreamResponse()
            await endless.prepare(request)
            self.taken.append(json.loads(body))
            while True:
                await endless.write(b"x" * 65536)
        if answer.status < 300:
            self.taken.append(json.loads(body))
        return answer

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._post)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hidden-path"
        try:
            yield
        finally:
            await runner.cleanup()

    @property
    def events(self) -> list[tuple[str, str]]:
        """Kind and address of each event that arrived."""
        return [
            (event["kind"], event["address"]) for taken in self.taken for event in taken["data"]["events"]
        ]


class Told:
    """A journal, and the hooks that read it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Journal(folder, 1)
        self.journal.start()
        self.hooks = Hooks(folder, lambda: self.journal.lost, list, self._statuses)

    def _statuses(self, is_wanted: Callable[[Pool], bool]) -> Sequence[PoolStatus]:
        pools = [pool for site in zone().sites for pool in site.pools if is_wanted(pool)]
        return [pool_status(owner=pool.owner, members=[member_status()]) for pool in pools]

    async def written(self, *changes: BeliefChange) -> None:
        for change in changes:
            self.journal.take(change)
        self.hooks.wake()
        await until_async(lambda: not self.journal._queue)
        await asyncio.sleep(0.05)

    def status(self) -> HookStatus:
        (status,) = self.hooks.statuses()
        return status

    async def until_listening(self) -> None:
        hooks = [hook for hook, _ in self.hooks._hooks.values()]
        await until_async(lambda: all(hook.cursor is not None for hook in hooks))

    async def close(self) -> None:
        await self.hooks.close()
        self.journal.close()


def config(receiver: Receiver, folder: Path, **keys: Any) -> HookConfig:
    secret = folder / "hook.secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    return HookConfig.model_validate({"name": "noc", "url": receiver.url, "secret": str(secret), **keys})


async def test_receiver_of_the_standard_takes_the_change_with_cause_and_members(tmp_path: Path) -> None:
    receiver, told = Receiver(), Told(tmp_path)
    async with receiver.listening():
        await told.written(joined(member(1), member(2)))
        await told.hooks.start([config(receiver, tmp_path)])
        await told.until_listening()
        await told.written(left(member(1)))
        await until_async(lambda: len(receiver.taken) == 1)
        headers, body = receiver.requests[0]
        assert Webhook(SECRET).verify(body, {key.lower(): value for key, value in headers.items()})
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(body + b" ", {key.lower(): value for key, value in headers.items()})
        message = receiver.taken[0]
        assert differences(message, {"$ref": "#/components/schemas/HookMessage"}, description()) == []
        assert message["type"] == "pool.changed"
        (event,) = message["data"]["events"]
        assert (event["kind"], event["address"], event["cause"]) == ("left", "10.0.0.1:5060", "removed")
        assert event["words"]
        (pool,) = message["data"]["pools"]
        assert pool["members_total"] == 1
        assert told.status() == HookStatus("noc", receiver.url.removesuffix("/hidden-path"), 0, 1, 0, 0, None)
        await told.close()


async def test_hook_that_was_down_is_told_all_in_order_and_nothing_waits_for_it(tmp_path: Path) -> None:
    receiver, told = Receiver(), Told(tmp_path)
    async with receiver.listening():
        port = int(receiver.url.split(":")[2].split("/")[0])
    await told.written(joined(member(1)))
    await told.hooks.start([config(receiver, tmp_path)])
    await told.until_listening()
    began_s = time.monotonic()
    for _ in range(MOST_EVENTS):
        told.journal.take(left(member(1)))
        told.journal.take(joined(member(1)))
    told.hooks.wake()
    assert time.monotonic() - began_s < 0.5
    await until_async(lambda: told.status().failed >= 3)
    await until_async(lambda: told.status().pending == 2 * MOST_EVENTS)
    await told.written(left(member(1)), joined(member(1)))
    await until_async(lambda: told.status().pending == 2 * MOST_EVENTS + 2)
    assert "Connection refused" in str(told.status().problem)
    assert "hidden-path" not in str(told.status().problem)
    async with receiver.listening(port):
        await until_async(lambda: told.status().pending == 0)
        assert [kind for kind, _ in receiver.events] == ["left", "joined"] * (MOST_EVENTS + 1)
        assert all(len(taken["data"]["events"]) <= MOST_EVENTS for taken in receiver.taken)
        assert told.status().problem is None
        await told.close()


async def test_restart_of_the_backend_loses_and_invents_nothing(tmp_path: Path) -> None:
    receiver, told = Receiver(), Told(tmp_path)
    async with receiver.listening():
        hook = config(receiver, tmp_path)
        await told.hooks.start([hook])
        await told.until_listening()
        await told.written(joined(member(1), member(2)))
        await until_async(lambda: len(receiver.events) == 2)
        receiver.answer = lambda: web.Response(status=503)
        await told.written(left(member(2)))
        await until_async(lambda: told.status().problem == "the receiver answered 503")
        await told.close()

        receiver.answer = lambda: web.Response(status=200)
        told = Told(tmp_path)
        await told.written(joined(member(1)))  # loaded by the backend: no news
        await told.hooks.start([hook])
        await told.written(joined(member(3)))
        await until_async(lambda: len(receiver.events) == 4)
        assert receiver.events[2:] == [("left", "10.0.0.2:5060"), ("joined", "10.0.0.3:5060")]
        assert len({event["id"] for taken in receiver.taken for event in taken["data"]["events"]}) == 4
        await told.close()


async def test_changes_beyond_the_bound_are_counted_and_told(tmp_path: Path) -> None:
    receiver, told = Receiver(), Told(tmp_path)
    async with receiver.listening():
        hook = config(receiver, tmp_path)
        await told.hooks.start([hook])
        await told.until_listening()
        await told.written(joined(member(1)))
        await until_async(lambda: len(receiver.events) == 1)
        await told.hooks.close()
        await told.written(*(change for _ in range(5) for change in (left(member(1)), joined(member(1)))))
        told.journal.close()
        with sqlite3.connect(tmp_path / FILE_NAME) as file:
            file.execute("DELETE FROM change WHERE sequence <= 8")  # as the bounds of the journal do
        told = Told(tmp_path)
        await told.hooks.start([hook])
        await until_async(lambda: len(receiver.events) == 4)
        assert receiver.taken[1]["data"]["lost"] == 7
        assert told.status().lost == 7
        await told.written(left(member(1)))
        await until_async(lambda: len(receiver.taken) == 3)
        assert receiver.taken[2]["data"]["lost"] == 0
        told.journal.lost += 5  # as when the disk is full
        await told.written(joined(member(1)))
        await until_async(lambda: len(receiver.taken) == 4)
        assert receiver.taken[3]["data"]["lost"] == 5
        await told.close()


async def test_message_that_is_refused_is_given_up_and_told_as_lost(tmp_path: Path) -> None:
    receiver, told = Receiver(), Told(tmp_path)
    async with receiver.listening():
        await told.hooks.start([config(receiver, tmp_path)])
        await told.until_listening()
        receiver.answer = lambda: web.Response(status=400)
        await told.written(joined(member(1)))
        await until_async(lambda: told.status().lost == 1)
        assert len(receiver.requests) == MOST_REFUSALS
        assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 1
        receiver.answer = lambda: web.Response(status=200)
        await told.written(joined(member(2)))
        await until_async(lambda: receiver.events == [("joined", "10.0.0.2:5060")])
        assert receiver.taken[0]["data"]["lost"] == 1
        await told.close()


async def test_hostile_answers_hold_nothing_up(tmp_path: Path) -> None:
    receiver, elsewhere, told = Receiver(), Receiver(), Told(tmp_path)
    async with receiver.listening(), elsewhere.listening():
        await told.hooks.start([config(receiver, tmp_path)])
        await told.until_listening()
        receiver.answer = lambda: None
        await told.written(joined(member(1)))
        await until_async(lambda: told.status().delivered == 1, 10)
        receiver.answer = lambda: web.Response(status=307, headers={"Location": elsewhere.url})
        await told.written(joined(member(2)))
        await until_async(lambda: told.status().problem == "the receiver answered 307")
        assert not elsewhere.requests
        await told.close()


async def test_name_server_that_hangs_holds_up_no_thread_and_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more look-ups than the event loop has threads for all."""
    ended, asked = threading.Event(), []

    def hang(host: str, *_: object, **__: object) -> list[Any]:
        asked.append(host)
        ended.wait(60)
        raise OSError("given up")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(delivery, "TIMEOUT_S", 0.05)
    told = Told(tmp_path)
    secret = config(Receiver(), tmp_path, url="http://127.0.0.1/").secret
    hooks = [
        HookConfig(name=f"h{number}", url=f"http://h{number}.example.net/", secret=secret)
        for number in range(16)
    ]
    await told.written(joined(member(1)))
    await told.hooks.start(hooks)
    await told.until_listening()
    await told.written(left(member(1)))
    await until_async(lambda: all(status.failed >= 2 for status in told.hooks.statuses()))
    assert set(asked) == {f"h{number}.example.net" for number in range(16)}
    began_s = time.monotonic()
    await asyncio.to_thread(time.monotonic)
    await told.close()
    assert time.monotonic() - began_s < 5
    ended.set()


async def test_chat_takes_lines_of_the_wanted_pools(tmp_path: Path) -> None:
    receiver, told = Receiver(), Told(tmp_path)
    async with receiver.listening():
        await told.hooks.start([config(receiver, tmp_path, secret=None, format="text", pools=["other"])])
        await told.until_listening()
        await told.written(joined(member(1)), joined(member(2), handle="other"))
        await until_async(lambda: len(receiver.taken) == 1)
        (taken,) = receiver.taken
        assert taken.keys() == {"text"}
        assert "10.0.0.2:5060 joined other: " in taken["text"]
        assert "10.0.0.1" not in taken["text"]
        await told.close()


async def test_reload_ends_adds_and_changes_hooks(tmp_path: Path) -> None:
    receiver, told = Receiver(), Told(tmp_path)
    async with receiver.listening():
        await told.hooks.start([])
        await told.written(joined(member(1)))
        hook = config(receiver, tmp_path)
        told.hooks.set([hook])
        await told.until_listening()
        await told.written(joined(member(2)))
        await until_async(lambda: receiver.events == [("joined", "10.0.0.2:5060")])
        told.hooks.set([])
        await told.written(joined(member(3)))
        assert told.hooks.statuses() == []
        told.hooks.set([config(receiver, tmp_path, pools=[HANDLE])])
        await until_async(lambda: len(receiver.events) == 2)
        assert receiver.events[1] == ("joined", "10.0.0.3:5060"), "it goes on where it was"
        await told.close()


async def test_new_journal_after_a_damaged_one_is_told_from_its_beginning(tmp_path: Path) -> None:
    receiver, told = Receiver(), Told(tmp_path)
    async with receiver.listening():
        hook = config(receiver, tmp_path)
        await told.hooks.start([hook])
        await told.until_listening()
        await told.written(*(joined(member(number)) for number in range(1, 5)))
        await until_async(lambda: len(receiver.events) == 4)
        await told.close()
        for suffix in ("", "-wal", "-shm"):
            (tmp_path / f"{FILE_NAME}{suffix}").unlink(missing_ok=True)
        told = Told(tmp_path)
        await told.written(joined(member(9)))
        await told.hooks.start([hook])
        await until_async(lambda: len(receiver.events) == 5)
        identifiers = [event["id"] for taken in receiver.taken for event in taken["data"]["events"]]
        assert len(set(identifiers)) == 5
        await told.close()


def test_pause_grows_to_its_bound_with_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "FIRST_PAUSE_S", 1.0)
    monkeypatch.setattr(delivery, "MOST_PAUSE_S", 60.0)
    assert [pause_s(failures, lambda: 1.0) for failures in (1, 2, 3, 7, 10_000)] == [1, 2, 4, 60, 60]
    assert pause_s(1, lambda: 0.0) == 0.5


BASE = 'registrars = ["10.0.0.1"]\n'
HOOK = '[[hook]]\nname = "noc"\nurl = "https://noc.example.net/x"\n'


def loaded(folder: Path, text: str, *, without_page: bool = False) -> BackendConfig:
    (folder / "zones.d").mkdir(exist_ok=True)
    (folder / "rspdns.toml").write_text(BASE + text)
    return load_configuration(folder / "rspdns.toml", without_page=without_page)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HOOK, "needs secret"),
        (HOOK.replace("https", "ftp") + 'secret = "/x"\n', "a URL"),
        (HOOK.replace("//", "//user:word@") + 'secret = "/x"\n', "without user"),
        (HOOK.replace("noc.example.net", "[::1") + 'secret = "/x"\n', "a URL"),
        ((HOOK + 'format = "text"\n') * 2, "'noc' is there twice"),
        (HOOK.replace('"noc"', '"No C"') + 'format = "text"\n', "hook[0].name|name"),
        (HOOK + 'secret = "/x"\nsecrets = 1\n', "secrets"),
        (HOOK + 'secret = "hook.secret"\n', "whole path"),
        (HOOK + 'secret = "/nowhere/hook.secret"\n', "can't be read"),
    ],
)
def test_check_tells_a_wrong_hook(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationErrors) as told:
        loaded(tmp_path, text)
    assert re.search(words if "|" in words else re.escape(words), str(told.value))


def test_secret_without_form_is_an_error_of_check_and_never_stops_dns(tmp_path: Path) -> None:
    secret = tmp_path / "hook.secret"
    secret.write_text("a password\n")
    text = f'{HOOK}secret = "{secret}"\n'
    secret.chmod(0o644)
    with pytest.raises(ConfigurationErrors, match="everybody on this host may read"):
        loaded(tmp_path, text)
    secret.chmod(0o600)
    with pytest.raises(ConfigurationErrors, match="holds no key") as told:
        loaded(tmp_path, text)
    assert "a password" not in str(told.value)
    served = loaded(tmp_path, text, without_page=True)
    assert served.hooks[0].name == "noc"
    assert differing(served, loaded(tmp_path, "", without_page=True)) == [], "hooks change at a reload"


def test_check_warns_of_plain_http_and_of_pools_that_are_not_there(tmp_path: Path) -> None:
    text = f'{HOOK.replace("https", "http")}format = "text"\npools = ["no-such-pool"]\n'
    config = loaded(tmp_path, text)
    found = [str(warning) for warning in warnings(tmp_path / "rspdns.toml", config, None)]
    assert any("anybody on the way reads" in words and "rspdns.toml:4" in words for words in found)
    assert any("'no-such-pool' is no pool" in words for words in found)


async def test_secret_that_can_not_be_read_is_a_problem_of_the_hook(tmp_path: Path) -> None:
    receiver, told = Receiver(), Told(tmp_path)
    async with receiver.listening():
        hook = config(receiver, tmp_path)
        (tmp_path / "hook.secret").unlink()
        await told.hooks.start([hook])
        await told.until_listening()
        await told.written(joined(member(1)))
        await until_async(lambda: "can't be read" in str(told.status().problem))
        config(receiver, tmp_path)
        await until_async(lambda: len(receiver.events) == 1)
        await told.close()


async def test_new_hook_tells_after_sigkill_what_it_could_not_tell(tmp_path: Path) -> None:
    receiver, told = Receiver(), Told(tmp_path)
    async with receiver.listening():
        port = int(receiver.url.split(":")[2].split("/")[0])
    await told.written(joined(member(1)))
    await told.hooks.start([config(receiver, tmp_path)])
    await told.until_listening()
    await told.written(left(member(1)))
    await until_async(lambda: told.status().failed >= 1 and (tmp_path / "hooks.json").exists())
    for _, task in told.hooks._hooks.values():
        task.cancel()
    told.journal.close()
    again = Told(tmp_path)
    await again.hooks.start([config(receiver, tmp_path)])
    async with receiver.listening(port):
        await until_async(lambda: len(receiver.events) == 1)
    assert receiver.events[0][0] == "left"
    await again.close()
