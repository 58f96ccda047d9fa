"""The figures of `rspdns-lab bench`: sums, ratios, tables, and which sizes are measured."""

import contextlib
import json
import re
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import cast
from unittest.mock import MagicMock

import dns.message
import dns.rrset
import dns.zone
import pytest
from click.testing import CliRunner
from registrar_config import check_rules, size
from rspdns_lab.bench import fast_path, programs, questions
from rspdns_lab.bench.changes import (
    CountedReply,
    Followed,
    PoolSizeChange,
    followed,
    read_changes,
    read_replies,
)
from rspdns_lab.bench.cli import REPORT
from rspdns_lab.bench.flood import Beside, Denied, flood_figures
from rspdns_lab.bench.gate import RULES, Guarded, rules_text
from rspdns_lab.bench.part import Run
from rspdns_lab.bench.programs import Answered
from rspdns_lab.bench.questions import Rate, figures_of, run_questions
from rspdns_lab.bench.registrars import REGISTRARS, SIMULATION_LATE_MS, SIZES, Borne, plan
from rspdns_lab.bench.scale import Size, exponent
from rspdns_lab.bench.variants import BY_KEY, Variant
from rspdns_lab.bench.zone import lua_zone, static_zone
from rspdns_lab.chain.asking import Asker
from rspdns_lab.cli import main
from rspdns_lab.errors import LabError
from rspdns_lab.net.network import Host
from rspdns_lab.net.processes import Program
from rspdns_lab.report.page import tables_of, write_page

figures, page_of = REPORT.figures, REPORT.page


def as_markdown(found: Sequence[object]) -> str:
    return tables_of(page_of(found))


def read_back(found: Sequence[object]) -> list[object]:
    """The results as a report gives them back."""
    return [REPORT.read(fields) for fields in json.loads(json.dumps(list(map(REPORT.write, found))))]


def test_server_time_has_the_keys_of_the_fast_path() -> None:
    rates = [
        Rate(1, "gdnsd_qps", 1000.0, 2.0, server_us=4.0),
        Rate(1, "fastpath_qps", 1000.0, 0.1, server_us=0.5),
        Rate(1, "fastpath_qps_100_changes", 1000.0, 0.1, server_us=0.75),
        Rate(1, "lua_qps", 1000.0, 0.1),
    ]
    found = figures_of(rates)
    assert (found["fastpath_cpu_us"], found["fastpath_cpu_us_100_changes"]) == (0.5, 0.75)
    assert found["gdnsd_server_cpu_us"] == 4.0
    assert "lua_server_cpu_us" not in found


def test_what_the_kernel_answers_is_compared_by_one_meter() -> None:
    """The programs' own time holds nothing of the kernel's work."""
    rates = [
        Rate(1, "static_qps", 1000.0, 8.0, server_us=5.0),
        Rate(1, "fastpath_qps", 1000.0, 0.01, server_us=0.5),
        Rate(1, "fastpath_qps_100_changes", 1000.0, 0.9, server_us=1.0),
        Rate(1, "lua_qps", 1000.0, 80.0),
    ]
    found = figures_of(rates)
    for name, ratio in (("fastpath", 0.1), ("fastpath_100_changes", 0.2)):
        assert found[f"{name}_cpu_ratio"] == found[f"{name}_server_cpu_ratio"] == pytest.approx(ratio)
        assert found[f"{name}_cpu_us"] / found["static_server_cpu_us"] == pytest.approx(ratio)
    _, costs, _ = as_markdown(rates).split("### ")
    rows = [line for line in costs.splitlines() if line.startswith("| ")]
    columns = {row[2:-2].split(" | ")[0]: row[2:-2].split(" | ")[1:] for row in rows}
    assert columns["PowerDNS, zone file (bind backend)"] == ["8.0", "1.00", "5.00", "1.00"]
    assert columns["rspdns, answers from the kernel"] == ["-", "-", "0.50", "0.10"]
    assert columns["PowerDNS, LUA records (ifportup)"] == ["80.0", "10.00", "-", "-"]


