"""Answers by the asker: nearness and its scope, affinity and its shares, and what leaves them alone."""

import base64
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from daemon_kit.config_file import ConfigurationErrors
from dns import rdata
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_user import Member, Weighted
from rspdns.answers.nearness import first_for
from rspdns.configuration import load_configuration
from rspdns.fastpath.ready import Question, ReadyAnswers
from rspdns.near_command import near
from rspdns.next_records import NextRecords
from rspdns.pdns.responder import PdnsResponder
from rspdns.zone_command import zone as zone_command
from rspdns.zones.asker_classes import AskerClasses
from rspdns.zones.near import AnyNetwork, AskerPrefix, NearOrder, NearTable, asker_of, collapsed, read_lines
from rspdns.zones.sites import Sites
from rspdns.zones.zone import Zone, make_zone

from rserpool import LeastUsed
from tests.backend.making import (
    BASE,
    EU,
    NOW,
    SITES,
    UDP,
    US,
    ZONE,
    answered,
    member,
    server,
    swap,
    view,
    views,
    zone,
)

AT_SITES = UDP + 'order = ["eu", "us"]\nslow_start_s = 0\n'
NEAR = AT_SITES + 'near = { "192.0.2.0/24" = ["us"], "192.0.2.128/25" = ["eu", "us"] }\n'
OWNER, NAME = f"_sip._udp.as.{ZONE}", f"as.{ZONE}"


def asker(text: str) -> AskerPrefix:
    found = asker_of(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1/33", "10.0.0.1/0", "::/0", "10.0.0.1/x", "10.0.0.1/-1", "mars", None, 7, "1/2/3"]
)
def test_what_says_nothing_about_an_asker_is_none(text: object) -> None:
    assert asker_of(text) is None


def test_bits_of_an_asker_behind_its_prefix_do_not_count() -> None:
    assert asker("10.1.2.3/24") == asker("10.1.2.0/24") != asker("10.1.2.0/25")
    assert asker("10.1.2.3") == asker("10.1.2.3/32")
    assert asker("2001:db8::1/32").packed != asker("2001:db8::1/33").packed


networks = st.builds(
    lambda address, length: ip_network((address >> (32 - length) << (32 - length), length)),
    st.integers(0, 2**32 - 1) | st.sampled_from([0, 2**32 - 1, 0xC0000200, 0xC0000280]),
    st.integers(0, 32) | st.sampled_from([24, 25, 26]),
)


@settings(max_examples=60)
@given(
    st.dictionaries(networks, st.sampled_from([("eu",), ("us",)]), max_size=8),
    st.integers(0, 2**32 - 1),
    st.integers(1, 32),
    st.randoms(),
)
def test_longest_prefix_counts_and_the_scope_is_the_widest_that_is_right(
    table: Mapping[AnyNetwork, NearOrder], address: int, length: int, chance: random.Random
) -> None:
    if table and chance.random() < 0.7:  # near one of the networks
        address = int(chance.choice(list(table)).network_address) ^ chance.choice([0, 1, 128, 256, 2**31])
    of_table = NearTable(table)
    of = asker(f"{ip_address(address)}/{length}")

    def expected(prefix: AnyNetwork) -> NearOrder | None:
        around = [net for net in table if net.prefixlen <= prefix.prefixlen and prefix[0] in net]
        return table[max(around, key=lambda net: net.prefixlen)] if around else None

    prefix = ip_network((of.address, length))
    assert of_table.order(of) == expected(prefix)
    scope = of_table.scope(of)
    whole = ip_network((of.address >> (32 - scope) << (32 - scope), scope))

    def is_uniform(block: AnyNetwork) -> bool:
        edges = {int(net.network_address) for net in table}
        edges |= {int(net.broadcast_address) + 1 for net in table} - {2**32}
        probes = [block.network_address, *(ip_address(edge) for edge in edges if ip_address(edge) in block)]
        return len({expected(ip_network(probe)) for probe in probes}) == 1

    assert is_uniform(whole)
    if scope:
        assert not is_uniform(whole.supernet())
    if scope <= length:
        assert of_table.order(of) == expected(ip_network(of.address))


def at_sites(pools: str, **of_site: int) -> PdnsResponder:
    """A responder of the zone with as many servers at each site."""
    made = zone(pools)
    served = make_zone(made.config, made.static, sites_of_all=SITES)
    members = [server(site, number) for site, count in of_site.items() for number in range(1, count + 1)]
    responder = PdnsResponder()
    swap(responder, answered(served, views(view(*members))))
    return responder


