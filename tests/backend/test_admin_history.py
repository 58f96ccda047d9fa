"""`/v1/history`: what is asked for, what is told, and what is refused."""

import asyncio
import time
from pathlib import Path

import pytest
from pool_user import BeliefChange, Cause, Code, Departure, PoolChange, PoolView
from rspdns.admin import history
from rspdns.admin.history import MOST_HOURS, Histories, history_wish
from rspdns.journal import Journal, JournalError

from tests.backend.admin_paper import Admin
from tests.backend.making import member

POOL = PoolView("sip-udp")


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"pool": "a", "server": "10.0.0.1:5060"},
        {"pool": "a", "hours": "0"},
        {"pool": "a", "hours": "nan"},
        {"pool": "a", "hours": "x"},
        {"pool": "a", "hours": str(MOST_HOURS + 1)},
        {"server": "10.0.0.1"},
        {"server": "10.0.0.1:x"},
        {"server": "10.0.0.1:555555"},
    ],
)
def test_a_wrong_question_is_refused_in_words(query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"hours is|address:port|either pool"):
        history_wish(query)


async def test_a_journal_is_told_by_pool_and_by_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path, 1)
    journal.start()
    both = (member(1), member(2))
    journal.take(BeliefChange({"sip-udp": PoolChange(POOL, POOL, both)}, {}))
    await asyncio.sleep(0.1)
    gone = Departure(member(2), time.monotonic(), Cause(Code.REMOVED))
    journal.take(BeliefChange({"sip-udp": PoolChange(POOL, POOL, left=(gone,))}, {}))
    await asyncio.sleep(0.1)
    journal.close()
    histories = Histories(str(tmp_path))
    page = await histories.page(history_wish({"pool": "sip-udp"}), {"sip-udp"})
    assert [(server.server, server.outages) for server in page.servers] == [
        ("10.0.0.1:5060", 0),
        ("10.0.0.2:5060", 1),
    ]
    page = await histories.page(history_wish({"server": "10.0.0.2:5060", "hours": "1"}), None)
    (server,) = page.servers
    assert [span.state for span in server.spans if span.state != "unknown"] == ["up", "down"]
    assert (await histories.page(history_wish({"pool": "other"}), {"other"})).servers == []
    monkeypatch.setattr(history, "MOST_SPANS_IN_ALL", 2)
    page = await Histories(str(tmp_path)).page(history_wish({"pool": "sip-udp"}), {"sip-udp"})
    assert [len(server.spans) for server in page.servers] == [1, 1], "the latest of each"


async def test_no_journal_is_told(tmp_path: Path, admin: Admin) -> None:
    with pytest.raises(JournalError, match="there is no journal"):
        await Histories(str(tmp_path)).page(history_wish({"pool": "a"}), {"a"})
    status, told, _ = await admin.ask("/v1/history?pool=sip-udp")
    assert (status, "there is no journal" in told["error"]) == (404, True)
    assert (await admin.ask("/v1/history"))[0] == 400
