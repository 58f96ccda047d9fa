"""The live page in Chromium: DNS as it answers now, one server's page, overrides by hand, 1,000 pools."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backend import ADDRESS, HANDLE, OWNER, POOL, ZONE
from tests.support.browser import Browser
from tests.support.chain import SIP_PORTS, Chain
from tests.support.namespaces import own_namespace
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(400)
URL = "http://127.0.0.1:8054/"
TOKEN = "writer-0123456789abcdef"  # noqa: S105 - of this test alone
LIVE = set(SIP_PORTS)
PORT = SIP_PORTS[-1]
SERVER = f"{ADDRESS}:{PORT}"
POOLS = 1000
NO_LISTENERS = f"""
[[resolver]]
name = "cache"
type = "unbound"
address = "unix:/run/there-is-no-unbound"
[[secondary]]
name = "second"
address = "127.0.0.1:5399"
[[publish]]
name = "primary"
server = "127.0.0.1:5399"
zone = "{ZONE}"
"""
PICTURES = os.environ.get("RSPDNS_PICTURES")
"""A folder for pictures of the page."""


class Page:
    """The chain with an API that may be written to, and a browser."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        tokens = chain.folder / "write-tokens"
        tokens.write_text(f"{TOKEN}  # alice\n")
        tokens.chmod(0o600)
        text = chain.backend.config.read_text()
        chain.backend.config.write_text(text.replace("[admin]\n", '[admin]\nwrite_tokens = "write-tokens"\n'))
        for port in SIP_PORTS:
            chain.start_sip(port)
        chain.start_sidecar()
        chain.start()
        until(lambda: chain.targets_at(OWNER) == LIVE, 90, chain.sidecar.log)
        self.browser = Browser(chain.namespace, chain.folder)

    def open(self, place: str = "") -> None:
        self.browser.open("about:blank")
        self.browser.open(URL + place)
        self.browser.until("document.getElementById('link').textContent === 'live'")

    def text(self, selector: str) -> str:
        script = f"return [...document.querySelectorAll({selector!r})].map((it) => it.innerText).join('\\n')"
        return str(self.browser.run(script))

    def click(self, selector: str) -> None:
        self.browser.run(f"document.querySelector({selector!r}).click(); return null")

    def fill(self, identifier: str, value: str, event: str = "input") -> None:
        self.browser.run(
            f"const it = document.getElementById({identifier!r}); it.value = {value!r};"
            f" it.dispatchEvent(new Event({event!r}, {{bubbles: true}})); return null"
        )

    def picture(self, name: str) -> None:
        if PICTURES:
            self.browser.picture(Path(PICTURES) / f"{name}.png")

    def fits(self, name: str) -> None:
        """The page is never wider than its window, and the console tells of no error."""
        for width, height, dark in (
            (1400, 1000, False),
            (1400, 1000, True),
            (360, 1600, False),
            (360, 1600, True),
        ):
            self.browser.look(width=width, height=height, dark=dark)
            self.browser.until("document.documentElement.scrollWidth <= window.innerWidth")
            self.picture(f"{name}-{width}-{'dark' if dark else 'light'}")
        self.browser.look()
        assert [line for line in self.browser.complaints() if "/v1/" not in line] == []


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with own_namespace() as namespace:
        yield Page(Chain(namespace, tmp_path_factory.mktemp("page")))


CARD = f'[data-owner="{OWNER}"]'


def test_the_answers_of_dns_come_first_and_can_be_copied(page: Page) -> None:
    page.open()
    page.browser.until(f"document.querySelectorAll('{CARD} tr[data-member]').length === 3")
    answers = page.text(f"{CARD} .answer")
    assert f"{OWNER} SRV" in answers
    assert all(f" {port} " in answers for port in SIP_PORTS)
    assert f"@127.0.0.1 {OWNER} SRV" in answers
    page.browser.run(
        "const note = async (text) => { window.copied = text; };"
        " Object.defineProperty(navigator, 'clipboard', {value: {writeText: note}}); return null"
    )
    page.click(f"{CARD} [data-copy]")
    page.browser.until("window.copied")
    command = str(page.browser.run("return window.copied")).split()
    assert command[0] == "dig"
    done = page.chain.namespace.run(*command)
    assert done.returncode == 0
    assert f" {SIP_PORTS[0]} " in done.stdout
    page.browser.until(f"document.querySelectorAll('{CARD} .time-line').length === 3")
    page.fits("pools")


