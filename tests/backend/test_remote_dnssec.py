"""The methods about signing, request by request, as PowerDNS 4.7 sends them."""

import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rspdns.answers.snapshot import Snapshot, zone_id
from rspdns.dnssec.nsec import Chain, Nsec3Parameters
from rspdns.dnssec.store import DnssecStore
from rspdns.pdns import remote_dnssec
from rspdns.pdns.domain_ids import KEPT_S
from rspdns.pdns.remote_dnssec import PARAMETERS_KEPT_S
from rspdns.pdns.responder import KNOWN, PdnsResponder
from structlog.testing import capture_logs

from rserpool import LeastUsed
from tests.backend.making import FIXED, UDP, ZONE, answered, member, swap, view, views, zone

PRIVATE = base64.b64encode(bytes(range(32))).decode()
CONTENT = f"Private-key-format: v1.2\nAlgorithm: 13 (ECDSAP256SHA256)\nPrivateKey: {PRIVATE}\n"
KEY = {"flags": 257, "active": True, "published": False, "content": CONTENT}
TWO = answered(zone(), views(view(member(1), member(2))))


class Asker:
    """A connection of PowerDNS."""

    def __init__(self, responder: PdnsResponder) -> None:
        self.responder = responder

    async def __call__(self, method: str, **parameters: Any) -> Any:
        reply = self.responder.respond(json.dumps({"method": method, "parameters": parameters}).encode())
        text = reply if isinstance(reply, bytes) else await reply
        assert text.endswith(b"\n")
        return json.loads(text)


class Clock:
    """The time as the responder sees it."""

    def __init__(self, responder: PdnsResponder) -> None:
        self.now = 0.0
        responder.clock = lambda: self.now


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Asker]:
    responder = PdnsResponder(store=DnssecStore(tmp_path))
    swap(responder, TWO)
    yield Asker(responder)
    assert responder.store
    responder.store.close()


async def test_keys_are_added_activated_published_and_removed(ask: Asker) -> None:
    assert await ask("getDomainKeys", name=f"{ZONE}.") == {"result": []}
    first = (await ask("addDomainKey", name=f"{ZONE}.", key=KEY))["result"]
    second = (await ask("addDomainKey", name=f"{ZONE}.", key={**KEY, "active": False}))["result"]
    assert 0 < first < second
    assert await ask("activateDomainKey", name=f"{ZONE}.", id=second) == {"result": True}
    assert await ask("deactivateDomainKey", name=f"{ZONE}.", id=first) == {"result": True}
    assert await ask("publishDomainKey", name=f"{ZONE}.", id=second) == {"result": True}
    keys = (await ask("getDomainKeys", name=f"{ZONE}."))["result"]
    assert keys == [
        {**KEY, "id": first, "active": False},
        {**KEY, "id": second, "active": True, "published": True},
    ]
    assert await ask("unpublishDomainKey", name=f"{ZONE}.", id=second) == {"result": True}
    assert await ask("removeDomainKey", name=f"{ZONE}.", id=first) == {"result": True}
    assert await ask("removeDomainKey", name=f"{ZONE}.", id=first) == {"result": False}
    assert [key["id"] for key in (await ask("getDomainKeys", name=ZONE.upper()))["result"]] == [second]


async def test_each_write_is_audited_without_what_is_secret(ask: Asker) -> None:
    with capture_logs() as lines:
        await ask("addDomainKey", name=f"{ZONE}.", key=KEY)
        await ask("activateDomainKey", name=f"{ZONE}.", id=1)
        await ask("setDomainMetadata", name=f"{ZONE}.", kind="ALLOW-AXFR-FROM", value=["10.0.0.1"])
        await ask("setTSIGKey", name="key.example.", algorithm="hmac-sha256.", content=PRIVATE)
        await ask("getDomainKeys", name=f"{ZONE}.")
        await ask("removeDomainKey", name="nowhere.example.", id=1)
    changes = [(line["by"], line["action"], line["what"]) for line in lines if line["event"] == "changed"]
    assert changes == [
        ("PowerDNS", "addDomainKey", f"{ZONE}."),
        ("PowerDNS", "activateDomainKey", f"{ZONE}. 1"),
        ("PowerDNS", "setDomainMetadata", f"{ZONE}. ALLOW-AXFR-FROM"),
        ("PowerDNS", "setTSIGKey", "key.example."),
    ]
    assert PRIVATE not in str(lines)


