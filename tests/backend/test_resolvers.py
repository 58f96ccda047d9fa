"""Resolvers that are told: the queue, BIND's messages, and wrong tables."""

import asyncio
import base64
import hmac
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import web
from daemon_kit.config_file import ConfigurationErrors
from hypothesis import given
from hypothesis import strategies as st
from rspdns.configuration import BackendConfig, load_configuration
from rspdns.resolvers import ResolverConfig, rndc
from rspdns.resolvers.flush_queue import (
    AGAIN_S,
    FEW_NAMES,
    FIRST_PAUSE_S,
    JOIN_S,
    MOST_NAMES,
    MOST_PAUSE_S,
    WEIGHTS_S,
    FlushQueue,
    tellable,
)
from rspdns.resolvers.telling import TELL, FlushError

from tests.support.namespaces import REPOSITORY
from tests.support.pages import blocks

ZONES = ["example.net", "ims.example.net", "example.org"]
NOW = 1000.0
KEY = rndc.RndcKey("sha256", b"a secret of some bytes")


def queue() -> FlushQueue:
    return FlushQueue(lambda: ZONES, draw=lambda: 1.0)


def flushes(
    of: FlushQueue, until_s: float, *, works: Iterable[bool] = ()
) -> list[tuple[float, tuple[str, ...]]]:
    """Return each flush until then and its time since NOW; `works`: whether the first ones do."""
    made, outcomes = [], iter(works)
    while (due_s := of.next_due_s) is not None and due_s <= NOW + until_s:
        names = of.take(due_s)
        made.append((round(due_s - NOW, 6), names))
        if next(outcomes, True):
            of.done(due_s)
        else:
            of.failed(due_s)
    return made


def test_changes_of_a_moment_are_one_flush_and_each_name_is_flushed_once_more() -> None:
    both = ("a.example.net", "b.example.net")
    of = queue()
    of.add(["a.example.net"], NOW)
    of.add(["b.example.net", "a.example.net"], NOW + 0.002)
    assert flushes(of, 10) == [(JOIN_S, both), (JOIN_S + AGAIN_S, both)]
    assert of.next_due_s is None


def test_names_of_services_are_flushed_before_those_of_targets() -> None:
    of = queue()
    of.add(["00000001.u.as.example.net", "_sip._udp.as.example.net", "as.example.net", "example.org$"], NOW)
    (_, names), *_ = flushes(of, 1)
    assert names[:2] == ("example.org$", "_sip._udp.as.example.net")


def test_name_that_changes_while_it_is_flushed_is_flushed_anew() -> None:
    of = queue()
    of.add(["a.example.net"], NOW)
    names = of.take(NOW + JOIN_S)
    of.add(names, NOW + 0.02)
    of.done(NOW + 0.03)
    assert [names for _, names in flushes(of, 10)] == [("a.example.net",)] * 2


def test_weights_wait_and_a_change_does_not() -> None:
    of = queue()
    of.add(["a.example.net", "b.example.net"], NOW, WEIGHTS_S)
    of.add(["a.example.net"], NOW + 1, WEIGHTS_S)
    assert of.next_due_s == NOW + WEIGHTS_S
    of.add(["a.example.net"], NOW + 2)
    of.add(["a.example.net"], NOW + 2, WEIGHTS_S)
    made = flushes(of, 2 + JOIN_S)
    assert made == [(2 + JOIN_S, ("a.example.net",))]


def test_resolver_that_fails_is_tried_after_growing_pauses_and_loses_nothing() -> None:
    of = queue()
    of.add(["a.example.net"], NOW)
    made = flushes(of, 200, works=[False] * 8)
    times = [at_s for at_s, _ in made]
    assert times[1] - times[0] == pytest.approx(FIRST_PAUSE_S)
    assert times[2] - times[1] == pytest.approx(2 * FIRST_PAUSE_S)
    longest_s = max(after - before for before, after in pairwise(times))
    assert longest_s == pytest.approx(MOST_PAUSE_S)
    assert {names for _, names in made} == {("a.example.net",)}
    assert of.failures == 0
    assert of.next_due_s is None


def test_changes_while_it_fails_wait_for_the_pause() -> None:
    of = queue()
    of.add(["a.example.net"], NOW)
    of.take(NOW + JOIN_S)
    of.failed(NOW + JOIN_S)
    of.add(["b.example.net"], NOW + 0.1)
    assert of.take(NOW + 0.2) == ()
    assert of.next_due_s == pytest.approx(NOW + JOIN_S + FIRST_PAUSE_S)
    assert of.take(NOW + 1) == ("a.example.net", "b.example.net")


