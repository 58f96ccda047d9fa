"""Others register in a sentinel's pool, with another policy: the gate lets none of it through."""

import json
import time
from pathlib import Path
from typing import Any

from tests.support.backend import ADDRESS
from tests.support.members import Members
from tests.support.namespaces import Namespace
from tests.support.registrars import Registrars
from tests.support.waiting import until

STRANGER = "10.99.0.66"
FORGED = 0x66
GATE = f"""\
registrar {ADDRESS}
element {ADDRESS} handles rspdns-sentinel-*
element {STRANGER} handles *
end
"""


def events(log: Path, *names: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line[:1] == "{"]
    return [line for line in lines if line["event"] in names]


def test_a_forged_sentinel_does_not_keep_the_true_one_out(namespace: Namespace, tmp_path: Path) -> None:
    namespace.give_address(ADDRESS)
    namespace.ip("address", "add", f"{STRANGER}/24", "dev", "eth0")
    registrars = Registrars(namespace, tmp_path, ADDRESS, supervised=True, reregistration_ms=300, gate=GATE)
    logs = [registrars.log(number) for number in (1, 2, 3)]
    # At registrar 1 itself, and at another one: both before the true sentinel.
    for at, port in ((1, 3863), (2, 3864)):
        until(lambda at=at: "registrar_started" in logs[at - 1].read_text())  # type: ignore[misc]
        forger = Members(namespace, tmp_path, STRANGER, [f"{ADDRESS}:{port}"], name=f"forger-{at}")
        forger.add(FORGED + at, f"rspdns-sentinel-{at}", 7000 + at)
        forger.add(FORGED + 10 + at, f"rspdns-sentinel-{at % 3 + 1}", 7010 + at)
    for log in logs:
        until(lambda log=log: events(log, "sentinel_registered"), 30, log)  # type: ignore[misc]
    time.sleep(1.5)  # the forgers register again every second
    for log in logs:
        assert not events(log, "sentinel_rejected"), "nothing was in its way"
    dropped = {(event["reason"], event["host"]) for event in events(logs[0], "gate_dropped")}
    assert dropped == {("handle-not-allowed", STRANGER)}