@pytest.mark.parametrize("algorithm", ["rsasha256", "ecdsa256", "ecdsa384", "ed25519", "ed448"])
async def test_every_kind_of_key_that_powerdns_makes_is_kept(ask: Asker, algorithm: str) -> None:
    command = ["pdnsutil", "generate-zone-key", "zsk", algorithm]
    made = await asyncio.to_thread(
        subprocess.run, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    content = made.stdout[made.stdout.index("Private-key-format") :]
    assert "result" in await ask("addDomainKey", name=f"{ZONE}.", key={**KEY, "content": content})


async def test_metadata_are_set_read_and_removed(ask: Asker) -> None:
    assert await ask("getAllDomainMetadata", name=f"{ZONE}.") == {"result": {}}
    assert await ask("getDomainMetadata", name=f"{ZONE}.", kind="ALSO-NOTIFY") == {"result": []}
    value = ["192.0.2.1", "192.0.2.2"]
    for values in (["x"], value):
        told = await ask("setDomainMetadata", name=f"{ZONE}.", kind="ALSO-NOTIFY", value=values)
        assert told == {"result": True}
    assert (await ask("getDomainMetadata", name=f"{ZONE}.", kind="ALSO-NOTIFY"))["result"] == value
    assert (await ask("getAllDomainMetadata", name=f"{ZONE}."))["result"] == {"ALSO-NOTIFY": value}
    await ask("setDomainMetadata", name=f"{ZONE}.", kind="ALSO-NOTIFY", value=[])
    assert (await ask("getAllDomainMetadata", name=f"{ZONE}."))["result"] == {}


async def test_tsig_keys_are_set_read_and_deleted(ask: Asker) -> None:
    assert await ask("getTSIGKey", name="transfer.") == {"result": False}
    told = await ask("setTSIGKey", name="Transfer.", algorithm="hmac-sha256.", content="c2VjcmV0")
    assert told == {"result": True}
    key = {"name": "transfer.", "algorithm": "hmac-sha256.", "content": "c2VjcmV0"}
    assert (await ask("getTSIGKey", name="transfer."))["result"] == key
    assert (await ask("getTSIGKeys"))["result"] == [key]
    assert await ask("deleteTSIGKey", name="transfer.") == {"result": True}
    assert await ask("deleteTSIGKey", name="transfer.") == {"result": False}
    assert await ask("getTSIGKeys") == {"result": []}


async def test_a_zone_that_is_not_here_has_no_keys(ask: Asker) -> None:
    assert await ask("addDomainKey", name="example.com.", key=KEY) == {"result": False}
    assert await ask("setDomainMetadata", name="example.com.", kind="X", value=["1"]) == {"result": False}
    for method in ("getDomainKeys", "getAllDomainMetadata", "getDomainMetadata"):
        assert await ask(method, name="example.com.", kind="X") == {"result": False}
    assert await ask("activateDomainKey", name="example.com.", id=1) == {"result": False}


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("addDomainKey", {"name": ZONE}),
        ("addDomainKey", {"name": ZONE, "key": {**KEY, "flags": "257"}}),
        ("addDomainKey", {"name": ZONE, "key": {**KEY, "flags": 70000}}),
        ("addDomainKey", {"name": ZONE, "key": {**KEY, "content": 5}}),
        ("addDomainKey", {"name": ZONE, "key": {**KEY, "content": "x" * 100_000}}),
        ("addDomainKey", {"name": ZONE, "key": {**KEY, "content": "Private-key-format: v1.2\n"}}),
        ("addDomainKey", {"name": ZONE, "key": {**KEY, "content": CONTENT.replace("13", "9" * 5000)}}),
        ("addDomainKey", {"name": ZONE, "key": {**KEY, "content": CONTENT.replace("13", "8")}}),
        ("addDomainKey", {"name": ZONE, "key": {**KEY, "content": CONTENT.replace("13", "14")}}),
        ("addDomainKey", {"name": ZONE, "key": {**KEY, "content": CONTENT.replace(PRIVATE, "?")}}),
        ("activateDomainKey", {"name": ZONE, "id": -1}),
        ("removeDomainKey", {"name": ZONE, "id": True}),
        ("setDomainMetadata", {"name": ZONE, "kind": "X", "value": "1"}),
        ("setDomainMetadata", {"name": ZONE, "kind": "X", "value": [1]}),
        ("setDomainMetadata", {"name": ZONE, "kind": 7, "value": []}),
        ("setTSIGKey", {"name": "k", "algorithm": "hmac-sha256"}),
        ("getBeforeAndAfterNamesAbsolute", {"id": 1}),
    ],
)
async def test_a_dnssec_request_that_powerdns_would_never_send_is_a_failure_and_changes_nothing(
    ask: Asker, method: str, parameters: dict[str, Any]
) -> None:
    reply = await ask(method, **parameters)
    assert "result" not in reply
    assert reply["error"]
    assert (await ask("getDomainKeys", name=ZONE))["result"] == []


