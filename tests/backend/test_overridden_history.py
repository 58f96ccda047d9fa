"""A server that dies while an override holds it out, in the journal and in the counts."""

import asyncio
import time
from contextlib import closing
from ipaddress import ip_address
from pathlib import Path

from pool_user import NamedServers, OverrideAction, PoolOverride
from rspdns.history import Availability, histories
from rspdns.journal import Journal, JournalReader

from tests.pool_user.belief_support import POOL, R1, R2, Play, pe

SERVER = ip_address("10.0.0.2"), 5060
DOWN = PoolOverride(7, OverrideAction.DOWN, NamedServers(places=frozenset({SERVER})), "by alice: kernel")
DOWN_S = 100.0


async def test_server_that_died_under_an_override_is_down_from_its_end_on(tmp_path: Path) -> None:
    play = Play()
    play.now = time.monotonic()
    journal = Journal(tmp_path, 30)
    journal.start()

    def look() -> None:
        change = play.belief.evaluate(play.now)
        journal.take(change)

    play.settle(0, 1, 2)
    for index in range(3):
        play.answer(index, pe(1, R1), pe(2, R2))
    look()
    play.belief.set_overrides({POOL: (DOWN,)})
    look()
    for index in range(3):
        play.answer(index, pe(1, R1))
    look()
    planned_until_s = time.time()
    play.belief.set_overrides({POOL: ()})
    look()
    _, down_s = journal.counts.of(POOL, SERVER, time.monotonic() + DOWN_S)
    assert DOWN_S <= down_s < DOWN_S + 10
    await asyncio.to_thread(journal.close)
    with closing(JournalReader(tmp_path)) as reader:
        found = histories(reader.runs(), reader.since(0), planned_until_s - 60, time.time())
    (history,) = [each for each in found if each.server == "10.0.0.2:5060"]
    states = [span.state for span in history.spans if span.state is not Availability.UNKNOWN]
    assert states[-2:] == [Availability.PLANNED, Availability.DOWN]
    assert history.outages == 1
