"""`rspdns status` in a terminal: pools first, events last, all of it whole, in 80 by 24 and less."""

import re
from typing import Any

import pytest
from rspdns.status_screen import screen

REASON = (
    "its home registrar does not list it any more, and the probe of this name server did not reach it either"
)


def member(number: int, address: str = "") -> dict[str, Any]:
    return {
        "identifier": f"{number:08x}",
        "addresses": [address or f"10.20.0.{number}"],
        "port": 5060,
        "priority": 0,
        "weight": 1000,
        "load": 0.25,
        "since_s": 4030.6,
        "home_registrar": "0000000a",
        "stale": False,
    }


def status(members: int = 3, address: str = "") -> dict[str, Any]:
    out = {
        "identifier": "000000ff",
        "address": "10.20.0.99",
        "port": 5060,
        "since_s": 12.0,
        "reason": REASON,
    }
    pool = {
        "owner": "_sip._udp.as.ims.example.net",
        "handles": ["sip-as-udp"],
        "known": True,
        "stale_s": None,
        "members": [member(number, address) for number in range(1, members + 1)],
        "out": [out],
    }
    registrar = {
        "address": "10.0.0.1",
        "standing": "settled",
        "since_s": 60.0,
        "identifier": "0000000a",
        "round_trip_ms": 1.234,
        "follow": "enrp",
        "why": "it is settled",
        "follow_problem": None,
    }
    event = {
        "at_s": 1.5,
        "kind": "joined",
        "handle": "sip-as-udp",
        "identifier": "00000001",
        "converged_ms": 7.25,
        "words": f"10.20.0.1 port 5060, {REASON}",
    }
    control = {
        "control": "/run/pdns/pdns.controlsocket",
        "commands": 12,
        "names": 24,
        "failures": 0,
        "waiting": 0,
        "problem": None,
    }
    return {
        "zones": [{"serial": 1795379901, "pools": [pool]}],
        "registrars": [
            {**registrar, "number": number, "identifier": f"{number + 9:08x}"} for number in (2, 1, 3)
        ],
        "pdns": [control],
        "problems": [],
        "events": [event] * 20,
    }


def test_pools_come_first_and_events_last() -> None:
    lines = screen(status(), 80, 24).plain.splitlines()
    assert lines[0] == "_sip._udp.as.ims.example.net"
    words = ("10.20.0.99", "standing", "events")
    places = [next(n for n, line in enumerate(lines) if word in line) for word in words]
    assert places == sorted(places)
    assert len(lines) == 24
    assert "joined" in lines[-1]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("address", ["", "2001:db8:20:30:40:50:60:70"])
def test_no_word_is_broken_and_no_line_is_too_long(width: int, address: str) -> None:
    shown = screen(status(address=address), width).plain
    assert max(map(len, shown.splitlines())) <= width
    assert REASON in " ".join(shown.split())
    where = f"[{address}]:5060" if address else "10.20.0.1:5060"
    assert where in shown.split()
    assert len(re.findall("  in$", shown, re.M)) == 3


def test_a_narrow_terminal_lacks_columns_and_a_wide_one_none() -> None:
    narrow, wide = (screen(status(), width).plain for width in (50, 200))
    assert "home" in wide
    assert "registrar 1" in wide
    assert "1 h 7 min" in wide
    assert "registrar 1" not in narrow
    assert "10.20.0.1:5060" in narrow


def test_more_pools_than_lines_are_said_to_be_there() -> None:
    lines = screen(status(members=40), 80, 24).plain.splitlines()
    assert len(lines) == 24
    assert re.fullmatch(r"\d+ more lines: a higher terminal shows them, and rspdns status", lines[-1])


def test_what_is_missing_is_told_with_what_to_look_at() -> None:
    told = status(members=1)
    pool = told["zones"][0]["pools"][0]
    pool |= {"expected": 3, "missing": 2}
    pool["out"][0] |= {"missing": True, "name": "sip-2", "look_at": "journalctl -u ppe-agent"}
    told |= {"host": "ns1", "version": "1.0", "uptime_s": 4030.6}
    shown = screen(told, 80, 24).plain
    assert shown.startswith("rspdns 1.0 on ns1, up for 1 h 7 min\n")
    assert "1 of 3 in" in shown
    assert re.search(r"^sip-2 .* missing$", shown, re.M)
    assert "look at: journalctl -u ppe-agent" in " ".join(shown.split())
