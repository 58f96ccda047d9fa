"""News without open connections: numbers, ports and messages, from both sides, without sockets."""

import base64
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rspdns.check import warnings
from rspdns.configuration import load_configuration
from rspdns.news.configuration import NewsConfig, key_of, read_keys
from rspdns.news.message import MalformedError, packed, read_reply, read_subscription, reply
from rspdns.news.poller import ASK_EVERY, Poller
from rspdns.news.server import LEAST_PAUSE_S
from rspdns.news.topic import MOST_KEPT, Topic, concerned, restored
from rspdns.pending_changes import PendingChanges

from tests.backend.configuration_files import errors, head, write
from tests.backend.making import UDP
from tests.support.certificates import authority, certificate_of

KEY = b"k" * 32
OWNER = "_sip._udp.as.example.net"
LIFE_S = 10.0
PUSH = """[news.push]
listen = "10.0.0.53:853"
tls_certificate = "no.crt"
tls_key = "no.key"
"""
TERMS = {"poll_every_ms": 1000, "time_to_live_s": LIFE_S}


def pool(*identifiers: str) -> dict[str, Any]:
    members = [{"handle": "h", "identifier": name, "addresses": ["::1"], "port": 1} for name in identifiers]
    return {"known": True, "owner": OWNER, "handles": ["h"], "members": members}


def backend_answer(number: int, *identifiers: str, changes: int = 1, missed: bool = False) -> dict[str, Any]:
    """The answer of a backend whose last event has this number."""
    events = [{"kind": "left", "handle": "h", "number": number - place} for place in reversed(range(changes))]
    of_pool = pool(*identifiers)
    return {
        "life": "b1",
        "number": number,
        "missed": missed,
        "host": "ns1",
        "changes": events,
        "pool": of_pool,
    }


class Server:
    """A topic with its ports: those reserved and those open, as the kernel would have them."""

    def __init__(self) -> None:
        self.topic = Topic(OWNER, "t1", 20000, PendingChanges(LEAST_PAUSE_S))
        self.topic.take(backend_answer(0, "a", "b", changes=0))
        self.ports = iter(range(20001, 30000))
        self.events = 0

    def change(self, now: float, *identifiers: str, changes: int = 1) -> None:
        self.events += changes
        self.topic.take(backend_answer(self.events, *identifiers, changes=changes))
        if self.topic.is_due(now):
            self.topic.publish(now, now, next(self.ports), LIFE_S)

    def answer(self, port: int | None, line: bytes, now: float) -> bytes | None:
        """The reply to a client that connects; None: the kernel refuses."""
        self.topic.expire(now)
        if port is None:
            asked = read_subscription(line)
            document = self.topic.document(self.topic.last_known(asked), is_first=asked.life is None)
            return reply(KEY, packed({**document, **TERMS}), asked.nonce)
        for opened in self.topic.open:
            if opened.port == port:
                return reply(KEY, packed({**self.topic.document(opened.after), **TERMS}))
        return None


def step(poller: Poller, server: Server, now: float) -> dict[str, Any] | None:
    poll = poller.next(now)
    data = server.answer(poll.port, poll.line, now)
    if data is None:
        poller.refused(now)
        return None
    return poller.received(now, data)


def subscribed(server: Server) -> Poller:
    poller = Poller("h", KEY, below=lambda _: 0)
    answer = step(poller, server, 0.0)
    assert answer is not None
    assert answer["pool"]["owner"] == OWNER
    assert (answer["changes"], answer["missed"]) == ([], False)
    return poller


def test_port_is_closed_until_there_is_news_and_closes_after_its_time() -> None:
    server = Server()
    poller = subscribed(server)
    assert poller.next(1.0).port == 20000
    assert step(poller, server, 1.0) is None
    server.change(1.5, "a")
    answer = step(poller, server, 2.0)
    assert answer is not None
    assert len(answer["changes"]) == 1
    assert poller.next(3.0).port == 20001
    assert step(poller, server, 3.0) is None
    assert server.answer(20000, b"", 11.0) is not None
    assert server.answer(20000, b"", 12.0) is None


def test_client_of_an_older_port_is_told_all_that_it_misses_at_once() -> None:
    server = Server()
    poller = subscribed(server)
    for second in (1, 2, 3):
        server.change(float(second), *"abc"[:second])
    answer = step(poller, server, 3.5)
    assert answer is not None
    assert [change["number"] for change in answer["changes"]] == [1, 2, 3]
    assert len(answer["pool"]["members"]) == 3
    assert poller.next(4.0).port == server.topic.next_port