def test_a_server_has_a_page_where_it_is_overridden(page: Page) -> None:
    page.open(f"#server={SERVER}")
    page.browser.until("document.querySelector('#server-state .time-line')")
    state = page.text("#server-state")
    assert "listed by registrar 1, 2, 3" in state
    assert OWNER in state
    assert "last 24 h" in state
    assert not page.browser.run("return document.getElementById('pools').offsetParent")
    page.fill("reason", "new kernel")
    page.click("#preview")
    page.browser.until("!document.getElementById('token-form').hidden")
    assert "needs a token" in page.text("#action-result")
    page.fill("token", "a-wrong-token-0123456789")
    page.click("#token-form button")
    page.click("#preview")
    page.browser.until("document.getElementById('token-problem').innerText === 'This token was refused.'")
    assert page.browser.run("return sessionStorage.length") == 0, "it is not tried again"
    page.fill("token", TOKEN)
    page.click("#token-form button")
    page.click("#preview")
    page.browser.until("document.getElementById('action-result').innerText.includes('nothing was changed')")
    assert f"{SERVER}: 33.3 % → out" in page.text("#action-result")
    assert page.chain.targets_at(OWNER) == LIVE
    page.fill("for", "3600", "change")
    page.click("#action button:not([type])")
    page.browser.until("document.getElementById('action-result').innerText.includes('is set')")
    until(lambda: page.chain.targets_at(OWNER) == LIVE - {PORT})
    page.browser.until("document.getElementById('server-state').innerText.includes('overridden')")
    page.browser.until("document.querySelectorAll('#override-list li').length === 1")
    assert "by alice" in page.text("#override-list")
    page.fits("server")

    page.click("#server-page a")
    page.browser.until(f"document.querySelector('{CARD} tr.out')?.innerText.includes('overridden')")
    assert "1 out on purpose" in page.text("#summary")
    page.click("#override-list [data-clear]")
    page.browser.until("document.getElementById('overrides').hidden")
    until(lambda: page.chain.targets_at(OWNER) == LIVE)
    page.browser.until(f"!document.querySelector('{CARD} tr.out')")

    page.open(f"#server={SERVER}")
    page.fill("wanted", "share", "change")
    page.browser.until("!document.getElementById('share-label').hidden")
    page.fill("reason", "canary")
    page.click("#action button:not([type])")
    page.browser.until("document.getElementById('server-state').innerText.includes('share 5 %')")
    assert page.chain.backend.command("override", "clear", "--all").returncode == 0


def test_a_refusal_is_told_and_nothing_is_done(page: Page) -> None:
    page.open("#server=10.9.9.9:5060")
    page.browser.until("document.getElementById('server-state').innerText.includes('no pool knows a server')")
    page.fill("reason", "x")
    page.click("#action button:not([type])")
    page.browser.until("/no server|needs a token/.test(document.getElementById('action-result').innerText)")
    status = page.chain.backend.status()
    assert status is not None
    assert status["overrides"] == []


def test_a_drained_server_is_shown_as_drained(page: Page) -> None:
    page.open()
    page.chain.sidecar.command("drain", f"udp-{PORT}", "--for", "1h", "--wait")
    page.browser.until(f"/drained, 59 min/.test(document.querySelector('{CARD} tr.out')?.innerText)")
    assert page.browser.run(f"return Boolean(document.querySelector('{CARD} header [data-tone=good]'))")
    page.fits("drained")
    page.chain.sidecar.command("undrain", f"udp-{PORT}")
    until(lambda: page.chain.targets_at(OWNER) == LIVE)


def test_a_thousand_pools_are_shown_in_pages_and_found_by_a_filter(page: Page) -> None:
    chain = page.chain
    others = "".join(
        POOL.replace('"as"', f'"p{number}"').replace(HANDLE, f"p{number}") for number in range(1, POOLS)
    )
    chain.backend.write_zone(POOL + others)
    assert chain.backend.command("reload").returncode == 0
    page.open()
    page.browser.until("document.getElementById('matching').innerText === '1 to 20 of 1000 pools'")
    assert page.browser.run("return document.querySelectorAll('.pool').length") == 20
    page.click("#next")
    page.browser.until("document.getElementById('matching').innerText === '21 to 40 of 1000 pools'")
    page.fits("thousand")
    page.fill("filter", "p777")
    page.browser.until("document.querySelectorAll('.pool').length === 1")
    assert f"p777.{ZONE}" in page.text(".pool h3")
    page.fill("filter", f"{ADDRESS}:{PORT}")
    page.browser.until("document.querySelectorAll('.pool tr[data-member]').length === 3")
    page.fill("filter", "no-such-pool")
    page.browser.until("document.getElementById('pool-list').innerText.includes('No pool is like that')")
    assert chain.targets_at(OWNER) == LIVE


def test_resolvers_secondaries_and_publications_have_a_card_with_their_trouble(page: Page) -> None:
    chain = page.chain
    with chain.backend.config.open("a") as file:
        file.write(NO_LISTENERS)
    assert chain.backend.command("reload").returncode == 0
    page.open()
    page.browser.until("document.querySelectorAll('#told-list .reason').length === 3")
    cards = page.text("#told-list li")
    for title in ("Resolver cache", "Secondary second", "Publication primary"):
        assert title in cards
    assert cards.count("fails") == 3
    page.fits("told")
