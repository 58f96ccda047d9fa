"""HAProxy, nginx and Prometheus, with the lines of the page on them, find their servers in DNS."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pool_user import PoolView

from rserpool import LeastUsed, Protocol
from tests.backend.making import ZONE, member, view, views, zone
from tests.support.labs import LAB, traces
from tests.support.namespaces import REPOSITORY
from tests.support.pages import blocks
from tests.support.served import Served, served, status
from tests.support.waiting import until

PAGE = (REPOSITORY / "docs/how-to/clients/discover-servers.md").read_text()
NAME = f"web.{ZONE}"
OWNER = f"_http._tcp.{NAME}"
SERVERS = range(1, 21)


def pool(loads: Mapping[int, float]) -> dict[str, PoolView]:
    members = (
        member(number, f"10.20.0.{number}", policy=LeastUsed(load), protocol=Protocol.TCP, port=8080)
        for number, load in loads.items()
    )
    return views(view(*members, handle="web"))


@pytest.fixture
def whole(tmp_path: Path) -> Iterator[Served]:
    """A PowerDNS that answers for the pool of the page."""
    pool_of_page = blocks(PAGE, "toml")[0]
    with served([zone(pool_of_page)], pool(dict.fromkeys(SERVERS, 0.5)), tmp_path) as made:
        yield made


def test_answer_is_whole_over_tcp_and_edns_and_truncated_where_it_does_not_fit(whole: Served) -> None:
    def seen(*options: str) -> tuple[int, bool]:
        said = whole.pdns.dig("+ignore", "+nocookie", *options)
        assert status(said) == "NOERROR", said
        found = re.search(r"flags:([a-z ]*);.* ANSWER: (\d+)", said)
        assert found is not None, said
        return int(found[2]), "tc" in found[1].split()

    assert seen(OWNER, "SRV", "+noedns") == (0, True)
    assert seen(OWNER, "SRV", "+tcp") == seen(OWNER, "SRV", "+tcp", "+noedns") == (20, False)
    assert seen(NAME, "A", "+noedns") == seen(NAME, "A", "+tcp") == (20, False)
    in_order = whole.pdns.dig("+tcp", "+short", OWNER, "SRV").split("\n")[:-1]
    assert [line.split()[3].partition(".")[0] for line in in_order] == [f"{n:08x}" for n in SERVERS]
    many = (
        member(n, f"10.20.{n // 250}.{n % 250 + 1}", protocol=Protocol.TCP, port=8080) for n in range(1, 1001)
    )
    whole.backend.publish(views(view(*many, handle="web")))
    until(lambda: seen(NAME, "A", "+tcp") == (1000, False))
    count, is_truncated = seen(OWNER, "SRV", "+tcp")
    assert (count > 800, is_truncated) == (True, False)
    few = dict.fromkeys(range(1, 15), 0.5)
    whole.backend.publish(pool(few))
    until(lambda: seen(OWNER, "SRV", "+bufsize=1232") == (14, False))
    assert seen(OWNER, "SRV", "+noedns") == (0, True)


@pytest.mark.timeout(300)
def test_clients_keep_their_lists_while_loads_change_and_drop_a_dead_server(tmp_path: Path) -> None:
    """The lab: real registrars, a sidecar, PowerDNS, and the clients with the lines of the page."""
    figures = tmp_path / "discover.json"
    command = [*LAB, "discover", "--quick", "--json", str(figures)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        story, _ = process.communicate(timeout=280)
    assert process.returncode in (0, 1), story  # 1: a bound that a busy machine may break
    rows = {row["client"]: row for row in json.loads(figures.read_text())["rows"]}
    haproxy, redrawn = rows["haproxy"], rows["haproxy, default answers"]
    assert (haproxy["listed"], haproxy["flaps"], haproxy["weights"]) == (40, 0, 20), story
    assert redrawn["flaps"] > 0, story
    assert haproxy["follow_max_ms"] < 5000, story
    assert (rows["prometheus"]["listed"], rows["prometheus"]["flaps"]) == (40, 0), story
    for client in ("haproxy", "nginx", "prometheus"):
        assert rows[client]["never_out"] == 0, story
        assert rows[client]["out_max_ms"] < 1000 * rows[client]["poll_s"] + 12_000, story
    assert not traces(process.pid)
