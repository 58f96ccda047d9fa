"""HTTPS and SVCB records of pools: which members, with what data, where; and every error in `svcb`."""

from collections import Counter
from pathlib import Path
from random import Random

import dns.message
import dns.rdata
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_user import Member
from rserpool.policies import Priority, WeightedRandom
from rspdns import fitting
from rspdns.admin.answers import PageWish, answers_page
from rspdns.answers.change import difference
from rspdns.answers.records import site_nodes
from rspdns.answers.snapshot import NODATA, Failure, Found, Snapshot
from rspdns.fastpath.ready import Question, ReadyAnswers
from rspdns.pdns.listening import DnsServer
from rspdns.rrset import SvcbData
from rspdns.zones.showing import described
from rspdns.zones.zone import PoolNames

from rserpool import LeastUsed, Policy, Protocol
from tests.backend.configuration_files import pool_error
from tests.backend.making import FIXED, NOW, ZONE, answered, contents, member, records, view, views, zone
from tests.backend.statuses import pool_status, status

WEB = """
[[pool]]
handle = "web"
label = "w"
service = "_https._tcp"
name = "www"
accept = ["10.0.0.0/8", "2001:db8::/32"]
svcb = { alpn = ["h3", "h2"] }
"""
NAME = f"www.{ZONE}"
OWN = "2 . alpn=h3,h2"
IDLE = LeastUsed(0)


def keyed(**keys: str) -> str:
    """The pool with these keys in its table `svcb`."""
    more = "".join(f", {key} = {value}" for key, value in keys.items())
    return WEB.replace('"h2"] }', f'"h2"]{more} }}')


def web(number: int, *addresses: str, port: int = 443, policy: Policy = IDLE) -> Member:
    return member(number, *addresses, port=port, policy=policy, protocol=Protocol.TCP)


def snapshot(*members: Member, pool: str = WEB, seed: int = 1, fixed: str = FIXED) -> Snapshot:
    return answered(zone(pool, fixed), views(view(*members, handle="web")), seed=seed)


def target(number: int) -> str:
    return f"{number:08x}.w.{NAME}"


def hints(made: Snapshot) -> list[tuple[int, str]]:
    """Priority and target of each record of a member."""
    found = [record.data for record in records(made, NAME, "HTTPS")]
    return [
        (data.priority, data.target) for data in found if isinstance(data, SvcbData) and data.target != "."
    ]


def test_each_member_has_a_record_with_its_port_and_addresses() -> None:
    made = snapshot(web(1, port=8443), web(2, "10.0.0.2", "2001:db8::2"))
    assert contents(made, NAME, "HTTPS") == [
        f"1 {target(1)} alpn=h3,h2 port=8443 ipv4hint=10.0.0.1",
        f"1 {target(2)} alpn=h3,h2 ipv4hint=10.0.0.2 ipv6hint=2001:db8::2",
    ]
    assert {record.ttl for record in records(made, NAME, "HTTPS")} == {1}


def test_pool_itself_comes_last_if_each_of_its_addresses_serves_the_port_of_the_url() -> None:
    assert contents(snapshot(web(1)), NAME, "HTTPS")[-1] == OWN
    behind = snapshot(web(1), web(2, policy=LeastUsed(1)))
    assert [record.split()[0] for record in contents(behind, NAME, "HTTPS")] == ["1", "2", "3"]
    assert "." not in [data.split()[1] for data in contents(snapshot(web(1, port=444)), NAME, "HTTPS")]
    beside = WEB.replace('"web"', '"sip"').replace('"w"', '"s"').replace("_https", "_sip")
    two = zone(WEB + "".join(line for line in beside.splitlines(True) if not line.startswith("svcb")))
    shared = answered(two, views(view(web(1), handle="web"), view(web(2, port=5060), handle="sip")))
    assert [data.split()[1] for data in contents(shared, NAME, "HTTPS")] == [target(1)]


def test_url_with_a_port_and_other_schemes_have_names_of_their_own() -> None:
    made = snapshot(web(1, port=8443), pool=keyed(url_port="8443"))
    assert contents(made, f"_8443._https.{NAME}", "HTTPS") == [
        f"1 {target(1)} alpn=h3,h2 ipv4hint=10.0.0.1",
        f"2 {NAME} alpn=h3,h2",
    ]
    assert made.lookup(f"_https.{NAME}", "HTTPS") == made.lookup(NAME, "HTTPS") == NODATA
    of_dns = keyed(scheme='"dns"').replace('"h3", "h2"', '"dot"')
    made = snapshot(web(1, port=853), pool=of_dns)
    assert contents(made, f"_dns.{NAME}", "SVCB") == [f"1 {target(1)} alpn=dot port=853 ipv4hint=10.0.0.1"]
    of_port = snapshot(web(1, port=853), pool=of_dns.replace("scheme", "url_port = 5353, scheme"))
    assert of_port.lookup(f"_5353._dns.{NAME}", "SVCB") != NODATA
    assert contents(snapshot(web(1), pool=keyed(url_port="443")), NAME, "HTTPS")