def test_many_names_become_their_zones() -> None:
    of = queue()
    of.add([f"a{number}.ims.example.net" for number in range(MOST_NAMES)], NOW)
    assert len(of) == MOST_NAMES
    of.add(["b.example.net", "old.zone.test"], NOW)
    assert of.take(NOW + 1) == ("example.net$", "ims.example.net$")


def test_many_names_that_fail_become_their_zones() -> None:
    """Each name takes a resolver far away some round trips: it might never do all of them in time."""
    of = queue()
    of.add([f"a{number}.ims.example.net" for number in range(FEW_NAMES + 1)], NOW)
    assert len(of.take(NOW + 1)) == FEW_NAMES + 1
    of.failed(NOW + 3)
    assert of.take(NOW + 4) == ("ims.example.net$",)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 999), st.booleans()), max_size=60))
def test_queue_is_bounded_and_empties(steps: list[tuple[str, int, bool]]) -> None:
    of, now = queue(), NOW
    for zone, number, works in steps:
        now += 0.02
        of.add((f"n{each}.{zone}.example.net" for each in range(number)), now)
        assert len(of) <= MOST_NAMES
        if of.take(now):
            (of.done if works else of.failed)(now)
    now = max(now, of.next_due_s or now) + MOST_PAUSE_S
    for _ in range(4):
        if of.take(now):
            of.done(now)
        now += 1
    assert of.next_due_s is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("_sip._udp.as.ims.example.net", "_sip._udp.as.ims.example.net"),
        ("ims.example.net$", "ims.example.net$"),
        ("*.example.net", "example.net$"),
        ("a'b.c.example.net", "c.example.net$"),
        (r"a.b\032c.example.net", "example.net$"),
        ("x'); os.exit() --.example.net", "example.net$"),
    ],
)
def test_unusual_names_are_never_a_part_of_a_command(name: str, told: str) -> None:
    assert tellable(name) == told


def answer(words: str, *, nonce: str = "77", result: str = "0", key: rndc.RndcKey = KEY) -> bytes:
    """Return a reply as named writes it: a command has the same parts."""
    message = rndc.command(key, words, 1, 1000, nonce)[4:]
    body = message[message.index(b"\x05_ctrl") :]
    field = b"\x06result\x01" + len(result).to_bytes(4, "big") + result.encode()
    at = body.index(b"\x05_data\x02") + 7
    size = int.from_bytes(body[at : at + 4], "big") + len(field)
    body = body[:at] + size.to_bytes(4, "big") + body[at + 4 :] + field
    auth = b"\x04hsha\x01" + (89).to_bytes(4, "big") + key.signature(body)
    return b"\0\0\0\1\x05_auth\x02" + len(auth).to_bytes(4, "big") + auth + body


def test_command_is_signed_and_a_reply_read() -> None:
    message = rndc.command(KEY, "flushname a.example.net", 7, 1000, "77")
    assert rndc.length(message[:4]) == len(message) - 4
    assert b"flushname a.example.net" in message
    digest = base64.b64encode(hmac.digest(KEY.secret, message[message.index(b"\x05_ctrl") :], "sha256"))
    assert digest in message
    assert rndc.reply(KEY, answer("null")) == rndc.RndcReply("77", None)
    assert rndc.reply(KEY, answer("x", result="24")) == rndc.RndcReply("77", "result 24")


def test_reply_of_another_key_is_refused() -> None:
    with pytest.raises(rndc.RndcError, match="signed with another key"):
        rndc.reply(KEY, answer("null", key=rndc.RndcKey("sha256", b"another")))


@given(st.binary(max_size=300), st.integers(0, 400), st.binary(max_size=3))
def test_bad_bytes_are_an_error_in_words(data: bytes, at: int, other: bytes) -> None:
    whole = answer("null")
    for message in (data, b"\0\0\0\1" + data, whole[:at] + other + whole[at + len(other) :]):
        with suppress(rndc.RndcError):
            rndc.reply(KEY, message)


def test_keys_of_rndc_are_read_as_rndc_confgen_writes_them() -> None:
    text = '# x\nkey "rndc-key" {\n\talgorithm hmac-sha512;\n\tsecret "c2VjcmV0";\n};\n'
    assert rndc.RndcKey.parse(text) == rndc.RndcKey("sha512", b"secret")
    for wrong, words in (
        ("", "rndc-confgen"),
        (text.replace("sha512", "md5"), "hmac-md5: the algorithms are"),
        (text.replace("c2VjcmV0", "!"), "no base64"),
    ):
        with pytest.raises(ValueError, match=words):
            rndc.RndcKey.parse(wrong)


PAGE = (REPOSITORY / "docs" / "how-to" / "dns" / "tell-resolvers.md").read_text()


