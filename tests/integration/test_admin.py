"""The administrator's tools on the real chain: live page, API, metrics, reload; an active/standby pool."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from rspdns.status.model import FastPathInterfaceStatus

from tests.backend.exposed_metrics import FAST
from tests.support.backend import ADDRESS, HANDLE, OWNER, ZONE
from tests.support.browser import Browser
from tests.support.chain import SIP_PORTS, Chain
from tests.support.json_schema import differences
from tests.support.namespaces import REPOSITORY, kill, own_namespace, program_of
from tests.support.pages import blocks
from tests.support.sidecar import Sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(400)
URL = "http://127.0.0.1:8054"
TOKEN = "writer-0123456789abcdef"  # noqa: S105 - of this test alone
ACTIVE, STANDBY = 5080, 5081
HA_OWNER = f"_sip._udp.ha.{ZONE}"
READER = "reader-0123456789abcdef"
DOCUMENT = (REPOSITORY / "docs" / "how-to" / "servers" / "stateful-servers.md").read_text()
"""Its example is what runs here."""


def example(table: str) -> str:
    """The TOML block of the document that begins with this table, of the pool with a standby."""
    (found,) = (
        text for text in blocks(DOCUMENT, "toml") if text.startswith(f"[[{table}]]") and '"sip-ha"' in text
    )
    return found


HA_POOL = "\n" + example("pool").replace("10.20.0.0/16", f"{ADDRESS}/32")


def ha_server(port: int, priority: int) -> str:
    text = example("as").replace("port = 5060", f"port = {port}").replace("sip-1", f"ha-{port}")
    assert "priority = 20 " in text
    return text.replace("priority = 20 ", f"priority = {priority} ")


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator["AdminChain"]:
    with own_namespace() as namespace:
        yield AdminChain(namespace, tmp_path_factory.mktemp("admin"), HA_POOL)


class AdminChain(Chain):
    """The chain with every server running and the address of the API known."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        tokens = self.folder / "write-tokens"
        tokens.write_text(TOKEN + "\n")
        tokens.chmod(0o600)
        text = self.backend.config.read_text()
        self.backend.config.write_text(text.replace("[admin]\n", '[admin]\nwrite_tokens = "write-tokens"\n'))
        self.sip = {port: self.start_sip(port) for port in (*SIP_PORTS, ACTIVE, STANDBY)}
        self.agent = self.start_sidecar()
        pair = Sidecar(self.namespace, self.folder, self.registrars.addresses, "ha")
        pair.configure(ha_server(ACTIVE, 20), ha_server(STANDBY, 10))
        pair.start()
        self.start()
        until(lambda: self.targets_at(OWNER) == set(SIP_PORTS), 90, self.sidecar.log)

    def start_backend(self) -> None:
        """Start it again. Live page and API are loaded last: it answers PowerDNS before."""
        self.backend.start()
        until(lambda: self.namespace.run("curl", "-sf", f"{URL}/v1/status").returncode == 0)

    def curl(self, path: str, *more: str) -> str:
        said = self.namespace.run("curl", "-sS", "--max-time", "80", *more, URL + path, timeout_s=100)
        assert said.returncode == 0, said.stderr
        return said.stdout

    def get(self, path: str) -> Any:
        return json.loads(self.curl(path))

    def post(self, path: str, body: str = "") -> Any:
        headers = ("-H", f"Authorization: Bearer {TOKEN}", "-H", "Content-Type: application/json")
        return json.loads(self.curl(path, "-X", "POST", *headers, "-d", body))

    def metric(self, name: str, *labels: str) -> float | None:
        """The value of the series that has all these labels."""
        for line in self.curl("/metrics").splitlines():
            if line.startswith((name + "{", name + " ")) and all(label in line for label in labels):
                return float(line.rpartition(" ")[2])
        return None


