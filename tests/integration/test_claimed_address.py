"""A stranger lists a registrar's address as one of its own, or is at it, but no peer of the others."""

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.agent_host import ADDRESS, HANDLE, Host
from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.waiting import until

STRANGER, CLAIMED = "10.99.0.66", "10.99.0.11"


def next_to(host: Host, make: Callable[[], Namespace], *, answers_arp: bool = False) -> Namespace:
    """Return a host at the other end of the cable, with CLAIMED on its loopback interface.

    Unless `answers_arp`, nobody reaches it there. If it does, that address is its own for all that can be
    seen.
    """
    stranger = make()
    host.namespace.ip("link", "set", "eth0-peer", "netns", stranger.name)
    stranger.run("sysctl", "-w", f"net.ipv4.conf.all.arp_ignore={0 if answers_arp else 1}")
    for command in (
        f"address add {STRANGER}/24 dev eth0-peer",
        f"address add {CLAIMED}/32 dev lo",
        "link set eth0-peer up",
    ):
        stranger.ip(*command.split())
    return stranger


def attacked(
    make: Callable[[], Namespace], folder: Path, *, answers_arp: bool = False
) -> tuple[Host, Path, int]:
    """Start registrars, a server with its agent, and the stranger; return the host, the stranger's log, and
    how many changes the registrars had seen before."""
    host = Host(make(), folder)
    stranger = next_to(host, make, answers_arp=answers_arp)
    host.configure("tcp-hold", "tcp")
    text = host.config.read_text()
    host.config.write_text(text.replace(json.dumps(host.addresses), json.dumps([CLAIMED, *host.addresses])))
    host.start_tcp_server()
    host.start_agent()
    identifier = host.until_in()
    dump = host.namespace.run("hsdump", f"{ADDRESS}:9901", sctp=True).stdout
    port = re.search(rf"regT:\s+\{{{re.escape(ADDRESS)}\}} (\d+)/SCTP", dump)
    assert port, dump
    before = len(host.watch.changes())
    log = folder / "stranger.log"
    stranger.start(
        *(sys.executable, "-m", "tests.support.claiming_stranger"),
        *(STRANGER, CLAIMED, ADDRESS, port[1], HANDLE, identifier),
        sctp=True,
        log=log,
        environment={"PYTHONPATH": str(REPOSITORY)},
    )
    until(lambda: log.exists() and "associated" in log.read_text())
    return host, log, before


def test_an_address_that_is_only_listed_deceives_no_agent(
    namespaces: Callable[[], Namespace], tmp_path: Path
) -> None:
    host, log, before = attacked(namespaces, tmp_path)
    until(lambda: log.read_text().count("associated") > 2)  # it is sent away, and comes again
    time.sleep(3)
    assert "registration" not in log.read_text()
    assert not [change for change in host.watch.changes()[before:] if change["elements"] == {}]
    assert host.until_state("in")["registrar"] in host.addresses


def test_a_home_that_no_other_registrar_confirms_is_left(
    namespaces: Callable[[], Namespace], tmp_path: Path
) -> None:
    """It says that it took over again and again, and confirms every registration."""
    host, log, _ = attacked(namespaces, tmp_path, answers_arp=True)
    until(lambda: "registration" in log.read_text())
    host.until_status(lambda one: one["registrar"] in host.addresses)
    assert "no other registrar lists it" in (tmp_path / "agent.log").read_text()
    registrations = log.read_text().count("registration")
    host.until_in()
    time.sleep(4)
    assert log.read_text().count("registration") == registrations
    assert host.until_state("in")["registrar"] in host.addresses