async def test_without_a_store_no_zone_is_signed() -> None:
    ask = Asker(PdnsResponder())
    swap(ask.responder, TWO)
    for method in KNOWN - {"lookup", "getTSIGKeys"}:
        assert "result" in await ask(
            method, name=ZONE, kind="X", value=[], id=1, key=KEY, qname="x", qtype="A", zonename=ZONE,
            pattern="*", maxResults=1,
        )  # fmt: skip
    assert await ask("getDomainKeys", name=ZONE) == {"result": False}


@pytest.mark.parametrize(
    ("qname", "before", "after"),
    [
        ("", "", "as"),
        ("as", "as", "_sip._udp.as"),
        ("aa", "", "as"),
        ("_sip._udp.as", "_sip._udp.as", "00000001.u.as"),
        ("zz", "ns1", ""),
    ],
)
async def test_names_around_a_name(ask: Asker, qname: str, before: str, after: str) -> None:
    result = (await ask("getBeforeAndAfterNamesAbsolute", id=zone_id(ZONE), qname=qname))["result"]
    assert (result["before"], result["after"]) == (before, after)
    assert result["unhashed"] == (f"{before}.{ZONE}" if before else ZONE)


async def test_names_around_a_name_of_no_zone(ask: Asker) -> None:
    assert await ask("getBeforeAndAfterNamesAbsolute", id=1, qname="as") == {"result": False}


async def test_hashed_names_after_nsec3_is_set(ask: Asker) -> None:
    await ask("setDomainMetadata", name=ZONE, kind="NSEC3PARAM", value=["1 0 0 -"])
    result = (await ask("getBeforeAndAfterNamesAbsolute", id=zone_id(ZONE), qname="0" * 32))["result"]
    assert len(result["before"]) == len(result["after"]) == 32
    await ask("setDomainMetadata", name=ZONE, kind="NSEC3PARAM", value=[])
    result = (await ask("getBeforeAndAfterNamesAbsolute", id=zone_id(ZONE), qname="as"))["result"]
    assert result["before"] == "as"


PARAMETERS = ("1 0 0 -", "1 0 3 abcd")


def hashed(text: str, name: str) -> str:
    parameters = Nsec3Parameters.parse(text)
    assert parameters is not None
    return parameters.hash(name)