def test_the_last_wrong_answer_after_each_change_counts() -> None:
    changes = [
        PoolSizeChange(1.0, 2, 1.06),
        PoolSizeChange(2.0, 3, 2.06),
        PoolSizeChange(3.0, 2, 3.06),
        PoolSizeChange(4.0, 3),
    ]
    replies = [
        CountedReply(0.9, 1.001, 3),  # before
        CountedReply(1.001, 1.002, 3),
        CountedReply(1.004, 1.005, 3),
        CountedReply(1.01, 1.02, 2),
        CountedReply(1.999, 2.001, 3),  # came after the next change
        CountedReply(2.001, 2.002, 3),
        CountedReply(3.07, 3.08, 3),  # stale after the last purge
        CountedReply(3.2, 3.3, 2),
    ]
    found = followed("idle", changes, replies)
    assert found.changes == 3
    assert found.last_wrong_p50_ms == pytest.approx(4.0)
    assert found.last_wrong_max_ms == pytest.approx(70.0)
    assert found.stale_after_purges == 1
    assert found.times_ms == pytest.approx((0, 4, 70))
    with pytest.raises(LabError):
        followed("idle", changes, [])


def test_changes_and_replies_are_read() -> None:
    lines = ["P 0.5", "C 1.000000 2", "P 1.060000", "C 2.000000 3"]
    assert read_changes(lines) == [PoolSizeChange(1.0, 2, 1.06), PoolSizeChange(2.0, 3)]
    message = dns.message.make_response(dns.message.make_query("x.example.", "SRV"))
    message.answer = [dns.rrset.from_text("x.example.", 1, "IN", "SRV", "0 1 1 a.", "0 1 1 b.")]
    body = message.to_wire()[2:].hex()
    assert read_replies([f"B 0 {body}", "R 0 0 1.5 1.6 0", "T 0 0 1.7"]) == [CountedReply(1.5, 1.6, 2)]


def test_percentiles_of_changes() -> None:
    changes = [PoolSizeChange(float(second), 2, second + 0.06) for second in range(21)]
    # The answer to change n is wrong for n ms; the last change has no other one after it, and doesn't count.
    replies = [CountedReply(second + second / 1000, second + 0.5, 3) for second in range(20)]
    found = followed("loaded", changes, replies)
    figures = (found.last_wrong_p50_ms, found.last_wrong_p95_ms, found.last_wrong_max_ms)
    assert figures == pytest.approx((9, 18, 19))
    assert (found.changes, found.stale_after_purges) == (20, 0)


def rates(key: str, *measured: tuple[float, float]) -> list[Rate]:
    return [Rate(number, key, *figures, 80, 90, 100) for number, figures in enumerate(measured, 1)]


def sized(pools: int, members: int, rss_mib: float) -> Size:
    return Size(pools, members, 1.5, rss_mib, 2.5, 90, 5.0, 9, 6, 10, 20)


ALL: list[object] = [
    *rates("static_qps", (100, 10), (10, 12), (50, 11)),
    *rates("live_qps", (90, 10), (9.5, 10), (40, 10)),
    *rates("live_qps_100_changes", (50, 20), (9, 24), (20, 22)),
    *rates("uncached_qps", (1, 1000), (1, 1000), (1, 1000)),
    Followed("idle", 4, 2.5, 9.5, 9.5, 0, (0.0, 2.5, 4.5, 9.5)),
    Followed("loaded", 1000, 3.5, 5.5, 19.5, 0),  # of a report that kept no times
    Followed("fastpath", 4, 0.5, 1.5, 1.5, 0, (0.0, 0.5, 0.5, 1.5)),
    sized(1, 1, 50),
    sized(10, 10, 52),
    sized(100, 10, 70),
    sized(1000, 10, 250),
]


def test_ratios_are_those_of_a_round() -> None:
    known = figures_of([result for result in ALL if isinstance(result, Rate)])
    assert known["live_qps"] == 40
    assert known["live_qps_ratio"] == pytest.approx(0.9)
    assert known["static_cpu_us"] == 11
    assert known["live_100_changes_cpu_us"] == 22
    assert known["live_100_changes_cpu_ratio"] == pytest.approx(2)
    assert known["uncached_latency_p99_us"] == 100


