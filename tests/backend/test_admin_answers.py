"""Pages of pools with what DNS answers now, and the page of a server."""

from dataclasses import replace

import pytest
from rspdns.admin.answers import AnswersPage, PageWish, answers_page, page_wish, server_page
from rspdns.pdns.listening import DnsServer, read_settings
from rspdns.status.model import PoolStatus

from tests.backend.making import UDP, answered, member, view, views, zone
from tests.backend.statuses import event_status, member_status, out_status, pool_status, status

OWNER = "_sip._udp.as.ims.example.net"


def page(*pools: PoolStatus, wish: PageWish = PageWish(), members: int = 2) -> AnswersPage:  # noqa: B008 - frozen
    snapshot = answered(zone(UDP), views(view(*(member(number + 1) for number in range(members)))))
    return answers_page(
        status(*pools), snapshot, wish, DnsServer(), lambda handle, address, port: 4 if port == 5061 else None
    )


def test_a_pool_comes_with_its_answers_and_the_commands_that_ask_for_them() -> None:
    (pool,) = page(pool_status(owner=OWNER, members=[member_status(1), member_status(2)])).pools
    answers = {answer.type: answer for answer in pool.answers}
    assert answers["SRV"].records == [f"0 1000 5060 {number:08x}.u.as.ims.example.net" for number in (1, 2)]
    assert sorted(answers["A"].records) == ["10.0.0.1", "10.0.0.2"]
    assert (answers["A"].ttl, answers["A"].problem) == (1, None)
    assert answers["SRV"].dig == f"dig +noall +answer @127.0.0.1 {OWNER} SRV"
    assert "AAAA" not in answers, "there is none, and nobody misses it"


def test_an_answer_without_records_says_why() -> None:
    (pool,) = page(pool_status(owner=OWNER, when_empty="servfail"), members=0).pools
    assert pool.answers[0].records == []
    assert "NODATA" in (pool.answers[0].problem or "")
    (pool,) = page(pool_status(owner="_sip._udp.gone.ims.example.net")).pools
    assert pool.answers[0].problem == "NXDOMAIN"


def test_pools_with_problems_come_first() -> None:
    fine, stale = (pool_status(owner=name, members=[member_status(1)]) for name in ("a", "b"))
    overridden = pool_status(owner="c", members=[member_status(1)], planned=1)
    missing = pool_status(owner="d", members=[member_status(1)], missing=1)
    empty, unknown = pool_status(owner="e"), pool_status(owner="f", known=False)
    found = page(fine, replace(stale, stale_s=4.0), overridden, missing, empty, unknown)
    assert [pool.owner for pool in found.pools] == ["e", "f", "b", "d", "c", "a"]
    assert (found.members_in, found.missing, found.planned) == (4, 1, 1)


def test_a_filter_finds_names_servers_and_states() -> None:
    pools = [
        pool_status(owner="_sip._udp.a.example", members=[member_status(1, name="<b>Sip-1</b>")]),
        pool_status(owner="_sip._udp.b.example", out=[out_status(address="10.9.9.9", missing=True)]),
        pool_status(owner="_sip._tcp.b.example", handles=["t"], members=[member_status(2, share=0.05)]),
    ]

    def owners(text: str) -> list[str]:
        return [pool.owner[1:] for pool in page(*pools, wish=page_wish({"filter": text})).pools]

    assert owners("<b>sip-1") == ["sip._udp.a.example"]
    assert owners("udp b.exa") == ["sip._udp.b.example"]
    assert owners("10.9.9.9:5060") == owners("missing") == ["sip._udp.b.example"]
    assert owners("OVERRIDDEN") == ["sip._tcp.b.example"]
    assert owners("udp overridden") == []


def test_of_a_large_pool_the_servers_sought_and_the_missing_come_first() -> None:
    members = [member_status(number) for number in range(1, 200)]
    out = [out_status(address="10.9.0.1"), out_status(address="10.9.0.2", missing=True)]
    large = pool_status(owner=OWNER, members=members, out=out)
    wish = PageWish(("10.20.0.150:",), servers=1)
    (pool,) = page(large, wish=wish).pools
    assert [member.addresses for member in pool.members] == [["10.20.0.150"]]
    assert [server.address for server in pool.out] == ["10.9.0.2"]
    assert (pool.members_in, pool.servers_out, pool.weights) == (199, 2, {"0": 199_000})


def test_a_page_beyond_the_last_is_the_last() -> None:
    pools = [pool_status(owner=f"{number:02}") for number in range(25)]
    assert page(*pools, wish=PageWish(offset=1000)).offset == 20
    assert page(wish=PageWish(offset=7)).offset == 0


def test_the_page_of_a_server_has_its_pools_registrars_override_and_events() -> None:
    told = status(
        pool_status(owner="a", verify="sip-options", members=[member_status(1, name="sip-1", port=5061)]),
        pool_status(owner="b", out=[out_status(address="10.20.0.1", port=5061, identifier=None)]),
        pool_status(owner="c", members=[member_status(1)]),
        events=[event_status(address="10.20.0.1:5061"), event_status(address="10.20.0.1:5060")],
    )
    listed = {"00000001": [1, 3]}
    found = server_page(
        told, "10.20.0.1:5061", lambda handle, identifier: listed[identifier], lambda handle, address, port: 9
    )
    assert found is not None
    assert [(pool.owner, pool.member is None, pool.listed_by) for pool in found.pools] == [
        ("a", False, [1, 3]),
        ("b", True, []),
    ]
    assert (found.name, len(found.events), found.pools[0].override) == ("sip-1", 1, 9)
    assert server_page(told, "10.20.0.9:5061", lambda *_: [], lambda *_: None) is None


def test_overrides_are_told_by_address_and_port() -> None:
    (pool,) = page(pool_status(members=[member_status(1, port=5061), member_status(2)])).pools
    assert pool.overridden == {"10.20.0.1:5061": 4}


@pytest.mark.parametrize(
    ("told", "dig"),
    [
        ("", "dig +noall +answer @127.0.0.1"),
        ("local-address=0.0.0.0\nlocal-port=53\n", "dig +noall +answer @127.0.0.1"),
        ("local-address=10.0.0.1, ::1\nlocal-port=5300\n", "dig +noall +answer @10.0.0.1 -p 5300"),
        ("local-address=[::1]:5353\n", "dig +noall +answer @::1 -p 5353"),
        ("local-address=:: 10.0.0.1\n", "dig +noall +answer @::1"),
        ("local-address=$(reboot)\n", "dig +noall +answer @'$(reboot)'"),
    ],
)
def test_the_command_names_the_address_where_powerdns_listens(told: str, dig: str) -> None:
    assert read_settings(told).dig == dig
