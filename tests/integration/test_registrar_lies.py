"""One registrar of three lies to the other two, which obey it, and to the readers: the backend, which
follows, and a pool user that only polls the registrars.

"bare": neither gate nor key. An element that the liar itself is home of is no stranger: without a key any
registrar may have elements.

"guarded": a gate stands before the true registrars, the pool has a key, and an admitted host and a follower
attack all the time with all that they have. A pool user that polls, and has known the registrars for a moment
only, is safe as well.
"""

import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.chain import SIP_PORTS
from tests.support.lying_lab import DROPPED, KNOWN_AFTER_S, LIVE, LyingLab, lying_lab
from tests.support.namespaces import end
from tests.support.waiting import until

LIES_S = 5.0
MISSING_S = 1.5
MISSING_BARE_POLLED_S = {"takeover": 1.5, "steal-address": 2.5}
MOST_LACKING = 0.75
"""The part of all answers that may lack a live member while the lies last. A liar that steals a server again
and again, under its earlier identifiers too, makes it flap."""
INVENTED_PORT = 6666
REPORTS = 300
KINDS = ("disown", "takeover", "steal", "steal-address", "ghosts", "orphans", "leave")
OFTEN = "/100"
"""The liar of the guarded lab lies a hundred times a second."""
BARE = ("takeover", "steal-address")
"""The simulator has the first, `steal` and `ghosts`, too; the guarded lab has all."""
YOUNG = ("takeover", "steal")
"""The lies about which a pool user that polls could be deceived about the registrars themselves."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LyingLab]:
    with lying_lab(tmp_path_factory.mktemp("bare"), guarded=False) as lab:
        yield lab


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LyingLab]:
    with lying_lab(tmp_path_factory.mktemp("guarded"), guarded=True) as lab:
        yield lab


@pytest.mark.parametrize("kind", BARE)
def test_lying_registrar_shows_no_stranger_and_hides_no_live_member(kind: str, bare: LyingLab) -> None:
    bare.until_right()
    seen = bare.lied(kind, LIES_S, bare.polling)
    assert len(seen.answers) > 100
    assert not [answer for answer in seen.answers if answer.problem]
    assert seen.strangers() <= ({INVENTED_PORT} if kind == "steal-address" else set())
    print(kind, seen.summary())
    assert max(seen.missing_s(port) for port in SIP_PORTS) < MISSING_S, seen.summary()
    assert max(map(max, seen.polled_gaps_s.values())) < MISSING_BARE_POLLED_S[kind], seen.summary()
    assert max(seen.lacking(port) for port in SIP_PORTS) < MOST_LACKING, seen.summary()
    assert max(map(sum, seen.polled_gaps_s.values())) < MOST_LACKING * seen.lasted_s, seen.summary()


def test_takeover_hides_no_polled_server_that_no_probe_reaches(bare: LyingLab) -> None:
    """Over UDP that is not SIP, say."""
    bare.until_right()
    polling = bare.new_polling_user("plain", is_probed=False)
    time.sleep(KNOWN_AFTER_S)
    seen = bare.lied("takeover", 2 * LIES_S, polling)
    end(polling.process, signal.SIGKILL)
    print("plain", seen.summary())
    assert max(map(max, seen.polled_gaps_s.values())) < MISSING_S, seen.summary()


@pytest.mark.parametrize("kind", [*KINDS, "quiet"])
def test_with_gate_and_keys_no_attack_shows_a_stranger_or_hides_a_live_member(
    kind: str, guarded: LyingLab
) -> None:
    if kind != "disown":
        guarded.lie("quiet")
        guarded.until_homes(honest=True)
    guarded.until_right()
    word = f"{kind}{OFTEN}:{guarded.key}" if kind == "leave" else f"{kind}{OFTEN}"
    polling = guarded.new_polling_user(f"young-{kind}") if kind in YOUNG else guarded.polling
    seen = guarded.lied(word, LIES_S, polling)
    if polling is not guarded.polling:
        end(polling.process, signal.SIGKILL)
    assert len(seen.answers) > 100
    assert not [answer for answer in seen.answers if answer.problem]
    assert seen.strangers() == set()
    print(kind, seen.summary())
    assert max(seen.missing_s(port) for port in SIP_PORTS) < MISSING_S, seen.summary()
    assert max(map(max, seen.polled_gaps_s.values())) < MISSING_S, seen.summary()
    assert max(seen.lacking(port) for port in SIP_PORTS) < MOST_LACKING, seen.summary()


def test_gate_drops_each_attack_of_the_neighbour_and_the_follower(guarded: LyingLab) -> None:
    until(lambda: set(DROPPED) <= guarded.drops(), told=lambda: str(guarded.drops()))
    assert "registrar_died" not in guarded.registrars.said(1)
    assert guarded.chain.backend.pool()["refused"]["unproven"] > 0


def test_a_host_that_reports_all_others_as_unreachable_removes_nobody(bare: LyingLab) -> None:
    bare.until_right()
    log = bare.chain.folder / "reporter.log"
    began_s = time.monotonic()
    reporter = bare.start_at_neighbour("rspdns_lab.chaos.unreachable_reporter", log)
    try:
        until(lambda: log.exists() and int("0" + log.read_text().split(" ")[-1]) > REPORTS, 20, log)
    finally:
        end(reporter, signal.SIGKILL)
    assert not bare.watch.wrong(set(LIVE), began_s)
    assert bare.polling.ports == LIVE
