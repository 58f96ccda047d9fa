"""Synthetic calls between namespaces, by the real generator built with sanitizers; two real firewalls that
fail beside calls."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rspdns_lab.net.network import call_in, lose_no_packets, lose_packets
from rspdns_lab.net.preconditions import compile_c
from rspdns_lab.voip.configuration import CallRun
from rspdns_lab.voip.paths import CallPath
from rspdns_lab.voip.report import problems
from rspdns_lab.voip.run import SOURCE, measure

from tests.support.labs import LAB

_STRANGERS = (b"", b"\x80" * 12, b"voip" + b"\xff" * 160, b"\x00\x00\x01\x01" + b"voip" * 400)


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("voip") / "generator"
    return compile_c(SOURCE, made, "-O0", "-g", "-fsanitize=address,undefined", "-pthread", libraries=["-lm"])


@pytest.fixture
def path() -> Iterator[CallPath]:
    with CallPath() as running:
        yield running


def test_calls_that_are_cut_are_not_counted_as_intact(generator: Path, path: CallPath) -> None:
    run = CallRun(calls=20, duration_s=3, rtcp=True)

    def cut_for_a_while() -> None:
        path.wait_until_calls_flow(run.calls)
        for host in (path.caller, path.callee):
            lose_packets(host, 99.99)
        time.sleep(0.4)
        for host in (path.caller, path.callee):
            lose_no_packets(host)

    cut = measure(("failover", "cable hard", 1), run, generator, path, cut_for_a_while)
    assert problems([cut]) == [], "calls and packet filters counted the same losses"
    assert (cut.quality.directions, cut.quality.intact, cut.quality.cut_off) == (40, 0, 0)
    assert 200 <= cut.quality.longest_gap_ms <= 2000
    assert 0 < cut.rtcp_received <= cut.rtcp_sent


@pytest.mark.parametrize(("medium", "codec"), [("iax2", "gsm"), ("trunk", "g711")])
def test_strangers_packets_are_no_calls(generator: Path, path: CallPath, medium: str, codec: str) -> None:
    run = CallRun.model_validate({"calls": 20, "codec": codec, "medium": medium, "duration_s": 1})
    lengths: set[int] = set()

    def disturb_and_listen() -> None:
        path.wait_until_calls_flow(0)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as wire:
            for source in ("10.61.0.20", "198.19.0.1"):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                    stranger.bind((source, 0))
                    for packet in _STRANGERS:
                        stranger.sendto(packet, ("198.18.0.1", 4569))
            lengths.update(len(wire.recv(2048)) for _ in range(40))

    quiet = measure(
        ("calls", "", 1), run, generator, path, lambda: call_in(path.callee.path, disturb_and_listen)
    )
    assert (quiet.quality.lost, quiet.quality.duplicates, quiet.quality.intact) == (0, 0, 40)
    assert quiet.unseen_loss == 0
    assert (79 if medium == "iax2" else 42 + 8 + 7 * 166) in lengths


@pytest.mark.timeout(300)
def test_firewalls_that_fail_cut_calls_off_without_synchronisation_only(tmp_path: Path) -> None:
    def fail(pair: str) -> dict[str, Any]:
        report = tmp_path / f"{pair}.json"
        options = ["--firewalls", "--pair", pair, "--fault", "hard", "--trials", "1", "--calls", "20"]
        command = [*LAB, "voip", *options, "--seconds", "3", "--json", str(report)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, done.stderr
        [trial] = json.loads(report.read_text())["trials"]
        return dict(trial)

    with ThreadPoolExecutor(2) as threads:
        kept, lost = threads.map(fail, ("sync", "no-sync"))
    for trial in (kept, lost):
        assert trial["quality"]["intact"] == trial["unseen_loss"] == 0
    assert kept["quality"]["cut_off"] == 0
    assert 40 <= kept["quality"]["longest_gap_ms"] < 3000
    assert kept["flows"] >= 20 > lost["flows"]
    assert lost["quality"]["cut_off"] == 40
    assert lost["refused"] > 0