def test_overload_and_registered_priority_are_in_the_priority() -> None:
    assert hints(snapshot(web(1, policy=LeastUsed(0.96)), web(2))) == [(1, target(2)), (2, target(1))]
    ranked = [web(1, policy=Priority(1)), web(2, policy=Priority(9))]
    assert hints(snapshot(*ranked)) == [(1, target(2)), (2, target(1))]
    standby = [web(1, policy=WeightedRandom(0)), web(2, policy=WeightedRandom(3))]
    assert hints(snapshot(*standby)) == [(1, target(2))]


def test_answer_fits_and_the_members_in_it_are_drawn_by_weight() -> None:
    members = [web(n, policy=LeastUsed(0.9 if n > 4 else 0)) for n in range(1, 9)]
    drawn: Counter[str] = Counter()
    made = snapshot(*members)
    site = made.zone_answers[ZONE].sites[0]
    for seed in range(400):
        nodes, by_chance = site_nodes(site.site, site.states, 1, Random(seed))
        assert by_chance
        data = [record.data for record in nodes[NAME].records if record.type == "HTTPS"]
        assert len(data) == 6
        drawn.update(each.target for each in data if isinstance(each, SvcbData))
    light, heavy = (sum(drawn[target(n)] for n in of_it) for of_it in (range(5, 9), range(1, 5)))
    assert drawn["."] == 400
    assert heavy > 2 * light > 0
    everyone = answered(
        zone(WEB + 'answers = "all"\n'), views(view(*(web(n) for n in range(1, 101)), handle="web"))
    )
    assert [int(label.partition(".")[0], 16) for _, label in hints(everyone)] == list(range(1, 101))


def test_members_that_no_answer_shows_come_and_go_without_another_answer() -> None:
    pool = zone(WEB)
    first = answered(pool, views(view(*(web(n) for n in range(1, 13)), handle="web")))
    shown = {int(label[:8], 16) for _, label in hints(first)}
    shown |= {int(address.rpartition(".")[2]) for address in contents(first, NAME, "A")}
    hidden = next(n for n in range(1, 13) if n not in shown)
    rest = [web(n) for n in range(1, 13) if n != hidden]
    after = answered(pool, views(view(*rest, handle="web")), first)
    assert records(after, NAME, "HTTPS") == records(first, NAME, "HTTPS")
    assert NAME not in difference(first, after).names()
    gone = [web(n) for n in range(1, 13) if target(n) != hints(first)[0][1]]
    without = answered(pool, views(view(*gone, handle="web")), first)
    assert hints(first)[0] not in hints(without)


@pytest.mark.parametrize(("when_empty", "found"), [("nodata", []), ("servfail", None), ("static", ["9 ."])])
def test_empty_pool_answers_as_it_says(when_empty: str, found: list[str] | None) -> None:
    of_file = "_https._tcp.www SRV 0 0 443 ns1\nwww HTTPS 9 .\nwww A 10.0.1.1\n"
    fixed = FIXED + (of_file if when_empty == "static" else "")
    pool = zone(WEB + f'when_empty = "{when_empty}"\n', fixed)
    empty = answered(pool, views(view(handle="web"))).lookup(NAME, "HTTPS")
    if found is None:
        assert isinstance(empty, Failure)
    elif not found:
        assert empty == NODATA
    else:
        assert isinstance(empty, Found)
        assert [(record.content, record.ttl) for record in empty.records] == [(text, 1) for text in found]
    live = answered(pool, views(view(web(1), handle="web")))
    assert contents(live, NAME, "HTTPS") == [f"1 {target(1)} alpn=h3,h2 ipv4hint=10.0.0.1", OWN]


def test_last_good_members_of_an_empty_pool_are_answered() -> None:
    last = answered(zone(WEB), views(view(handle="web", recent=(web(1),))))
    assert contents(last, NAME, "HTTPS") == [f"1 {target(1)} alpn=h3,h2 ipv4hint=10.0.0.1", OWN]


