"""The rules of what is believed, on the real chain, as DNS shows them: rspdns/belief/README.md has them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest

from tests.support.backend import ADDRESS, FIXED, HANDLE, OWNER, POOL, ZONE
from tests.support.chain import Chain
from tests.support.crowd import Crowd
from tests.support.members import Members
from tests.support.namespaces import Namespace, end, own_namespace
from tests.support.waiting import until

LAST_KNOWN_GOOD = "last-known-good.json"
EMPTY = ("last-good", "nodata", "static", "servfail")


def owner(handle: str) -> str:
    return OWNER if handle == HANDLE else f"_sip._udp.{handle}.{ZONE}"


def pool_text(handle: str) -> str:
    return POOL.replace(HANDLE, handle).replace('"as"', f'"{handle}"')


class Believed(Chain):
    """A chain with a pool for each kind of `when_empty`, whose registrars take their time to settle."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        super().__init__(namespace, folder, reregistration_ms=4000)
        pools = [POOL, pool_text("many")]
        pools += [f'{pool_text(kind)}when_empty = "{kind}"\n' for kind in EMPTY]
        pools.append(pool_text("shards").replace('handle = "shards"', 'handles = ["one", "two"]'))
        self.backend.write_zone("".join(pools), f"{FIXED}{owner('static')}. SRV 7 7 7777 ns1\n")
        self.start()
        self.joined: list[Members | Crowd] = []

    def members_of(self, name: str) -> Members:
        """A process for pool elements."""
        registrars = self.registrars.addresses
        made = Members(self.namespace, self.folder, ADDRESS, registrars, f"{name}-{len(self.joined)}")
        self.joined.append(made)
        return made

    def crowd_of(self, pools: dict[str, tuple[int, int]]) -> Crowd:
        """A process for many pool elements."""
        made = Crowd(self.namespace, self.folder, ADDRESS, self.registrars.addresses[0], pools)
        self.joined.append(made)
        return made

    def of(self, handle: str = HANDLE, admin: Path | None = None) -> dict[str, Any]:
        """The pool in a status; that of the backend with this admin socket."""
        pools = (self.backend.status(admin) or {"zones": [{"pools": []}]})["zones"][0]["pools"]
        return next((pool for pool in pools if pool["handles"][0] == handle), {"members": []})

    def listed(self, handle: str = HANDLE, admin: Path | None = None) -> set[int]:
        """The identifiers of the members, by the status."""
        return {int(member["identifier"], 16) for member in self.of(handle, admin)["members"]}

    def shown(self, name: str) -> set[int]:
        """The identifiers in DNS."""
        found = self.targets(name)
        return found if isinstance(found, set) else set()

    @contextmanager
    def polling(self) -> Iterator[Path]:
        """Another backend, without a PowerDNS, that polls; gives its admin socket."""
        config, admin = self.folder / "polling.toml", self.folder / "polling-admin.sock"
        text = self.backend.config.read_text().replace("remote.sock", "polling.sock")
        text = text.replace(str(self.backend.admin), f'{admin}"\nlisten = "127.0.0.1:8055')
        text = text.replace(f"{self.folder}/state", f"{self.folder}/polling")
        config.write_text(f'follow = "poll"\n{text}')
        command = (sys.executable, "-m", "rspdns.cli", "serve", "-c", str(config))
        backend = self.namespace.start(*command, sctp=True, log=self.folder / "polling.log")
        try:
            yield admin
        finally:
            end(backend)


@pytest.fixture(scope="module")
def believed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Believed]:
    with own_namespace() as namespace:
        yield Believed(namespace, tmp_path_factory.mktemp("believed"))


@pytest.fixture
def chain(believed: Believed) -> Iterator[Believed]:
    """The chain, all registrars settled; whoever joins is gone afterwards."""
    until(believed.backend.is_known, told=believed.backend.log)
    yield believed
    for members in believed.joined:
        members.kill()
    handles = (HANDLE, "many", "one", *EMPTY)
    until(lambda: not any(believed.listed(handle) for handle in handles), told=believed.backend.log)


def status(chain: Believed) -> dict[str, Any]:
    return chain.backend.status() or {"registrars": [], "problems": []}