def test_every_answer_of_the_real_chain_is_as_described(chain: AdminChain) -> None:
    described = chain.get("/v1/openapi.json")
    checked = 0
    for path, operations in described["paths"].items():
        content = operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        schema = content.get("application/json", {}).get("schema")
        if schema is None:
            continue
        server = f"{ADDRESS}:{SIP_PORTS[0]}"
        filled = path.replace("{zone}", ZONE).replace("{owner}", OWNER).replace("{server}", server)
        told = chain.get(f"{filled}?pool={OWNER}" if path == "/v1/history" else filled)
        assert differences(told, schema, described) == [], path
        checked += 1
    assert checked >= 8

    def members() -> list[dict[str, Any]]:
        return list(chain.get(f"/v1/pools/{OWNER}")["members"])

    until(lambda: {member["port"] for member in members()} == set(SIP_PORTS))
    homes = {registrar["identifier"] for registrar in chain.get("/v1/registrars")["registrars"]}
    assert {member["home_registrar"] for member in members()} <= homes


def test_a_zone_is_ready_while_powerdns_is_there_though_nobody_asked_it(chain: AdminChain) -> None:
    """PowerDNS connects when it is asked; who announces it waits for it to be ready."""

    def ready() -> str:
        return chain.namespace.run("curl", "-s", "-w", "%{http_code}", f"{URL}/ready/{ZONE}").stdout

    until(lambda: ready().endswith("200"))
    chain.pdns.stop()
    until(lambda: ready().endswith("503"))
    assert "no PowerDNS answers at its control socket" in ready()
    chain.pdns.process = chain.namespace.start("pdns_server", f"--config-dir={chain.pdns.folder}")
    until(lambda: ready().endswith("200"), 30)


def test_metrics_tell_what_status_tells(chain: AdminChain) -> None:
    owner = f'owner="{OWNER}"'
    until(lambda: chain.metric("rspdns_pool_members", owner, 'state="in"') == len(SIP_PORTS))
    until(lambda: chain.metric("rspdns_member_weight", owner, f":{SIP_PORTS[0]}") == 1000)
    assert chain.metric("rspdns_registrar_link_up", 'number="1"') == 1
    assert chain.metric("rspdns_registrar_round_trip_seconds", 'number="2"')
    assert chain.metric("rspdns_registrar_standing", 'number="3"', 'standing="settled"') == 1
    assert (chain.metric("rspdns_queries_total", 'method="lookup"') or 0) > 0
    assert (chain.metric("rspdns_changes_total", 'kind="joined"') or 0) >= len(SIP_PORTS)
    until(lambda: (chain.metric("rspdns_convergence_seconds_count") or 0) >= len(SIP_PORTS))
    assert chain.metric("rspdns_pool_stale_seconds", owner) == 0
    assert chain.metric("rspdns_snapshot_age_seconds") is not None
    assert chain.metric("process_resident_memory_bytes")
    refused = chain.metric("rspdns_refusals_total", 'reason="admin_host"') or 0
    chain.curl("/v1/pools", "-H", "Host: evil.example")
    until(lambda: chain.metric("rspdns_refusals_total", 'reason="admin_host"') == refused + 1)


def test_a_bad_file_changes_nothing_and_says_why(chain: AdminChain) -> None:
    zone = chain.folder / "zones.d" / f"{ZONE}.toml"
    good = zone.read_text()
    logged: Callable[[], str] = lambda: chain.backend.log.read_text()  # noqa: E731 - typed
    try:
        zone.write_text(good + '\n[[pool]]\nhandle = "x"\nnonsense = 1\n')
        told = chain.post("/v1/reload")
        assert "nothing was changed" in told["error"]
        assert f"{zone}:" in told["error"]
        assert "pool[2].nonsense" in told["error"]
        os.kill(program_of(chain.backend.process, "rspdns.cli serve"), signal.SIGHUP)
        until(lambda: logged().count('"not_reloaded"') == 2)
        until(lambda: chain.targets_at(OWNER) == set(SIP_PORTS))
        zone.write_text(
            good.replace("ttl = 1", "") + '\n[[pool]]\nhandle = "new"\nservice = "_sip._tcp"\n'
            'name = "new"\naccept = ["10.0.0.0/8"]\n'
        )
        before = logged().count('"zones_read"')
        os.kill(program_of(chain.backend.process, "rspdns.cli serve"), signal.SIGHUP)
        until(lambda: logged().count('"zones_read"') == before + 1)
        until(lambda: f"_sip._tcp.new.{ZONE}" in str(chain.get("/v1/pools")))
    finally:
        zone.write_text(good)
        assert chain.post("/v1/reload") == {"zones": [ZONE], "going": [], "needs_restart": []}
    until(lambda: chain.targets_at(OWNER) == set(SIP_PORTS))
    assert chain.backend.process.poll() is None


