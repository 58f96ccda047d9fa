"""What `rspdns status` tells, and how people see it."""

from io import StringIO
from typing import Any

import pytest
from pool_user.views import PoolView
from rich.console import Console
from rserpool.parameters import Protocol
from rserpool.policies import LeastUsed
from rspdns import status
from rspdns.answers.snapshot import Snapshot
from rspdns.status_view import view as shown

from tests.backend.making import NOW, UDP, answered, member, view, views, zone


def the_pool(when_empty: str, *of_pool: PoolView) -> dict[str, Any]:
    pool = f'{UDP}when_empty = "{when_empty}"\n'
    (told,) = status.zones([zone(pool)], Snapshot(), {one.handle: one for one in of_pool}, NOW)
    (found,) = told["pools"]
    return dict(found)


def text(zones: list[dict[str, Any]], registrars: list[dict[str, Any]] | None = None) -> str:
    told = {"registrars": registrars or [], "zones": zones, "pdns": [], "problems": [], "events": []}
    console = Console(file=StringIO(), width=200)
    console.print(shown(told))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("when_empty", "words"),
    [
        ("last-good", "nobody lives; answering with who was in last (when_empty = last-good)"),
        ("nodata", "nobody lives; answering without records (NODATA) (when_empty = nodata)"),
        ("static", "nobody lives; answering with the zone file's records (when_empty = static)"),
        ("servfail", "nobody lives; answering SERVFAIL (when_empty = servfail)"),
    ],
)
def test_an_empty_pool_says_what_is_answered_instead(when_empty: str, words: str) -> None:
    pool = the_pool(when_empty, view(recent=(member(1),)))
    assert pool["answered_instead"] == words
    assert words in text([{"zone": "x", "serial": 1, "pools": [pool]}])


def test_a_pool_that_never_had_a_member_has_no_last_one_to_show() -> None:
    assert "nobody was in before" in the_pool("last-good", view())["answered_instead"]


def test_nothing_is_answered_instead_of_living_members_or_of_not_knowing() -> None:
    assert the_pool("last-good", view(member(1)))["answered_instead"] is None
    assert the_pool("last-good", PoolView("sip-udp"))["answered_instead"] is None
    assert the_pool("last-good")["answered_instead"] is None


def test_who_registered_for_another_transport_is_out_and_says_why() -> None:
    pool = the_pool("last-good", view(member(1), member(2, protocol=Protocol.TCP)))
    assert [one["identifier"] for one in pool["members"]] == ["00000001"]
    ((identifier, reason),) = [(one["identifier"], one["reason"]) for one in pool["out"]]
    assert identifier == "00000002"
    assert reason == "registered for tcp; this pool's service is _sip._udp"
    assert reason in text([{"zone": "x", "serial": 1, "pools": [pool]}])


def test_members_of_two_shards_with_one_identifier_have_weights_of_their_own() -> None:
    of_zone = zone(UDP.replace('handle = "sip-udp"', 'handles = ["a", "b"]'))
    of_pools = views(
        view(member(1, policy=LeastUsed(0.0)), handle="a"),
        view(member(1, "10.0.0.9", policy=LeastUsed(0.8)), handle="b"),
    )
    (told,) = status.zones([of_zone], answered(of_zone, of_pools), of_pools, NOW)
    first, second = (one["weight"] for one in told["pools"][0]["members"])
    assert first > second


def test_registrars_stand_by_number() -> None:
    registrars = [
        dict.fromkeys(("why", "identifier", "since_s", "round_trip_ms", "follow", "follow_problem"))
        | {"number": number, "address": f"10.0.0.{number}", "standing": "settled"}
        for number in (3, 1, 2)
    ]
    said = text([], registrars)
    assert said.index("10.0.0.1") < said.index("10.0.0.2") < said.index("10.0.0.3")


def test_a_registrar_s_standing_is_explained() -> None:
    one = dict.fromkeys(("identifier", "since_s", "round_trip_ms")) | {
        "number": 1,
        "address": "10.0.0.1",
        "standing": "starting",
        "why": "it does not list its own sentinel",
        "follow": "poll",
        "follow_problem": "no answer, or refused",
    }
    assert "it does not list its own sentinel" in text([], [one])
    assert "pushes no changes: no answer, or refused" in text([], [one])
