"""The whole chain behind the rendered packet filters: who has no business there reaches nothing.

And it loses packets. One lab for all: it takes a while to start.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_kit.control import request
from registrar_config.inventory import load_inventory
from registrar_config.render import render
from rspdns_lab.hosts import wait_until
from rspdns_lab.lab import Lab
from rspdns_lab.loss import lose_and_watch
from rspdns_lab.plan import APPLICATION_SERVERS, NAME_SERVERS, REGISTRARS, Setting
from rspdns_lab.processes import Program

from tests.support.namespaces import REPOSITORY

pytestmark = pytest.mark.timeout(180)

REACH = str(REPOSITORY / "tests/support/reach_sctp.py")
ASK = str(REPOSITORY / "tests/support/ask_registrar.py")
HANDLE = "rspdns_lab.long_handle"
AGENT_PORT = 5999
R1, AS1 = REGISTRARS["r1"], APPLICATION_SERVERS["as1"]
# r3 has none: on its host only a registrar would get answers, so nothing else there could try the others.
ENTRIES = {
    "r1": "r1",
    "r2": "r2",
    **dict.fromkeys(APPLICATION_SERVERS, "servers"),
    "ns1": "polling",
    "ns2": "following",
}
INVENTORY = "".join(
    [f'[[registrar]]\nname = "{name}"\naddress = "{address}"\n' for name, address in REGISTRARS.items()]
    + [f'[[agent]]\nname = "servers"\naddresses = {json.dumps(list(APPLICATION_SERVERS.values()))}\n']
    + [f'[[backend]]\nname = "polling"\naddresses = ["{NAME_SERVERS["ns1"]}"]\nfollow = "poll"\n']
    + [f'[[backend]]\nname = "following"\naddresses = ["{NAME_SERVERS["ns2"]}"]\nfollow = "enrp"\n']
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Everything runs, each host behind the filter that the inventory gives it."""
    folder = tmp_path_factory.mktemp("inventory")
    (folder / "inventory.toml").write_text(INVENTORY)
    files = render(load_inventory(folder / "inventory.toml"))
    with Lab(Setting(follow="poll")) as made:
        for host, entry in ENTRIES.items():
            path = folder / f"{host}.nft"
            path.write_text(files[entry]["rspdns.nft"])
            for _ in range(2):  # loading it again replaces it
                said = run(made, host, "nft", "-f", str(path))
                assert said.returncode == 0, said.stderr
        following = made.folder / "ns2" / "rspdns.toml"
        following.write_text(following.read_text().replace('follow = "poll"', 'follow = "enrp"'))
        made.start_registrars()
        made.start_application_servers()
        made.start_name_servers()
        made.wait_until_all_are_answered()
        made.wait_until_settled()
        yield made


def run(lab: Lab, host: str, *command: str) -> subprocess.CompletedProcess[str]:
    path = lab.network.hosts[host].path
    return subprocess.run(
        ["nsenter", f"--net={path}", "--", *command],
        capture_output=True,
        text=True,
        timeout=60,
        env=lab.environment,
        check=False,
    )


def reached(lab: Lab, host: str, *endpoints: str) -> list[str]:
    said = run(lab, host, *lab.sctp.command([sys.executable, REACH, *endpoints]))
    assert said.returncode == 0, said.stderr
    found: list[str] = json.loads(said.stdout)
    return found


@pytest.mark.parametrize(
    ("host", "asap", "enrp"),
    [
        ("client", False, False),
        ("as2", True, False),
        ("ns1", True, False),
        ("ns2", True, True),
        ("r3", False, True),
    ],
)
def test_who_reaches_a_registrar(lab: Lab, host: str, asap: bool, enrp: bool) -> None:
    expected = [f"{R1}:3863"] * asap + [f"{R1}:9901"] * enrp
    assert reached(lab, host, f"{R1}:3863", f"{R1}:9901") == expected


def test_only_registrars_reach_an_agent(lab: Lab, tmp_path: Path) -> None:
    command = lab.sctp.command([sys.executable, REACH, "--listen", str(AGENT_PORT)])
    log = tmp_path / "listener.log"
    listener = Program("listener", lab.network.hosts["as1"], command, log, lab.sctp.environment)
    listener.start()
    try:
        wait_until(lambda: "listening" in log.read_text(), "the listener", 20, listener)
        agent = f"{AS1}:{AGENT_PORT}"
        assert reached(lab, "r3", agent) == [agent]
        assert reached(lab, "client", agent) == []
        assert reached(lab, "ns1", agent) == []
    finally:
        listener.ended()


def test_registrars_behind_filters_have_each_others_handlespace(lab: Lab) -> None:
    """By ENRP, through both filters: r1 lists the sentinel that is at home at r2."""
    said = run(lab, "as2", *lab.sctp.command([sys.executable, ASK, R1, "rspdns-sentinel-2"]))
    assert said.returncode == 0, said.stderr
    assert len(json.loads(said.stdout)["pool_elements"]) >= 1


def test_a_backend_that_follows_is_told_of_changes_through_the_filters(lab: Lab) -> None:
    """The registrars' handlespace is pushed to ns2, and what changes there; ns1 asks."""

    def follows(name: str) -> list[str]:
        return [one["follow"] for one in request(lab.folder / name / "admin.sock", "status")["registrars"]]

    wait_until(lambda: follows("ns2") == ["enrp"] * 3, "ns2 following all registrars", 60)
    assert follows("ns1") == ["poll"] * 3
    server, address = lab.application_servers["as2"], APPLICATION_SERVERS["as2"]
    server.drain()
    wait_until(
        lambda: all(address not in one.members() for one in lab.name_servers.values()), "both without as2", 60
    )
    server.undrain()
    lab.wait_until_all_are_answered()


def test_bytes_that_abort_a_registrar_do_not_reach_it(lab: Lab) -> None:
    before = [registrar.registrar_pids() for registrar in lab.registrars.values()]
    said = run(lab, "client", *lab.sctp.command([sys.executable, "-m", HANDLE, R1]))
    assert said.returncode == 1, "there was somebody to send it to"
    assert [registrar.registrar_pids() for registrar in lab.registrars.values()] == before


def test_lost_packets_remove_no_live_server(lab: Lab) -> None:
    """Ten minutes of it: `rspdns-lab loss`."""
    outcome = lose_and_watch(lab, 10, 1.0)
    assert outcome.lost_packets > 50
    assert outcome.answers > 1000
    assert outcome.ok, outcome
