"""A passive ENRP peer among real registrars: it hears of everything, and stands in nobody's way."""

import os
import re
import signal
import subprocess
from pathlib import Path

from registrar_config.options import RegistrarSettings, arguments, embedded_settings
from rserpool.machine.registrar_choice import RegistrarAddress

from tests.support.agent_host import give_address
from tests.support.follow_watch import FollowWatch
from tests.support.members import Members
from tests.support.namespaces import Namespace
from tests.support.registrars import PoolWatch
from tests.support.waiting import until

ADDRESS = "10.99.0.1"
HANDLE = "followed"


class Chain:
    """Three registrars, in a namespace, and what they list of a pool."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        give_address(namespace, ADDRESS)
        self.namespace, self.folder = namespace, folder
        self.addresses = [
            str(RegistrarAddress(ADDRESS, one.asap.port, one.enrp.port)) for one in embedded_settings(ADDRESS)
        ]
        self.programs = [self.start(place) for place in range(3)]
        until(lambda: all("is ready" in self.log(place) for place in range(3)), told="ready registrars")
        self.pool = PoolWatch(namespace, HANDLE, self.addresses, folder / "pool.log")

    def start(self, place: int) -> subprocess.Popen[str]:
        one = embedded_settings(ADDRESS)[place]
        options = arguments(RegistrarSettings(one.asap, one.enrp, one.peers, log_level=4))
        return self.namespace.start(*options, sctp=True, log=self.folder / f"registrar-{place}.log")

    def log(self, place: int) -> str:
        path = self.folder / f"registrar-{place}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def kill(self, place: int) -> None:
        os.killpg(self.programs[place].pid, signal.SIGKILL)
        self.programs[place].wait()

    def members(self, place: int) -> Members:
        """Pool elements in a process of their own, which know one registrar."""
        return Members(self.namespace, self.folder, ADDRESS, [self.addresses[place]], f"members-at-{place}")

    def listed(self, place: int) -> set[int]:
        found = self.pool.now().get(self.addresses[place])
        return {int(identifier, 16) for identifier in found or {}}


def test_takeovers_and_restarts_go_on_around_it(namespace: Namespace, tmp_path: Path) -> None:
    """While it is attached, a dead registrar is taken over and a restarted one finds a real mentor; after it
    has left too."""
    chain = Chain(namespace, tmp_path)
    first, second, third = (chain.members(place) for place in range(3))
    first.add(1, HANDLE, 5001)
    second.add(2, HANDLE, 5002)
    third.add(3, HANDLE, 5003)
    until(lambda: all(chain.listed(place) == {1, 2, 3} for place in range(3)), told="everybody everywhere")
    watch = FollowWatch(namespace, tmp_path, chain.addresses, "follower")
    watch.follow(0, 1, 2)
    until(lambda: watch.states() == ["following"] * 3, told="following")
    tables = [event for event in watch.events() if event["kind"] == "table"]
    assert [table["identifiers"] for table in tables] == [[1, 2, 3]] * 3

    third.add(4, HANDLE, 5004)
    pushed = {"kind": "update", "place": 2, "identifier": 4}
    until(lambda: pushed in watch.events(), told="a pushed registration")

    # A registrar and its element die together: only a takeover tells.
    chain.kill(0)
    first.kill()
    until(lambda: 1 in watch.deleted(), told="the takeover, and the dead element's deletion pushed")
    until(lambda: chain.listed(1) == chain.listed(2) == {2, 3, 4}, told="only the living are listed")
    assert re.search(r"Takeover of peer \S+ completed", chain.log(1) + chain.log(2))

    # Started again, it has its handlespace from a peer that has one.
    assert watch.states()[0] == "idle"
    before = len(chain.log(0))
    chain.programs[0] = chain.start(0)
    until(lambda: "is ready" in chain.log(0)[before:], told="the restarted registrar")
    assert "after obtaining handlespace from mentor" in chain.log(0)[before:]
    until(lambda: chain.listed(0) == {2, 3, 4}, told="the restarted registrar's list")
    watch.follow(0)
    until(lambda: watch.states() == ["following"] * 3, told="following again")

    # When it has left, nobody waits for it.
    watch.leave()
    chain.kill(1)
    second.kill()
    until(lambda: chain.listed(0) == chain.listed(2) == {3, 4}, told="a takeover after it left")
    assert all(chain.programs[place].poll() is None for place in (0, 2))