def test_tables_of_the_page_are_right() -> None:
    tables = blocks(PAGE, "toml")
    document = tomllib.loads('registrars = ["10.0.0.1"]\n' + "".join(tables))
    config = BackendConfig.model_validate(document)
    assert {resolver.type for resolver in config.resolvers} == TELL.keys()
    assert list(BackendConfig.document_problems(document)) == []


BASE = 'registrars = ["10.0.0.1"]\n[[resolver]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('type = "bind"\naddress = "10.0.0.1:953"', ":2: resolver[0]: needs key"),
        ('type = "unbound"\naddress = "10.0.0.1:8953"', "needs server_certificate, certificate, key"),
        (
            'type = "dnsmasq"\naddress = "10.0.0.1:53"',
            "[0].address: dnsmasq is told by the D-Bus",
        ),
        ('type = "recursor"\naddress = "unix:/run/x"\nkey = "/k"', "recursor is told by IP"),
        (
            'type = "unbound"\naddress = "unix:/run/x"\nkey = "/k"',
            ":6: resolver[0].key: unbound has no such key at a",
        ),
        ('type = "unbound"\naddress = "unix:run/x"', "name the socket by its whole path"),
        ('type = "knot-resolver"\naddress = "10.0.0.1"', "must be an IP address and a port"),
        ('type = "knot"\naddress = "10.0.0.1:1"', ":4: resolver[0].type"),
        (
            'type = "recursor"\naddress = "10.0.0.1:1"\nkey = "/none"',
            ":6: resolver[0].key: /none: can't be read",
        ),
    ],
)
def test_wrong_tables_are_told_with_line_and_key(tmp_path: Path, table: str, words: str) -> None:
    path = tmp_path / "rspdns.toml"
    path.write_text(f"{BASE}{table}\n")
    (tmp_path / "zones.d").mkdir()
    with pytest.raises(ConfigurationErrors) as refused:
        load_configuration(path)
    assert words in str(refused.value)


def test_risks_are_told() -> None:
    def risk(kind: str, address: str) -> str | None:
        return ResolverConfig.model_validate({"name": "a", "type": kind, "address": address}).risk

    assert "everybody who reaches this port" in str(risk("knot-resolver", "10.0.0.1:5"))
    assert "in clear" in str(risk("recursor", "10.0.0.1:5"))
    for kind, address in (("recursor", "127.0.0.1:5"), ("bind", "10.0.0.1:5"), ("knot-resolver", "unix:/a")):
        assert risk(kind, address) is None


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "it closed the connection"),
        (b"x" * 200_000, "it speaks no control protocol of Knot Resolver 5"),
        (b"> \xff\xff\xff\xff", "it speaks no control protocol of Knot Resolver 5"),
        (b"> \0\0\0\5nil\n", "it closed the connection"),
    ],
)
async def test_other_program_at_the_control_of_a_knot_resolver_is_told(said: bytes, words: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(said)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        keys = {"name": "k", "type": "knot-resolver", "address": f"127.0.0.1:{port}"}
        async with asyncio.timeout(30):
            with pytest.raises(FlushError, match=words):
                await TELL["knot-resolver"](ResolverConfig.model_validate(keys), ["a.example.net"])


async def test_dnsdist_is_told_by_its_api(tmp_path: Path) -> None:
    """Debian 12's dnsdist has no such path yet: this stands for a later one."""
    asked: list[tuple[str, dict[str, str]]] = []
    statuses = [200, 200, 404]

    async def take(request: web.Request) -> web.Response:
        assert request.headers["X-API-Key"] == "s3cret"
        asked.append((f"{request.method} {request.path}", dict(request.query)))
        return web.Response(status=statuses.pop(0))

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", take)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        key = tmp_path / "key"
        key.write_text("s3cret\n")
        key.chmod(0o600)
        port: int = runner.addresses[0][1]
        keys = {
            "name": "d",
            "type": "dnsdist",
            "address": f"127.0.0.1:{port}",
            "key": str(key),
        }
        config = ResolverConfig.model_validate(keys | {"cache_pool": "sip"})
        async with asyncio.timeout(30):
            await TELL["dnsdist"](config, ["ims.example.net$", "a.example.net"])
            with pytest.raises(FlushError, match="it answered DELETE /api/v1/cache with 404"):
                await TELL["dnsdist"](config, ["a.example.net"])
    finally:
        await runner.cleanup()
    path = "DELETE /api/v1/cache"
    assert asked[:2] == [
        (path, {"pool": "sip", "name": "ims.example.net.", "suffix": "1"}),
        (path, {"pool": "sip", "name": "a.example.net."}),
    ]
