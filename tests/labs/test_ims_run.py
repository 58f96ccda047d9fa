"""Callers of the IMS lab that end before their time: calls they did not place are none that went well."""

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rspdns_lab.chain.hosts import wait_until
from rspdns_lab.errors import LabError
from rspdns_lab.ims import run
from rspdns_lab.ims.faults import FAULTS
from rspdns_lab.ims.hosts import Caller
from rspdns_lab.ims.lab import ImsLab
from rspdns_lab.net.network import Host

NSENTER = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'
SIPP = """#!/bin/sh
log=$(echo "$*" | sed 's/.*-log_file \\([^ ]*\\).*/\\1/')
index() { echo "start $1 $(date +%s) 0"; echo "answer $1 $(date +%s) 2000 as2"; }
index 1 >>"$log"
while [ ! -e "$FAULT" ]; do sleep 0.02; done
"""
ALL_PLACED = 'for call in 2 3 4; do index $call >>"$log"; done; '
ORDERED = 4


def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: str) -> ImsLab:
    """Make a lab whose one caller runs a SIPp of ours, which places a call and then does what is said."""
    for name, script in (("nsenter", NSENTER), ("sipp", SIPP + goes_on)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FAULT", str(tmp_path / "fault"))
    monkeypatch.setattr(run, "CALM_S", 1)
    folder = tmp_path / "caller-rspdns"
    folder.mkdir()
    (tmp_path / "cscf.log").touch()
    caller = Caller(cast(Host, SimpleNamespace(name="caller", path="", address="::1")), "cscf", 5071, folder)
    cscf = SimpleNamespace(log=tmp_path / "cscf.log", expect_running=lambda: None)
    made: Any = SimpleNamespace(
        approaches={"rspdns": None}, callers={"rspdns": caller}, cscfs={"rspdns": cscf}, network=None
    )
    return cast(ImsLab, made)


def placed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: str) -> int:
    """Return how many calls were measured of the four that were to be placed."""
    made = lab(tmp_path, monkeypatch, goes_on)
    fault = replace(FAULTS[0], do=lambda _: (tmp_path / "fault").touch())

    def sleep(_: float) -> None:
        """Sleep for as little as there is to wait for."""
        wait_until(lambda: "answer" in "".join(made.callers["rspdns"].lines()), "a call", 20)

    clock = SimpleNamespace(sleep=sleep, time=time.time, monotonic=time.monotonic)
    monkeypatch.setattr(run, "time", clock)
    (found,) = run.run_fault(made, fault, 1, 2, 1, lambda _: None)
    return len(found.calls)


def test_a_caller_that_places_all_its_calls_may_fail_with_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert placed(tmp_path, monkeypatch, ALL_PLACED + "exit 1") == ORDERED


@pytest.mark.parametrize(
    ("goes_on", "how"),
    [
        ("kill -9 $$", "signal 9"),
        ("exit 0", "exit status 0"),
        ("echo 'no port left'; exit 255", "no port left"),
    ],
)
def test_a_caller_that_dies_after_the_fault_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: str, how: str
) -> None:
    with pytest.raises(LabError, match="caller-rspdns ended early") as told:
        placed(tmp_path, monkeypatch, goes_on)
    assert how in str(told.value)
    assert "placed 1 of 4 calls" in str(told.value)


def test_a_caller_that_is_killed_while_its_last_calls_wait_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LabError, match=r"signal 9.* 4 of 4 calls"):
        placed(tmp_path, monkeypatch, ALL_PLACED + "kill -9 $$")


def test_a_caller_that_is_too_slow_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_TAIL_S", 0.2)
    with pytest.raises(LabError, match="placed 1 of 4 calls in time"):
        placed(tmp_path, monkeypatch, "exec sleep 60")