def lookup(responder: PdnsResponder, real_remote: str | None, name: str = OWNER) -> list[dict[str, Any]]:
    parameters = {"qname": f"{name}.", "qtype": "ANY", "zone-id": responder.snapshot.numbers.of(ZONE)}
    if real_remote is not None:
        parameters["real-remote"] = real_remote
    reply = responder.respond(orjson.dumps({"method": "lookup", "parameters": parameters}))
    assert isinstance(reply, bytes)
    found: list[dict[str, Any]] = orjson.loads(reply)["result"]
    return found


def first_sites(replies: Sequence[Mapping[str, Any]]) -> set[str]:
    """The sites of the servers with SRV priority 0, and of the addresses."""
    srv = [reply["content"].split() for reply in replies if reply["qtype"] == "SRV"]
    numbers = {int(words[3].partition(".")[0], 16) // 100 for words in srv if words[0] == "0"}
    numbers |= {int(reply["content"].split(".")[1]) for reply in replies if reply["qtype"] == "A"}
    return {{1: "eu", 2: "us"}[number] for number in numbers}


@pytest.mark.parametrize(
    ("real_remote", "site", "scope"),
    [
        ("192.0.2.5/32", "us", 25),
        ("192.0.2.0/24", "us", 25),
        ("192.0.2.200/32", "eu", 1 + 24),
        ("192.0.0.0/16", "eu", 23),
        ("127.0.0.1/32", "eu", 1),
        ("192.0.3.1/32", "eu", 24),
        ("2001:db8::1/128", "eu", 1),
        ("0.0.0.0/0", "eu", 1),
        (None, "eu", 1),
    ],
)
def test_near_site_is_first_with_the_right_scope(real_remote: str | None, site: str, scope: int) -> None:
    responder = at_sites(NEAR, eu=2, us=2)
    for name in (OWNER, NAME):
        replies = lookup(responder, real_remote, name)
        assert first_sites(replies) == {site}
        assert {reply["scopeMask"] for reply in replies} == {scope}
    assert len(lookup(responder, real_remote)) == 4, "the other site stands behind it"


def test_reply_to_an_asker_is_kept_until_the_pool_changes() -> None:
    responder = at_sites(NEAR, eu=2, us=2)
    replies = [lookup(responder, "192.0.2.5/32") for _ in range(2)]
    assert replies[0] == replies[1]
    assert responder.queries["lookup"] == 2
    by_asker = responder.snapshot.by_asker(ZONE, OWNER)
    assert by_asker is not None
    assert len(by_asker.replies) == 1, "and for all askers in the same place"
    zones = [each.made_of[0] for each in (responder.snapshot,)]
    members = [server("eu", 1), server("eu", 2), server("us", 2)]
    swap(responder, answered(zones, views(view(*members)), responder.snapshot))
    assert len(lookup(responder, "192.0.2.5/32")) == 3


def test_near_site_that_is_not_enough_is_not_first() -> None:
    responder = at_sites(NEAR + "min_in = 2\n", eu=2, us=1)
    assert first_sites(lookup(responder, "192.0.2.5/32")) == {"eu"}
    spilling = at_sites(NEAR + "spill_at = 0.5\n", eu=2, us=2)
    assert first_sites(lookup(spilling, "192.0.2.5/32")) == {"us"}


@pytest.mark.parametrize("when_empty", ["static", "nodata", "servfail", "last-good"])
def test_near_pool_without_servers_is_answered_as_another_empty_pool(when_empty: str) -> None:
    of_near, of_another = (
        at_sites(f'{pools}when_empty = "{when_empty}"\n').snapshot for pools in (NEAR, AT_SITES)
    )
    of_all = of_another.zone_answers[ZONE].table()
    for name in (OWNER, NAME):
        by_asker = of_near.by_asker(ZONE, name)
        assert by_asker is not None
        assert by_asker.answer(name, asker("192.0.2.5/32"), NOW).node == of_all.get(name)


@pytest.mark.parametrize("when_empty", ["static", "nodata", "servfail"])
def test_last_server_of_a_near_pool_leaves_the_answers_of_the_kernel(when_empty: str) -> None:
    responder = at_sites(NEAR + f'when_empty = "{when_empty}"\n', eu=1)
    zones = responder.snapshot.made_of[0]
    assert zones.sites[0].classes is not None
    ready = ReadyAnswers(random.Random(1))
    ready.take(responder.snapshot, ())
    told = ready.learn({zones.sites[0].classes: 7})
    owned = {question for question, answers in told.items() if question.name == OWNER and answers}
    assert owned
    swap(responder, answered(zones, views(view()), responder.snapshot))
    gone = ready.take(responder.snapshot, ())
    assert all(gone[question] == () for question in owned)


def test_names_without_near_are_answered_as_before_and_kept() -> None:
    responder = at_sites(AT_SITES, eu=2, us=2)
    replies = [lookup(responder, "192.0.2.5/32") for _ in range(2)]
    assert replies[0] == replies[1]
    assert not any("scopeMask" in reply for reply in replies[0])
    assert responder.snapshot.by_asker(ZONE, OWNER) is None


TABLES = st.dictionaries(networks, st.sampled_from([("eu",), ("us",)]), max_size=5)


@settings(max_examples=25)
@given(st.lists(st.none() | TABLES.map(NearTable), min_size=1, max_size=3).filter(any), st.randoms())
def test_blocks_of_classes_cover_all_addresses_and_are_the_scopes(
    tables: list[NearTable | None], chance: random.Random
) -> None:
    classes = AskerClasses(tables)
    blocks = list(classes.blocks())
    assert classes == AskerClasses(tables)
    for version, bits in ((4, 32), (6, 128)):
        ends = 0
        for _, address, length, _ in (block for block in blocks if block.version == version):
            assert address == ends
            ends += 1 << (bits - length)
        assert ends == 1 << bits
    for _, address, length, number in chance.sample(blocks, min(20, len(blocks))):
        if length and address < 1 << 32:
            of = asker(f"{ip_address(address)}/32")
            assert length == max(table.scope(of) for table in tables if table)
            expected = tuple((table and table.order(of)) or None for table in tables)
            assert classes.orders[number] == expected


def test_classes_of_a_name_that_are_too_many_have_no_answers_in_the_kernel() -> None:
    sites = Sites({f"s{n}": (ip_network(f"10.{n}.0.0/16"),) for n in range(20)})
    near_of = ", ".join(f'"192.0.2.{n}/32" = ["s{n}"]' for n in range(17))
    order = ", ".join(f'"s{n}"' for n in range(20))
    made = zone(f"{UDP}order = [{order}]\nnear = {{ {near_of} }}\n")
    assert make_zone(made.config, made.static, sites_of_all=sites).sites[0].classes is None


def test_kernel_gets_the_answers_of_each_class_when_it_knows_their_networks() -> None:
    responder = at_sites(NEAR, eu=2, us=2)
    classes = responder.snapshot.made_of[0].sites[0].classes
    assert classes is not None
    ready = ReadyAnswers(random.Random(1))
    ready.take(responder.snapshot, ())
    owned = {Question(OWNER, "SRV", number) for number in range(len(classes.orders))}
    assert len(owned) == 3
    assert owned.isdisjoint(ready.all)
    told = ready.learn({classes: 7})
    assert owned <= told.keys()
    assert ready.number_of(Question(OWNER, "SRV")) == 7
    assert ready.number_of(Question(OWNER, "SRV", 1)) == ready.number_of(Question("x", "A")) == 0
    assert len({told[question] for question in owned}) == 2, "eu first for all but one"
    assert ready.learn({classes: 7}) == {}
    assert owned <= ready.learn({classes: 8}).keys(), "they are told anew with another number"
    assert set(ready.numbers) == {8}
    gone = ready.learn({})
    assert all(gone[question] == () for question in owned)


def test_answers_by_the_asker_are_left_to_powerdns_by_the_fast_path() -> None:
    for pools, is_left in ((AT_SITES, False), (NEAR, True), (AT_SITES + 'affinity = "asker"\n', True)):
        responder = at_sites(pools, eu=9, us=9)
        ready = ReadyAnswers(random.Random(1))
        ready.take(responder.snapshot, ())
        while not ready.is_drawn:
            ready.draw_next()
        live = {Question(OWNER, "SRV"), Question(NAME, "A"), Question(NAME, "NAPTR")}
        assert live.isdisjoint(ready.all) is is_left
        assert any(question.name.startswith("00000065.") for question in ready.all)


def test_answers_of_before_a_reload_are_not_given_after_it() -> None:
    responder, later = at_sites(AT_SITES, eu=2, us=2), at_sites(NEAR, eu=2, us=2)
    ready = ReadyAnswers(random.Random(1))
    ready.take(responder.snapshot, ())
    before = responder.snapshot
    assert first_sites(lookup(responder, "192.0.2.5/32")) == {"eu"}
    answers = before.zone_answers[ZONE]
    same_nodes = answers.sites[0]._replace(by_asker=later.snapshot.zone_answers[ZONE].sites[0].by_asker)
    after = replace(
        before,
        zone_answers={ZONE: replace(answers, sites=(same_nodes,))},
        made_of=later.snapshot.made_of,
    )
    swap(responder, after)
    assert first_sites(lookup(responder, "192.0.2.5/32")) == {"us"}
    assert ready.take(after, ())[Question(OWNER, "SRV")] == ()


async def test_client_of_dns_push_is_told_the_records_for_an_asker_that_nothing_is_known_of() -> None:
    """Sessions share their answers, so their clients' addresses don't count (act-on-a-change.md)."""
    for pools in (NEAR, NEAR + 'affinity = "asker"\n'):
        responder = at_sites(pools, eu=2, us=2)
        answer = await NextRecords(lambda: responder.snapshot).tell({"names": [OWNER]})  # noqa: B023
        pushed = {
            rdata.from_wire("IN", number, wire := base64.b64decode(data), 0, len(wire)).to_text()
            for number, _, data in answer["records"][OWNER]
        }
        of_nobody = {f"{each['content']}." for each in lookup(responder, None) if each["qtype"] == "SRV"}
        assert {content.split()[3] for content in pushed} == {each.split()[3] for each in of_nobody}
        first = {content.split()[3] for content in pushed if content.startswith("0 ")}
        assert {int(target[:8], 16) // 100 for target in first} == {1}, "the first site of the pool's order"


AFFINITY = UDP + 'affinity = "asker"\nslow_start_s = 0\n'


def test_affinity_puts_the_same_server_first_for_an_asker_everywhere() -> None:
    members = [member(number, policy=LeastUsed(0.1)) for number in range(1, 7)]
    renamed = [replace(each, identifier=each.identifier + 90) for each in members]
    firsts = []
    for those in (members, renamed):
        responder = PdnsResponder()
        swap(responder, answered(zone(AFFINITY), views(view(*those))))
        (address,) = [each for each in lookup(responder, "192.0.2.7/32", NAME) if each["qtype"] == "A"]
        srv = sorted(lookup(responder, "192.0.2.7/32"), key=lambda each: int(each["content"].split()[0]))
        assert [int(each["content"].split()[0]) for each in srv] == [0, 1, 2, 2, 2, 2]
        target = lookup(responder, "192.0.2.7/32", srv[0]["content"].split()[3])
        assert target[0]["content"] == address["content"]
        assert {each["scopeMask"] for each in srv} == {32}
        firsts.append(address["content"])
    assert firsts[0] == firsts[1], "a restarted sidecar has another identifier"
    scopes = {each["scopeMask"] for each in lookup(responder, "2001:db8::7/128")}
    assert scopes == {64}


def first_of(prefix: bytes, members: Mapping[str, Member], weighted: Mapping[str, Weighted]) -> str:
    return first_for(prefix, members, weighted)[0]


ASKERS = [asker(f"10.{i >> 8}.{i & 255}.0/24").packed for i in range(4000)]


@settings(max_examples=8)
@given(st.lists(st.integers(100, 1000), min_size=2, max_size=6), st.integers(1, 9999))
def test_shares_of_affinity_are_those_of_the_weights_and_a_death_moves_its_own_askers_only(
    of_members: list[int], port: int
) -> None:
    members = {f"{n}": member(n, port=port) for n in range(len(of_members))}
    weighted = {f"{n}": Weighted(0, weight) for n, weight in enumerate(of_members)}
    before = {prefix: first_of(prefix, members, weighted) for prefix in ASKERS}
    counts = Counter(before.values())
    for label, each in weighted.items():
        share = each.weight / sum(of_members)
        # 10 % of the share, or four standard deviations of as many draws where these are more.
        deviation = (share * (1 - share) / len(ASKERS)) ** 0.5
        assert abs(counts[label] / len(ASKERS) - share) < max(0.1 * share, 4 * deviation)
    left = {label: each for label, each in weighted.items() if label != "0"}
    for prefix, first in before.items():
        if first != "0":
            assert first_of(prefix, members, left) == first


def test_shares_of_many_askers_are_within_a_tenth_of_those_of_the_weights() -> None:
    members = {f"{n}": member(n) for n in range(1, 5)}
    weighted = {label: Weighted(0, 100 * int(label)) for label in members}
    askers = [asker(f"10.{i >> 8}.{i & 255}.9").packed for i in range(10_000)]
    counts = Counter(first_of(prefix, members, weighted) for prefix in askers)
    for label, count in counts.items():
        assert count / 10_000 == pytest.approx(int(label) / 10, rel=0.1)


def test_affinity_keeps_to_the_order_of_the_sites() -> None:
    responder = at_sites(NEAR + 'affinity = "asker"\n', eu=2, us=2)
    firsts = set()
    for number in range(1, 60):
        replies = lookup(responder, f"192.0.2.{number}/32")
        assert first_sites(replies) == {"us"}
        firsts.add(next(each["content"] for each in replies if each["content"].startswith("0 ")))
    assert len(firsts) == 2


def read(text: str, **more: Any) -> tuple[dict[AnyNetwork, NearOrder], list[tuple[int, str]]]:
    found, problems = read_lines(text.splitlines(), **more)
    return found, [tuple(problem) for problem in problems]  # type: ignore[misc]


def test_lines_of_a_near_file() -> None:
    found, problems = read("network,sites\n# near us\n10.0.0.0/8,us\n\n2001:db8::/32, eu , us # both\n")
    assert not problems
    assert found == {ip_network("10.0.0.0/8"): ("us",), ip_network("2001:db8::/32"): ("eu", "us")}
    table = 'network,id\n10.0.0.0/9,7\n10.128.0.0/9,7\n11.0.0.0/8,"8"\n12.0.0.0/8,9\n'
    found, problems = read(table, sites_of={"7": ("us",), "8": ("eu",)})
    assert not problems
    assert dict(collapsed(found)) == {ip_network("10.0.0.0/8"): ("us",), ip_network("11.0.0.0/8"): ("eu",)}
    nested = read("10.0.0.0/8,us\n10.0.0.0/9,us\n10.1.0.0/16,eu\n")[0]
    assert dict(collapsed(nested)) == nested


def test_every_error_of_a_near_file_is_told_with_its_line() -> None:
    text = "10.0.0.0/8,us\n10.0.0.1/8,us\n10.0.0.0/8,eu\nx,eu\n11.0.0.0/8\n12.0.0.0/8,ap\n13.0.0.0/8,us,us\n"
    text += "14.0.0.0/8,E U\n"
    found, problems = read(text, sites={"eu", "us"})
    assert list(found) == [ip_network("10.0.0.0/8")]
    assert [line for line, _ in problems] == [2, 3, 4, 5, 6, 7, 8]
    words = ["host bits", "twice", "'x' is no network", "names no site", "ap: no [[site]]", "twice", "'E U'"]
    assert all(word in problem for word, (_, problem) in zip(words, problems, strict=True)), problems


def configured(folder: Path, of_pool: str, csv: str = "") -> Zone:
    zones = folder / "zones.d"
    zones.mkdir()
    (zones / "x.zone").write_text("$TTL 60\n@ SOA ns1 h 1 1 1 1 1\n@ NS ns1\nns1 A 10.0.0.9\n")
    (zones / "near.csv").write_text(csv)
    (zones / "x.toml").write_text(f'zone = "example.net"\nstatic = "x.zone"\n{UDP}{of_pool}\n')
    (folder / "rspdns.toml").write_text(BASE + EU + US)
    return load_configuration(folder / "rspdns.toml").zones[0]


ORDER = 'order = ["eu", "us"]\n'


@pytest.mark.parametrize(
    ("of_pool", "csv", "words"),
    [
        ('near = { "10.0.0.0/8" = ["us"] }', "", ("x.toml:", "near needs order")),
        (ORDER + "near = {}", "", ("x.toml:11", "a table of networks")),
        (ORDER + 'near = { "10.0.0.0/8" = ["ap"], "x" = ["eu"] }', "", ("x.toml:11", "'x' is no network")),
        (ORDER + 'near = { "10.0.0.0/8" = ["ap"] }', "", ("x.toml:11", "ap: no [[site]]")),
        (ORDER + 'near = { "10.0.0.0/8" = [] }', "", ("x.toml:11", "names no site")),
        (ORDER + 'near_file = "no.csv"', "", ("x.toml:11", "no.csv")),
        (ORDER + 'near_file = "near.csv"', "10.0.0.0/8,eu\nx\n", ("near.csv:2", "'x' is no network")),
        (
            ORDER + 'near_file = "near.csv"\nnear = { "10.0.0.0/8" = ["us"] }',
            "10.0.0.0/8,eu\n",
            ("x.toml:12", "is in near.csv, too"),
        ),
        ('affinity = "asker"\nanswers = "all"', "", ("x.toml", "no use for affinity")),
        ('affinity = "server"', "", ("x.toml:10", "affinity")),
    ],
)
def test_check_tells_what_is_wrong_with_nearness(
    tmp_path: Path, of_pool: str, csv: str, words: Sequence[str]
) -> None:
    with pytest.raises(ConfigurationErrors) as told:
        configured(tmp_path, of_pool, csv)
    assert all(word in str(told.value) for word in words), told.value


def test_near_and_near_file_of_a_pool_count_together(tmp_path: Path) -> None:
    text = ORDER + 'near_file = "near.csv"\nnear = { "192.0.2.0/24" = ["us"] }'
    table = configured(tmp_path, text, "198.51.100.0/24,us\n").sites[0].pools[0].near
    assert table is not None
    assert len(table) == 2
    shown = (
        CliRunner().invoke(zone_command, ["show", "example.net", "-c", str(tmp_path / "rspdns.toml")]).output
    )
    assert "near         2 networks" in shown
    assert table.order(asker("192.0.2.9")) == table.order(asker("198.51.100.9")) == ("us",)
    assert table.order(asker("203.0.113.9")) is None


def test_pool_names_the_sites_that_can_have_servers_of_it() -> None:
    eu_alone = (ip_network("10.1.0.0/17"),)
    assert "us: has no server" in (SITES.problem(("eu", "us"), eu_alone) or "")
    assert SITES.problem(("eu",), eu_alone) is None


def imported(folder: Path, csv: str, *options: str) -> tuple[int, str, str | None]:
    (folder / "rspdns.toml").write_text(BASE + EU + US)
    (folder / "table.csv").write_text(csv)
    target = folder / "near.csv"
    words = ["-c", str(folder / "rspdns.toml"), str(folder / "table.csv"), "--to", str(target), *options]
    done = CliRunner().invoke(near, ["import", *words])
    return done.exit_code, done.output, target.read_text() if target.exists() else None


def test_import_writes_as_few_networks_as_are_needed(tmp_path: Path) -> None:
    csv = "10.0.0.0/9,us\n10.128.0.0/9,us\n2001:db8::/32,eu,us\n"
    assert imported(tmp_path, csv)[::2] == (0, "10.0.0.0/8,us\n2001:db8::/32,eu,us\n")
    of_countries = "network,country\n10.0.0.0/9,AU\n10.128.0.0/9,NZ\n11.0.0.0/8,DE\n12.0.0.0/8,FR\n"
    options = ("--map", "AU=us,eu", "--map", "NZ=us,eu", "--map", "DE=eu")
    assert imported(tmp_path, of_countries, *options)[::2] == (0, "10.0.0.0/8,us,eu\n11.0.0.0/8,eu\n")


@pytest.mark.parametrize(
    ("csv", "options", "words"),
    [
        (
            "10.0.0.0/8,us\n10.0.0.1/8,us\n11.0.0.0/8,ap\n",
            (),
            ("table.csv:2: ", "table.csv:3: ap: no [[site]]"),
        ),
        ("10.0.0.0/8,AU\n", ("--map", "DE=eu"), ("no network of these words",)),
        ("10.0.0.0/8,AU\n", ("--map", "AU=ap"), ("ap: no [[site]]",)),
        ("10.0.0.0/8,AU\n", ("--map", "AU"), ("write WORD=eu,us",)),
        ("10.0.0.0/8\n", ("--map", "AU=us"), ("table.csv:1: ", "no second column")),
        ('"10.0.0.0/8,us\n', (), ("table.csv",)),
        ("", (), ("has no network",)),
    ],
)
def test_import_with_errors_tells_each_and_writes_nothing(
    tmp_path: Path, csv: str, options: Sequence[str], words: Sequence[str]
) -> None:
    code, output, written = imported(tmp_path, csv, *options)
    assert code != 0
    assert written is None
    assert all(word in output for word in words), output
