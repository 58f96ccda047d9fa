"""What `rspdns-lab ims --ppu` makes of its calls, and which options go together."""

import pytest
from click.testing import CliRunner
from rspdns_lab.ims.calls import Measurement
from rspdns_lab.ims.cli import ims
from rspdns_lab.ims.ppu import LATE_MS, PROMISED, WAYS, as_markdown, figures, problems, rows


def trial(approach: str, *delays_ms: float | None, fault: str = "as-killed", number: int = 1) -> Measurement:
    calls = [(0.1 * index - 1, delay_ms, "as2") for index, delay_ms in enumerate(delays_ms)]
    return Measurement(fault, approach, number, calls, [])


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
    assert "| as-killed | without | udp | kamailio | 5 | 1 | 1 |" in as_markdown(trials)


def test_only_what_is_promised_can_be_broken() -> None:
    assert {way.key for way in WAYS} > PROMISED
    assert problems([trial("without-udp", None, 32_000.0), trial("redirect-udp", 4.0)]) == []
    assert problems([trial("redirect-udp", None, 4.0, 2500.0)]) == [
        "as-killed, redirect over udp (kamailio): 1 calls failed, 1 took more than 2 s"
    ]


def test_nothing_measured_is_an_empty_table() -> None:
    assert rows([]) == []
    assert as_markdown([]).startswith("| fault |")


@pytest.mark.parametrize(
    ("options", "problem"),
    [(["--ppu", "--approach", "lua"], "take --way"), (["--way", "repeat-tcp"], "--way is of --ppu")],
)
def test_options_that_would_have_no_effect_are_refused(options: list[str], problem: str) -> None:
    done = CliRunner().invoke(ims, options)
    assert done.exit_code == 2
    assert problem in done.output