def test_unknown_pool_is_a_failure_at_every_name() -> None:
    unknown = answered(zone(keyed(url_port="8443")), {})
    for name in (f"_8443._https.{NAME}", NAME):
        assert isinstance(unknown.lookup(name, "HTTPS"), Failure)


def test_alias_stands_at_the_apex_and_is_purged_with_what_it_stands_for() -> None:
    pool = keyed(apex_alias="true")
    first, second = snapshot(web(1), pool=pool), snapshot(web(1), web(2), pool=pool)
    assert contents(first, ZONE, "HTTPS") == [f"0 {NAME}"]
    assert {ZONE, NAME} <= difference(first, second).names()
    assert ZONE not in difference(snapshot(web(1)), snapshot(web(1), web(2))).names()
    ported = keyed(apex_alias="true", url_port="8443")
    assert contents(snapshot(web(1), pool=ported), f"_8443._https.{ZONE}", "HTTPS") == [
        f"0 _8443._https.{NAME}"
    ]
    at_apex = WEB.replace("www", "@").replace('"web"', '"top"').replace('"w"', '"t"')
    plain = "".join(line for line in at_apex.splitlines(True) if not line.startswith("svcb"))
    both = answered(zone(pool + plain), views(view(web(1), handle="web"), view(web(3), handle="top")))
    assert contents(both, ZONE, "HTTPS") == [f"0 {NAME}"]
    assert contents(both, ZONE, "A") == ["10.0.0.3"]


def test_names_are_purged_and_looked_up_with_their_pool() -> None:
    pool = keyed(url_port="8443")
    owner = f"_8443._https.{NAME}"
    still, moved = (snapshot(web(1, address, port=8443), pool=pool) for address in ("10.0.0.1", "10.0.0.9"))
    assert {owner, NAME, target(1)} <= difference(still, moved).names()
    assert PoolNames([zone(pool)]).handles(owner) == ("web",)
    made, three = zone(pool), views(view(*(web(n, port=8443) for n in range(1, 4)), handle="web"))
    first = answered(made, three)
    for seed in range(50):
        other = answered(made, three, first, now=NOW + 2, seed=seed)
        if contents(other, NAME, "A") != contents(first, NAME, "A"):
            break
    assert records(other, owner, "HTTPS") == records(first, owner, "HTTPS")
    assert difference(first, other).names() == {NAME, owner}, "packets carry the addresses of the pool's name"


def test_kernel_has_the_answer_with_the_addresses_behind_it_and_leaves_aliases_to_powerdns() -> None:
    made = snapshot(web(1, "10.0.0.1", "2001:db8::1"), web(2), pool=keyed(apex_alias="true"))
    answers = ReadyAnswers(Random(1))
    answers.take(made, ())
    while not answers.is_drawn:
        answers.draw_next()
    variants = answers.all[Question(NAME, "HTTPS")]
    assert len(variants) == 3
    assert Question(ZONE, "HTTPS") not in answers.all
    for answer in variants:
        head = b"\0\1\x84\0" + b"".join(
            n.to_bytes(2, "big") for n in (1, answer.answers, 0, answer.additional)
        )
        asked = dns.message.make_query(NAME, "HTTPS", use_edns=False).to_wire()[12:]
        said = dns.message.from_wire(head + asked + answer.records)
        beside = {(rrset.name.to_text(), data.to_text()) for rrset in said.additional for data in rrset}
        assert {(name, text) for name, text in beside if name == f"{target(1)}."} == {
            (f"{target(1)}.", "10.0.0.1"),
            (f"{target(1)}.", "2001:db8::1"),
        }
        assert {text for name, text in beside if name == f"{NAME}."} == {
            "10.0.0.1",
            "10.0.0.2",
            "2001:db8::1",
        }


alpn = st.lists(st.from_regex(r"[a-z0-9][a-z0-9/.]{0,20}", fullmatch=True), max_size=3, unique=True)
ports = st.none() | st.integers(1, 65535)