def test_purging_by_hand_reaches_powerdns(chain: AdminChain) -> None:
    before = chain.metric("rspdns_purged_names_total") or 0
    assert chain.post("/v1/purge", json.dumps({"names": [f"{ZONE}$"]})) == {"names": [f"{ZONE}$"]}
    until(lambda: (chain.metric("rspdns_purged_names_total") or 0) >= before + 3)
    assert chain.metric("rspdns_purge_works") == 1
    assert "needs a bearer token of `write_tokens`" in chain.curl("/v1/purge", "-X", "POST")


def test_a_standby_server_takes_over_and_hands_back(chain: AdminChain) -> None:
    """The Priority policy: everybody uses one server; the other takes over, and hands back."""

    def shown() -> list[tuple[int, int]]:
        words = (line.split() for line in chain.pdns.short(HA_OWNER, "SRV"))
        return sorted((int(priority), int(port)) for priority, _, port, _ in words)

    until(lambda: shown() == [(0, ACTIVE), (1, STANDBY)], 90, chain.folder / "ha.log")
    kill(chain.sip[ACTIVE])
    until(lambda: shown() == [(0, STANDBY)], 90, chain.folder / "ha.log")
    chain.sip[ACTIVE] = chain.start_sip(ACTIVE)
    until(lambda: shown() == [(0, ACTIVE), (1, STANDBY)], 90, chain.folder / "ha.log")


def test_check_asks_who_is_registered(chain: AdminChain) -> None:
    def check(*more: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, "-m", "rspdns.cli", "check", *more, "-c", str(chain.backend.config))
        return chain.namespace.run(*command, sctp=True, timeout_s=100)

    assert check("--strict").returncode == 0, "the backend knows"
    zone = chain.folder / "zones.d" / f"{ZONE}.toml"
    good = zone.read_text()
    try:
        mistyped = HA_POOL.replace("sip-ha", "sip-hb").replace('"ha"', '"more"').replace('"h"', '"m"')
        zone.write_text(good + mistyped)
        said = check("--strict")
    finally:
        zone.write_text(good)
    assert said.returncode == 1
    (warning,) = said.stderr.splitlines()
    assert f"warning: {zone}:" in warning, "the registrars were asked about a pool the backend does not know"
    assert "pool[2].handle: no server registers 'sip-h" in warning


@pytest.fixture(scope="module")
def browser(chain: AdminChain) -> Browser:
    return Browser(chain.namespace, chain.folder)


def row(port: int, more: str = "") -> str:
    """An expression: the row of the member at this port."""
    rows = f"document.querySelectorAll('[data-owner=\"{OWNER}\"] tr[data-member]{more}')"
    return f"[...{rows}].find((one) => one.innerText.includes(':{port}'))"


def test_on_the_live_page_a_killed_server_goes_out_and_comes_back(
    chain: AdminChain, browser: Browser
) -> None:
    browser.open(f"{URL}/")
    for port in SIP_PORTS:
        browser.until(row(port, ":not(.out)"))
    browser.until("document.getElementById('link').textContent === 'live'")
    kill(chain.sip[SIP_PORTS[0]])
    browser.until(row(SIP_PORTS[0], ".out"))
    assert browser.run(f"return {row(SIP_PORTS[0])}.querySelector('.reason').textContent")
    left = "[...document.querySelectorAll('#events li')].find((one) => one.innerText.includes('left'))"
    browser.until(f"{left} && / ms/.test({left}.querySelector('.took').textContent)")
    browser.until("/^[0-9.]+ ms$/.test(document.getElementById('scale-top').textContent)")
    chain.sip[SIP_PORTS[0]] = chain.start_sip(SIP_PORTS[0])
    browser.until(row(SIP_PORTS[0], ":not(.out)"))
    assert [line for line in browser.complaints() if "/v1/" not in line] == []


