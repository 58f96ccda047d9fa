"""`ppe-agent status` for people: readable in a narrow terminal, whole where another program reads it."""

import io

import pytest
from daemon_kit.finding import Life
from ppe_agent.status import console, render
from ppe_agent.status_model import AgentStatus, RegistrarLinkStatus, ServerStatus
from rich.console import Console

REASON = "registrar 10.20.30.1 refuses it: the policy differs from that of the pool; next attempt in 4 s"
SERVER: ServerStatus = {
    "name": "kamailio",
    "state": "joining",
    "reason": REASON,
    "transport": "udp",
    "address": ["10.20.0.1"],
    "port": 5060,
    "remote": False,
    "registered_as": ["10.20.0.5"],
    "handle": "sip-as-udp",
    "identifier": "a1b2c3d4",
    "load": 0.9,
    "policy": "least-used",
    "drained": False,
    "drain": None,
    "load_source": "file",
    "load_read": 0.25,
    "home_registrar": None,
    "missing_count": 0,
    "moved_count": 0,
    "rejected_count": 0,
    "collision_count": 0,
    "twin": None,
    "taken_by": None,
    "fall_count": 0,
    "state_problem": None,
    "load_problem": "http://127.0.0.1:9090/metrics answered 404",
    "registrar": None,
    "listed_by": ["10.20.30.1", "10.20.30.2"],
    "check": [
        {
            "type": "sip-options",
            "target": "UDP port 5060",
            "state": "up",
            "since_s": 3.0,
            "last": "200 OK",
            "found": Life.ALIVE,
            "last_s": 0.1,
            "expires_at_s": None,
        }
    ],
}
STATUS: AgentStatus = {
    "as": [SERVER],
    "waiting": [],
    "registrars": [],
    "multicast": None,
    "loop": {"lag_ms": 0.1, "stall_count": 0, "longest_stall_ms": 0.0},
    "relay": None,
    "reload_problem": None,
    "metrics_problem": None,
}


def shown(columns: int, status: AgentStatus = STATUS) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=columns).print(render(status, columns))
    return [" ".join(line.split()) for line in file.getvalue().splitlines()]


@pytest.mark.parametrize("columns", [60, 80, 130])
def test_a_narrow_terminal_folds_between_words_only(columns: int) -> None:
    lines = shown(columns)
    words = {word for line in lines for word in line.split()}
    where = "udp 10.20.0.1 port 5060 in pool sip-as-udp, identifier a1b2c3d4"
    expected = f"{REASON} {where}, load 90% listed by 10.20.30.2 sip-options"
    assert set(expected.split()) <= words
    assert any(line.startswith("kamailio joining registrar 10.20.30.1") for line in lines)


def test_a_wide_terminal_has_a_line_for_each_server() -> None:
    (line,) = [line for line in shown(280) if line.startswith("kamailio joining")]
    problem = SERVER["load_problem"]
    assert (
        line == f"kamailio joining {REASON} udp 10.20.0.1 port 5060 sip-as-udp a1b2c3d4 90% ({problem}) none "
        "10.20.30.1, 10.20.30.2"
    )


def test_without_a_terminal_it_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert console().width == 280


def test_a_state_that_cannot_be_written_is_told() -> None:
    problem = "state file /state/sip-1.json can't be written: No space left on device"
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(render({**STATUS, "as": [{**SERVER, "state_problem": problem}]}, 200))
    assert f"{SERVER['name']}: {problem}. It goes on" in console.export_text()


def test_metrics_address_that_is_taken_is_shown() -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(render({**STATUS, "metrics_problem": "can't listen at 127.0.0.1:9121"}, 200))
    assert "No metrics: can't listen at 127.0.0.1:9121; see metrics.listen" in console.export_text()


def test_registrars_are_one_line_when_all_are_up_and_a_table_when_not() -> None:
    def status(*up: bool) -> AgentStatus:
        links: list[RegistrarLinkStatus] = [
            {"address": f"10.0.0.{number}", "up": well, "round_trip_ms": 0.5 * number}
            for number, well in enumerate(up, 1)
        ]
        return {**STATUS, "registrars": links}

    assert "Registrars 10.0.0.1, 10.0.0.2: up, round trip 1.00 ms at most" in shown(80, status(True, True))
    assert "10.0.0.2 down 1.00 ms" in shown(80, status(True, False))
