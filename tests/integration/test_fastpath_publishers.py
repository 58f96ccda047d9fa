"""Publishers of ready answers come and go, and are killed: what the kernel answers meanwhile."""

import json
import mmap
import os
import re
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from ipaddress import ip_address
from pathlib import Path

import pytest
from rspdns.fastpath import ask_daemon, messages
from rspdns.fastpath.ready import Answer, Question
from rspdns_lab.net.network import call_in

from tests.support.bpf_run import question
from tests.support.fast_path import LEASE_S, built, needs_bpf
from tests.support.namespaces import Namespace, own_namespace
from tests.support.waiting import until

ADDRESS = "127.0.0.1"
BUSY_MACHINE_S = 0.1
NOBODY = ""
"""PowerDNS got the question."""


class Publisher:
    """A backend, as far as the daemon sees one."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        self._socket.connect(str(path))
        self._socket.sendall(messages.hello(1232))
        said, (file,), _, _ = socket.recv_fds(self._socket, 7, 1)
        self.number = struct.unpack("=IBH", said)[2]
        with os.fdopen(file):
            self._memory = mmap.mmap(file, mmap.PAGESIZE)
        self._commits = 0

    def put(self, name: str, address: str) -> None:
        """This address is the answer, from the next commit on."""
        data = ip_address(address).packed
        record = Answer(1, 0, struct.pack("!HHHIH", 0xC00C, 1, 1, 1, len(data)) + data)
        self._socket.sendall(messages.put(Question(name, "A"), [record]))

    def commit(self) -> int:
        """Return how many names found no room."""
        self._commits += 1
        self._socket.sendall(messages.commit(self._commits))
        said = self._socket.recv(17, socket.MSG_WAITALL)
        number, refused = messages.committed(said[5:])
        assert number == self._commits
        return refused

    def renew(self) -> None:
        """Renew the lease: also in the name of one that was killed, whose memory is kept here."""
        self._memory[8 * self.number : 8 * self.number + 8] = struct.pack("=Q", time.monotonic_ns())

    def publish(self, **addresses: str) -> int:
        """All answers there are, and the lease; returns how many found no room."""
        for label, address in addresses.items():
            self.put(f"{label}.example", address)
        refused = self.commit()
        self.renew()
        return refused

    def die(self) -> None:
        """As the kernel closes it when the process is killed: the lease is left as it is."""
        self._socket.close()

    def close(self) -> None:
        self._socket.close()
        self._memory.close()


class Host:
    """A namespace with a name server that hears what the kernel does not answer."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace, self.folder = namespace, folder
        self._name_server = self._made()
        self._name_server.bind((ADDRESS, 53))

    def _made(self) -> socket.socket:
        path = Path("/run/netns") / self.namespace.name
        made: socket.socket = call_in(path, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        return made

    def start(self, socket_name: str = "fastpath.sock", *options: str) -> tuple[Path, subprocess.Popen[str]]:
        """Start a daemon; return its socket and it."""
        path = self.folder / socket_name
        command = [str(built()), "run", "--interface", "lo", "--address", ADDRESS, "--socket", str(path)]
        daemon = self.namespace.start(*command, *options, log=self.folder / f"{socket_name}.log")
        until(lambda: path.exists() or daemon.poll() is not None)
        until(
            lambda: (
                self.filters() and all(interface.attached for interface in ask_daemon(str(path)).interfaces)
            )
        )
        return path, daemon

    def has_publisher(self, path: Path) -> bool:
        """Whether one is connected to this daemon."""
        told = json.loads(self.namespace.run(str(built()), "status", "--socket", str(path)).stdout)
        return bool(told["backend"])

    def filters(self) -> int:
        """How many programs are attached."""
        shown = self.namespace.run("tc", "filter", "show", "dev", "lo", "ingress").stdout
        return len(re.findall(" direct-action ", shown))

    def answers(self, *labels: str, of: Publisher) -> list[str]:
        """The addresses that the kernel answers; NOBODY where the name server has to.

        The lease is renewed before each question, in the name of a dead publisher, too: so the test does not
        depend on how fast this machine is.
        """
        return [self.answer(label, of) for label in labels]

    def answer(self, label: str, of: Publisher | None = None) -> str:
        """The same of one; without a publisher no lease is renewed."""
        with self._made() as client:
            client.connect((ADDRESS, 53))
            if of is not None:
                of.renew()
            client.send(question(f"{label}.example", 1))
            ready, _, _ = select.select([client, self._name_server], [], [], 60)
            assert ready, "the question is lost"
            if client in ready:
                return str(ip_address(client.recv(512)[-4:]))
            self._name_server.recv(512)
            return NOBODY

    def close(self) -> None:
        self._name_server.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    needs_bpf()
    with own_namespace() as namespace, closing(Host(namespace, tmp_path)) as made:
        yield made


def test_answers_of_a_killed_publisher_are_given_until_the_next_one_has_told_all_of_its_own(
    host: Host,
) -> None:
    path, _ = host.start()
    with closing(Publisher(path)) as first:
        assert first.publish(both="10.0.0.1", old="10.0.0.1") == 0
        assert host.answers("both", "old", "new", of=first) == ["10.0.0.1", "10.0.0.1", NOBODY]
        first.die()
        until(lambda: not host.has_publisher(path))
        first.renew()
        with closing(Publisher(path)) as second:
            second.put("both.example", "10.0.0.2")
            second.put("new.example", "10.0.0.2")
            ask_daemon(str(path))  # the daemon has read both
            assert host.answers("both", "old", "new", of=first) == ["10.0.0.1", "10.0.0.1", NOBODY]
            assert second.commit() == 0
            by_old_lease = host.answers("both", "old", "new", of=first)
            assert by_old_lease == [NOBODY] * 3, "it is good for the first one's answers alone"
            assert host.answers("both", "old", "new", of=second) == ["10.0.0.2", NOBODY, "10.0.0.2"]


def test_new_publisher_that_tells_nothing_does_not_lengthen_a_killed_publishers_lease(host: Host) -> None:
    path, _ = host.start()
    with closing(Publisher(path)) as first:
        first.publish(old="10.0.0.1")
        first.renew()
        began_s = time.monotonic()
        first.die()
        until(lambda: not host.has_publisher(path))
        with closing(Publisher(path)) as second:
            second.renew()
            last_s = began_s
            while time.monotonic() - began_s < 2 * LEASE_S:
                asked_s = time.monotonic()
                if host.answer("old") != NOBODY:
                    last_s = asked_s
                second.renew()  # before it has told anything: of no effect
            assert last_s - began_s <= LEASE_S + BUSY_MACHINE_S
            second.publish(old="10.0.0.2")
            assert host.answer("old", second) == "10.0.0.2"


def test_answers_of_a_frozen_publisher_are_gone_with_the_next_publisher(host: Host) -> None:
    """Its connection is open still, and it may wake: its lease is nobody's by then."""
    path, _ = host.start()
    with closing(Publisher(path)) as frozen:
        frozen.publish(old="10.0.0.1")
        until(lambda: ask_daemon(str(path)).lease_ms == 0)
        with closing(Publisher(path)) as second:
            assert second.number != frozen.number
            assert host.answer("old", frozen) == NOBODY
            second.publish(new="10.0.0.2")
            assert host.answers("old", "new", of=second) == [NOBODY, "10.0.0.2"]


@pytest.mark.parametrize("room", [("--names", "3"), ("--answers", "3")])
def test_old_answers_make_room_for_those_of_the_next_publisher(host: Host, room: tuple[str, str]) -> None:
    """There is room for the answers of one publisher, not of two."""
    path, _ = host.start("fastpath.sock", *room)
    old = dict.fromkeys(("a", "b", "c"), "10.0.0.1")
    new = dict.fromkeys(("d", "e", "f"), "10.0.0.2")
    with closing(Publisher(path)) as first:
        assert first.publish(**old) == 0
        first.die()
        until(lambda: not host.has_publisher(path))
        first.renew()
        with closing(Publisher(path)) as second:
            assert second.publish(**new) == 0
            assert set(host.answers(*new, of=second)) == {"10.0.0.2"}
            assert set(host.answers(*old, of=second)) == {NOBODY}


def test_idle_clients_keep_out_neither_a_publisher_nor_an_administrator(host: Host) -> None:
    path, daemon = host.start()
    with ExitStack() as stack:
        first = stack.enter_context(closing(Publisher(path)))
        for _ in range(40):
            idle = stack.enter_context(socket.socket(socket.AF_UNIX))
            idle.connect(str(path))
        assert host.has_publisher(path)
        first.publish(one="10.0.0.1")
        assert host.answer("one", first) == "10.0.0.1"
        first.close()
        until(lambda: not host.has_publisher(path))
        stack.enter_context(closing(Publisher(path))).publish(one="10.0.0.2")
        done = host.namespace.run(str(built()), "detach", "--socket", str(path))
        assert (done.returncode, done.stderr) == (0, "")
        assert daemon.wait(60) == 0


def test_commands_say_that_a_daemon_is_stopped_and_detach_takes_its_program_away(host: Host) -> None:
    path, daemon = host.start()
    with closing(Publisher(path)) as publisher:
        publisher.publish(one="10.0.0.1")
        assert host.answer("one", publisher) == "10.0.0.1"
        daemon.send_signal(signal.SIGSTOP)
        try:
            for words in (["status"], ["detach", "--interface", "lo"]):
                done = host.namespace.run(str(built()), *words, "--socket", str(path))
                assert done.returncode == 1
                assert "the daemon does not answer (is it stopped?)" in done.stderr
            assert host.filters() == 0
            assert host.answer("one", publisher) == NOBODY
        finally:
            daemon.send_signal(signal.SIGCONT)
        assert daemon.wait(60) == 0, "it hears of it when it wakes"


def test_file_that_is_no_socket_is_left_where_it_is(host: Host) -> None:
    path = host.folder / "precious"
    path.write_text("x")
    command = [str(built()), "run", "--interface", "lo", "--address", ADDRESS, "--socket", str(path)]
    done = host.namespace.run(*command)
    assert (done.returncode, path.read_text()) == (1, "x")
    assert "is there, and is no socket" in done.stderr
    done = host.namespace.run(*command[:-1], str(host.folder / "nowhere" / "fastpath.sock"))
    assert (done.returncode, "No such file or directory" in done.stderr) == (1, True)


def test_publishers_of_two_daemons_on_one_host_do_not_touch_each_other(host: Host) -> None:
    """Two backends on one host have a daemon each: own tables, own leases, both asked in turn."""
    (path, daemon), (other_path, other_daemon) = host.start("one.sock"), host.start("other.sock")
    with closing(Publisher(path)) as first, closing(Publisher(other_path)) as other:
        first.publish(one="10.0.0.1")
        other.publish(other="10.0.0.2")
        assert (host.answer("one", first), host.answer("other", other)) == ("10.0.0.1", "10.0.0.2")
        first.die()
        until(lambda: host.answer("one") == NOBODY)
        assert host.answer("other", other) == "10.0.0.2"
        with closing(Publisher(path)) as again:
            again.publish(again="10.0.0.3")
            assert (host.answer("again", again), host.answer("other", other)) == ("10.0.0.3", "10.0.0.2")
        daemon.kill()  # its program stays at the interface, and passes on
        daemon.wait()
        assert host.filters() == 2
        assert host.answer("other", other) == "10.0.0.2"
        said = host.namespace.run(str(built()), "detach", "--interface", "lo", "--socket", str(path))
        assert (said.returncode, host.filters()) == (0, 1)
        assert host.answer("other", other) == "10.0.0.2"
        other_daemon.terminate()
        assert other_daemon.wait(60) == 0
        assert host.filters() == 0
        assert host.answer("other", other) == NOBODY
