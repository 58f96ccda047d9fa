"""Real registrars, pool elements, backend and PowerDNS: what joins is in DNS, what leaves is not."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backend import ADDRESS, HANDLE, OWNER, POOL, ZONE, other_pool
from tests.support.chain import Chain
from tests.support.members import Members
from tests.support.namespaces import Namespace, end, own_namespace
from tests.support.stalls import Mark
from tests.support.waiting import until


class Running(Chain):
    """Begun once for all tests; each finds all of it running, and nobody registered."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        super().__init__(namespace, folder)
        self.start()
        self.joined: list[Members] = []
        self._asked_by_pdns = self.backend.process

    def members(self, address: str = ADDRESS) -> Members:
        """Pool elements in a process of their own, at this address."""
        name = f"members-{len(self.joined)}"
        self.joined.append(Members(self.namespace, self.folder, address, self.registrars.addresses, name))
        return self.joined[-1]

    def serve(self, pools: str) -> None:
        """Serve these pools from now on."""
        self.backend.write_zone(pools)
        assert self.backend.command("reload").returncode == 0

    def restore(self) -> None:
        """Start what has ended, and wait until everybody has left."""
        for members in self.joined:
            members.kill()
        self.registrars.start_ended()
        if self.backend.process.poll() is not None:
            self.backend.start()
        if (
            self.backend.process is not self._asked_by_pdns
        ):  # each broken connection to the last one is a SERVFAIL
            self.pdns.stop()
            self.pdns.start(ZONE)
            self._asked_by_pdns = self.backend.process
        self.serve(POOL)
        until(lambda: self.backend.is_known() and not self.backend.pool()["members"], told=self.backend.log)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with own_namespace() as namespace:
        yield Running(namespace, tmp_path_factory.mktemp("service"))


@pytest.fixture
def chain(running: Running) -> Running:
    running.restore()
    return running


@pytest.fixture
def members(chain: Running) -> Members:
    return chain.members()


def join(chain: Running, members: Members, *identifiers: int) -> None:
    for identifier in identifiers:
        members.add(identifier, HANDLE, 5000 + identifier)
    until(lambda: chain.targets() == set(identifiers), told=chain.backend.log)


def test_members_join_leave_and_come_back(chain: Running, members: Members) -> None:
    assert chain.targets() == "NOERROR", "known to be empty"
    join(chain, members, 1, 2, 3)
    left = Mark.now()
    members.remove(2)
    until(lambda: chain.targets() == {1, 3})
    assert left.ran_s() < 1
    members.add(2, HANDLE, 5002)
    until(lambda: chain.targets() == {1, 2, 3})


def test_a_killed_server_leaves_at_once(chain: Running, members: Members) -> None:
    join(chain, members, 1, 2)
    other = chain.members()
    other.add(3, HANDLE, 5003)
    until(lambda: chain.targets() == {1, 2, 3})
    killed = Mark.now()
    other.kill()
    until(lambda: chain.targets() == {1, 2})
    assert killed.ran_s() < 1.5


def test_load_moves_the_weight(chain: Running, members: Members) -> None:
    join(chain, members, 1, 2)
    members.set_load(1, 0.6)
    until(lambda: sorted(line.split()[1] for line in chain.pdns.short(OWNER, "SRV")) == ["1000", "400"])
    members.set_load(2, 0.99)
    until(lambda: [line.split()[0] for line in chain.pdns.short(OWNER, "SRV")] == ["0", "1"])


