"""Restarts of the backend below systemd, which keeps its socket and its connections: no question fails."""

import time
from collections.abc import Iterator
from contextlib import closing
from signal import SIGKILL, SIGTERM, Signals

import pytest
from pdns_config import PdnsSettings
from rspdns_lab.net.service_manager import ServiceManager

from tests.support.backend import ADDRESS, HANDLE, ZONE
from tests.support.chain import Chain
from tests.support.dns_stream import DnsStream
from tests.support.members import Members
from tests.support.namespaces import end, own_namespace
from tests.support.waiting import until

PER_S = 300
PATIENT_MS = 30_000
"""The time that PowerDNS waits for an answer: a busy machine that starts slowly fails no test."""
THREADS = PdnsSettings().receiver_threads * PdnsSettings().distributor_threads


class Restarted:
    """A chain whose backend a service manager starts."""

    def __init__(self, chain: Chain, manager: ServiceManager) -> None:
        self.chain, self.manager = chain, manager
        self.backend = chain.backend.start(manager)
        chain.pdns.start(ZONE)
        until(chain.backend.is_known, 40, chain.backend.log)
        members = Members(chain.namespace, chain.folder, ADDRESS, chain.registrars.addresses)
        members.add(1, HANDLE, 5001)
        members.add(2, HANDLE, 5002)
        until(lambda: chain.targets() == {1, 2}, told=chain.backend.log)

    def restart(self, how: Signals) -> dict[str, int]:
        """Restart the backend while DNS is asked all the time; what was answered, by rcode."""
        log = self.chain.folder / f"stream-{how.name}.log"
        # Below the target name, where members come and go: PowerDNS has to ask.
        stream = DnsStream(self.chain.namespace, f"u.as.{ZONE}", PER_S, log)
        until(lambda: not self.manager.is_keeping or self.manager.stored >= THREADS)
        until(lambda: self.chain.backend.remembers({1, 2}))
        serial = self.serial()
        assert end(self.backend, how) == (0 if how is SIGTERM else -SIGKILL)
        assert (self.chain.folder / "remote.sock").exists(), "the socket is not the backend's to remove"
        self.backend = self.chain.backend.start(self.manager)
        until(lambda: self.chain.targets() == {1, 2}, told=self.chain.backend.log)
        assert self.serial() >= serial
        time.sleep(0.5)
        return stream.end()

    def serial(self) -> int:
        """The zone's serial in DNS."""
        until(lambda: self.chain.pdns.short(ZONE, "SOA"), told=self.chain.backend.log)
        return int(self.chain.pdns.short(ZONE, "SOA")[0].split()[2])


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    folder = tmp_path_factory.mktemp("restarted")
    manager = ServiceManager(folder / "remote.sock", folder / "notify")
    with own_namespace() as namespace, closing(manager):
        yield Restarted(Chain(namespace, folder, backend_timeout_ms=PATIENT_MS), manager)


def test_an_orderly_restart_costs_no_answer(restarted: Restarted) -> None:
    told = restarted.restart(SIGTERM)
    assert told.keys() == {"NXDOMAIN"}, told
    assert "READY=1" in restarted.manager.notified
    assert "STOPPING=1" in restarted.manager.notified


def test_a_killed_backend_costs_at_most_one_answer_for_each_thread(restarted: Restarted) -> None:
    told = restarted.restart(SIGKILL)
    assert told.keys() <= {"NXDOMAIN", "SERVFAIL"}, told
    assert told.get("SERVFAIL", 0) <= THREADS, told
    assert told["NXDOMAIN"] > PER_S / 3


def test_without_the_connections_it_is_one_answer_for_each_thread(restarted: Restarted) -> None:
    """As with systemd's socket alone."""
    restarted.manager.keep_nothing()
    told = restarted.restart(SIGKILL)
    assert told.keys() <= {"NXDOMAIN", "SERVFAIL"}, told
    assert 0 < told["SERVFAIL"] <= THREADS, told
