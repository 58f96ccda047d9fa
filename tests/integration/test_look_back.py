"""`rspdns report` on the real chain: its figures against the clock of the test, after SIGKILL, in a flood and
without room on the disk."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from tests.support.backend import ADDRESS, HANDLE, OWNER, ZONE
from tests.support.chain import Chain
from tests.support.crowd import Crowd
from tests.support.members import Members
from tests.support.namespaces import REPOSITORY, end, own_namespace
from tests.support.waiting import until

OUTAGES = 4
OUT_S = 2.0
FLOODS = 5
PAGE = (REPOSITORY / "docs" / "how-to" / "dns" / "look-back.md").read_text()


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    with own_namespace() as namespace:
        chain = Chain(namespace, tmp_path_factory.mktemp("look-back"))
        chain.start()
        yield chain


def servers(chain: Chain, *arguments: str) -> dict[str, dict[str, Any]]:
    result = chain.backend.command("report", "--json", *arguments)
    assert result.returncode == 0, result.stderr
    return {server["server"]: server for server in json.loads(result.stdout)["servers"]}


def curl(chain: Chain, path: str) -> str:
    done = chain.namespace.run("curl", "-sS", f"http://127.0.0.1:8054{path}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def history(chain: Chain, query: str) -> dict[str, Any]:
    return dict(json.loads(curl(chain, f"/v1/history?{query}")))


def test_flood_of_changes_loses_none_and_delays_no_answer(chain: Chain) -> None:
    """100 servers come and go at once, five times. It comes before the test that kills the backend: without
    systemd PowerDNS's connections end then, and the first question in each of them gets SERVFAIL."""
    members = Members(chain.namespace, chain.folder, ADDRESS, chain.registrars.addresses, "steady")
    members.add(3, HANDLE, 5003)
    until(lambda: chain.targets() == {3}, told=chain.backend.log)
    crowd_of = {f"{ADDRESS}:{port}" for port in range(20_000, 20_100)}
    slowest_s = 0.0
    for _ in range(FLOODS):
        crowd = Crowd(
            chain.namespace, chain.folder, ADDRESS, chain.registrars.addresses[0], {HANDLE: (1000, 100)}
        )
        until(lambda: len(chain.backend.pool()["members"]) == 101, told=chain.backend.log)
        crowd.kill()
        while len(chain.backend.pool()["members"]) > 1:
            asked_s = time.monotonic()
            assert chain.targets() != "SERVFAIL"
            slowest_s = max(slowest_s, time.monotonic() - asked_s)
    print(f"slowest answer {1000 * slowest_s:.0f} ms")
    time.sleep(0.5)
    found = servers(chain, "--since", "10m")
    assert [found[server]["changes"] for server in crowd_of] == [2 * FLOODS - 1] * 100
    assert found[f"{ADDRESS}:5003"]["down_s"] == 0.0
    status = chain.backend.status()
    assert status is not None
    assert "journal" not in str(status["problems"])
    assert slowest_s < 2.0
    members.kill()


