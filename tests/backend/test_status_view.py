"""`rspdns status` in a terminal: pools first, events last, all of it whole, in 80 by 24 and less."""

import re
from dataclasses import replace
from typing import Any

import pytest
from pool_user import Standing
from rspdns.status import Status
from rspdns.status.model import FastPathInterfaceStatus, ReloadStatus
from rspdns.status.view import view

from tests.backend.exposed_metrics import FAST
from tests.backend.statuses import (
    event_status,
    member_status,
    out_status,
    pdns_status,
    pool_status,
    registrar_status,
    secondary_status,
    status,
    valid,
)

REASON = (
    "its home registrar does not list it any more, and the probe of this name server did not reach it either"
)


def a_status(members: int = 3, address: str = "", **of_pool: Any) -> Status:
    own = {"addresses": [address]} if address else {}
    pool = pool_status(
        **{
            "members": [member_status(number, **own) for number in range(1, members + 1)],
            "out": [out_status(reason=REASON)],
        }
        | of_pool
    )
    return valid(
        status(
            pool,
            registrars=[registrar_status(number) for number in (2, 1, 3)],
            pdns=[pdns_status()],
            events=[event_status(words=f"10.20.0.1 port 5060, {REASON}")] * 20,
        )
    )


def test_pools_come_first_and_events_last() -> None:
    cut_off = [registrar_status(1), registrar_status(2, standing=Standing.DOWN, why="no association")]
    lines = view(replace(a_status(), registrars=cut_off), 80, 24).plain.splitlines()
    assert lines[0] == "rspdns 1.0 on ns1, up for 1 h 7 min"
    assert lines[2] == "_sip._udp.as.ims.example.net"
    words = ("10.20.0.99", "standing", "events")
    indexes = [next(n for n, line in enumerate(lines) if word in line) for word in words]
    assert indexes == sorted(indexes)
    assert len(lines) == 24
    assert "joined" in lines[-1]


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("address", ["", "2001:db8:20:30:40:50:60:70"])
def test_no_word_is_broken_and_no_line_is_too_long(width: int, address: str) -> None:
    shown = view(a_status(address=address), width).plain
    assert max(map(len, shown.splitlines())) <= width
    assert REASON in " ".join(shown.split())
    where = f"[{address}]:5060" if address else "10.20.0.1:5060"
    assert where in shown.split()
    assert len(re.findall("  in$", shown, re.M)) == 3


def test_a_narrow_terminal_lacks_columns_and_a_wide_one_none() -> None:
    narrow, wide = (view(a_status(), width).plain for width in (50, 200))
    assert "home" in wide
    assert "registrar 1" in wide
    assert "1 h 7 min" in wide
    assert "registrar 1" not in narrow
    assert "10.20.0.1:5060" in narrow


def test_registrars_are_one_line_when_all_is_well_and_a_table_when_one_is_not() -> None:
    well = view(a_status(), 80).plain
    assert "\nregistrars 1, 2, 3: settled, follow enrp, round trip 1.23 ms at most\n" in well
    assert "standing" not in well
    for wrong in ({"standing": Standing.STARTING}, {"follow": "poll"}, {"follow_problem": "no ENRP"}):
        registrars = [registrar_status(1), registrar_status(2, **wrong)]
        assert "standing" in view(replace(a_status(), registrars=registrars), 80).plain


def test_more_pools_than_lines_are_said_to_be_there() -> None:
    lines = view(a_status(members=40), 80, 24).plain.splitlines()
    assert len(lines) == 24
    assert re.fullmatch(r"\d+ more lines: a taller terminal shows them, and so does rspdns status", lines[-1])


def test_a_missing_server_is_shown_with_what_to_look_at() -> None:
    out = out_status(reason=REASON, missing=True, name="sip-2", look_at="journalctl -u ppe-agent")
    shown = view(a_status(1, out=[out], expected=3, missing=2), 80, 24).plain
    assert shown.startswith("rspdns 1.0 on ns1, up for 1 h 7 min\n")
    assert "1 of 3 in" in shown
    assert re.search(r"^sip-2 .* missing$", shown, re.M)
    assert "look at: journalctl -u ppe-agent" in " ".join(shown.split())


def test_secondaries_are_shown_with_their_trouble() -> None:
    mute = secondary_status("does not answer", name="nsd-2", repeats=3)
    shown = view(valid(status(pool_status(), secondaries=[secondary_status(), mute])), 80).plain
    assert re.search(r"^nsd-1 +192\.0\.2\.53 +1 of 1 +9 +1 +follows\n", shown, re.M)
    assert re.search(
        r"^nsd-2 +192\.0\.2\.53 +0 of 1 +9 +3 +fails\n +ims\.example\.net: does not answer", shown, re.M
    )


def test_a_screen_of_its_own_height_shows_events_in_a_line_and_a_page_shows_them_whole() -> None:
    told = a_status()
    assert view(told, 80).plain.count(REASON.split()[-1]) > view(told, 80, 24).plain.count(REASON.split()[-1])
    lines = view(told, 80, 24).plain.splitlines()
    assert all(line.endswith("...") for line in lines[lines.index("events") + 1 :])


@pytest.mark.parametrize("width", [60, 200])
def test_a_reload_that_runs_or_was_refused_is_told(width: int) -> None:
    running = ReloadStatus("running", 12.0, 3, 9, 4000, None)
    refused = ReloadStatus("refused", 12.0, 3, 9, 4000, "zones.d/x.toml:3: handle: is missing")
    words = [
        " ".join(view(valid(status(reload=reload)), width).plain.split())
        for reload in (running, refused, None)
    ]
    assert "reload: running for 12 s: 3 of 9 files, 4000 records" in words[0]
    assert "reload: refused 12 s ago: zones.d/x.toml:3: handle: is missing" in words[1]
    assert "reload:" not in words[2]


@pytest.mark.parametrize("size", [(200, None), (80, 24), (50, 12)])
def test_more_members_than_expected_are_told(size: tuple[int, int | None]) -> None:
    assert "1 of 3 in, and 2 not expected" in view(a_status(3, expected=3, missing=2), *size).plain
    assert "3 of 3 in, and 1 not expected" in view(a_status(4, expected=3), *size).plain
    assert "not expected" not in view(a_status(3), *size).plain


def test_check_tells_what_the_kernel_answers_and_why_it_does_not() -> None:
    decisions = {"answered": 5, "unknown_name": 2, "edns": 1, "limited_tc": 3, "limited_dropped": 4}
    decisions |= {"no_lease": 0, "not_grown": 6}
    fast = replace(FAST, decisions=decisions)
    lines = view(replace(a_status(), fastpath=fast), 100, None).plain
    assert "fast path: 3 names, 5 questions answered by the kernel, 3 passed on" in lines
    assert "passed on: unknown_name 2, edns 1\n" in lines
    assert "fast path: 6 answers could not be written into their packet" in lines
    assert "as.example. A: 5 answered, 1 passed on, 2 failed" in lines
    assert "fast path: 7 questions above the limit" in lines
    away = [FastPathInterfaceStatus("eth0", False, "there is no such interface")]
    lines = view(replace(a_status(), fastpath=replace(FAST, interfaces=away, refused=2)), 100, None).plain
    assert "fast path: not at eth0: there is no such interface" in lines
    assert "fast path: no room for 2 names" in lines
    assert "above the limit" not in lines
    assert "could not be written" not in lines
    gone = replace(FAST, problem="no rspdns-fastpath is there")
    lines = view(replace(a_status(), fastpath=gone), 100, None).plain
    assert "fast path: PowerDNS answers everything: no rspdns-fastpath is there (/run/fast)" in lines