async def test_powerdns_is_answered_as_it_asks_while_nsec3_changes(ask: Asker) -> None:
    """It learns of a change by a purge, some milliseconds later, and proves as before until then."""

    async def around(qname: str) -> Any:
        return (await ask("getBeforeAndAfterNamesAbsolute", id=zone_id(ZONE), qname=qname))["result"]

    clock = Clock(ask.responder)
    assert ask.responder.store is not None
    ask.responder.store.clock = lambda: clock.now
    first, two = PARAMETERS
    by_name = await around("aa")
    await ask("setDomainMetadata", name=ZONE, kind="NSEC3PARAM", value=[first])
    assert await around("aa") == by_name
    known, absent = hashed(first, f"as.{ZONE}"), hashed(first, f"nobody.{ZONE}")
    by_hash = await around(known), await around(absent)
    assert by_hash[0]["before"] == known
    await ask("setDomainMetadata", name=ZONE, kind="NSEC3PARAM", value=[two])
    assert (await around(hashed(two, f"as.{ZONE}")))["before"] == hashed(two, f"as.{ZONE}")
    assert (await around(known), await around(absent)) == by_hash
    await ask("setDomainMetadata", name=ZONE, kind="NSEC3PARAM", value=[])
    known = hashed(two, f"as.{ZONE}")
    assert (await around(known))["before"] == known
    assert len((await around("0" * 32))["before"]) == 32
    assert await around("aa") == by_name
    clock.now += PARAMETERS_KEPT_S + 1
    assert (await around("0" * 32))["before"] == "", "a name like any other"


class Question:
    """A question about a signed zone: everything is asked with the number that its SOA tells."""

    def __init__(self, ask: Asker, number: int) -> None:
        self.ask = ask
        self.number = number

    @classmethod
    async def of(cls, ask: Asker) -> "Question":
        (soa,) = (await ask("lookup", qname=f"{ZONE}.", qtype="SOA", **{"zone-id": -1}))["result"]
        return cls(ask, soa["domain_id"])

    async def lookup(self, name: str) -> Any:
        return (await self.ask("lookup", qname=f"{name}.", qtype="ANY", **{"zone-id": self.number}))["result"]

    async def types(self, name: str) -> set[str]:
        return {record["qtype"] for record in await self.lookup(name) or ()}

    async def before(self, relative: str) -> str:
        around = await self.ask("getBeforeAndAfterNamesAbsolute", id=self.number, qname=relative)
        before: str = around["result"]["before"]
        return before


@pytest.fixture
async def signed(ask: Asker) -> Asker:
    await ask("addDomainKey", name=f"{ZONE}.", key=KEY)
    assert swap(ask.responder, TWO) == [ZONE], "PowerDNS learns the number of a zone that is signed now"
    return ask


def members(*who: int) -> Snapshot:
    return answered(zone(), views(view(*map(member, who))))


async def test_a_question_is_answered_as_of_the_moment_in_which_it_began(signed: Asker) -> None:
    """One goes, three comes: a question that began before sees neither."""
    first, three = f"00000001.u.as.{ZONE}", f"00000003.u.as.{ZONE}"
    old = await Question.of(signed)
    assert swap(signed.responder, members(2, 3)) == [ZONE], "the SOA is purged first"
    new = await Question.of(signed)
    assert new.number != old.number
    assert await old.types(first) == {"A"}
    assert await new.types(first) == set()
    assert await old.types(three) == set()
    assert await new.types(three) == {"A"}
    assert [await at.before("00000003.u.as") for at in (old, new)] == ["00000002.u.as", "00000003.u.as"]
    assert [await at.before("00000001.u.as") for at in (old, new)] == ["00000001.u.as", "_sip._udp.as"]
    assert [record["qtype"] for record in await old.lookup(ZONE)] == ["SOA", "NS"]


async def test_a_type_that_comes_is_another_moment_and_a_weight_is_none(signed: Asker) -> None:
    name = f"00000002.u.as.{ZONE}"
    old = await Question.of(signed)
    assert await old.types(name) == {"A"}
    both = view(member(1), member(2, "10.0.0.2", "2001:db8::2"))
    assert swap(signed.responder, answered(zone(), views(both))) == [ZONE]
    new = await Question.of(signed)
    assert await old.types(name) == {"A"}
    assert await new.types(name) == {"A", "AAAA"}
    busy = view(member(1, policy=LeastUsed(0.5)), member(2, "10.0.0.2", "2001:db8::2"))
    assert swap(signed.responder, answered(zone(), views(busy))) == []
    assert (await Question.of(signed)).number == new.number
    assert any(" 500 " in record["content"] for record in await new.lookup(f"_sip._udp.as.{ZONE}"))