def test_status_tells_who_is_in_and_why_somebody_is_not(chain: Running, members: Members) -> None:
    chain.namespace.ip("address", "add", "10.99.0.77/24", "dev", "eth0")
    stranger = chain.members("10.99.0.77")
    join(chain, members, 1)
    stranger.add(7, HANDLE, 5007)
    until(
        lambda: "00000007" in [member["identifier"] for member in chain.backend.pool()["out"]],
        told=chain.backend.log,
    )
    assert chain.targets() == {1}
    status = json.loads(chain.backend.command("status", "--json").stdout)
    (pool,) = status["zones"][0]["pools"]
    assert [member["identifier"] for member in pool["members"]] == ["00000001"]
    assert pool["members"][0]["weight"] == 1000
    (out,) = (member for member in pool["out"] if member["identifier"] == "00000007")
    assert (out["identifier"], out["address"]) == ("00000007", "10.99.0.77")
    assert "accept" in out["reason"]
    assert {registrar["standing"] for registrar in status["registrars"]} == {"settled"}
    assert status["pdns"][0]["problem"] is None
    shown = chain.backend.command("status").stdout
    for word in ("00000001", "00000007", "refused", "settled", OWNER, "works"):
        assert word in shown


def test_without_any_view_it_is_servfail(namespace: Namespace, tmp_path: Path) -> None:
    chain = Chain(namespace, tmp_path)
    for program in chain.registrars.programs:
        end(program, signal.SIGKILL)
    chain.backend.start()
    chain.pdns.start(ZONE)
    assert chain.targets() == "SERVFAIL"
    assert chain.pdns.short(ZONE, "NS") == [f"ns1.{ZONE}."]


def test_a_backend_that_hangs_takes_powerdns_with_it_only_while_it_hangs(
    chain: Running, members: Members
) -> None:
    join(chain, members, 1, 2)
    os.killpg(chain.backend.process.pid, signal.SIGSTOP)
    try:
        end_s = time.monotonic() + 4
        while time.monotonic() < end_s:
            assert chain.targets() in ({1, 2}, "SERVFAIL", ""), "an empty answer"
    finally:
        os.killpg(chain.backend.process.pid, signal.SIGCONT)
    until(lambda: chain.targets() == {1, 2}, 10)
    assert chain.pdns.process is not None
    assert chain.pdns.process.poll() is None


def test_zones_are_read_again(chain: Running, members: Members) -> None:
    join(chain, members, 1)
    second = POOL.replace('name = "as"', 'name = "new"').replace(HANDLE, "second")
    chain.backend.write_zone(POOL + second + "nonsense = 1\n")
    refused = chain.backend.command("reload")
    assert refused.returncode == 1
    assert "nonsense" in refused.stderr
    assert chain.targets() == {1}
    chain.backend.write_zone(POOL + second)
    assert chain.backend.command("reload").stdout == f"serving {ZONE}\n"
    members.add(5, "second", 5005)
    until(lambda: len(chain.pdns.short(f"_sip._udp.new.{ZONE}", "SRV")) == 1)
    assert chain.targets() == {1}


def test_a_second_backend_at_the_same_sockets_says_so(chain: Running) -> None:
    """If there is no SCTP, that is said first, since it must be mended in any case; so this test needs
    SCTP."""
    second = chain.backend.command("serve", sctp=True)
    assert second.returncode == 1
    assert "another process already answers" in second.stderr
    assert "Traceback" not in second.stderr


def test_an_element_of_rsplib_is_in_dns(chain: Running) -> None:
    chain.serve(POOL + other_pool("sctp", "s"))
    log = chain.folder / "rspserver.log"
    chain.namespace.start(
        *("rspserver", "-echo", "-policy=LeastUsed", "-poolhandle=sip-sctp", f"-local={ADDRESS}:0"),
        *(f"-registrar={registrar}" for registrar in chain.registrars.addresses),
        "-asapannounce=off",
        sctp=True,
        log=log,
    )
    owner = f"_sip._sctp.as.{ZONE}"
    until(lambda: chain.pdns.short(owner, "SRV"), told=log)
    (record,) = chain.pdns.short(owner, "SRV")
    target = record.split()[3]
    assert target.endswith(f".s.as.{ZONE}.")
    assert chain.pdns.short(target, "A") == [ADDRESS]
