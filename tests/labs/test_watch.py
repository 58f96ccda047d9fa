"""The live view of the lab, and how it reads logs and relays the live page."""

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rspdns_lab.net.network import Host
from rspdns_lab.net.processes import Program
from rspdns_lab.observe.part_logs import Event, LogTail
from rspdns_lab.watch.keys import DOINGS
from rspdns_lab.watch.relay import Relay, listener_on_loopback
from rspdns_lab.watch.view import Screen, draw

from tests.support.namespaces import Namespace

HOST = Host("as1", "10.53.0.31", "no-such-namespace", "as1")


def shown(screen: Screen, width: int = 160, height: int = 50) -> str:
    console = Console(width=width, record=True, file=None, color_system=None)
    with console.capture() as captured:
        console.print(draw(screen, width, height))
    return captured.get()


def test_the_view_says_who_is_in_with_which_weight_and_why_somebody_is_out() -> None:
    status = {
        "zones": [
            {
                "pools": [
                    {
                        "members": [{"addresses": ["10.53.0.32"], "load": 0.4}],
                        "out": [{"address": "10.53.0.31", "reason": "deleted by its [home]"}],
                    }
                ]
            }
        ],
        "registrars": [{"address": "10.53.0.11:3863", "standing": "settled"}],
    }
    answers = {"ns1": [("10.53.0.32", 0, 600)], "ns2": None}
    text = shown(
        Screen("as2", {"as1": "killed"}, {"ns1": status}, answers, [Event(1.0, "as1 agent", "down")], 3.5)
    )
    rows = {line.split()[2]: line for line in text.splitlines() if " as" in line[:12] and "10.53" in line}
    assert "killed" in rows["as1"]
    assert "deleted by its [home]" in rows["as1"]
    assert rows["as1"].count("out") == 1
    assert "in, 0 600" in rows["as2"]
    assert "40%" in rows["as2"]
    assert "▶2" in rows["as2"]
    assert text.count("no answer") == 3
    assert "settled" in text
    assert "2.5 s ago" in text


def test_the_view_stands_before_anything_answers() -> None:
    assert "as1" in shown(Screen("as1"))


def test_a_terminal_of_80_by_24_shows_every_key_every_cause_and_the_latest_event() -> None:
    cause = "nothing listens at its port any more (connection refused); removed by its home registrar"
    out = [
        {"address": f"10.53.0.{number}", "reason": f"{cause}, registrar 2 (r2)"} for number in (31, 32, 33)
    ]
    registrars = [{"address": f"10.53.0.1{number}", "standing": "down"} for number in (1, 2, 3)]
    status = {"zones": [{"pools": [{"out": out}]}], "registrars": registrars}
    answers = {name: [("10.53.0.31", 0, 1000)] for name in ("ns1", "ns2")}
    events = [Event(float(number), "as1 agent", f"event {number} {'of many ' * 20}") for number in range(30)]
    marks = dict.fromkeys(("as1", "as2", "as3"), "overloaded")
    note = "live page: http://127.0.0.1:65535/"
    screen = Screen("as2", marks, dict.fromkeys(answers, status), answers, events, 30.0, note)
    lines = shown(screen, 80, 24).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for word in ("1-3 choose", *(f"{doing.key} {doing.word}" for doing in DOINGS), "q quit", note):
        assert word in text
    assert text.count("nothing listens at its port any more") == 3
    assert "event 29" in text
    settled = {"registrars": [each | {"standing": "settled"} for each in registrars]}
    assert "registrars: all settled, say ns1, ns2" in shown(
        Screen("as1", statuses=dict.fromkeys(answers, settled))
    )


def test_new_lines_of_a_log_are_told_once_they_are_whole(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    entry = {"event": "drained", "timestamp": "2026-01-01T00:00:00Z"}
    tail, program = LogTail(2), Program("agent", HOST, [], log)
    tail.look([program], {})
    log.write_text(json.dumps(entry) + "\nno json\n" + json.dumps(entry)[:20])
    tail.look([program], {})
    assert [(event.where, event.what) for event in tail.events] == [("as1 agent", "told to drain")]
    with log.open("a") as file:
        file.write(json.dumps(entry)[20:] + "\n" + json.dumps(entry | {"event": "undrained"}) + "\n")
    tail.look([program], {})
    assert [event.what for event in tail.events] == ["told to drain", "told to let it in again"]


def test_the_relay_brings_a_page_out_of_a_namespace(namespaces: Callable[[], Namespace]) -> None:
    inside = namespaces()
    code = (
        "import http.server, sys\n"
        "class Page(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers(); self.wfile.write(b'live ' * 50000)\n"
        "server = http.server.HTTPServer(('127.0.0.1', 8054), Page)\n"
        "print('ready', flush=True)\n"
        "server.serve_forever()\n"
    )
    process = inside.start("python3", "-c", code)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    relay = Relay(Host("ns1", "127.0.0.1", inside.name, "ns1"), 8054, listener_on_loopback(0))
    relay.start()
    try:
        for _ in range(3):
            with urllib.request.urlopen(relay.url, timeout=10) as answer:  # noqa: S310 - ours
                assert answer.read() == b"live " * 50_000
    finally:
        relay.close()
    assert not relay.is_alive()
