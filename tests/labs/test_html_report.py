"""A page with several plots is valid HTML: no id twice, and what refers to one still finds it."""

import re
from datetime import date
from pathlib import Path

import pytest
from rspdns_lab.report.page import Page, Section, markdown_page, markdown_table, new_plot, write_page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a page with the same plot twice, which has markers (used by reference) and clips."""
    plots = []
    for _ in range(2):
        plot = new_plot(2, 1)
        plot.subplots().plot([1, 2, 3], "o-")
        plots.append(("a plot", plot))
    file = tmp_path_factory.mktemp("page") / "page.html"
    write_page(
        file, Page("title", "text", [Section("one", plots=plots[:1]), Section("two", plots=plots[1:])])
    )
    return file.read_text()


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
    plot = new_plot(2, 1)
    for name in ("first", "second"):
        write_page(tmp_path / name, Page("title", "text", [Section("one", plots=[("a plot", plot)])]))
    assert (tmp_path / "first").read_text() == (tmp_path / "second").read_text()


def test_a_bar_in_a_cell_begins_no_other_cell() -> None:
    assert markdown_table([("what", "why"), ("a", "ip: x|y")]).endswith("| a | ip: x\\|y |\n")


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
    plot = new_plot(2, 1)
    sections = [
        Section("Calls", "Of `as1`.", [("fault", "calls"), ("killed", "7")]),
        Section("Plot", plots=[("a", plot)]),
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