def test_each_tenth_poll_asks_the_open_port_and_a_server_that_is_down_is_told() -> None:
    server = Server()
    poller = subscribed(server)
    ports = []
    for second in range(1, 2 * ASK_EVERY + 1):
        ports.append(poller.next(float(second)).port)
        step(poller, server, float(second))
    assert [place for place, port in enumerate(ports, 1) if port is None] == [ASK_EVERY, 2 * ASK_EVERY]
    for second in range(21, 21 + ASK_EVERY):
        poller.next(float(second))
        poller.refused(float(second))
    assert poller.problem == "the server is down: its open port is closed"
    assert poller.next(40.0).port is None
    step(poller, server, 40.0)
    assert poller.problem is None


def test_clients_that_read_the_same_news_ask_the_open_port_at_different_polls() -> None:
    """A tenth of them at each of the next ten, in the mean: or they would all ask in the same second."""
    server = Server()
    turns: Counter[int] = Counter()
    for _ in range(500):
        poller = Poller("h", KEY)
        step(poller, server, 0.0)
        turn = next(poll for poll in range(1, 2 * ASK_EVERY) if asks(poller, server, float(poll)))
        turns[turn] += 1
        assert [asks(poller, server, float(turn + poll)) for poll in range(1, ASK_EVERY + 1)] == [
            *[False] * (ASK_EVERY - 1),
            True,
        ]
    assert set(turns) == set(range(1, ASK_EVERY + 1))
    assert max(turns.values()) < 120


def asks(poller: Poller, server: Server, now: float) -> bool:
    is_open = poller.next(now).port is None
    step(poller, server, now)
    return is_open


def test_client_that_was_silent_for_longer_subscribes_anew_and_hears_what_it_missed() -> None:
    server = Server()
    poller = subscribed(server)
    server.change(1.0, "a")
    assert poller.next(60.0).port is None
    answer = step(poller, server, 60.0)
    assert answer is not None
    assert (len(answer["changes"]), answer["missed"]) == (1, False)


def test_changes_that_are_not_kept_are_told_as_missed() -> None:
    server = Server()
    poller = subscribed(server)
    for second in range(1, MOST_KEPT + 2):
        server.change(float(second), *("a" if second % 2 else "ab"))
    answer = step(poller, server, 200.0)
    assert answer is not None
    assert (len(answer["changes"]), answer["missed"]) == (MOST_KEPT, True)


def test_changes_soon_after_news_come_together_as_the_next_news() -> None:
    server = Server()
    server.change(1.0, "a")
    server.change(1.05, "a", "b")
    assert server.topic.number == 1
    server.change(1.3, "b")
    assert server.topic.number == 2
    assert len(server.topic.kept[-1].changes) == 2


def test_restart_goes_on_with_the_same_numbers_and_ports() -> None:
    server = Server()
    behind, poller = subscribed(server), subscribed(server)
    server.change(1.0, "a")
    step(poller, server, 1.2)
    server.topic = restored(server.topic.state(), PendingChanges(LEAST_PAUSE_S))
    assert step(poller, server, 2.2) is None
    answer = step(behind, server, 2.0)
    assert answer is not None
    assert len(answer["changes"]) == 1
    server.change(3.0, "a", "b")  # it happened while nothing ran
    answer = step(poller, server, 3.2)
    assert answer is not None
    assert [change["number"] for change in answer["changes"]] == [2]


def test_changes_that_are_no_news_yet_outlive_a_restart() -> None:
    server = Server()
    poller = subscribed(server)
    server.change(1.0, "a")
    step(poller, server, 1.2)
    server.change(1.1)  # too soon after the news before
    assert server.topic.number == 1
    server.topic = restored(server.topic.state(), PendingChanges(LEAST_PAUSE_S))
    assert server.topic.is_due(2.0)
    server.topic.publish(2.0, 2.0, next(server.ports), LIFE_S)
    answer = step(poller, server, 2.2)
    assert answer is not None
    assert [change["number"] for change in answer["changes"]] == [2]


def test_client_that_misses_more_than_a_kernel_sends_at_once_is_told_the_members() -> None:
    topic = Server().topic
    noise = base64.b64encode(bytes(random.Random(1).randbytes(300_000))).decode()
    topic.take({**backend_answer(1, "a"), "changes": [{"kind": "left", "handle": "h", "words": noise}]})
    topic.publish(1.0, 1.0, 20001, LIFE_S)
    answer = read_reply(KEY, reply(KEY, topic.body(topic.number - 1, TERMS)))["answer"]
    assert answer["missed"]
    assert answer["changes"] == []
    assert answer["pool"] == pool("a")


