"""A page with several plots is valid HTML: no id twice, and what refers to one still finds it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from rspdns_lab.report.page import (
    Page,
    Section,
    markdown_page,
    markdown_table,
    table_of,
    tables_of,
    write_markdown,
    write_page,
)
from rspdns_lab.report.plots import Bars, Curve, Curves, Dots, share_below, svg

DOTS = Dots(
    "some dots", "ms", ["first", "second"], {"median": [[1, 1], [2]], "worst": [[], [30]]}, [None, 20]
)


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
    for plot in page.split("<svg")[1:]:
        referred = set(re.findall(r'href="#([^"]+)"', plot)), set(re.findall(r"url\(#([^)]+)\)", plot))
        assert all(referred)
        assert set.union(*referred) <= set(re.findall(r'\sid="([^"]+)"', plot))


def test_a_page_is_written_alike_each_time(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_page(tmp_path / name, Page("title", "text", [Section("one", plots=[DOTS])]))
    assert (tmp_path / "first").read_text() == (tmp_path / "second").read_text()


def test_a_dot_is_drawn_for_each_value_and_few_for_many_that_are_alike() -> None:
    drawn = [
        svg(Dots.of("caption", "ms", [[5.0], values], lambda row: str(len(row)), {"ms": lambda row: row}))
        for values in ([7.0, 8.0, 9.0], [7.0] * 500)
    ]
    dots = [text.count("<use") for text in drawn]
    assert dots[0] - dots[1] < 0
    assert dots[1] < 40


def test_values_that_never_came_are_counted_behind_their_title() -> None:
    found = [("as1", 5.0), ("as2", None), ("as1", None), ("as1", 6.0)]
    plot = Dots.of("", "ms", found, lambda row: row[0], {"ms": lambda row: [row[1]]}, bounds={"as2": 9.0})
    assert list(plot.titles) == ["as1; 1 never", "as2; 1 never"]
    assert plot.series == {"ms": [[5.0, 6.0], []]}
    assert plot.bounds == [None, 9.0]


def test_curve_of_shares_ends_with_the_longest_and_has_few_points() -> None:
    curve = share_below("all", range(1000, 0, -1), "#000000")
    assert (curve.xs[-1], curve.ys[-1]) == (1000, 100)
    assert curve.ys[curve.xs.index(501)] == pytest.approx(50, abs=1)
    assert len(curve.xs) < 120


def test_columns_whose_rows_are_all_alike_are_said_once() -> None:
    rows = [
        ("fault", "trials", "empty", "ms", "note"),
        ("killed", "20", "0", "5", ""),
        ("cut", "20", "0", "6", ""),
    ]
    section = Section("Faults", "All of them.", rows)
    made = tables_of(Page("title", "", [section]))
    assert "In every row: trials 20; empty 0.\n\n| fault | ms |\n| --- | ---: |\n| killed | 5 |\n" in made
    for whole in (rows[:2], [row[:3] for row in rows]):
        assert Section("One row, or no other column", table=whole).shown == (whole, "")


def test_plots_of_an_earlier_page_do_not_stay_beside_it(tmp_path: Path) -> None:
    page = Page("title", "text", [Section("first", plots=[DOTS]), Section("second", plots=[DOTS])])
    other = tmp_path / "page-of-others-1.svg"
    other.touch()
    for sections, count in ((page.sections, 2), (page.sections[:1], 1)):
        write_markdown(tmp_path / "page.md", replace(page, sections=sections), ["lab"], ["Measured."])
        assert len(set(tmp_path.glob("page-*.svg")) - {other}) == count
    assert other.exists()


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
    page = Page("What callers hear", "All of it.", sections)
    made = markdown_page(page, command, ["Measured on 2026-01-31: a machine."], ["calls-1.svg"])
    assert made == (
        "<!-- Made by the command below; not to be edited by hand. -->\n\n"
        "# What callers hear\n\nAll of it.\n\n"
        "Measured on 2026-01-31: a machine.\n\n    rspdns-lab ims --fault 'as killed'\n\n"
        "## Calls\n\nOf `as1`.\n\n| fault | calls |\n| --- | ---: |\n| killed | 7 |\n\n"
        "## Plot\n\n![some dots](calls-1.svg)\n\nsome dots\n"
    )