@given(
    alpn, ports, st.lists(st.binary(min_size=4, max_size=4), max_size=2), st.booleans(), st.integers(1, 65535)
)
def test_data_on_the_wire_are_those_of_dnspython(
    protocols: list[str], port: int | None, hint: list[bytes], with_ipv6: bool, priority: int
) -> None:
    ipv6 = (b"\x20\1\x0d\xb8" + bytes(12),) if with_ipv6 else ()
    for name in (".", target(1)):
        data = SvcbData(priority, name, tuple(protocols), port, tuple(hint), ipv6)
        text = data.text.replace(name, f"{name.rstrip('.')}.", 1)
        assert data.wire == dns.rdata.from_text("IN", "HTTPS", text).to_wire()
        own = fitting.RECORD + len(data.wire)
        beside = len(hint) * (fitting.RECORD + 4) + len(ipv6) * (fitting.RECORD + 16)
        assert own + beside == fitting.svcb_size(
            name.rstrip("."), protocols, with_port=port is not None, ipv4=len(hint), ipv6=len(ipv6)
        )


SECOND = WEB.replace('"web"', '"two"').replace('"w"', '"x"').replace("_https", "_web")


@pytest.mark.parametrize(
    ("pools", "key", "word"),
    [
        (WEB.replace('["h3", "h2"]', "[]"), "svcb.alpn", "at least one"),
        (WEB.replace('"h3"', '"h2"'), "svcb.alpn", "twice"),
        (WEB.replace('"h3"', '"h 3"'), "svcb.alpn", "identifier"),
        (WEB.replace('"h3"', '"h3,h4"'), "svcb.alpn", "identifier"),
        (WEB.replace('"h3"', f'"{"h" * 256}"'), "svcb.alpn", "identifier"),
        (WEB.replace('"h3"', f'"{"h" * 200}"'), "svcb", "do not fit into 512"),
        (keyed(scheme='"http"'), "svcb.scheme", 'read the records of "https"'),
        (keyed(scheme='"tcp"'), "svcb.scheme", "scheme"),
        (keyed(scheme='"dns"'), "svcb", "RFC 9461"),
        (keyed(url_port="0"), "svcb.url_port", "at least 1"),
        (keyed(urlport="1"), "svcb.urlport", "unknown"),
        (WEB.replace("_https._tcp", "_sip._tcp"), "", "read SRV and NAPTR"),
        (WEB.replace("_https._tcp", "_web._sctp"), "", "no use for svcb"),
        (WEB + SECOND, "svcb", "another pool already has its HTTPS records"),
        (keyed(apex_alias="true") + SECOND.replace('"www"', '"@"'), "svcb", "'@'"),
        (keyed(apex_alias="true").replace('"www"', '"@"'), "svcb", "no use for apex_alias"),
    ],
)
def test_each_error_is_told_at_its_key(tmp_path: Path, pools: str, key: str, word: str) -> None:
    position = 1 if SECOND[:40] in pools or '"two"' in pools else 0
    file, _, where, problem = pool_error(tmp_path, pools)
    assert (file, where) == ("one.toml", f"pool[{position}]" + (f".{key}" if key else ""))
    assert word in problem


def test_records_of_the_zone_file_that_a_pool_gives_are_errors(tmp_path: Path) -> None:
    file, line, _, problem = pool_error(tmp_path, WEB, FIXED + "www HTTPS 1 .\n")
    assert (file, line) == ("one.zone", len(FIXED.splitlines()) + 1)
    assert "a pool gives this name its HTTPS records" in problem


def test_record_of_the_zone_file_where_an_alias_would_stand_is_an_error(tmp_path: Path) -> None:
    file, _, key, problem = pool_error(tmp_path, keyed(apex_alias="true"), FIXED + "@ HTTPS 1 ns1\n")
    assert (file, key) == ("one.toml", "pool[0].svcb")
    assert "where the alias would stand" in problem


def test_name_of_another_pool_is_no_place_for_the_records(tmp_path: Path) -> None:
    other = SECOND.replace('"www"', '"_8443._https.www"').replace("svcb", "# svcb")
    file, _, key, problem = pool_error(tmp_path, keyed(url_port="8443") + other)
    assert (file, key) == ("one.toml", "pool[0].svcb")
    assert "a name of the pool 'x'" in problem


def test_live_page_and_zone_show_tell_the_records() -> None:
    made = snapshot(web(1))
    pool = pool_status(owner=f"_https._tcp.{NAME}", name=NAME, svcb_owner=NAME)
    (page,) = answers_page(status(pool), made, PageWish(), DnsServer(), lambda *server: None).pools
    (of_https,) = [answer for answer in page.answers if answer.type == "HTTPS"]
    assert of_https.records == contents(made, NAME, "HTTPS")
    assert of_https.dig.endswith(f"{NAME} HTTPS")
    shown = described(zone(keyed(apex_alias="true")), Path("one.toml"))
    assert f"HTTPS        {NAME} (h3,h2), alias {ZONE}\n" in shown
