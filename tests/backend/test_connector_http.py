"""Paths as PowerDNS's HTTP connector writes them; what is secret and what is not ours stays here."""

import http.client
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yarl
from daemon_kit.addresses import ListenAddress
from daemon_kit.errors import FatalError
from rspdns.answers.snapshot import zone_id
from rspdns.dnssec.store import DnssecStore
from rspdns.pdns.answering import make_connector
from rspdns.pdns.connector_http import HttpConnector, parse
from rspdns.pdns.remote import RequestError
from rspdns.pdns.responder import PdnsResponder

from tests.backend.making import UDP, ZONE, answered, member, swap, view, views, zone

OWNER = f"_sip._udp.as.{ZONE}"


class Asker:
    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.base = f"http://127.0.0.1:{port}"

    async def __call__(self, path: str, verb: str = "GET", **more: Any) -> tuple[int, Any]:
        url = yarl.URL(self.base + path, encoded=True)
        async with self.session.request(verb, url, **more) as reply:
            text = await reply.text()
            return reply.status, json.loads(text) if text.startswith("{") else text


@pytest.fixture
def responder(tmp_path: Path) -> PdnsResponder:
    made = PdnsResponder(store=DnssecStore(tmp_path))
    swap(made, answered(zone(), views(view(member(1), member(2)))))
    return made


@pytest.fixture
async def ask(responder: PdnsResponder) -> AsyncIterator[Asker]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    connector = HttpConnector(ListenAddress.parse(f"127.0.0.1:{port}"), responder)
    await connector.start()
    async with aiohttp.ClientSession() as session:
        yield Asker(port, session)
    await connector.close()


async def test_every_way_to_read(ask: Asker) -> None:
    code, reply = await ask(f"/dns/lookup/{OWNER}./ANY")
    assert code == 200
    assert {record["content"].split()[3] for record in reply["result"]} == {
        f"0000000{number}.u.as.{ZONE}" for number in (1, 2)
    }
    assert len((await ask(f"/dns/list/-1/{ZONE}."))[1]["result"]) > 5
    assert len((await ask(f"/dns/list/{ZONE}."))[1]["result"]) > 5
    assert (await ask(f"/dns/getDomainInfo/{ZONE}."))[1]["result"]["zone"] == ZONE
    assert len((await ask("/dns/getAllDomains?includeDisabled=true"))[1]["result"]) == 1
    assert (await ask(f"/dns/getAllDomainMetadata/{ZONE}."))[1] == {"result": {}}
    assert (await ask(f"/dns/getDomainMetadata/{ZONE}./ALSO-NOTIFY"))[1] == {"result": []}
    around = f"/dns/getBeforeAndAfterNamesAbsolute/{zone_id(ZONE)}/as."
    assert (await ask(around))[1]["result"]["before"] == "as"
    assert len((await ask("/dns/searchRecords?pattern=10.0.0.*&maxResults=2"))[1]["result"]) == 2
    assert (await ask("/dns/setNotified/1", "PATCH", data={"serial": "2"}))[1] == {"result": True}


async def test_names_with_odd_characters() -> None:
    assert parse("/dns/lookup/a%2Fb.%5c046c./A", {})[1] == {"qname": "a/b.\\046c.", "qtype": "A"}
    assert parse("/dns/lookup/./SOA", {})[1]["qname"] == "."


async def test_an_unknown_name_is_an_answer_and_an_unknown_pool_a_failure(
    ask: Asker, responder: PdnsResponder
) -> None:
    assert await ask(f"/dns/lookup/nobody.{ZONE}./ANY") == (200, {"result": False})
    swap(responder, answered(zone(), {}))
    code, reply = await ask(f"/dns/lookup/{OWNER}./ANY")
    assert code == 503
    assert "result" not in reply


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("GET", f"getDomainKeys/{ZONE}."),
        ("GET", "getTSIGKey/k."),
        ("GET", "getTSIGKeys"),
        ("PUT", f"addDomainKey/{ZONE}."),
        ("POST", f"activateDomainKey/1/{ZONE}."),
        ("PATCH", f"setDomainMetadata/{ZONE}./ALLOW-AXFR-FROM"),
        ("PATCH", "setTSIGKey/k."),
        ("POST", "startTransaction/1/x/1"),
        ("GET", "noSuchMethod/a/b"),
        ("GET", ""),
    ],
)
async def test_secrets_and_changes_are_refused(ask: Asker, verb: str, path: str) -> None:
    assert await ask(f"/dns/{path}", verb, data=b"value[]=0.0.0.0/0" if verb != "GET" else None) == (
        200,
        {"result": False},
    )


@pytest.mark.parametrize(
    "path",
    ["lookup", "lookup/a", "lookup/a/A/b", "lookup/%ff/A", "list/x/y", "setNotified/" + "9" * 5000,
     "searchRecords?pattern=x", f"lookup/{'a' * 5000}/A", "lookup/a..b@/A"],
)  # fmt: skip
async def test_malformed_requests_are_failures(ask: Asker, path: str) -> None:
    code, reply = await ask(f"/dns/{path}")
    assert code in (400, 503)
    assert "error" in reply


async def test_a_path_outside_the_connector_is_not_found(ask: Asker) -> None:
    assert (await ask("/"))[0] == 404


async def test_a_page_of_somebody_else_gets_nothing(ask: Asker) -> None:
    assert (await ask(f"/dns/lookup/{OWNER}./ANY", headers={"Host": "evil.example"}))[0] == 403


async def test_a_connection_is_kept_for_many_requests(ask: Asker) -> None:
    import asyncio

    def requests() -> int:
        connection = http.client.HTTPConnection(ask.base.removeprefix("http://"), timeout=10)
        count = 0
        for _ in range(20):
            connection.request("GET", f"/dns/lookup/{OWNER}./SRV")
            count += len(json.loads(connection.getresponse().read())["result"])
            assert connection.sock is not None, "kept alive"
        connection.close()
        return count

    assert await asyncio.to_thread(requests) == 40


def test_a_path_of_a_number_that_is_none() -> None:
    with pytest.raises(RequestError):
        parse("/dns/setNotified/1e9", {})


async def test_signed_zones_are_not_served_over_http(tmp_path: Path) -> None:
    store = DnssecStore(tmp_path)
    await store.add_key(ZONE, 257, True, True, "x")
    with pytest.raises(FatalError, match="unix connector only"):
        make_connector("http:127.0.0.1:8053", PdnsResponder(store=store), store)
    store.close()


async def test_asker_of_a_question_is_in_a_header(responder: PdnsResponder, ask: Asker) -> None:
    near = zone(UDP + 'affinity = "asker"')
    swap(responder, answered(near, views(view(*(member(number) for number in range(1, 9))))))
    firsts = set()
    for number in range(1, 30):
        headers = {"X-RemoteBackend-real-remote": f"192.0.2.{number}/32"}
        reply = (await ask(f"/dns/lookup/{OWNER}./ANY", headers=headers))[1]["result"]
        firsts.add(next(each["content"] for each in reply if each["content"].startswith("0 ")))
    assert len(firsts) > 3
