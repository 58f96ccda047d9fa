"""The admin API over a real connection: who is answered, and what the answers hold."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pool_user import OVERLOADED_AT, RELIEVED_AT
from rspdns.admin.access import read_access
from rspdns.admin.openapi import ROUTES
from rspdns.admin.stream import STREAMS
from rspdns.status import dumped

from tests.backend.admin_paper import POOL, READER, WRITER, Admin, tokens
from tests.backend.making import ZONE, event
from tests.backend.statuses import SERIAL, member_status, pool_status
from tests.support.json_schema import differences


async def test_reading_is_open_on_loopback(admin: Admin) -> None:
    assert (await admin.ask("/v1/pools"))[1]["pools"] == [{"zone": ZONE, "serial": SERIAL, **dumped(POOL)}]
    assert (await admin.ask("/v1/pools/_SIP._udp.as.ims.example.net."))[1]["owner"] == POOL.owner
    assert (await admin.ask("/v1/zones/ims.example.net"))[1]["serial"] == SERIAL
    for path in ("/v1/zones/other.example", "/v1/pools/x", "/v1/nothing", "/v2/pools", "/page.css/x"):
        status, told, _ = await admin.ask(path)
        assert (status, "error" in told) == (404, True), path
    assert (await admin.ask("/v1/pools", "DELETE"))[0] == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8054", "10.0.0.1", "localhost.evil.example", ""]
)
async def test_a_foreign_name_that_leads_here_gets_nothing(admin: Admin, host: str) -> None:
    for path in ("/", "/v1/pools", "/metrics"):
        status, told, _ = await admin.ask(path, Host=host)
        assert status in (400, 421), told
        assert "sip" not in str(told)
    assert (await admin.write("/v1/reload", Host=host))[0] in (400, 421)


async def test_no_page_of_another_site_may_write_or_read(admin: Admin) -> None:
    foreign = (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    )
    for headers in foreign:
        assert (await admin.write("/v1/purge", {"names": ["ims.example.net"]}, **headers))[0] == 403, headers
        assert (await admin.ask("/v1/pools", **headers))[0] == 403
    assert not admin.service.purged
    own = {"Origin": f"http://{admin.host}", "Sec-Fetch-Site": "same-origin"}
    assert (await admin.write("/v1/reload", **own))[0] == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert (await admin.ask("/", **link))[0] == 200, "a person may follow a link to the page"


async def test_writing_needs_a_token_on_loopback_too(admin: Admin) -> None:
    body = {"names": ["as.ims.example.net", "ims.example.net$"]}
    status, told, headers = await admin.ask("/v1/purge", "POST", body)
    assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="rspdns"')
    assert "Bearer" in told["error"]
    assert (await admin.ask("/v1/purge", "POST", body, Authorization=f"Bearer {READER}"))[0] == 401
    assert not admin.service.purged
    assert await admin.write("/v1/purge", body) == (200, {"names": body["names"]})
    assert admin.service.purged == body["names"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"names": ["evil.example"]}, "in no zone"),
        ({"names": ["x ims.example.net"]}, "label"),
        ({"names": ["a\nPURGE b.ims.example.net"]}, "label"),
        ({"names": []}, "1 to 1000"),
        ({"names": ["ims.example.net"] * 1001}, "1 to 1000"),
        ({"names": [7]}, "text"),
        ({"names": ["ims.example.net"], "more": 1}, "body"),
        (["ims.example.net"], "body"),
        (b"{", "not JSON"),
    ],
)
async def test_a_name_that_cannot_be_purged_is_refused(admin: Admin, body: object, words: str) -> None:
    status, told = await admin.write("/v1/purge", body)
    assert status == 400
    assert words in told["error"]
    assert not admin.service.purged


async def test_large_bodies_and_bodies_of_another_type_are_refused(admin: Admin) -> None:
    assert (await admin.write("/v1/purge", b" " * 200_000))[0] == 413
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await admin.write("/v1/purge", b"{}", **form))[0] == 415


async def test_a_reload_that_fails_says_why(admin: Admin) -> None:
    admin.service.problem = "nothing was changed:\nzones.d/x.toml:3: pool[0].handle: is missing"
    status, told = await admin.write("/v1/reload")
    assert (status, told["error"]) == (409, admin.service.problem)


async def test_tokens_for_reading_where_they_are_set(tmp_path: Path) -> None:
    read, write = tokens(tmp_path, "read", READER), tokens(tmp_path, "write", WRITER)
    admin = Admin(tmp_path, read_tokens=read, write_tokens=write)
    await admin.server.start()
    try:
        assert (await admin.ask("/"))[0] == 200, "the page itself tells nothing"
        for path in ("/v1/pools", "/metrics", "/v1/events/stream", "/v1/nothing"):
            assert (await admin.ask(path))[0] == 401, path
        for token in (READER, WRITER):
            assert (await admin.ask("/v1/pools", Authorization=f"Bearer {token}"))[0] == 200
        status, told, _ = await admin.ask("/v1/reload", "POST", Authorization=f"Bearer {READER}")
        assert (status, told["error"]) == (403, "this token may read only")
        tokens(tmp_path, "read", "another-0123456789abcdef")
        admin.server.set_access(read_access(tmp_path, read, write, None, None)[0])
        assert (await admin.ask("/v1/pools", Authorization=f"Bearer {READER}"))[0] == 401
    finally:
        await admin.client.close()
        await admin.server.close()


async def test_guessing_tokens_is_slow(admin: Admin) -> None:
    guesses = [
        (await admin.ask("/v1/reload", "POST", Authorization=f"Bearer {number:030}"))[0]
        for number in range(12)
    ]
    assert guesses == [401] * 10 + [429] * 2
    # Users of one host, and all behind one reverse proxy, have one address: others are not locked out.
    assert (await admin.write("/v1/reload"))[0] == 200
    assert (await admin.ask("/v1/status"))[0] == 200
    assert admin.server.api.guard.refused["rate"] == 2


async def test_asking_often_is_refused_and_costs_no_status(admin: Admin) -> None:
    statuses = [(await admin.ask("/v1/status"))[0] for _ in range(400)]
    assert 429 in statuses
    assert statuses.count(200) >= 100
    assert admin.service.asked < statuses.count(200)


async def test_every_answer_has_the_headers_that_protect_a_browser(admin: Admin) -> None:
    for path in ("/", "/page.js", "/page.css", "/icon.svg", "/v1/pools", "/nothing"):
        _, _, headers = await admin.ask(path)
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Server"] == "rspdns"
        assert "Access-Control-Allow-Origin" not in headers


async def test_the_page_takes_nothing_from_elsewhere(admin: Admin) -> None:
    for path in ("/", "/page.js", "/stream.js", "/view.js", "/page.css", "/icon.svg"):
        status, text, _ = await admin.ask(path)
        assert status == 200
        outside = text.replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in outside
        assert "https:" not in outside
        assert "innerHTML" not in text


async def test_the_page_has_the_loads_of_overload_and_relief_from_the_weights(admin: Admin) -> None:
    _, text, _ = await admin.ask("/")
    assert f'data-overloaded-at="{OVERLOADED_AT}" data-relieved-at="{RELIEVED_AT}"' in text
    assert "{" not in text


async def test_every_answer_is_as_described(admin: Admin) -> None:
    admin.service.pools.append(pool_status(members=[member_status(7, port=5062)]))
    described = (await admin.ask("/v1/openapi.json"))[1]
    assert described["openapi"].startswith("3.1")
    operations = {(method.upper(), path) for path, found in described["paths"].items() for method in found}
    assert operations == {(route.method, route.path) for route in ROUTES}
    paths = {
        "/v1/zones/{zone}": "/v1/zones/ims.example.net",
        "/v1/pools/{owner}": f"/v1/pools/{POOL.owner}",
        "/v1/overrides/{number}": "/v1/overrides/7",
        "/ready/{zone}": f"/ready/{ZONE}",
        "/v1/servers/{server}": "/v1/servers/10.20.0.7:5062",
    }
    for route in ROUTES:
        if route.path in ("/v1/events/stream", "/v1/history", "/metrics", "/v1/openapi.json"):
            continue
        bodies: dict[str | None, Any] = {
            "Purge": {"names": ["ims.example.net"]},
            "WantedOverride": {"action": "down", "servers": "10.0.0.1", "reason": "a test"},
        }
        body = bodies.get(route.body)
        headers = {"Authorization": f"Bearer {WRITER}"}
        status, told, _ = await admin.ask(paths.get(route.path, route.path), route.method, body, **headers)
        operation = described["paths"][route.path][route.method.lower()]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert (status, differences(told, schema, described)) == (200, []), route.path


async def test_override_is_set_and_cleared_under_the_name_of_the_token(admin: Admin) -> None:
    wish = {"action": "share", "servers": "sip-1", "reason": "canary", "share": 0.05}
    assert (await admin.ask("/v1/overrides", "POST", wish))[0] == 401
    assert (await admin.ask("/v1/overrides"))[0] == 200, "reading is open on loopback"
    assert (await admin.write("/v1/overrides", wish))[0] == 200
    assert (await admin.write("/v1/overrides/3", method="DELETE"))[0] == 200
    assert admin.service.overridden == [(wish, "alice"), (["3"], "alice")]
    wrongs: tuple[object, ...] = ({**wish, "shar": 1}, {**wish, "share": "5%"}, [], {**wish, "force": 1})
    for wrong in wrongs:
        assert (await admin.write("/v1/overrides", wrong))[0] == 400, wrong
    admin.service.problem = "sip-9: no server has this name"
    assert await admin.write("/v1/overrides", wish) == (409, {"error": admin.service.problem})


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_no_page_of_another_site_may_override(admin: Admin, method: str) -> None:
    """A cross-site request carries no token of ours: there is no cookie. Origin is checked all the same."""
    path = "/v1/overrides/7" if method == "DELETE" else "/v1/overrides"
    wish = {"action": "down", "servers": "sip-1", "reason": "gone for good"} if method == "POST" else None
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert (await admin.write(path, wish, method=method, **headers))[0] == 403
        asked = {**headers, "Access-Control-Request-Method": method}
        status, _, answered = await admin.ask(path, "OPTIONS", **asked)
        assert status == 403
        assert not [name for name in answered if name.lower().startswith("access-control-")]
    assert (await admin.ask(path, method, wish, Cookie=f"rspdns-token={WRITER}"))[0] == 401
    assert not admin.service.overridden


async def test_answers_come_in_pages(admin: Admin) -> None:
    admin.service.pools = [
        pool_status(owner=f"_sip._udp.as{number:03}.ims.example.net", members=[member_status(1)])
        for number in range(120)
    ]
    status, told, _ = await admin.ask("/v1/answers?offset=100&pools=50")
    assert (status, told["pools_in_all"], told["matching"], len(told["pools"])) == (200, 120, 120, 20)
    assert told["pools"][0]["answers"][0]["dig"].startswith("dig +noall +answer @127.0.0.1 -p 5300 _sip._udp")
    assert (await admin.ask("/v1/answers?filter=as07+udp"))[1]["matching"] == 10
    assert (await admin.ask("/v1/status?zones=false"))[1]["zones"] == []
    for wrong in ("pools=0", "pools=101", "servers=x", "offset=-1", "filter=" + "x" * 201, "pools=%C2%B2"):
        status, told, _ = await admin.ask(f"/v1/answers?{wrong}")
        assert (status, "error" in told) == (400, True), wrong


async def read_events(admin: Admin, count: int, **headers: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with admin.client.get(f"http://{admin.host}/v1/events/stream", headers=headers) as answer:
        assert answer.content_type == "text/event-stream"
        while len(found) < count:
            line = (await asyncio.wait_for(answer.content.readline(), 20)).decode()
            if line.startswith("retry:"):
                admin.log.happened([event("refused")])
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
    return found


async def test_events_come_as_they_happen_and_missed_ones_first(admin: Admin) -> None:
    admin.log.happened([event(), event()])
    assert [event["kind"] for event in await read_events(admin, 1)] == ["refused"]
    heard = await read_events(admin, 3, **{"Last-Event-ID": "1"})
    assert [(event["number"], event["kind"]) for event in heard] == [
        (2, "left"),
        (3, "refused"),
        (4, "refused"),
    ]
    assert len(await read_events(admin, 5, **{"Last-Event-ID": "99"})) == 5, "numbers of a former life"
    described = (await admin.ask("/v1/openapi.json"))[1]
    assert not differences(heard[0], {"$ref": "#/components/schemas/Event"}, described)


async def test_listeners_are_bounded_and_leave_nothing(admin: Admin) -> None:
    url = f"http://{admin.host}/v1/events/stream"
    open_streams = [await admin.client.get(url) for _ in range(STREAMS)]
    assert (await admin.ask("/v1/events/stream"))[0] == 503
    for stream in open_streams:
        stream.close()
    admin.log.happened([event()])
    async with asyncio.timeout(20):
        while admin.server.api.streams.open:
            admin.log.happened([event()])
            await asyncio.sleep(0.02)