def test_all_are_drained(chain: Believed) -> None:
    """Each kind of `when_empty`, on the wire. Rule 4."""
    members = chain.members_of("drained")
    for index, kind in enumerate(EMPTY):
        for identifier in (30 + 2 * index, 31 + 2 * index):
            members.add(identifier, kind, 5000 + identifier)
    for index, kind in enumerate(EMPTY):
        both = {30 + 2 * index, 31 + 2 * index}
        until(lambda kind=kind, both=both: chain.listed(kind) == both, told=chain.backend.log)  # type: ignore[misc]
        until(lambda kind=kind, both=both: chain.targets(owner(kind)) == both, told=chain.backend.log)  # type: ignore[misc]
    for identifier in range(30, 38):
        members.remove(identifier)
    until(lambda: not any(chain.listed(kind) for kind in EMPTY), told=chain.backend.log)
    until(lambda: chain.targets(owner("nodata")) == "NOERROR", told=chain.backend.log)
    until(lambda: chain.targets(owner("servfail")) == "SERVFAIL", told=chain.backend.log)
    until(
        lambda: chain.pdns.short(owner("static"), "SRV") == [f"7 7 7777 ns1.{ZONE}."], told=chain.backend.log
    )
    until(lambda: chain.targets(owner("last-good")) == {30, 31}, told=chain.backend.log)
    for kind in EMPTY:
        assert f"when_empty = {kind}" in chain.of(kind)["answered_instead"]
    members.add(30, "last-good", 5030)
    until(lambda: chain.targets(owner("last-good")) == {30}, told=chain.backend.log)
    assert chain.of("last-good")["answered_instead"] is None


def test_pools_of_more_than_an_answer_names(chain: Believed) -> None:
    """By following whatever handles they have; a registrar that is asked names 128 at most, so by handles."""
    log = chain.folder / "polling.log"
    with chain.polling() as polled:
        for pool, pools in (
            ("many", {"many": (0x1000, 140)}),
            ("one", {"one": (0x2000, 70), "two": (0x3000, 70)}),
        ):
            crowd = chain.crowd_of(pools)
            everyone = crowd.identifiers
            until(lambda pool=pool, everyone=everyone: chain.listed(pool) == everyone, told=chain.backend.log)  # type: ignore[misc]
            if pool == "many":
                until(lambda: len(chain.listed("many", polled)) >= 128, told=log)
            else:
                until(lambda everyone=everyone: chain.listed("one", polled) == everyone, told=log)  # type: ignore[misc]
            shown: set[int] = set()
            name = owner("shards" if pool == "one" else pool)
            until(lambda name=name, shown=shown: shown.update(chain.shown(name)) or len(shown) > 20)  # type: ignore[misc]
            assert shown <= everyone
            crowd.kill()
            until(lambda pool=pool: not chain.listed(pool), told=chain.backend.log)  # type: ignore[misc]
            until(lambda pool=pool: not chain.listed(pool, polled), told=log)  # type: ignore[misc]


def test_the_last_known_good_file_survives_a_crash_and_is_refused_when_damaged(chain: Believed) -> None:
    """It survives a crash in the middle of writing; damaged, it is refused in words. Rule 5."""
    members = chain.members_of("known")
    for identifier in (41, 42):
        members.add(identifier, HANDLE, 5000 + identifier)
    until(lambda: chain.targets() == {41, 42}, told=chain.backend.log)
    until(lambda: chain.backend.remembers({41, 42}), told=chain.backend.log)
    path = chain.folder / "state" / LAST_KNOWN_GOOD
    whole = path.read_bytes()
    half = path.with_name(f".{LAST_KNOWN_GOOD}.half")

    end(chain.backend.process, SIGKILL)
    chain.registrars.kill()
    half.write_bytes(whole[: len(whole) // 2])
    chain.backend.start()
    until(lambda: chain.targets() == {41, 42}, told=chain.backend.log)
    assert chain.of()["stale_s"] is not None
    assert not half.exists()

    end(chain.backend.process, SIGKILL)
    path.write_bytes(whole[: len(whole) // 2])
    chain.backend.start()
    until(lambda: chain.targets() == "SERVFAIL", told=chain.backend.log)
    (problem,) = status(chain)["problems"]
    assert problem.startswith(f"{path}: not used: "), problem

    chain.registrars.start()
    until(chain.backend.is_known, told=chain.backend.log)
    until(lambda: chain.targets() == {41, 42}, told=chain.backend.log)
    until(lambda: not status(chain)["problems"], told=chain.backend.log)
    assert path.read_bytes() != whole[: len(whole) // 2]