def test_news_told_before_a_crash_and_lost_by_it_are_told_as_missed() -> None:
    server = Server()
    poller = subscribed(server)
    saved = server.topic.state()
    server.change(1.0, "a")
    step(poller, server, 1.2)
    server.topic = restored(saved, PendingChanges(LEAST_PAUSE_S))
    server.change(2.0, "b")  # other news, the same number
    for second in range(2, 2 + ASK_EVERY):
        if (answer := step(poller, server, float(second))) is not None:
            break
    assert answer is not None
    assert answer["missed"]
    assert answer["pool"]["members"][0]["identifier"] == "b"


def test_restart_of_the_backend_is_news_only_with_other_members() -> None:
    server = Server()
    server.topic.take({**backend_answer(0, "a", "b", changes=0, missed=True), "life": "b2"})
    assert not server.topic.is_due(100.0)
    server.topic.take({**backend_answer(0, "a", changes=0, missed=True), "life": "b3"})
    assert server.topic.is_due(100.0)
    server.topic.publish(100.0, 100.0, 20001, LIFE_S)
    assert server.topic.kept[-1].missed


@given(
    st.lists(
        st.tuples(st.sampled_from(["change", "poll", "restart", "sleep"]), st.integers(0, 4)), max_size=60
    )
)
def test_client_hears_each_change_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    """No change is lost without `missed`, none comes twice, whatever happens between polls."""
    server = Server()
    poller = subscribed(server)
    heard: list[int] = []
    now, missed = 1.0, False
    for action, amount in [*steps, ("sleep", 1), *[("poll", 0)] * (ASK_EVERY + 1)]:
        now += 1.0
        if action == "change":
            server.change(now, *"abcde"[: amount + 1])
        elif action == "restart":
            server.topic = restored(server.topic.state(), PendingChanges(LEAST_PAUSE_S))
        elif action == "sleep":
            now += 7.0 * amount
        elif (answer := step(poller, server, now)) is not None:
            heard += [change["number"] for change in answer["changes"]]
            missed |= answer["missed"]
            members = [member["identifier"] for member in answer["pool"]["members"]]
    assert heard == sorted(set(heard))
    published = [change["number"] for news in server.topic.kept for change in news.changes]
    assert missed or set(published) == set(heard)
    if heard:
        assert members == [member["identifier"] for member in server.topic.pending.pool["members"]]


def test_forged_and_played_back_replies_are_refused() -> None:
    server = Server()
    poller = subscribed(server)
    server.change(1.0, "a")
    right = server.answer(20000, b"", 1.5)
    assert right is not None
    for data in (b"", b"HTTP/1.1 400 no\r\n", right[:-1], right.replace(b"1 ", b"2 ", 1), b"x" + right):
        forged = subscribed(server)
        assert forged.received(2.0, data) is None
        assert forged.problem
        assert forged.next(2.0).port is None
    with pytest.raises(MalformedError, match="signature"):
        read_reply(b"o" * 32, right)
    with pytest.raises(MalformedError, match="does not end"):
        read_reply(KEY, reply(KEY, packed({}) + b"x"))
    poller.next(2.0)
    assert poller.received(2.0, right) is not None
    poller.next(3.0)
    assert poller.received(3.0, right) is None
    assert poller.problem == "the port tells other news"
    poller.next(40.0)
    older = reply(KEY, packed({**server.topic.document(None), **TERMS}), "another")
    assert poller.received(41.0, older) is None
    assert poller.problem is not None
    assert "older reply" in poller.problem


def test_port_that_tells_another_pools_news_is_left() -> None:
    server, other = Server(), Server()
    poller = subscribed(server)
    other.topic.owner = "_sip._tcp.as.example.net"
    other.change(1.0, "z")
    data = other.answer(20000, b"", 1.5)
    assert data is not None
    assert poller.next(1.5).port == 20000
    assert poller.received(1.5, data) is None
    assert poller.next(2.0).port is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}\n",
        b"[]\n",
        b'{"pool":"h","nonce":"n"}',
        b'{"pool":"h","nonce":"n","x":1}\n',
        b'{"pool":"","nonce":"n"}\n',
        b'{"pool":"h","nonce":7}\n',
        b'{"pool":"h","nonce":"\\ud800bcdefabcdefabcdef"}\n',
        b'{"pool":"h","nonce":"\\n0123456789abcdef"}\n',
        b'{"pool":"h","nonce":"n","life":"l","number":true,"port":1}\n',
        b'{"pool":"h","nonce":"n","life":"l","number":1}\n',
        b'{"pool":"' + b"h" * 2000 + b'","nonce":"n"}\n',
        b"[" * 1000 + b"\n",
        b"\xff\n",
    ],
)
def test_malformed_subscriptions_are_refused(line: bytes) -> None:
    with pytest.raises(MalformedError):
        read_subscription(line)