def test_the_live_page_has_a_card_for_the_fast_path(chain: AdminChain, browser: Browser) -> None:
    """The page's own script makes it of a status as the model has it."""
    browser.open(f"{URL}/")
    browser.until("document.getElementById('link').textContent === 'live'")
    decisions = {"answered": 5, "unknown_name": 2, "limited_tc": 1, "limited_dropped": 3, "not_grown": 6}
    counted = ("works", "5 questions", "2 passed on", "unknown_name 2", "4 questions above")
    failed = ("6 answers could not be written", "as.example. A: 5 answered, 1 passed on, 2 failed")
    away = FastPathInterfaceStatus("eth1", False, "its driver has no XDP")
    for number, status, words in (
        (1, replace(FAST, decisions=decisions), (*counted, *failed)),
        (2, replace(FAST, interfaces=[away]), ("fails", "not at eth1: its driver has no XDP")),
        (3, replace(FAST, problem="it is away"), ("fails", "PowerDNS answers everything: it is away")),
    ):
        card = f"fast-path-{number}"
        browser.run(
            "import('/view.js').then((view) => {"
            f" const one = view.fastPathCard({json.dumps(asdict(status))});"
            f" one.id = '{card}'; document.body.append(one); }}); return null"
        )
        browser.until(f"document.getElementById('{card}')")
        text = browser.run(f"return document.getElementById('{card}').textContent")
        assert all(word in text for word in words), text


def test_a_missing_server_is_named_explained_and_kept_until_it_is_forgotten(
    chain: AdminChain, browser: Browser
) -> None:
    """One of three killed, one withdrawn: amber, with different reasons, across a restart of the backend."""
    good = (chain.folder / "zones.d" / f"{ZONE}.toml").read_text()
    killed, withdrawn, _ = SIP_PORTS
    browser.open(f"{URL}/")
    browser.until(row(killed, ":not(.out)"))
    assert browser.run("return document.getElementById('server').textContent").startswith(
        socket.gethostname()
    )
    kill(chain.sip[killed])
    whole = chain.sidecar.config.read_text()
    head, *servers = whole.split("[[as]]")
    others = [server for server in servers if f"port = {withdrawn}\n" not in server]
    chain.sidecar.config.write_text("[[as]]".join([head, *others]))
    chain.agent.send_signal(signal.SIGHUP)

    def reasons() -> dict[int, str]:
        told = chain.get(f"/v1/pools/{OWNER}")
        return {member["port"]: member["reason"] for member in told["out"] if member["missing"]}

    until(lambda: "nothing listens at its port any more" in reasons().get(killed, ""))
    until(lambda: "the server itself lives (answers OPTIONS with 200" in reasons().get(withdrawn, ""))
    assert all("; removed by its home registrar, registrar " in reason for reason in reasons().values())
    assert chain.metric("rspdns_pool_missing_members", f'owner="{OWNER}"') == 2
    assert chain.metric("rspdns_pool_expected_members", f'owner="{OWNER}"') == 3
    amber = f"document.querySelector('[data-owner=\"{OWNER}\"] header .tag[data-tone=warn]')"
    browser.until(f"{amber}?.textContent === '1 of 3 in'")
    browser.until(
        "[...document.querySelectorAll('#events li')].some((one) => one.innerText.includes('examined'))"
    )
    before = reasons()
    file = chain.folder / "state" / "last-known-good.json"

    def written() -> set[int]:
        """The servers that a killed backend leaves behind: it writes once in a second."""
        servers = json.loads(file.read_text())["content"]["pools"]["sip-udp"]["departures"]
        return {server["port"] for server in servers if server["cause"]["finding"]}

    until(lambda: written() >= {killed, withdrawn})
    kill(chain.backend.process)
    chain.start_backend()
    until(lambda: chain.targets_at(OWNER) == {SIP_PORTS[2]})
    assert reasons() == before, "kept across a restart"
    names = "".join(f'"{ADDRESS}:{port}" = "sip-{port}"\n' for port in SIP_PORTS)
    head, pool, other = good.split("[[pool]]")
    expecting = f"{head}[[pool]]{pool}[pool.expect]\n{names}\n[[pool]]{other}"
    (chain.folder / "zones.d" / f"{ZONE}.toml").write_text(expecting)
    assert chain.backend.command("reload").returncode == 0
    said = chain.backend.command("status").stdout
    assert "1 of 3 in" in said
    assert f"sip-{killed}" in said
    refused = chain.backend.command("forget", f"sip-{killed}")
    assert refused.returncode == 1
    assert "named by `expect`" in refused.stderr
    assert chain.metric("rspdns_member_in", f'name="sip-{withdrawn}"') == 0
    (chain.folder / "zones.d" / f"{ZONE}.toml").write_text(good)
    assert chain.backend.command("reload").returncode == 0
    forgotten = chain.backend.command("forget", f"{ADDRESS}:{killed}")
    assert forgotten.stdout == f"forgotten: {ADDRESS} port {killed} of {HANDLE}\n"
    assert list(reasons()) == [withdrawn]
    chain.sip[killed] = chain.start_sip(killed)
    chain.sidecar.config.write_text(whole)
    chain.agent.send_signal(signal.SIGHUP)
    until(lambda: chain.targets_at(OWNER) == set(SIP_PORTS))
    assert chain.metric("rspdns_pool_missing_members", f'owner="{OWNER}"') == 0


