"""The whole chain behind the rendered packet filters: who has no business there reaches nothing.

And its registrars are aborted and parted, and it loses packets. One lab for all: it takes a while to start.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from daemon_kit.control import request
from registrar_config import load_inventory, render_files
from rspdns_lab.chain.hosts import RegistrarHost, wait_until
from rspdns_lab.chain.lab import Lab
from rspdns_lab.chain.plan import APPLICATION_SERVERS, NAME_SERVERS, REGISTRARS, LabSetting
from rspdns_lab.chaos.faults.registrars import join_registrars, part_registrars
from rspdns_lab.chaos.verdict import judge_trial
from rspdns_lab.loss import lose_and_watch
from rspdns_lab.net.processes import Program

from tests.support.namespaces import REPOSITORY

REACH = str(REPOSITORY / "tests/support/reach_sctp.py")
ASK = str(REPOSITORY / "tests/support/ask_registrar.py")
FATAL = ("rspdns_lab.chaos.fatal_message", "long-handle")
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
    files = render_files(load_inventory(folder / "inventory.toml"))
    with Lab(LabSetting(follow="poll")) as made:
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
        timeout=150,
        env=lab.environment,
        check=False,
    )


def check_reached(lab: Lab, host: str, expected: list[str], *endpoints: str) -> None:
    said = run(lab, host, *lab.sctp.command([sys.executable, REACH, str(len(expected)), *endpoints]))
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) == expected


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
def test_a_registrar_is_reached_at_the_ports_that_each_host_needs(
    lab: Lab, host: str, asap: bool, enrp: bool
) -> None:
    expected = [f"{R1}:3863"] * asap + [f"{R1}:9901"] * enrp
    check_reached(lab, host, expected, f"{R1}:3863", f"{R1}:9901")


def test_an_agent_is_reached_by_registrars_alone(lab: Lab, tmp_path: Path) -> None:
    command = lab.sctp.command([sys.executable, REACH, "--listen", f"0.0.0.0:{AGENT_PORT}"])
    log = tmp_path / "listener.log"
    listener = Program("listener", lab.network.hosts["as1"], command, log, lab.sctp.environment)
    listener.start()
    try:
        wait_until(lambda: "listening" in log.read_text(), "the listener", 20, listener)
        agent = f"{AS1}:{AGENT_PORT}"
        check_reached(lab, "r3", [agent], agent)
        check_reached(lab, "client", [], agent)
        check_reached(lab, "ns1", [], agent)
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
        return [
            registrar["follow"]
            for registrar in request(lab.folder / name / "admin.sock", "status")["registrars"]
        ]

    wait_until(lambda: follows("ns2") == ["enrp"] * 3, "ns2 following all registrars", 60)
    assert follows("ns1") == ["poll"] * 3
    server, address = lab.application_servers["as2"], APPLICATION_SERVERS["as2"]
    server.drain()
    wait_until(
        lambda: all(address not in name_server.members() for name_server in lab.name_servers.values()),
        "both without as2",
        60,
    )
    server.undrain()
    lab.wait_until_all_are_answered()


def test_bytes_that_abort_a_registrar_do_not_reach_it(lab: Lab) -> None:
    before = [registrar.registrar_pids() for registrar in lab.registrars.values()]
    said = run(lab, "client", *lab.sctp.command([sys.executable, "-m", *FATAL, R1]))
    assert said.returncode == 1, "there was somebody to send it to"
    assert [registrar.registrar_pids() for registrar in lab.registrars.values()] == before


@contextmanager
def nobody_missed(lab: Lab) -> Iterator[None]:
    """During the block no answer is empty, or lacks one of the servers for long: they all live."""
    lab.wait_until_all_are_answered()
    lab.wait_until_settled()
    begun_s = time.monotonic()
    lab.recorder.forget(begun_s)
    yield
    lab.wait_until_settled()
    seen, everywhere = lab.recorder.since(begun_s), range(len(NAME_SERVERS))
    trial = judge_trial(seen, begun_s, lab.addresses, (), everywhere, lab.most_shown)
    assert trial.answers > 1000
    assert (trial.empty, trial.servfail, trial.malformed) == (0, 0, 0), trial
    assert trial.longest_missing_ms < 3000, trial  # 1 s on a machine that is not busy: `rspdns-lab chaos`


def test_bytes_that_abort_a_registrar_are_sent_to_each_from_where_they_reach_it(lab: Lab) -> None:
    """All three are gone before the first has settled again: DNS notices nothing."""
    with nobody_missed(lab):
        for name, registrar in lab.registrars.items():
            before = registrar.registrar_pids()
            said = run(lab, "as2", *lab.sctp.command([sys.executable, "-m", *FATAL, REGISTRARS[name]]))
            assert said.returncode == 0, said.stderr
            wait_until(partial(is_another, registrar, before), f"rspregistrar on {name} started anew", 20)


def is_another(registrar: RegistrarHost, before: list[int]) -> bool:
    return registrar.registrar_pids() not in ([], before)


def sentinels_at(lab: Lab, name: str) -> list[int]:
    """Return the numbers of the sentinels that a registrar lists, asked from its own host."""
    handles = [f"rspdns-sentinel-{number}" for number in range(1, len(REGISTRARS) + 1)]
    said = run(lab, name, *lab.sctp.command([sys.executable, ASK, REGISTRARS[name], *handles]))
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    return [number for number, line in enumerate(lines, start=1) if json.loads(line)["pool_elements"]]


@pytest.mark.parametrize(
    "sides",
    [(("r1",), ("r2",), ("r3",)), ()],
    ids=["three sides", "its cable pulled"],
)
def test_parted_registrars_agree_again_soon_after_the_network_has_healed(
    lab: Lab, sides: tuple[tuple[str, ...], ...]
) -> None:
    """How soon depends on who connects first, and most often both do at once. DNS notices nothing."""
    alone = lab.network.hosts["r3"]
    with nobody_missed(lab):
        part_registrars(lab, sides)
        if not sides:
            lab.network.cut(alone)
        try:
            wait_until(lambda: sentinels_at(lab, "r3") == [3], "r3 without the sentinels of the others", 60)
        finally:
            join_registrars(lab)
            lab.network.restore(alone)
        wait_until(
            lambda: all(sentinels_at(lab, name) == [1, 2, 3] for name in REGISTRARS),
            "registrars that list each other's sentinels again",
            15,
        )


def test_lost_packets_remove_no_live_server(lab: Lab) -> None:
    """Ten minutes of it: `rspdns-lab loss`."""
    (outcome,) = lose_and_watch(lab, 10, 1.0)
    assert outcome.lost_packets > 50
    assert outcome.answers > 1000
    assert outcome.ok, outcome