def test_figures_that_others_ask_for_by_name_are_there() -> None:
    known = figures(ALL)
    keys = ("static_qps", "live_qps", "live_qps_100_changes", "uncached_qps", "rss_mib", "idle_cpu_percent")
    assert set(keys) <= set(known)
    assert known["rss_mib"] == 250
    assert known["last_wrong_p95_ms_idle"] == 9.5
    assert known["rss_exponent"] == pytest.approx(1.0)
    assert "gone_exponent" not in known, "it does not grow"


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_the_exponent_is_that_of_what_was_added(power: float) -> None:
    sizes = [
        sized(1, 1, 40),
        *(sized(pools, 10, 40 + 0.1 * (10 * pools) ** power) for pools in (10, 100, 1000)),
    ]
    assert exponent(sizes, lambda size: size.rss_mib) == pytest.approx(power)
    assert exponent(sizes[:2], lambda size: size.rss_mib) is None
    assert exponent([], lambda size: size.rss_mib) is None


def test_the_report_has_a_row_for_each_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    text = as_markdown(ALL)
    assert "| rspdns, 100 a second | 22.0 | 2.00 |" in text
    assert "| rspdns, 100 a second | 20 | 0.50 |" in text
    assert "In every row: p50 us 80; p95 us 90; p99 us 100." in text
    assert re.search(r"\| 1,000 \| 10,000 \| 250 \|", text)
    assert "| the backend's memory, MiB | 250.0 | 300 |" in text
    write_page(tmp_path / "page", page_of(ALL))
    page = (tmp_path / "page").read_text()
    assert page.count("<svg") == 8
    assert not re.search(r'(src|href)="(?!#)', page)


def test_results_are_read_back_and_a_finished_run_is_resumed_without_a_lab(tmp_path: Path) -> None:
    assert read_back(ALL) == ALL
    trials = [REPORT.write(result) for result in ALL]
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"trials": trials}))
    options = ["--only", "scale", "--quick", "--results", str(file)]
    done = CliRunner().invoke(main, ["bench", *options, "--html", str(tmp_path / "page")])
    assert done.exit_code == 0, done.output
    assert "rspdns, every PowerDNS cache off" in done.output
    assert (tmp_path / "page").exists()
    file.write_text('{"trials": [{"fault": "as-killed"}]}')
    done = CliRunner().invoke(main, ["bench", *options])
    assert (done.exit_code, "no report of this lab" in done.output) == (2, True)


def test_an_interrupted_round_goes_on_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def variants_running(*_: object) -> Iterator[dict[Variant, tuple[int, list[Program]]]]:
        yield {BY_KEY["static_qps"]: (1, []), BY_KEY["live_qps"]: (2, [])}

    monkeypatch.setattr(questions, "ask", lambda *_: Answered(100, 10, (1, 2)))
    monkeypatch.setattr(questions, "cpu_s", lambda _: 1)
    monkeypatch.setattr(fast_path, "why_not", lambda: "there are no programs")
    monkeypatch.setattr(questions, "variants_running", variants_running)
    monkeypatch.setattr(questions, "LabNetwork", MagicMock())
    run = Run(("static_qps", "live_qps"), 2, 5, 0, quick=False, folder=Path(), prefix="", say=print)
    found = [rate for several in run_questions(run, []) for rate in several]
    assert len(found) == 4
    again = [rate for several in run_questions(run, found[:3]) for rate in several]
    assert again == found[3:]


@pytest.mark.parametrize(("command", "ends"), [(["false"], True), (["sleep", "60"], False)])
def test_load_that_ended_was_none(command: list[str], ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "dnsperf_command", lambda *_: command)
    told = pytest.raises(LabError, match="status 1") if ends else contextlib.nullcontext()
    host = cast(Host, None)
    with told, programs.dnsperf(host, Path(), 53) as process:
        if ends:
            process.wait(60)


