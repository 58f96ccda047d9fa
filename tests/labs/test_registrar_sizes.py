"""Which sizes `rspdns-lab bench --only registrars` measures, and what its table shows."""

from registrar_config.sizing import size
from rspdns_lab.bench.registrars import REGISTRARS, SIZES, Borne, plan
from rspdns_lab.bench.report import as_json, as_markdown
from rspdns_lab.bench.run import read_result

MEASURED = Borne(3000, 300, 10, 3000, 310.0, 68.0, 55.0, 41.0, 60.0, 90.0, 2, 0, 640.0, 790.0)


def test_each_size_is_measured_as_shipped_and_as_rendered() -> None:
    planned = plan(10_000, quick=False)
    assert [elements for elements, interval_ms in planned if interval_ms == 300] == list(SIZES)
    rendered = {elements: interval_ms for elements, interval_ms in planned if interval_ms != 300}
    assert rendered == {10_000: size(10_000, len(REGISTRARS), 2000).keep_alive_ms}
    assert plan(300, quick=False) == [(100, 300), (300, 300)]


def test_a_run_can_be_resumed_and_its_table_is_whole() -> None:
    assert read_result(dict(MEASURED.as_json())) == MEASURED
    assert as_json([MEASURED])["registrars_3000_300_missing"] == 0
    assert "| 3,000 | 300 ms | 310 ms | 68 | 55 | 41 | 60 | 90 | 2 | 0 | 0.64, 0.79 s |" in as_markdown(
        [MEASURED]
    )
