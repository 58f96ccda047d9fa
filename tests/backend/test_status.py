"""What `rspdns status` tells, and how people see it."""

from typing import Any

import pytest
from pool_user.belief import Standing
from pool_user.views import PoolView
from rserpool.parameters import Protocol
from rserpool.policies import LeastUsed
from rspdns.answers.snapshot import Snapshot
from rspdns.status import OtherVersionError, build, dumped, read
from rspdns.status.model import PoolStatus
from rspdns.status.view import view as view_of

from tests.backend.making import NOW, UDP, answered, member, view, views, zone
from tests.backend.statuses import member_status, pool_status, registrar_status, status, valid


def the_pool(when_empty: str, *of_pool: PoolView) -> PoolStatus:
    pool = f'{UDP}when_empty = "{when_empty}"\n'
    (told,) = build.zones([zone(pool)], Snapshot(), {one.handle: one for one in of_pool}, NOW)
    (found,) = told.pools
    return found


def text(*pools: PoolStatus, **other: Any) -> str:
    return view_of(valid(status(*pools, **other)), 200).plain


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
    assert pool.answered_instead == words
    assert words in text(pool)


def test_a_pool_that_never_had_a_member_has_no_last_one_to_show() -> None:
    assert "nobody was in before" in str(the_pool("last-good", view()).answered_instead)


def test_nothing_is_answered_instead_of_living_members_or_of_not_knowing() -> None:
    assert the_pool("last-good", view(member(1))).answered_instead is None
    assert the_pool("last-good", PoolView("sip-udp")).answered_instead is None
    assert the_pool("last-good").answered_instead is None


def test_who_registered_for_another_transport_is_out_and_says_why() -> None:
    pool = the_pool("last-good", view(member(1), member(2, protocol=Protocol.TCP)))
    assert [one.identifier for one in pool.members] == ["00000001"]
    ((identifier, reason),) = [(one.identifier, one.reason) for one in pool.out]
    assert identifier == "00000002"
    assert reason == "registered for tcp; this pool's service is _sip._udp"
    assert reason in text(pool)


def test_members_of_two_shards_with_one_identifier_have_weights_of_their_own() -> None:
    of_zone = zone(UDP.replace('handle = "sip-udp"', 'handles = ["a", "b"]'))
    of_pools = views(
        view(member(1, policy=LeastUsed(0.0)), handle="a"),
        view(member(1, "10.0.0.9", policy=LeastUsed(0.8)), handle="b"),
    )
    (told,) = build.zones([of_zone], answered(of_zone, of_pools), of_pools, NOW)
    first, second = (one.weight or 0 for one in told.pools[0].members)
    assert first > second > 0


def test_registrars_stand_by_number() -> None:
    said = text(registrars=[registrar_status(number) for number in (3, 1, 2)])
    assert said.index("10.0.0.1") < said.index("10.0.0.2") < said.index("10.0.0.3")


def test_a_registrar_s_standing_is_explained() -> None:
    one = registrar_status(
        standing=Standing.STARTING,
        why="it does not list its own sentinel",
        follow="poll",
        follow_problem="no answer, or refused",
    )
    assert "it does not list its own sentinel" in text(registrars=[one])
    assert "pushes no changes: no answer, or refused" in text(registrars=[one])


def test_what_is_no_status_of_this_version_says_what_differs() -> None:
    told = dumped(status(pool_status(members=[member_status()])))
    assert read({**told, "more": 1}) == read(told), "a later version may tell more"
    del told["zones"][0]["pools"][0]["members"][0]["weight"]
    with pytest.raises(OtherVersionError, match=r"zones\.0\.pools\.0\.members\.0\.weight: .*restart it"):
        read(told)
    wrongs: tuple[object, ...] = (None, [], {}, {"zones": 1})
    for wrong in wrongs:
        with pytest.raises(OtherVersionError):
            read(wrong)