async def test_names_are_put_in_order_once_for_a_moment(
    signed: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loads move all the time, and a large zone takes long."""
    made: list[object] = []

    class Counted(Chain):
        def __init__(self, *arguments: Any) -> None:
            made.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr(remote_dnssec, "Chain", Counted)
    old = await Question.of(signed)
    for load in (0.5, 0.6, 0.7):
        swap(signed.responder, answered(zone(), views(view(member(1, policy=LeastUsed(load)), member(2)))))
        assert await (await Question.of(signed)).before("00000002.u.as") == "00000002.u.as"
    assert len(made) == 1
    swap(signed.responder, members(1))
    assert await (await Question.of(signed)).before("00000002.u.as") == "00000001.u.as"
    assert await old.before("00000002.u.as") == "00000002.u.as"
    assert len(made) == 2


async def test_moments_are_forgotten(signed: Asker) -> None:
    """A question with a number that no client can have any more is answered as of now; so after a restart."""
    clock, numbers = Clock(signed.responder), set()
    in_turn = members(1), members(2)
    old = await Question.of(signed)
    for turn in range(5000):
        swap(signed.responder, in_turn[turn % 2])
        numbers.add((await Question.of(signed)).number)
        clock.now += 0.01
    assert len(numbers) <= 4096, "bounded"
    clock.now += KEPT_S + 0.1
    assert await old.types(f"00000001.u.as.{ZONE}") == set()
    assert await old.types(f"00000002.u.as.{ZONE}") == {"A"}
    assert await old.before("00000001.u.as") == "_sip._udp.as"
    assert await old.before("00000002.u.as") == "00000002.u.as"


async def test_zones_that_change_as_a_whole(signed: Asker) -> None:
    """A reload brings another name and takes a pool away."""
    old = await Question.of(signed)
    other = answered(zone("", FIXED + "\ninfo TXT text"), {})
    assert swap(signed.responder, other) == [ZONE]
    new = await Question.of(signed)
    assert [await chain.before("info") for chain in (old, new)] == ["00000002.u.as", "info"]
    assert swap(signed.responder, Snapshot()) == []
    assert await new.lookup(f"info.{ZONE}") is False


async def test_the_soa_is_of_now_where_powerdns_asks_for_it_by_the_number_of_its_list(signed: Asker) -> None:
    """It does so at the start of every question, and answers questions for the SOA by it."""
    now_and_then = [answered(zone(), views(view(member(who))), serial=7 + who) for who in (1, 2)]
    for turn in range(5000):
        swap(signed.responder, now := now_and_then[turn % 2])
        (soa,) = (await signed("lookup", qname=ZONE, qtype="SOA", **{"zone-id": zone_id(ZONE)}))["result"]
        assert soa["content"] == now.zone_answers[ZONE].soa.content
        assert soa["domain_id"] != zone_id(ZONE)


async def test_the_soa_of_an_unsigned_zone_keeps_its_number(ask: Asker) -> None:
    assert swap(ask.responder, members(1)) == []
    assert (await Question.of(ask)).number == zone_id(ZONE)
    assert await ask("lookup", qname=f"00000009.u.as.{ZONE}.", qtype="ANY") == {"result": False}


@pytest.mark.parametrize("number", [None, "1", [], 2**70, -1, 1.5])
async def test_numbers_that_are_none(signed: Asker, number: Any) -> None:
    swap(signed.responder, members(1))
    odd = Question(signed, number)
    assert await odd.types(f"00000001.u.as.{ZONE}") == {"A"}
    assert (await signed("getBeforeAndAfterNamesAbsolute", id=number, qname="x")) == {"result": False}


async def test_nothing_is_denied_where_nobody_knows(ask: Asker) -> None:
    swap(ask.responder, answered(zone(UDP), {}))
    reply = await ask("getBeforeAndAfterNamesAbsolute", id=zone_id(ZONE), qname="00000003.u.as")
    assert "result" not in reply
