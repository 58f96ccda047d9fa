"""Whether a zone is ready: the decision, and `/ready/ZONE`."""

from pathlib import Path

import pytest
from pool_user import Cause, Code, Departure, PoolView
from rspdns.readiness import MOST_CAUSES, not_ready
from rspdns.zones.zone import Pool

from tests.backend.admin_paper import READER, Admin, tokens
from tests.backend.making import NOW, TCP, UDP, ZONE, member, view, views, zone

OWNER = f"_sip._udp.as.{ZONE}"


def pools(text: str = UDP) -> list[Pool]:
    return [pool for site in zone(text).sites for pool in site.pools]


def causes(of_pool: PoolView, text: str = UDP) -> list[str]:
    return not_ready(pools(text), views(of_pool), NOW)


def gone(number: int, code: Code) -> Departure:
    return Departure(member(number), NOW - 60, Cause(code))


def test_zone_whose_pools_have_members_that_a_registrar_vouches_for_is_ready() -> None:
    assert causes(view(member(1))) == []
    both = views(view(member(1)), view(handle="sip-tcp"))
    assert not_ready(pools(UDP + TCP), both, NOW) == [], "a pool that never had a member is no fault"
    assert not_ready([], {}, NOW) == []


@pytest.mark.parametrize(
    ("of_pool", "cause"),
    [
        (PoolView("sip-udp"), "no registrar has told of it yet"),
        (view(member(1), stale_since_s=NOW - 3), "no registrar can be believed for 3 s"),
        (view(departures=(gone(1, Code.REMOVED), gone(2, Code.GONE))), "no server is in, 2 should be"),
        (view(departures=(gone(1, Code.REMOVED), gone(2, Code.OVERRIDDEN))), "no server is in, 1 should be"),
    ],
)
def test_zone_is_not_ready_and_the_cause_names_the_pool(of_pool: PoolView, cause: str) -> None:
    assert causes(of_pool) == [f"{OWNER}: {cause}"]


def test_pool_that_a_person_emptied_is_ready() -> None:
    assert causes(view(departures=(gone(1, Code.OVERRIDDEN), gone(2, Code.DRAINED)))) == []


def test_pool_with_a_shard_that_no_registrar_told_of_is_not_ready() -> None:
    sharded = UDP.replace('handle = "sip-udp"', 'handles = ["sip-udp", "b"]')
    assert causes(view(member(1)), sharded) == [f"{OWNER}: no registrar has told of it yet"]


def test_number_of_causes_is_bounded() -> None:
    many = "".join(
        UDP.replace("sip-udp", f"h{number}").replace('"u"', f'"u{number}"').replace('"as"', f'"as{number}"')
        for number in range(2 * MOST_CAUSES)
    )
    assert len(not_ready(pools(many), {}, NOW)) == MOST_CAUSES


async def test_answer_is_200_when_ready_503_with_the_causes_when_not(admin: Admin) -> None:
    status, told, _ = await admin.ask(f"/ready/{ZONE.upper()}.")
    assert (status, told) == (200, {"zone": ZONE})
    admin.service.causes = {ZONE: ["a: b", "c: d"]}
    status, told, _ = await admin.ask(f"/ready/{ZONE}")
    assert (status, told) == (503, {"error": "a: b; c: d"})
    assert (await admin.ask("/ready/other.example"))[0] == 404


async def test_readiness_needs_no_token_where_reading_does(tmp_path: Path) -> None:
    admin = Admin(tmp_path, read_tokens=tokens(tmp_path, "read", READER))
    await admin.server.start()
    try:
        assert (await admin.ask("/v1/pools"))[0] == 401
        assert (await admin.ask(f"/ready/{ZONE}"))[0] == 200
    finally:
        await admin.client.close()
        await admin.server.close()
