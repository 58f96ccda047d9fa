"""A target that left keeps its address for a second, so that an SRV answer of before finds it."""

import json
from collections.abc import Mapping

from pool_user.views import PoolView
from rspdns.answers.snapshot import Snapshot
from rspdns.pdns.responder import KEPT_S, Responder

from tests.backend.making import ZONE, answered, member, view, views, zone

OWN = zone()
TARGET = f"00000002.u.as.{ZONE}"


def swapped(made: Responder, seen: Mapping[str, PoolView], before: Snapshot | None = None) -> Snapshot:
    snapshot = answered(OWN, seen, before)
    made.swap(snapshot)
    return snapshot


def addresses(made: Responder, name: str = TARGET, qtype: str = "ANY") -> list[str]:
    line = json.dumps({"method": "lookup", "parameters": {"qname": f"{name}.", "qtype": qtype}}).encode()
    reply = made.respond(line)
    assert isinstance(reply, bytes)
    return [record["content"] for record in json.loads(reply)["result"] or []]


def test_the_address_of_a_departed_target_is_answered_for_a_second_more() -> None:
    made = Responder()
    made.clock = lambda: now
    now = 100.0
    before = swapped(made, views(view(member(1), member(2))))
    expected = addresses(made)
    assert expected
    swapped(made, views(view(member(1))), before)
    assert addresses(made) == addresses(made, qtype="A") == expected
    assert addresses(made, qtype="AAAA") == []
    assert addresses(made, f"x.{TARGET}") == []
    assert len(addresses(made, f"_sip._udp.as.{ZONE}", "SRV")) == 1
    now += KEPT_S + 0.1
    assert addresses(made) == []


def test_a_target_that_comes_back_is_answered_as_it_is_now() -> None:
    made = Responder()
    now = 100.0
    made.clock = lambda: now
    with_two = swapped(made, views(view(member(1), member(2, "10.0.0.2"))))
    without = swapped(made, views(view(member(1))), with_two)
    swapped(made, views(view(member(1), member(2, "10.0.0.99"))), without)
    assert addresses(made) == ["10.0.0.99"]


def test_what_left_long_ago_takes_no_memory() -> None:
    made = Responder()
    now = 100.0
    made.clock = lambda: now
    snapshot = swapped(made, views(view(member(1))))
    for number in range(2, 300):
        now += KEPT_S / 5
        snapshot = swapped(made, views(view(member(1), member(number, "10.0.0.9"))), snapshot)
    assert len(made._departed) < 20
