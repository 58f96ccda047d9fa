"""When `rspdns watch` runs its command, and what the command is told."""

from collections.abc import Sequence
from typing import Any

from rspdns.next_change import WAIT_S
from rspdns.pending_changes import MOST_CHANGES, MOST_REPEAT_S, REPEAT_S, PendingChanges


def pool(*identifiers: str, known: bool = True) -> dict[str, Any]:
    members = [{"handle": "h", "identifier": name, "addresses": ["::1"], "port": 1} for name in identifiers]
    return {"known": known, "members": members}


def answer(of_pool: dict[str, Any], changes: Sequence[str] = (), *, missed: bool = False) -> dict[str, Any]:
    return {"pool": of_pool, "changes": [{"kind": kind} for kind in changes], "missed": missed}


def ran_once() -> PendingChanges:
    pending = PendingChanges(1.0)
    pending.take(answer(pool("a")))
    pending.ran(10.0, 10.5, is_done=True)
    return pending


def test_first_run_waits_until_the_pool_is_known() -> None:
    pending = PendingChanges(1.0)
    pending.take(answer(pool(known=False)))
    assert pending.wait_s(0.0) == WAIT_S
    pending.take(answer(pool("a")))
    assert pending.wait_s(0.0) == 0
    assert pending.document("ns1")["why"] == "start"


def test_change_after_quiet_runs_at_once_and_soon_after_a_run_waits() -> None:
    pending = ran_once()
    assert pending.wait_s(10.5) == WAIT_S
    pending.take(answer(pool(), ["left"]))
    assert pending.wait_s(10.5) == 0.5
    pending.take(answer(pool("b"), ["joined"]))
    assert pending.wait_s(11.0) == 0
    document = pending.document("ns1")
    assert [change["kind"] for change in document["changes"]] == ["left", "joined"]
    assert (document["why"], document["missed"]) == ("change", False)


def test_failed_run_is_repeated_with_its_changes_at_growing_intervals() -> None:
    pending = ran_once()
    pending.take(answer(pool(), ["left"]))
    waits = []
    now = 20.0
    for _ in range(6):
        pending.ran(now, now, is_done=False)
        waits.append(pending.due_s - now)
        now = pending.due_s
    assert waits == [REPEAT_S, 10.0, 20.0, 40.0, MOST_REPEAT_S, MOST_REPEAT_S]
    document = pending.document("ns1")
    assert (document["why"], len(document["changes"])) == ("repeat", 1)
    pending.ran(now, now, is_done=True)
    assert pending.document("ns1")["changes"] == []


def test_restart_of_the_backend_matters_only_with_other_members() -> None:
    pending = ran_once()
    pending.take(answer(pool("a"), missed=True))
    assert pending.wait_s(20.0) == WAIT_S
    pending.take(answer(pool("a", "b"), missed=True))
    assert pending.wait_s(20.0) == 0
    assert pending.document("ns1")["missed"]


def test_changes_beyond_the_bound_are_told_as_missed() -> None:
    pending = ran_once()
    pending.take(answer(pool(), ["left"] * (MOST_CHANGES + 1)))
    document = pending.document("ns1")
    assert (len(document["changes"]), document["missed"]) == (MOST_CHANGES, True)
