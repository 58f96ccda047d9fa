"""Synthetic calls through firewalls: frames, jitter, the E-model, the account of losses, the report."""

import json
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rspdns_lab.cli import main
from rspdns_lab.net.preconditions import compile_c
from rspdns_lab.report.page import tables_of, write_page
from rspdns_lab.voip.configuration import CallRun
from rspdns_lab.voip.paths import conntrackd_conf
from rspdns_lab.voip.quality import (
    CODECS,
    CallAccount,
    delay_impairment,
    frame_bytes,
    judge,
    loss_impairment,
    opinion,
    rating,
)
from rspdns_lab.voip.report import page_of, problems
from rspdns_lab.voip.run import VoipTrial, read_trial, unseen_loss

from tests.support.namespaces import REPOSITORY

G711 = CODECS["g711"]
PERFECT = CallAccount(500, 500, 0, 0, 0, 499, 0, 0, 0, 10.0, 100.0)
CUT = CallAccount(500, 485, 15, 1, 15, 499, 0, 0, 0, 10.0, 100.0)
SILENT = CallAccount(500, 100, 400, 1, 400, 99, 0, 0, 0, 10.0, 100.0)


def test_frames_and_jitter_in_c_under_sanitizers(tmp_path: Path) -> None:
    source = REPOSITORY / "tests/labs/voip_frames.c"
    folder = REPOSITORY / "labs/rspdns_lab/voip"
    options = ["-O0", "-g", "-fsanitize=address,undefined", f"-I{folder}"]
    program = compile_c(source, tmp_path / "frames", *options, libraries=["-lm"])
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("codec", "rtp", "iax2"), [("g711", 214, 206), ("g726", 134, 126), ("gsm-25", 120, 112), ("gsm", 87, 79)]
)
def test_frames_have_the_published_lengths(codec: str, rtp: int, iax2: int) -> None:
    assert (frame_bytes(CODECS[codec], "rtp"), frame_bytes(CODECS[codec], "iax2")) == (rtp, iax2)


@pytest.mark.parametrize(
    ("r", "mos"),
    [(93.2, 4.41), (90, 4.34), (80, 4.03), (70, 3.60), (60, 3.10), (50, 2.58), (0, 1), (-9, 1), (101, 4.5)],
)
def test_opinions_are_those_of_g_107_and_g_109(r: float, mos: float) -> None:
    assert opinion(r) == pytest.approx(mos, abs=0.007)


@pytest.mark.parametrize(("impairment", "delay_ms"), [(0.0, 400), (7.0, 322), (20.0, 213)])
def test_delays_with_which_a_codec_is_rated_70(impairment: float, delay_ms: float) -> None:
    """Bounds that Janssen and others (2001) give for G.711, G.726 and GSM-FR; they rate G.711 at 94.2."""
    assert 94.2 - impairment - delay_impairment(delay_ms) == pytest.approx(70, abs=0.4)
    assert delay_impairment(100) == 0


@pytest.mark.parametrize(("lost_percent", "impairment"), [(0, 0), (2, 7), (3, 10), (5, 15), (7, 20)])
def test_loss_impairs_g_711_as_in_g_113(lost_percent: float, impairment: float) -> None:
    assert loss_impairment(G711, lost_percent, 1.0) == pytest.approx(impairment, abs=1)


def test_loss_in_a_row_is_worse_than_of_single_packets() -> None:
    single = CallAccount(1000, 950, 50, 50, 1, 999, 0, 0, 0, 0.0, 0.0)
    in_a_row = single._replace(runs=5, longest=10)
    late = single._replace(received=1000, lost=0, runs=0, longest=0, late=50)
    assert rating(in_a_row, G711) < rating(single, G711) == rating(late, G711) < rating(PERFECT, G711) == 93.2
    assert rating(PERFECT._replace(delay_us=340_000.0), G711) == pytest.approx(93.2 - delay_impairment(400))


def test_quality_of_calls_of_which_some_were_cut() -> None:
    quality = judge([PERFECT, CUT, SILENT], G711)
    assert (quality.directions, quality.intact, quality.cut_off, quality.lost) == (3, 1, 1, 415)
    assert (quality.longest_gap_ms, quality.glitch_ms) == (8000, 8000)
    assert quality.worst_mos < quality.mos < 4.41
    nothing = judge([SILENT._replace(received=0, lost=500, highest=0)], G711)
    assert (nothing.cut_off, nothing.intact, nothing.jitter_ms) == (1, 0, 0.0)


def stream(*accounts: CallAccount, **others: int) -> dict[str, Any]:
    counts = dict.fromkeys(("strangers", "rtcp_sent", "rtcp_received", "overflowed", "refused"), 0)
    return {**counts, "calls": [list(account) for account in accounts], **others}


