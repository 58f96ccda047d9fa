"""A page with several plots is valid HTML: no id twice, and what refers to one still finds it."""

import re
from datetime import date
from pathlib import Path

import pytest
from rspdns_lab.report.page import (
    Page,
    Section,
    markdown_page,
    markdown_table,
    table_of,
    tables_of,
    write_page,
)
from rspdns_lab.report.plots import Bars, Curve, Curves, Dots

DOTS = Dots("some dots", "ms", ["first", "second"], {"median": [1, 2], "worst": [None, 30]}, [None, 20])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a page with plots of every kind, and one of them twice: they have markers (used by reference)
    and clips."""
    curves = Curves(
        "a curve", "s", "ms", [Curve("one", [1, 2, 3], [1, 20, 3], "#000000")], log="y", at_x=[(2, "#fff")]
    )
    steps = Curves("steps", "s", "ms", [Curve("one", [1, 2, 3], [1, 2, 3], "#000000", "step")])
    bars = Bars("some bars", "us", {"slow": 100.0, "fast": 1.5}, ["fast"], log=True)
    file = tmp_path_factory.mktemp("page") / "page.html"
    sections = [Section("first", plots=[DOTS, curves]), Section("second", plots=[DOTS, steps, bars])]
    write_page(file, Page("title", "text", sections))
    return file.read_text()


def test_plots_say_their_titles_values_and_captions(page: str) -> None:
    assert page.count("<svg") == 5
    for words in ("<figcaption>some bars</figcaption>", ">1.50<", ">second<", ">worst<", ">10<"):
        assert words in page


def test_no_id_is_there_twice(page: str) -> None:
    ids = re.findall(r'<[^<>]*\sid="([^"]+)"', page)
    assert len(ids) > 20
    assert len(set(ids)) == len(ids)


def test_every_reference_is_to_an_id_of_the_same_plot(page: str) -> None:
    for svg in page.split("<svg")[1:]:
        referred = set(re.findall(r'href="#([^"]+)"', svg)), set(re.findall(r"url\(#([^)]+)\)", svg))
        assert all(referred)
        assert set.union(*referred) <= set(re.findall(r'\sid="([^"]+)"', svg))


def test_a_page_is_written_alike_each_time(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_page(tmp_path / name, Page("title", "text", [Section("one", plots=[DOTS])]))
    assert (tmp_path / "first").read_text() == (tmp_path / "second").read_text()


def test_a_bar_in_a_cell_begins_no_other_cell() -> None:
    assert markdown_table([("what", "why"), ("a", "ip: x|y")]).endswith("| a | ip: x\\|y |\n")


def test_a_cell_is_a_format_of_the_rows_fields_or_what_a_function_says() -> None:
    columns = (("calls", "{calls:,} of {all}"), ("is late", lambda row: str(row["calls"] > 5)))
    table = table_of(columns, [{"calls": 1234, "all": 5}, {"calls": 2, "all": 3}])
    assert table == [["calls", "is late"], ["1,234 of 5", "True"], ["2 of 3", "False"]]
    page = Page("title", "", [Section("Calls", "Of all.", table), Section("Nothing", "No table.")])
    assert tables_of(page).startswith("### Calls\n\n| calls | is late |\n| --- | ---: |\n| 1,234 of 5 |")


def test_a_column_of_texts_is_one_in_all_its_cells(tmp_path: Path) -> None:
    """Else short texts stand at the right, among long ones at the left."""
    long = "SIGKILL to the SIP server, and <more>"
    table = [("fault", "times", "what is done to `as1`"), ("one", "7", long), ("two", "8", "`drain`")]
    write_page(tmp_path / "page", Page("title", "text", [Section("one", table=table)]))
    text = (tmp_path / "page").read_text()
    assert (
        '<th scope="col">times</th><th scope="col" class="long">what is done to <code>as1</code></th>' in text
    )
    assert f'<td>7</td><td class="long">{long[:-6]}&lt;more&gt;</td>' in text
    assert '<td>8</td><td class="long"><code>drain</code></td>' in text


def test_a_page_of_markdown_says_when_where_and_by_which_command_it_was_measured() -> None:
    sections = [
        Section("Calls", "Of `as1`.", [("fault", "calls"), ("killed", "7")]),
        Section("Plot", plots=[DOTS]),
    ]
    command = ["rspdns-lab", "ims", "--fault", "as killed"]
    made = markdown_page(
        Page("What callers hear", "All of it.", sections), command, date(2026, 1, 31), "a machine"
    )
    assert made == (
        "<!-- Made by the command below; not to be edited by hand. -->\n\n"
        "# What callers hear\n\nAll of it.\n\n"
        "Measured on 2026-01-31: a machine.\n\n    rspdns-lab ims --fault 'as killed'\n\n"
        "## Calls\n\nOf `as1`.\n\n| fault | calls |\n| --- | ---: |\n| killed | 7 |\n"
    )
