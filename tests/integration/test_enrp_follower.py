"""A passive ENRP peer among real registrars: it hears of everything, and stands in nobody's way."""

import re
from pathlib import Path

from tests.support.follow_watch import FollowWatch
from tests.support.members import Members
from tests.support.namespaces import Namespace
from tests.support.registrars import PoolWatch, Registrars
from tests.support.waiting import until

ADDRESS = "10.99.0.1"
HANDLE = "followed"


class Followed:
    """Three registrars that log much, numbered from 1, and what they list of a pool."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        namespace.give_address(ADDRESS)
        self.namespace, self.folder = namespace, folder
        self.registrars = Registrars(namespace, folder, ADDRESS, log_level=4)
        self.registrars.until_ready()
        self.pool = PoolWatch(namespace, HANDLE, self.registrars.addresses, folder / "pool.log")

    def members(self, number: int) -> Members:
        """Pool elements in a process of their own, which know one registrar."""
        known = [self.registrars.addresses[number - 1]]
        return Members(self.namespace, self.folder, ADDRESS, known, f"members-at-{number}")

    def listed(self, number: int) -> set[int]:
        found = self.pool.now().get(self.registrars.addresses[number - 1])
        return {int(identifier, 16) for identifier in found or {}}


def test_takeovers_and_restarts_go_on_around_it(namespace: Namespace, tmp_path: Path) -> None:
    """While it is attached, a dead registrar is taken over and a restarted one finds a real mentor; after it
    has left too."""
    followed = Followed(namespace, tmp_path)
    registrars = followed.registrars
    first, second, third = (followed.members(number) for number in (1, 2, 3))
    first.add(1, HANDLE, 5001)
    second.add(2, HANDLE, 5002)
    third.add(3, HANDLE, 5003)
    until(
        lambda: all(followed.listed(number) == {1, 2, 3} for number in (1, 2, 3)), told="everybody everywhere"
    )
    watch = FollowWatch(namespace, tmp_path, registrars.addresses_with_enrp, "follower")
    watch.follow(0, 1, 2)
    until(lambda: watch.states() == ["following"] * 3, told="following")
    tables = [event for event in watch.events() if event["kind"] == "table"]
    assert [table["identifiers"] for table in tables] == [[1, 2, 3]] * 3

    third.add(4, HANDLE, 5004)
    pushed = {"kind": "update", "index": 2, "identifier": 4}
    until(lambda: pushed in watch.events(), told="a pushed registration")

    # A registrar and its element die together: only a takeover tells.
    registrars.kill(1)
    first.kill()
    until(lambda: 1 in watch.deleted(), told="the takeover, and the dead element's deletion pushed")
    until(lambda: followed.listed(2) == followed.listed(3) == {2, 3, 4}, told="only the living are listed")
    assert re.search(r"Takeover of peer \S+ completed", registrars.said(2) + registrars.said(3))

    # Started again, it has its handlespace from a peer that has one.
    assert watch.states()[0] == "idle"
    before = len(registrars.said(1))
    registrars.start(1)
    until(lambda: "is ready" in registrars.said(1)[before:], told="the restarted registrar")
    assert "after obtaining handlespace from mentor" in registrars.said(1)[before:]
    until(lambda: followed.listed(1) == {2, 3, 4}, told="the restarted registrar's list")
    watch.follow(0)
    until(lambda: watch.states() == ["following"] * 3, told="following again")

    # When it has left, nobody waits for it.
    watch.leave()
    registrars.kill(2)
    second.kill()
    until(lambda: followed.listed(1) == followed.listed(3) == {3, 4}, told="a takeover after it left")
    assert all(registrars.programs[number - 1].poll() is None for number in (1, 3))