def test_the_live_page_says_when_the_backend_is_gone_and_goes_on_after(
    chain: AdminChain, browser: Browser
) -> None:
    browser.open(f"{URL}/")
    browser.until(row(SIP_PORTS[1]))
    kill(chain.backend.process)
    browser.until("document.getElementById('link').textContent === 'not connected'")
    chain.start_backend()
    browser.until("document.getElementById('link').textContent === 'live'")
    browser.until(row(SIP_PORTS[1], ":not(.out)"))


def test_the_live_page_asks_for_a_token_where_one_is_needed(chain: AdminChain, browser: Browser) -> None:
    good = chain.backend.config.read_text()
    tokens = chain.folder / "read-tokens"
    tokens.write_text(READER + "\n")
    tokens.chmod(0o600)
    try:
        chain.backend.config.write_text(good.replace("[admin]\n", '[admin]\nread_tokens = "read-tokens"\n'))
        assert chain.post("/v1/reload") == {"zones": [ZONE], "going": [], "needs_restart": []}
        browser.open(f"{URL}/")
        browser.until("!document.getElementById('token-form').hidden")
        assert browser.run("return document.querySelectorAll('tr[data-member]').length") == 0
        browser.run(
            f"document.getElementById('token').value = '{READER}';"
            "document.querySelector('#token-form button').click()"
        )
        browser.until(row(SIP_PORTS[1]))
        browser.until("document.getElementById('link').textContent === 'live'")
    finally:
        chain.backend.config.write_text(good)
        chain.post("/v1/reload")


def test_the_live_page_can_be_used_by_keyboard_by_screen_readers_and_on_a_phone(
    chain: AdminChain, browser: Browser
) -> None:
    browser.open(f"{URL}/")
    browser.until(row(SIP_PORTS[1]))
    browser.press("TAB")
    assert browser.run("return document.activeElement.textContent") == "Skip to the pools"
    browser.press("ENTER")
    browser.until("document.activeElement.id === 'pools' || location.hash === '#pools'")
    browser.run("document.getElementById('pause').focus()")
    browser.press("SPACE")
    browser.until("document.getElementById('pause').getAttribute('aria-pressed') === 'true'")
    assert browser.run("return document.getElementById('events').tabIndex") == 0, "it scrolls"
    assert browser.run("return document.querySelectorAll('main section[aria-labelledby]').length") >= 4
    assert browser.run("return document.querySelectorAll('table caption').length") >= 1
    assert browser.run("return document.querySelectorAll('th:not([scope])').length") == 0
    unnamed = "[...document.querySelectorAll('.bar')].filter((one) => !one.getAttribute('aria-label'))"
    assert browser.run(f"return {unnamed}.length") == 0
    backgrounds = set()
    for dark in (False, True):
        browser.look(width=360, height=800, dark=dark)
        time.sleep(0.2)
        wide = "document.documentElement.scrollWidth <= window.innerWidth"
        browser.until(wide)
        backgrounds.add(browser.run("return getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2, "light and dark"
    browser.look()