@given(st.binary(max_size=200))
def test_any_bytes_as_a_reply_or_a_subscription_raise_nothing_else(data: bytes) -> None:
    for read in (read_subscription, lambda some: read_reply(KEY, some)):
        with pytest.raises(MalformedError):
            read(data)


def test_events_concern_the_topics_of_their_handle() -> None:
    server = Server()
    topics = {OWNER: server.topic}
    assert concerned(topics, iter([{"handle": "h"}])) == [server.topic]
    assert concerned(topics, iter([{"handle": "x"}])) == []
    unknown = Topic(OWNER, "t2", 20000, PendingChanges(LEAST_PAUSE_S))
    assert not unknown.is_due(0.0)
    assert concerned({OWNER: unknown}, iter([{"handle": "x"}])) == [unknown]


def test_key_of_the_longest_zone_signs() -> None:
    keys = {"example.net": b"1", "as.example.net": b"2"}
    assert key_of(OWNER, keys) == b"2"
    assert key_of("_sip._udp.x.example.net", keys) == b"1"
    assert key_of("_sip._udp.example.org", keys) is None


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("10.0.0.53", "0.0.0.0", "news.listen"),
        ('[news.keys]\n"example.net" = "/k"\n', "keys = {}\n", "news.keys"),
        ("[news.keys]", 'ports = "8000-8100"\n[news.keys]', "news.ports"),
        ("[news.keys]", 'ports = "20000-20010"\n[news.keys]', "news.ports"),
        ("[news.keys]", 'ports = "22000-21000"\n[news.keys]', "news.ports"),
        ("[news.keys]", "time_to_live_s = 2\npoll_every_ms = 2000\n[news.keys]", "news.time_to_live_s"),
        ("/k", "/there/is/none", 'news.keys."example.net"'),
        ('listen = "10.0.0.53:8056"\n', "", "news.listen"),
        ("[news.keys]", '[news.push]\nlisten = "10.0.0.53:853"\n[news.keys]', "news.push.tls_key"),
        ("[news.keys]", PUSH.replace(":853", "") + "[news.keys]", "news.push.listen"),
        ("[news.keys]", PUSH + "sessions = 0\n[news.keys]", "news.push.sessions"),
        ("[news.keys]", PUSH + "[news.keys]", "news.push.tls_certificate"),
    ],
)
def test_error_in_the_table_is_told_with_its_key(tmp_path: Path, old: str, new: str, key: str) -> None:
    main = 'registrars = ["10.0.0.1"]\n[news]\nlisten = "10.0.0.53:8056"\n[news.keys]\n"example.net" = "/k"\n'
    told_keys = [told_key for _, _, told_key, _ in errors(write(tmp_path, main.replace(old, new)))]
    assert key in told_keys


def test_push_alone_needs_no_ports_and_no_keys(tmp_path: Path) -> None:
    files = certificate_of(tmp_path, authority(tmp_path, "ca"), 30)
    text = PUSH.replace("no.crt", files["crt"].name).replace("no.key", files["key"].name)
    news = load_configuration(write(tmp_path, f'registrars = ["10.0.0.1"]\n{text}', one=head() + UDP)).news
    assert news is not None
    assert (news.listen, news.keys) == (None, {})
    assert news.push is not None
    assert news.push.access(tmp_path)[1] == []


def test_check_warns_of_a_zone_whose_clients_do_not_find_the_server(tmp_path: Path) -> None:
    files = certificate_of(tmp_path, authority(tmp_path, "ca"), 30)
    text = PUSH.replace("no.crt", files["crt"].name).replace("no.key", files["key"].name)
    path = write(tmp_path, f'registrars = ["10.0.0.1"]\n{text}', one=head() + UDP)

    def keys() -> list[str]:
        return [warning.key for warning in warnings(path, load_configuration(path), None)]

    assert "news.push.listen" in keys()
    with (tmp_path / "zones.d" / "one.zone").open("a") as file:
        file.write("_dns-push-tls._tcp SRV 0 0 853 ns1\n")
    assert "news.push.listen" not in keys()


def test_keys_are_those_of_hooks(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"whsec_{base64.b64encode(KEY).decode()}\n")
    file.chmod(0o600)
    config = NewsConfig(listen="10.0.0.53:8056", keys={"example.net": str(file)})
    assert read_keys(config) == {"example.net": KEY}
