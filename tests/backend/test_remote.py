"""PowerDNS's remote-backend protocol, request by request."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rspdns.answers.snapshot import Snapshot, zone_id
from rspdns.pdns.remote import METHODS
from rspdns.pdns.responder import PdnsResponder

from tests.backend.making import FIXED, UDP, ZONE, answered, member, swap, view, views, zone

OWNER = f"_sip._udp.as.{ZONE}"
LIVE = answered(zone(), views(view(member(1), member(2))), serial=7)
UNKNOWN = answered(zone(), {})


def handle(request: object, snapshot: Snapshot) -> Any:
    """The reply to a request line of PowerDNS."""
    responder = PdnsResponder()
    swap(responder, snapshot)
    reply = responder.respond(json.dumps(request).encode())
    assert isinstance(reply, bytes)
    return json.loads(reply)


def ask(method: str, snapshot: Snapshot = LIVE, **parameters: Any) -> Any:
    return handle({"method": method, "parameters": parameters}, snapshot)


def lookup(qname: str, qtype: str = "ANY", snapshot: Snapshot = LIVE) -> Any:
    more = {"remote": "192.0.2.1", "local": "192.0.2.2", "real-remote": "192.0.2.1/32", "zone-id": -1}
    return handle({"method": "lookup", "parameters": {"qname": qname, "qtype": qtype, **more}}, snapshot).get(
        "result", "FAILED"
    )


def test_a_name_with_records() -> None:
    found = lookup(f"{OWNER}.")
    assert {record["qtype"] for record in found} == {"SRV"}
    assert {record["content"] for record in found} == {
        f"0 1000 5060 00000001.u.as.{ZONE}",
        f"0 1000 5060 00000002.u.as.{ZONE}",
    }
    assert all(record["qname"] == OWNER and record["ttl"] == 1 for record in found)
    assert not any("domain_id" in record for record in found), "PowerDNS would read it for nothing"


def test_a_question_for_one_type_gets_that_type_only() -> None:
    assert {record["qtype"] for record in lookup(f"as.{ZONE}.", "A")} == {"A"}
    assert lookup(f"as.{ZONE}.", "MX") is False


def test_a_question_for_the_soa_gets_the_soa_alone() -> None:
    (soa,) = lookup(f"{ZONE}.", "SOA")
    assert soa["qtype"] == "SOA"
    assert soa["content"].split()[2] == "7"
    assert soa["domain_id"] == zone_id(ZONE), "PowerDNS takes it from here"


def test_the_case_of_the_question_does_not_matter() -> None:
    assert lookup(OWNER.upper() + ".") == lookup(OWNER)


def test_no_such_name() -> None:
    assert lookup(f"nobody.{ZONE}.") is False
    assert lookup("example.com.") is False
    assert lookup(".") is False


def test_an_empty_non_terminal_is_told_from_no_such_name() -> None:
    (record,) = lookup(f"_udp.as.{ZONE}.")
    assert (record["qtype"], record["content"]) == ("ENT", "")
    assert lookup(f"_udp.as.{ZONE}.", "A") is False


def test_a_pool_that_is_not_known_is_a_failure_and_no_empty_answer() -> None:
    assert lookup(OWNER, snapshot=UNKNOWN) == "FAILED"
    assert lookup(f"00000001.u.as.{ZONE}", snapshot=UNKNOWN) == "FAILED"
    assert lookup(f"{ZONE}.", "SOA", UNKNOWN) != "FAILED"
    assert lookup(f"nobody.{ZONE}", snapshot=UNKNOWN) is False


def test_escaped_names_are_found_as_powerdns_writes_them() -> None:
    odd = answered(zone(fixed=FIXED + r"a\@b A 10.0.1.9" + "\n"), {})
    assert lookup(f"a@b.{ZONE}.", "A", odd)[0]["content"] == "10.0.1.9"


def test_each_zone_is_a_native_domain_with_its_own_number() -> None:
    two = answered([zone(), zone(name="other.example", fixed=FIXED)], {}, serial=2**32 + 3)
    domains = ask("getAllDomains", two, include_disabled=True)["result"]
    assert [domain["zone"] for domain in domains] == [ZONE, "other.example"]
    assert {domain["kind"] for domain in domains} == {"native"}
    assert {domain["serial"] for domain in domains} == {3}
    assert len({domain["id"] for domain in domains}) == 2
    assert ask("getDomainInfo", two, name=f"{ZONE}.")["result"] == domains[0]
    assert ask("getDomainInfo", two, name="example.com.")["result"] is False


def test_a_zone_transfer_is_whole() -> None:
    transferred = ask("list", zonename=f"{ZONE}.", domain_id=1, include_disabled=False)["result"]
    assert transferred[0]["qtype"] == "SOA"
    assert [record["qtype"] for record in transferred].count("SOA") == 1
    found = {(record["qname"], record["qtype"]) for record in transferred}
    assert {(OWNER, "SRV"), (f"00000002.u.as.{ZONE}", "A"), (f"ns1.{ZONE}", "A")} <= found


def test_a_zone_that_is_not_wholly_known_is_not_transferred() -> None:
    assert "result" not in ask("list", UNKNOWN, zonename=f"{ZONE}.")
    assert ask("list", zonename="example.com.")["result"] is False


def test_records_are_searched_by_name_and_content() -> None:
    def matching(pattern: str, most: int = 100) -> set[tuple[str, str]]:
        result = ask("searchRecords", pattern=pattern, maxResults=most)["result"]
        return {(record["qname"], record["qtype"]) for record in result}

    assert matching(f"*1.U.as.{ZONE}") == {(f"00000001.u.as.{ZONE}", "A"), (OWNER, "SRV")}
    assert matching("10.0.0.?") == {
        (f"as.{ZONE}", "A"),
        *((f"0000000{number}.u.as.{ZONE}", "A") for number in (1, 2)),
    }
    assert len(matching("*", 3)) == 3
    assert matching("[a-z]*") == set(), "brackets mean themselves"
    assert matching("*a" * 500) == set()
    assert "result" not in ask("searchRecords", pattern="*" * 5000, maxResults=1)
    assert "result" not in ask("searchRecords", pattern="*", maxResults="1")


def test_glue_and_delegations_are_not_ours_to_sign() -> None:
    sub = "sub NS ns.sub\nsub DS 1 13 2 " + "ab" * 32 + "\nns.sub A 10.0.1.9\n"
    made = answered(zone(fixed=FIXED + sub), views(view(member(1))))
    assert [(record["qtype"], record.get("auth", 1)) for record in lookup(f"sub.{ZONE}", snapshot=made)] == [
        ("NS", 0),
        ("DS", 1),
    ]
    assert [record["auth"] for record in lookup(f"ns.sub.{ZONE}", snapshot=made)] == [0]
    assert "auth" not in lookup(f"ns1.{ZONE}", snapshot=made)[0]


@pytest.mark.parametrize(
    "method", ["startTransaction", "replaceRRSet", "addDomainKey", "createSlaveDomain", ""]
)
def test_an_unsupported_method_is_answered_with_false(method: str) -> None:
    assert ask(method, domain_id=1, zonename=ZONE) == {"result": False}


@pytest.mark.parametrize(
    "request_",
    [
        None,
        7,
        [],
        {},
        {"method": 5},
        {"method": "lookup"},
        {"method": "lookup", "parameters": []},
        {"method": "lookup", "parameters": {"qname": 3, "qtype": "A"}},
        {"method": "lookup", "parameters": {"qname": "a.", "qtype": None}},
        {"method": "lookup", "parameters": {"qname": "a@..b.", "qtype": "A"}},
        {"method": "lookup", "parameters": {"qname": "a\\999.", "qtype": "A"}},
        {"method": "lookup", "parameters": {"qname": "é" * 300, "qtype": "A"}},
        {"method": "lookup", "parameters": {"qname": "(" * 3000, "qtype": "A"}},
        {"method": "list", "parameters": {}},
    ],
)
def test_a_request_that_powerdns_would_never_send_is_a_failure(request_: object) -> None:
    reply = handle(request_, LIVE)
    assert "result" not in reply
    assert reply["error"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
parameters = st.dictionaries(
    st.sampled_from(["qname", "qtype", "name", "zonename", "id", "kind", "zone-id"]), json_values
)


@given(st.sampled_from([*METHODS, "feedRecord"]), parameters)
def test_any_parameters_get_one_reply(method: str, given_: dict[str, Any]) -> None:
    reply = handle({"method": method, "parameters": given_}, LIVE)
    assert ("result" in reply) != ("error" in reply)


def test_an_unknown_pool_does_not_hide_others() -> None:
    tcp = UDP.replace("udp", "tcp").replace('"u"', '"t"').replace('"as"', '"other"')
    half = answered(zone(UDP + tcp), views(view(member(1))))
    assert lookup(OWNER, snapshot=half) != "FAILED"
    assert lookup(f"_sip._tcp.other.{ZONE}", snapshot=half) == "FAILED"
