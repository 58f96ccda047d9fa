"""`rspdns-lab bench`, shortened: the figures are there; how good they are is for a quiet machine to tell."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from rspdns_lab.net.processes import children_of

from tests.support.labs import LAB, as_ordinary_user, traces
from tests.support.stalls import Mark

VARIANTS = ("sqlite_qps", "gdnsd_qps", "knot_qps", "signed_qps")


def test_every_kind_of_figure_is_there(tmp_path: Path) -> None:
    report = tmp_path / "bench.json"
    command = [*as_ordinary_user(), *LAB, "bench", "--quick"]
    command += [option for key in VARIANTS for option in ("--variant", key)]
    command += ["--json", str(report)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        story, _ = process.communicate(timeout=280)
    assert process.returncode == 0, story
    assert not traces(process.pid)
    figures = json.loads(report.read_text())
    for key in VARIANTS:
        name = key.replace("_qps", "", 1)
        assert figures[key] > 0
        assert figures[f"{name}_cpu_us"] > 0
        assert 0 < figures[f"{name}_latency_p50_us"] <= figures[f"{name}_latency_p99_us"]
    for kind in ("idle", "loaded"):
        assert figures[f"changes_{kind}"] > 5
        assert 0 <= figures[f"last_wrong_p50_ms_{kind}"] <= figures[f"last_wrong_max_ms_{kind}"]
    for labels in (1, 100):
        assert figures[f"flood_live_ratio_{labels}_labels"] > 0
    # Without the table of names a busy machine asks for seconds; with it the flood costs next to nothing.
    assert figures["flood_live_ratio_100_labels"] > 2
    assert figures["flood_live_beside_100_lost"] <= 5
    assert 0 < figures["flood_live_beside_100_p50_ms"] <= figures["flood_live_beside_100_p99_ms"]
    assert figures["scale_elements"] == 100
    assert figures["rss_mib"] > 10
    assert figures["gone_p50_ms"] > 0
    assert figures["registrars_100_300_keep_alive_us"] > 0
    assert "registrars_100_300_missing" in figures
    assert figures["gate_registrations_10_rules_cpu_us"] > 0
    # A stranger registers 1,500 elements in another pool; answers from the main loop took seconds.
    assert figures["strangers_inside_refused"] > 0
    assert figures["strangers_inside_lookup_p50_ms"] < 50
    assert figures["strangers_inside_lookup_p99_ms"] < 500


def test_interrupted_it_ends_with_all_that_were_stopped_for_the_others_sake() -> None:
    command = [*LAB, "bench", "--only", "questions", "--seconds", "20"]
    command += [option for key in ("static_qps", *VARIANTS[1:3]) for option in ("--variant", key)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "starting 3 name servers\n"
        wait_for_dnsperf(process.pid)
        process.send_signal(signal.SIGTERM)
        interrupted = Mark.now()
        _, rest = process.communicate(timeout=100)
    assert process.returncode == 130, rest
    assert interrupted.ran_s() < 15
    assert not traces(process.pid)


def wait_for_dnsperf(pid: int) -> None:
    """Wait until the benchmark asks: then one name server runs, and the others stand still."""
    end_s = time.monotonic() + 60
    while not children_of(pid, "dnsperf"):
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_a_name_server_that_does_not_start_ends_it_cleanly(tmp_path: Path) -> None:
    broken = tmp_path / "knotd"
    broken.write_text("#!/bin/sh\necho no memory today >&2\nexit 1\n")
    broken.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [*LAB, "bench", "--only", "questions", "--variant", "knot_qps"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        story, _ = process.communicate(timeout=100)
    assert process.returncode == 2
    assert "no memory today" in story
    assert "Traceback" not in story
    assert not traces(process.pid)