def test_losses_that_two_counts_see_differently_are_told() -> None:
    assert unseen_loss([stream(CUT, PERFECT), stream(CUT)], 30) == 0
    assert unseen_loss([stream(CUT, rtcp_sent=3, rtcp_received=1, overflowed=4, refused=5)], 8) == 0
    assert unseen_loss([stream(CUT._replace(duplicates=2), strangers=1)], 13) == 0
    assert unseen_loss([stream(CUT._replace(lost=0)), stream(CUT)], 30) == -15


def trial(part: str, name: str, number: int, *accounts: CallAccount) -> VoipTrial:
    run = CallRun(calls=100, duration_s=10).model_dump()
    states = {"user": 20.0, "system": 30.0, "softirq": 10.0, "idle": 40.0, "steal": 0.0}
    figures = (10_000.0, 9_999.0, 9_990.0, 4.5, 2.0, 0.012, 0.4, 40, 39, 0)
    return VoipTrial(part, name, number, run, *figures, states, judge(accounts or [PERFECT], G711))


def test_a_call_counted_as_intact_through_a_cut_is_a_problem() -> None:
    cut = trial("failover", "sync hard", 1, CUT, CUT)
    assert problems([cut, trial("failover", "sync soft", 1, PERFECT)]) == []
    [intact] = problems([trial("failover", "sync hard", 2, CUT, PERFECT)])
    assert intact == "failover, sync hard, trial 2: 1 streams are counted as intact through a cut"
    [differ] = problems([replace(cut, unseen_loss=-15)])
    assert "differ by -15" in differ
    for slow in (replace(cut, sent_per_s=9_000.0), replace(cut, behind_ms=736.0)):
        assert "too busy to send 10,000 packets/s" in problems([slow])[0]


def test_the_page_shows_ours_beside_the_published_table(tmp_path: Path) -> None:
    trials = [trial("failover", "sync hard", number, CUT) for number in (1, 2)]
    trials += [trial("calls", "100 calls", 1), trial("sweep", "cable", 100), trial("sweep", "firewalls", 100)]
    assert [read_trial(json.loads(json.dumps(asdict(each)))) for each in trials] == trials
    page = page_of(trials)
    text = tables_of(page)
    assert "| hard: state synchronised, 100 ms advertisements | 2 | 9,999 | 300 | 300 | 300 |" in text
    assert "| hard: published, 2008 | 7 | 81,600 | 199 | - | 2,924 |" in text
    assert "| hard: state synchronised, 100 ms advertisements | 300 | 2 | 0 | 0 |" in text
    assert "| GSM, 25 packets/s | 120 | 112 | 120/112 |" in text
    write_page(tmp_path / "page", page)
    assert (tmp_path / "page").read_text().count("<figure>") == 5
    with pytest.raises(LookupError):
        read_trial({"fault": "power-cut"})


def test_every_error_of_a_file_is_told_with_line_and_key(tmp_path: Path) -> None:
    file = tmp_path / "calls.toml"
    file.write_text(
        '[[run]]\ncalls = 5001\ncodec = "g729"\n[[run]]\nmedium = "trunk"\nrtcp = true\nseconds = 3\n'
        f'[path]\ncaller = "{tmp_path}/none"\ncallee = "/proc/self/ns/net"\n'
    )
    done = CliRunner().invoke(main, ["voip", str(file)])
    assert done.exit_code == 2
    for line, key in ((2, "run[0].calls"), (3, "run[0].codec"), (6, "run[1].rtcp"), (7, "run[1].seconds")):
        assert f"{file}:{line}: {key}: " in done.output
    assert f"{file}:9: path.caller: there is no network namespace {tmp_path}/none; make one" in done.output
    file.write_text("")
    assert f"{file}:1: run: " in CliRunner().invoke(main, ["voip", str(file)]).output
    file.unlink()
    assert "calls.toml" in CliRunner().invoke(main, ["voip", str(file)]).output


def test_options_that_would_have_no_effect_are_refused() -> None:
    for words in (["--calls", "5"], ["--seconds", "3"], ["--fault", "soft"]):
        done = CliRunner().invoke(main, ["voip", *words])
        assert done.exit_code == 2
        assert "belong to --firewalls" in done.output


def test_conntrackd_of_each_firewall_tells_the_other(tmp_path: Path) -> None:
    text = conntrackd_conf(tmp_path, "10.63.0.1", "10.63.0.2")
    assert "IPv4_address 10.63.0.1 IPv4_Destination_Address 10.63.0.2" in text
