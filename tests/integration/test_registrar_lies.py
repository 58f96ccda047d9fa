"""One registrar of three lies, in the place of a real one, to the other two, which obey it, and the backend.

A pool user that only polls the registrars is beside it. The rule: no stranger is shown, and no live member is
missing for longer than 1.5 s, or 2.5 s where registrars are polled. An element that the liar itself is home
of is no stranger: without a key any registrar may have elements.
"""

import itertools
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from tests.support.backend import ADDRESS, HANDLE, OWNER
from tests.support.chain import SIP_PORTS, Chain
from tests.support.dns_watch import DnsWatch
from tests.support.namespaces import end, own_namespace
from tests.support.polling_user import PollingUser
from tests.support.waiting import until

KINDS = ("takeover", "steal", "steal-address", "ghosts")
LIES_S = 6.0
MISSING_S = 1.5
MISSING_POLLED_S = 2.5
MOST_LACKING = 0.25
"""The part of all answers that may lack a live member while the lies last."""
KNOWN_AFTER_S = 10.5
"""A registrar keeps its identifier, whatever others do to its sentinel, when it has had it for this time."""
LIAR = 3
INVENTED_PORT = 6666
REPORTER = "10.99.0.77"
REPORTS = 300


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """Three members with their sidecar."""
    with own_namespace() as namespace:
        made = Chain(namespace, tmp_path_factory.mktemp("lies"), reregistration_ms=2000)
        for port in SIP_PORTS:
            made.start_sip(port)
        made.start_sidecar(SIP_PORTS)
        made.start()
        yield made


@pytest.fixture(scope="module")
def polling(chain: Chain) -> PollingUser:
    """A pool user beside the backend that polls the same registrars, and has known them for long."""
    words = (HANDLE, f"{ADDRESS}/32", *chain.registrars.addresses_with_enrp)
    made = PollingUser(chain.namespace, words, chain.folder / "polling.log")
    until(lambda: made.ports == set(SIP_PORTS), 40, made.log)
    time.sleep(KNOWN_AFTER_S)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_lying_registrar_shows_no_stranger_and_hides_no_live_member(
    kind: str, chain: Chain, polling: PollingUser
) -> None:
    until(chain.backend.is_known, 40, chain.backend.log)
    until(lambda: chain.targets_at(OWNER) == set(SIP_PORTS), 40, chain.backend.log)
    until(lambda: polling.ports == set(SIP_PORTS), 40, polling.log)
    watch = DnsWatch(chain.namespace, OWNER, chain.folder / f"watch-{kind}.txt")
    chain.registrars.kill(LIAR)
    honest = [one for one in chain.registrars.addresses_with_enrp if one != own(chain)]
    log = chain.folder / f"liar-{kind}.log"
    words = (own(chain), str(LIAR), HANDLE, ADDRESS, *honest)
    program = (sys.executable, "-m", "rspdns_lab.chain.lying_registrar", kind, *words)
    liar = chain.namespace.start(*program, sctp=True, log=log)
    began_s = time.monotonic()
    try:
        until(lambda: is_believed(chain), 40, chain.backend.log)
        time.sleep(LIES_S)
        ended_s = time.monotonic()
        assert liar.poll() is None, log.read_text()
        assert "sent 0 to 0" not in log.read_text().splitlines()[-1], "it reached nobody"
    finally:
        end(liar, signal.SIGKILL)
        chain.registrars.start(LIAR)
    answers = watch.since(began_s, ended_s)
    assert len(answers) > 100
    allowed = {*SIP_PORTS, *([INVENTED_PORT] if kind == "steal-address" else [])}
    assert not [one for one in answers if one.problem or not one.ports <= allowed]
    for port in SIP_PORTS:
        shown_s = [began_s, *(one.asked_at_s for one in answers if port in one.ports), ended_s]
        gap_s = max(later - before for before, later in itertools.pairwise(shown_s))
        assert gap_s < MISSING_S, f"port {port} was missing for {gap_s:.2f} s"
        gaps_s = [0.0, *polling.gaps_s(port, began_s, ended_s)]
        assert max(gaps_s) < MISSING_POLLED_S, f"port {port}, where registrars are polled: missing {gaps_s}"
        assert sum(gaps_s) < MOST_LACKING * (ended_s - began_s), f"port {port}, polled: missing {gaps_s}"
        lacking = sum(port not in one.ports for one in answers)
        assert lacking < MOST_LACKING * len(answers), f"{lacking} of {len(answers)} answers lack port {port}"


def test_a_host_that_reports_all_others_as_unreachable_removes_nobody(
    chain: Chain, polling: PollingUser
) -> None:
    until(lambda: chain.targets_at(OWNER) == set(SIP_PORTS) == polling.ports, 40, chain.backend.log)
    watch = DnsWatch(chain.namespace, OWNER, chain.folder / "watch-reports.txt")
    chain.namespace.ip("address", "add", f"{REPORTER}/24", "dev", "eth0")
    log = chain.folder / "reporter.log"
    words = (REPORTER, HANDLE, *chain.registrars.addresses_with_enrp)
    program = (sys.executable, "-m", "rspdns_lab.chaos.unreachable_reporter", *words)
    reporter = chain.namespace.start(*program, sctp=True, log=log)
    began_s = time.monotonic()
    try:
        until(lambda: log.exists() and int("0" + log.read_text().split(" ")[-1]) > REPORTS, 20, log)
    finally:
        end(reporter, signal.SIGKILL)
    assert not watch.wrong(set(SIP_PORTS), began_s)
    assert polling.ports == set(SIP_PORTS)


def own(chain: Chain) -> str:
    return chain.registrars.addresses_with_enrp[LIAR - 1]


def is_believed(chain: Chain) -> bool:
    """Whether the backend takes the liar for a settled registrar."""
    status = chain.backend.status() or {"registrars": []}
    return any(
        one["number"] == LIAR and one["standing"] == "settled" and one["identifier"] == "0badbad3"
        for one in status["registrars"]
    )
