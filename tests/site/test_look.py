"""Every page of the documentation in Chromium: at 1400 px and at a phone's width, light and dark.

`make test-site` builds the site and runs this. It is no part of `make test`: it takes some minutes.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Browser
from tests.support.namespaces import REPOSITORY, own_namespace

pytestmark = pytest.mark.timeout(1800)  # for a hundred pages, on a busy machine
SITE = REPOSITORY / "build" / "site"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html") if path.name != "404.html")
LOOKS = ((1400, False), (1400, True), (360, False), (360, True))
OUTSIDE = """
const most = document.documentElement.clientWidth + 1;
return [...document.querySelectorAll('.md-content *')].filter(each => {
    if (each.closest('.md-typeset__scrollwrap, pre, .highlight, .headerlink, .tabbed-labels')) return false;
    return each.getBoundingClientRect().right > most;
}).map(each => each.tagName + ' ' + each.textContent.trim().slice(0, 60));
"""
PICTURES = (
    "return [...document.images].filter(each => each.complete && !each.naturalWidth).map(each => each.src)"
)

COPIED = """
const console = [...document.querySelectorAll('.highlight code')].find(each => each.querySelector('.gp'));
console.setAttribute('data-md-copying', '');
return console.innerText.trim();
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with own_namespace() as namespace:
        yield Browser(namespace, tmp_path_factory.mktemp("browser"))


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_nothing_stands_outside_of_any_page(browser: Browser, width: int, dark: bool) -> None:
    assert len(PAGES) > 50, "make docs builds the site"
    browser.look(width=width, height=900, dark=dark)
    browser.open(f"file://{SITE / PAGES[0]}")
    browser.run("localStorage.clear()")  # the site remembers the colours of the first visit
    scheme = "slate" if dark else "default"
    wrong = {}
    for page in PAGES:
        browser.open(f"file://{Path(SITE / page)}")
        colours = browser.run("return document.body.dataset.mdColorScheme")
        found = [*browser.run(OUTSIDE), *browser.run(PICTURES), *([colours] if colours != scheme else [])]
        if found:
            wrong[page] = found[:3]
    assert not wrong


def test_prompts_and_output_are_not_copied(browser: Browser) -> None:
    """Material's copy button takes the command of a console alone; output has no such button."""
    browser.look(width=1400, height=900)
    browser.open(f"file://{SITE / 'how-to' / 'why-not-in-dns.html'}")
    assert browser.run(COPIED) == "rspdns status"
    browser.open(f"file://{SITE / 'tutorial' / 'see-it-work.html'}")
    assert (
        browser.run("return document.querySelectorAll('.no-copy button[data-clipboard-target]').length") == 0
    )
    assert browser.run("return document.querySelectorAll('.no-copy').length") > 0


def test_look_finds_a_wide_paragraph_and_a_missing_picture(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "wide.html"
    page.write_text("<div class='md-content'><p style='width: 3000px'>wide</p><img src='missing.png'></div>")
    browser.look(width=1400, height=900)
    browser.open(f"file://{page}")
    assert browser.run(OUTSIDE) == ["P wide"]
    assert browser.run(PICTURES) == [f"file://{tmp_path}/missing.png"]
