"""`rspdns report` on the real chain: its figures against the clock of the test, and after SIGKILL."""

import json
import re
import time
from collections.abc import Iterator
from signal import SIGKILL
from typing import Any

import pytest

from tests.support.backend import ADDRESS, HANDLE, OWNER, ZONE
from tests.support.chain import Chain
from tests.support.members import Members
from tests.support.namespaces import REPOSITORY, end, own_namespace
from tests.support.waiting import until

OUTAGES = 4
OUT_S = 2.0
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
        result = chain.backend.command(*words)
        assert result.returncode == 0, (command, result.stderr)
