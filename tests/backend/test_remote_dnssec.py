"""The methods about signing, request by request, as PowerDNS 4.7 sends them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rspdns.dnssec_store import DnssecStore
from rspdns.recent import LINGER_S, NEW_FOR_S
from rspdns.remote import zone_id
from rspdns.responder import KNOWN, Conversation, Responder

from tests.backend.making import UDP, ZONE, answered, member, view, views, zone

KEY = {"flags": 257, "active": True, "published": False, "content": "Private-key-format: v1.2\n"}
OF_A_PROOF = {"remote": "0.0.0.0"}
"""So PowerDNS asks for the types at a name."""
TWO = answered(zone(), views(view(member(1), member(2))))


class Asker:
    """One connection of PowerDNS."""

    def __init__(self, responder: Responder) -> None:
        self.responder = responder
        self.conversation = Conversation(responder)

    async def __call__(self, method: str, **parameters: Any) -> Any:
        reply = self.conversation(json.dumps({"method": method, "parameters": parameters}).encode())
        text = reply if isinstance(reply, bytes) else await reply
        assert text.endswith(b"\n")
        return json.loads(text)


class Clock:
    """The time as the responder sees it."""

    def __init__(self, responder: Responder) -> None:
        self.now = 0.0
        responder.clock = lambda: self.now


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Asker]:
    responder = Responder(store=DnssecStore(tmp_path))
    responder.swap(TWO)
    yield Asker(responder)
    assert responder.store
    responder.store.close()


async def test_keys(ask: Asker) -> None:
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


async def test_metadata(ask: Asker) -> None:
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


async def test_tsig_keys(ask: Asker) -> None:
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
        ("activateDomainKey", {"name": ZONE, "id": -1}),
        ("removeDomainKey", {"name": ZONE, "id": True}),
        ("setDomainMetadata", {"name": ZONE, "kind": "X", "value": "1"}),
        ("setDomainMetadata", {"name": ZONE, "kind": "X", "value": [1]}),
        ("setDomainMetadata", {"name": ZONE, "kind": 7, "value": []}),
        ("setTSIGKey", {"name": "k", "algorithm": "hmac-sha256"}),
        ("getBeforeAndAfterNamesAbsolute", {"id": 1}),
    ],
)
async def test_what_powerdns_would_never_send_is_a_failure(
    ask: Asker, method: str, parameters: dict[str, Any]
) -> None:
    reply = await ask(method, **parameters)
    assert "result" not in reply
    assert reply["error"]
    assert (await ask("getDomainKeys", name=ZONE))["result"] == []


async def test_without_a_store_no_zone_is_signed() -> None:
    ask = Asker(Responder())
    ask.responder.swap(TWO)
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


async def test_a_proof_is_of_the_moment_of_its_question(ask: Asker) -> None:
    """A member comes between "no such name" and the proof of that: the proof must not show it."""
    assert await ask("lookup", qname=f"00000003.u.as.{ZONE}.", qtype="ANY") == {"result": False}
    three = answered(zone(), views(view(*map(member, (1, 2, 3)))))
    ask.responder.swap(three)
    around = {"id": zone_id(ZONE), "qname": "00000003.u.as"}
    first = (await ask("getBeforeAndAfterNamesAbsolute", **around))["result"]
    assert first["before"] == "00000002.u.as"
    await ask("lookup", qname=f"{first['unhashed']}.", qtype="ANY", **OF_A_PROOF)
    assert (await ask("getBeforeAndAfterNamesAbsolute", **around))["result"] == first
    other = Asker(ask.responder)
    assert (await other("getBeforeAndAfterNamesAbsolute", **around))["result"]["before"] == "00000003.u.as"
    await ask("lookup", qname=f"as.{ZONE}.", qtype="ANY")
    assert (await ask("getBeforeAndAfterNamesAbsolute", **around))["result"]["before"] == "00000003.u.as"


async def test_a_name_that_left_a_signed_zone_goes_on_existing_while_it_may_be_remembered(ask: Asker) -> None:
    gone, clock = f"00000002.u.as.{ZONE}.", Clock(ask.responder)
    empty = [{"qname": gone[:-1], "qtype": "ENT", "content": "", "ttl": 0}]
    around = {"id": zone_id(ZONE), "qname": "00000002.u.as"}
    await ask("addDomainKey", name=f"{ZONE}.", key=KEY)
    ask.responder.swap(answered(zone(), views(view(member(1)))))
    # PowerDNS remembers the name, so that the proof is all it asks for.
    shown = (await ask("getBeforeAndAfterNamesAbsolute", **around))["result"]
    assert shown["before"] == "00000002.u.as"
    clock.now += LINGER_S - 0.1
    assert await ask("lookup", qname=gone, qtype="ANY") == {"result": empty}
    clock.now += LINGER_S - 0.1
    shown = (await ask("getBeforeAndAfterNamesAbsolute", **around))["result"]
    assert shown["before"] == "00000002.u.as", "remembered since the last look-up"
    clock.now += 0.2
    assert await ask("lookup", qname=gone, qtype="ANY") == {"result": False}
    shown = (await ask("getBeforeAndAfterNamesAbsolute", **around))["result"]
    assert shown["before"] == "00000001.u.as"


async def test_a_name_that_left_an_unsigned_zone_is_no_more(ask: Asker) -> None:
    ask.responder.swap(answered(zone(), views(view(member(1)))))
    assert await ask("lookup", qname=f"00000002.u.as.{ZONE}.", qtype="ANY") == {"result": False}


async def test_a_type_that_just_came_is_in_no_proof_but_answered(ask: Asker) -> None:
    name, around = f"00000002.u.as.{ZONE}.", {"id": zone_id(ZONE), "qname": "00000002.u.as"}
    by_client = {"remote": "192.0.2.1"}
    clock = Clock(ask.responder)
    await ask("addDomainKey", name=f"{ZONE}.", key=KEY)
    (before,) = (await ask("lookup", qname=name, qtype="ANY", **by_client))["result"]
    ask.responder.swap(answered(zone(), views(view(member(1), member(2, "10.0.0.2", "2001:db8::2")))))
    # PowerDNS may have said from memory that there is no AAAA.
    await ask("getBeforeAndAfterNamesAbsolute", **around)
    told = await ask("lookup", qname=name, qtype="ANY", **OF_A_PROOF)
    assert told == {"result": [{**before, "scopeMask": 1}]}, "and it must not be remembered"
    assert len((await ask("lookup", qname=name, qtype="ANY", **by_client))["result"]) == 2
    await ask("getBeforeAndAfterNamesAbsolute", **around)
    clock.now += NEW_FOR_S
    assert len((await ask("lookup", qname=name, qtype="ANY", **OF_A_PROOF))["result"]) == 2


async def test_nothing_is_denied_where_nobody_knows(ask: Asker) -> None:
    ask.responder.swap(answered(zone(UDP), {}))
    reply = await ask("getBeforeAndAfterNamesAbsolute", id=zone_id(ZONE), qname="00000003.u.as")
    assert "result" not in reply