def test_lua_serves_the_names_of_the_static_zone() -> None:
    static = dns.zone.from_text(static_zone(), relativize=False)
    srv = sorted(record.to_text() for _, _, record in static.iterate_rdatas("SRV"))
    made = re.findall(r"\['(10[0-9.]+)'\]='([^']+)'", lua_zone())
    assert sorted(f"0 1000 5060 {name}" for _, name in made) == srv


def test_an_answer_that_comes_too_late_is_not_taken_for_that_of_the_next_question() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, ThreadPoolExecutor() as threads:
        server.bind(("127.0.0.1", 0))
        server.settimeout(20)

        def answer() -> None:
            asked, address = server.recvfrom(512)
            reply = dns.message.make_response(dns.message.from_wire(asked))
            reply.answer = [dns.rrset.from_text("x.example.", 1, "IN", "SRV", "0 0 5060 y.example.")]
            server.sendto(reply.to_wire(), address)

        with contextlib.closing(Asker("127.0.0.1", server.getsockname()[1])) as asker:
            assert not asker.targets("x.example.")
            answer()
            answered = threads.submit(answer)
            assert asker.targets("x.example.") == {"y.example"}
            answered.result()


def test_a_flood_is_compared_in_its_round() -> None:
    found = [
        *(Denied(number, "static", 100, 100.0 * number) for number in (1, 2, 3)),
        *(Denied(number, "live", 100, 300.0 * number) for number in (1, 2, 3)),
        Beside(1, "live", 1000, 200, 0, 1.0, 9.0, 12.0),
        Beside(2, "live", 1000, 200, 2, 1.0, 9.0, 12.0),
    ]
    figures = flood_figures(found)
    assert figures["flood_static_ratio_100_labels"] == 1
    assert figures["flood_live_ratio_100_labels"] == 3
    assert figures["flood_live_beside_1000_lost"] == 2
    assert figures["flood_live_beside_1000_p99_ms"] == 9
    assert read_back(found) == found
    assert "none lost" in as_markdown(found)


def test_the_cost_of_the_gate_is_that_of_the_same_round(tmp_path: Path) -> None:
    found = [
        Guarded(number, rules, "questions", 9000.0 - rules, cost_us * (1.0 + rules / 1000))
        for number, cost_us in enumerate((10.0, 40.0, 11.0), 1)
        for rules in RULES
    ]
    assert read_back(found) == found
    assert figures(found)["gate_questions_4000_rules_cpu_ratio"] == pytest.approx(5)
    assert "| questions | no gate | 9,000 | 11.0 | 1.00 |" in as_markdown(found)
    (tmp_path / "rules").write_text(rules_text(max(RULES), "10.80.0.13"))
    check_rules(tmp_path / "rules")


MEASURED = Borne(3000, 300, 10, 3000, 310.0, 68.0, 55.0, 41.0, 60.0, 90.0, 12.4, 2, 0, 640.0, 790.0)


def test_each_size_is_measured_as_shipped_and_as_rendered() -> None:
    planned = plan(quick=False)
    assert [elements for elements, interval_ms in planned if interval_ms == 300] == list(SIZES)
    rendered = {elements: interval_ms for elements, interval_ms in planned if interval_ms != 300}
    assert rendered == {10_000: size(10_000, len(REGISTRARS), 2000).keep_alive_ms}
    assert plan(quick=True) == [(100, 300)]


def test_a_simulation_that_was_late_is_told() -> None:
    assert not MEASURED.is_of_simulation
    assert replace(MEASURED, simulation_late_ms=SIMULATION_LATE_MS + 1.0).is_of_simulation


def test_a_measurement_of_registrars_is_read_back_and_its_table_is_whole() -> None:
    assert read_back([MEASURED]) == [MEASURED]
    assert figures([MEASURED])["registrars_3000_300_missing"] == 0
    assert "| 3,000 | 300 ms | 310 ms | 12 ms | 2 | 0 | 0.64, 0.79 s |" in as_markdown([MEASURED])
    assert "| 3,000 | 300 ms | 68 | 55 | 41 | 60 | 90 |" in as_markdown([MEASURED])