def test_seconds_down_are_those_of_the_clock_outside(chain: Chain) -> None:
    """A server is down while no answer of DNS names it: DNS, asked all the time, is the clock."""
    members = Members(chain.namespace, chain.folder, ADDRESS, chain.registrars.addresses)
    members.add(1, HANDLE, 5001)
    members.add(2, HANDLE, 5002)
    until(lambda: chain.targets() == {1, 2}, told=chain.backend.log)
    down_s = 0.0
    for _ in range(OUTAGES):
        members.remove(2)
        until(lambda: chain.targets() == {1}, every_s=0.002)
        gone_s = time.monotonic()
        time.sleep(OUT_S)
        members.add(2, HANDLE, 5002)
        until(lambda: chain.targets() == {1, 2}, every_s=0.002)
        down_s += time.monotonic() - gone_s
        time.sleep(0.5)
    time.sleep(0.5)
    server = servers(chain)[f"{ADDRESS}:5002"]
    print(f"report {server['down_s']:.3f} s, clock outside {down_s:.3f} s")
    assert server["outages"] == OUTAGES
    assert server["down_s"] == pytest.approx(down_s, rel=0.05)
    assert server["longest_outage_s"] < 2 * OUT_S
    assert servers(chain, "--server", f"{ADDRESS}:5001")[f"{ADDRESS}:5001"]["availability"] == 1.0

    pages = [history(chain, f"pool={OWNER}"), history(chain, f"server={ADDRESS}:5002&hours=1")]
    for page in pages:
        told = next(found for found in page["servers"] if found["server"] == f"{ADDRESS}:5002")
        assert (told["outages"], told["down_s"]) == (OUTAGES, server["down_s"])
        assert [span["state"] for span in told["spans"] if span["state"] != "unknown"][:3] == [
            "up",
            "down",
            "up",
        ]
    metrics = curl(chain, "/metrics")
    of_server = f'{{address="{ADDRESS}:5002",name="",owner="{OWNER}"}}'
    assert f"rspdns_member_changes_total{of_server} {float(2 * OUTAGES + 1)}" in metrics
    counted = float(metrics.partition(f"rspdns_member_down_seconds_total{of_server} ")[2].split()[0])
    assert counted == pytest.approx(server["down_s"], abs=0.05)

    end(chain.backend.process, SIGKILL)
    killed_s = time.monotonic()
    assert servers(chain)[f"{ADDRESS}:5002"]["outages"] == OUTAGES, "it reads the file, too, when nobody runs"
    time.sleep(2)
    chain.backend.start()
    until(lambda: chain.targets() == {1, 2}, told=chain.backend.log)
    time.sleep(1)
    server = servers(chain)[f"{ADDRESS}:5001"]
    assert server["down_s"] == 0.0, "a dead backend is no outage of the server"
    assert 2.0 <= server["unknown_s"] <= time.monotonic() - killed_s + 3.0
    members.kill()


def test_commands_of_the_page_work(chain: Chain) -> None:
    commands = re.findall(r"^rspdns (report.*)$", PAGE, re.MULTILINE)
    assert len(commands) > 3
    for command in commands:
        words = command.replace("_sip._udp.as.ims.example.net", f"_sip._udp.as.{ZONE}").split()
        words = [f"{ADDRESS}:5001" if word == "10.20.0.11:5060" else word for word in words]
        result = chain.backend.command(*words)
        assert result.returncode == 0, (command, result.stderr)


@pytest.fixture
def short_of_disk(tmp_path: Path) -> Iterator[Chain]:
    """A chain whose backend has 2 MiB for its state."""
    state = tmp_path / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(state)], check=True)
    try:
        with own_namespace() as namespace:
            chain = Chain(namespace, tmp_path)
            chain.start()
            yield chain
    finally:
        subprocess.run(["umount", "-l", str(state)], check=True)


def has_problem(chain: Chain) -> bool:
    """Whether the status says that the journal is not written."""
    return "journal is not written" in str((chain.backend.status() or {}).get("problems"))


def test_full_disk_costs_no_answer_and_its_time_is_unknown(short_of_disk: Chain) -> None:
    chain = short_of_disk
    members = Members(chain.namespace, chain.folder, ADDRESS, chain.registrars.addresses)
    members.add(1, HANDLE, 5001)
    members.add(2, HANDLE, 5002)
    until(lambda: chain.targets() == {1, 2}, told=chain.backend.log)
    until(lambda: len(servers(chain)) == 2)
    ballast = chain.folder / "state" / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    until(lambda: has_problem(chain), told=chain.backend.log)
    members.remove(2)
    until(lambda: chain.targets() == {1}, told=chain.backend.log)
    assert servers(chain).keys() == {f"{ADDRESS}:5001", f"{ADDRESS}:5002"}
    ballast.unlink()
    until(lambda: not has_problem(chain), told=chain.backend.log)
    until(lambda: servers(chain)[f"{ADDRESS}:5002"]["down_s"] > 0)
    found = servers(chain)
    states = {
        port: [span["state"] for span in found[f"{ADDRESS}:{port}"]["spans"]][:3] for port in (5001, 5002)
    }
    assert states == {5001: ["up", "unknown", "up"], 5002: ["up", "unknown", "down"]}
    members.kill()
