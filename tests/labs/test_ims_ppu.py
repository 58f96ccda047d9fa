"""The results of `rspdns-lab ims --ppu` from its calls, and which options go together."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ppu_agent.configuration import load_configuration
from rspdns_lab.chain.plan import HANDLE, TCP_HANDLE
from rspdns_lab.ims.calls import CallTrial, measure, read_calls
from rspdns_lab.ims.cli import ims
from rspdns_lab.ims.ppu import LATE_MS, PROMISED, WAYS, agent_toml, figures, page_of, problems, rows
from rspdns_lab.report.page import tables_of

from tests.support.pages import blocks


def trial(approach: str, *delays_ms: float | None, fault: str = "as-killed", number: int = 1) -> CallTrial:
    calls = [(0.1 * index - 1, delay_ms, "as2") for index, delay_ms in enumerate(delays_ms)]
    return CallTrial(fault, approach, number, calls, [])


def test_rows_count_every_call_of_all_trials_by_fault_and_way() -> None:
    trials = [
        trial("redirect-udp", 4.0, LATE_MS, fault="as-hung"),
        trial("without-udp", 5.0, None, LATE_MS + 1, 7.0),
        trial("without-udp", 6.0, number=2),
    ]
    first, second = rows(trials)
    assert (first.approach, first.fault, first.transport) == ("without", "as-killed", "udp")
    assert (first.calls, first.failed, first.over_2_s, first.max_ms) == (5, 1, 1, LATE_MS + 1)
    assert (second.approach, second.calls, second.over_2_s) == ("redirect", 2, 0)
    assert figures(trials)["rows"][0]["over_2_s"] == 1  # type: ignore[index]
    assert "| without, udp, kamailio | 5 | 1 | 0 | 1 |" in tables_of(page_of(trials))


def test_only_what_is_promised_can_be_broken() -> None:
    assert {way.key for way in WAYS} > PROMISED
    assert problems([trial("without-udp", None, 32_000.0), trial("redirect-udp", 4.0)]) == []
    assert problems([trial("redirect-udp", None, 4.0, 2500.0)]) == [
        "as-killed, redirect over udp (kamailio): 1 calls failed, 1 took more than 2 s, the latest 2500 ms"
    ]
    assert problems([trial("refuse-tcp", 3900.0)]) == []
    assert problems([trial("refuse-tcp", 4100.0)])


def test_call_that_rang_at_a_server_that_died_is_counted_apart() -> None:
    """A caller repeats nothing after 180: no agent beside it can tell the next server of such a call."""
    log = [
        "start 1 10 0",
        "rang 1 as1",
        "start 2 10 0",
        "rang 2 as2",
        "start 3 10 0",
        "start 4 10 0",
        "rang 4 as1",
    ]
    calls = read_calls([*log, "answer 4 10 5000 as1"])
    hung = measure("as-hung", "redirect-udp-sipp", 1, calls, (), 10.001, None, ["as1"])
    assert (hung.rang, sum(delay_ms is None for _, delay_ms, _ in hung.calls)) == (1, 3)
    (row,) = rows([hung])
    assert (row.failed, row.rang) == (2, 1)
    drained = measure("as-drained", "redirect-udp-sipp", 1, calls, (), 10.001, None)
    assert "3 calls failed" in problems([drained])[0]


def test_nothing_measured_is_no_row() -> None:
    assert rows([]) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [(["--ppu", "--approach", "lua"], "take --way"), (["--way", "repeat-tcp"], "--way is of --ppu")],
)
def test_options_that_would_have_no_effect_are_refused(options: list[str], problem: str) -> None:
    done = CliRunner().invoke(ims, options)
    assert done.exit_code == 2
    assert problem in done.output


OF_SITE = ("handle", "accept", "ports", "steer")
"""Keys whose values every site has of its own."""


def _pools(text: str) -> list[dict[str, Any]]:
    """The pools of a ppu-agent.toml, without what every site has of its own."""
    pools = tomllib.loads(text)["pool"]
    return [{key: pool[key] for key in pool if key not in OF_SITE} for pool in pools]


def test_lab_measures_with_the_files_that_the_how_to_pages_give(tmp_path: Path) -> None:
    """A key that makes the lab faster, and that no reader of the page has, would be a promise not kept."""
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "clients" / "no-call-waits.md"
    first, repeat = (_pools(block)[0] for block in blocks(page.read_text(), "toml"))
    assert first == {}
    assert repeat == {"on_dead": {"tcp": "repeat"}}
    file = tmp_path / "ppu-agent.toml"
    for way in (way for way in WAYS if way.approach != "without"):
        file.write_text(agent_toml(way, tmp_path))
        assert load_configuration(file).handles == (HANDLE, TCP_HANDLE)
        of_lab = _pools(file.read_text())
        if (way.transport, way.approach) in (("udp", "redirect"), ("tcp", "refuse")):
            assert of_lab == [first] * 2
        elif way.approach == "repeat":
            assert of_lab == [repeat] * 2
        else:  # the pages tell of these keys in words
            assert all(set(pool) <= {"on_dead", "via"} for pool in of_lab), way
