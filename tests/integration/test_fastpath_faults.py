"""Faults around the fast path: whatever stops, what the kernel answers is right or PowerDNS answers."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pool_user import Member, PoolView
from rspdns.fastpath import problems
from rspdns.fastpath.messages import hello
from rspdns_lab.net.network import call_in

from rserpool import Protocol
from tests.backend.making import TCP, UDP, ZONE, member, view, views, zone
from tests.support.bpf_run import frame, question
from tests.support.fast_path import (
    FAST,
    LEASE_S,
    FastStage,
    built,
    fast_stage,
    leave_checksums_to_hardware,
    needs_bpf,
    take_vlan_tags_out,
)
from tests.support.namespaces import Namespace, own_namespace
from tests.support.waiting import until

OWNER, HOST = f"_sip._udp.as.{ZONE}", f"as.{ZONE}"
VIRTUAL_MAC = "00:00:5e:00:01:07"
TWO = views(view(member(1), member(2)))
ONE = views(view(member(1)))


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastStage]:
    with fast_stage([zone()], TWO, tmp_path_factory.mktemp("fast")) as made:
        yield made


def addresses(stage: FastStage) -> set[str]:
    """The addresses that a client gets."""
    said = stage.client.run("dig", f"@{FAST}", "+short", "+tries=1", "+time=5", "+nocookie", HOST, "A").stdout
    return set(said.split())


def answered(stage: FastStage) -> int:
    """How many questions the kernel answered, when one more is asked."""
    before = stage.decisions()["answered"]
    assert addresses(stage)
    return stage.decisions()["answered"] - before


def test_change_is_seen_at_once_and_what_left_is_not_answered(stage: FastStage) -> None:
    assert addresses(stage) == {"10.0.0.1", "10.0.0.2"}
    assert answered(stage) == 1
    stage.backend.publish(ONE)
    until(lambda: addresses(stage) == {"10.0.0.1"})
    assert answered(stage) == 1
    names = {row["name"] for row in stage.status()["asked"]}
    assert names == {OWNER, HOST, f"00000001.u.{HOST}"}
    stage.backend.publish(views(view()))
    until(lambda: not addresses(stage))


WATCH = """
import json, socket, struct, sys, time
name, seconds = sys.argv[2], float(sys.argv[3])
wire = b"".join(bytes([len(one)]) + one.encode() for one in name.split(".")) + b"\\0\\0\\1\\0\\1"
file = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
file.setsockopt(socket.SOL_SOCKET, 64, 1)  # SO_TIMESTAMPNS_NEW: when the kernel received it
file.connect((sys.argv[1], 53))
file.settimeout(0.05)
ahead = max(time.time() - time.monotonic() for _ in range(100))  # between the two it may be interrupted
got, end, number = [], time.monotonic() + seconds, 0
while time.monotonic() < end:
    number = (number + 1) % 65536
    file.send(number.to_bytes(2, "big") + b"\\0\\0\\0\\1\\0\\0\\0\\0\\0\\0" + wire)
    try:
        _, ancillary, _, _ = file.recvmsg(512, 100)
        whole, part = struct.unpack("qq", ancillary[0][2])
        got.append(whole + part / 1e9 - ahead)
    except TimeoutError:
        pass
    time.sleep(0.005)
print(json.dumps(got))
"""
FROZEN_S = 3.0
BUSY_MACHINE_S = 0.1
"""Between the kernel's look at the lease and the receipt of its answer."""


FOLLOW = """
import json, socket, sys, time
import dns.message, dns.rdatatype
server, seconds, *names = sys.argv[1:]
queries = [dns.message.make_query(name, "SRV").to_wire() for name in names]
file = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
file.connect((server, 53))
file.settimeout(1)
latest, back, seen, end = 0, [], set(), time.monotonic() + float(seconds)
while time.monotonic() < end:
    for query in queries:
        file.send(query)
        try:
            answer = dns.message.from_wire(file.recv(1232))
        except TimeoutError:
            continue
        (records,) = answer.answer
        (moment,) = {record.port for record in records}
        glue = {(rrset.name, record.address) for rrset in answer.additional for record in rrset}
        moments = {int(address.split(".")[2]) + 5000 for _, address in glue}
        if len(glue) != len(records) or moments != {moment} or moment < latest:
            back.append([latest, moment, sorted(moments)])
        latest = max(latest, moment)
        seen.add(moment)
print(json.dumps([len(seen), back]))
"""


def test_two_names_and_the_addresses_beside_them_are_of_one_moment_that_never_goes_back(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Port and addresses of both pools tell the moment; it moves a hundred times a second."""

    def at(moment: int) -> Mapping[str, PoolView]:
        def members(protocol: Protocol) -> list[Member]:
            return [
                member(identifier, f"10.0.{moment}.{identifier}", port=5000 + moment, protocol=protocol)
                for identifier in (1, 2)
            ]

        return views(view(*members(Protocol.UDP)), view(*members(Protocol.TCP), handle="sip-tcp"))

    def follow(stage: FastStage) -> tuple[int, int, list[object]]:
        """How many questions PowerDNS had to answer, how many moments were seen, and what was wrong."""
        stage.backend.publish(at(0))
        until(lambda: addresses(stage) == {"10.0.0.1", "10.0.0.2"})
        before = stage.decisions()
        with ThreadPoolExecutor(1) as threads:
            asking = threads.submit(stage.ask, FOLLOW, FAST, "2", OWNER, OWNER.replace("_udp", "_tcp"))
            moment = 0
            while not asking.done() and moment < 255:
                moment += 1
                stage.backend.publish(at(moment))
                time.sleep(0.01)
            seen, wrong = asking.result()
        after = stage.decisions()
        return sum(after[reason] - before[reason] for reason in ("no_lease", "unknown_name")), seen, wrong

    with fast_stage([zone(UDP + TCP)], at(0), tmp_path_factory.mktemp("fast")) as stage:
        for _ in range(4):
            by_powerdns, seen, wrong = follow(stage)
            if not by_powerdns:  # else the machine stood still: PowerDNS's caches may know of another moment
                break
        assert seen > 20
        assert not wrong or by_powerdns, wrong


def test_frozen_backend_answers_from_the_map_for_no_more_than_the_lease(stage: FastStage) -> None:
    """PowerDNS is stopped, too: whatever is answered comes from the kernel."""
    assert stage.pdns.process is not None
    assert addresses(stage)
    os.kill(stage.pdns.process.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as threads:
            watching = threads.submit(stage.ask, WATCH, FAST, HOST, "6")
            before = stage.decisions()["answered"]
            until(lambda: stage.decisions()["answered"] > before)
            frozen_s = stage.backend.freeze(FROZEN_S)
            times = watching.result()
    finally:
        os.kill(stage.pdns.process.pid, signal.SIGCONT)
    assert min(times) < frozen_s
    after = [at_s - frozen_s for at_s in times if 0 < at_s - frozen_s < FROZEN_S]
    assert max(after, default=0) <= LEASE_S + BUSY_MACHINE_S
    assert stage.decisions()["no_lease"] > 0
    stage.wait_until_ready()
    assert answered(stage) == 1


def test_killed_daemon_leaves_a_program_that_answers_nothing(stage: FastStage) -> None:
    stage.daemons[0].kill()
    stage.daemons[0].wait()
    until(lambda: not stage.link.is_answering)
    stage.backend.publish(ONE)
    until(lambda: addresses(stage) == {"10.0.0.1"})
    assert "bpf" in stage.server.run("tc", "filter", "show", "dev", "server", "ingress").stdout
    stage.start_daemon()  # loads the program anew
    stage.wait_until_ready()
    assert addresses(stage) == {"10.0.0.1"}
    assert answered(stage) == 1
    shown = stage.server.run("tc", "filter", "show", "dev", "server", "ingress").stdout
    assert shown.count("direct-action") == 1


def test_change_while_the_daemon_is_frozen_is_seen_before_the_lease_would_end(stage: FastStage) -> None:
    """The backend ends the lease itself: PowerDNS, purged as ever, answers within milliseconds."""

    def change_s(pools: Mapping[str, PoolView], wanted: set[str]) -> float:
        stage.daemons[0].send_signal(signal.SIGSTOP)
        try:
            stage.backend.publish(pools)
            began_s = time.monotonic()
            until(lambda: addresses(stage) == wanted)
            return time.monotonic() - began_s
        finally:
            stage.daemons[0].send_signal(signal.SIGCONT)
            until(lambda: stage.link.is_answering)
            assert addresses(stage) == wanted
            assert answered(stage) == 1

    first, two = {"10.0.0.1"}, {"10.0.0.1", "10.0.0.2"}
    # The best of some, since the machine may stand still for as long as a lease lasts.
    assert min(change_s(ONE, first), change_s(TWO, two), change_s(ONE, first)) < LEASE_S / 2


def test_detach_leaves_nothing_behind(stage: FastStage) -> None:
    stage.command("detach")
    until(lambda: stage.daemons[0].poll() == 0)
    assert "bpf" not in stage.server.run("tc", "filter", "show", "dev", "server", "ingress").stdout
    assert addresses(stage) == {"10.0.0.1", "10.0.0.2"}
    stage.start_daemon()
    stage.daemons[1].kill()
    stage.daemons[1].wait()
    stage.command("detach", "--interface", "server")
    assert "bpf" not in stage.server.run("tc", "filter", "show", "dev", "server", "ingress").stdout


@pytest.mark.parametrize("others", ["none", "qdisc", "filter"])
def test_detach_removes_the_queueing_discipline_it_made_and_none_that_others_use(
    tmp_path: Path, others: str
) -> None:
    needs_bpf()
    with own_namespace() as namespace:

        def tc(*words: str) -> str:
            done = namespace.run("tc", *words)
            assert done.returncode == 0, done.stderr
            return done.stdout

        if others == "qdisc":
            tc("qdisc", "add", "dev", "lo", "clsact")
        path = tmp_path / "fastpath.sock"
        command = [str(built()), "run", "--interface", "lo", "--address", "127.0.0.1", "--socket", str(path)]
        daemon = namespace.start(*command, log=tmp_path / "log")
        until(lambda: "direct-action" in tc("filter", "show", "dev", "lo", "ingress"), told=tmp_path / "log")
        if others == "filter":
            where = ("filter", "add", "dev", "lo", "egress", "prio", "7")
            tc(*where, "bpf", "flowid", "1:1", "bytecode", "1,6 0 0 0")
        daemon.terminate()
        assert daemon.wait(60) == 0
        assert ("clsact" in tc("qdisc", "show", "dev", "lo")) == (others != "none")
        assert "direct-action" not in tc("filter", "show", "dev", "lo", "ingress")
        assert ("bytecode" in tc("filter", "show", "dev", "lo", "egress")) == (others == "filter")


def test_interface_that_goes_and_comes_is_attached_again(stage: FastStage) -> None:
    assert answered(stage) == 1
    stage.server.ip("link", "delete", "server")
    until(lambda: not stage.status()["interfaces"][0]["attached"])
    stage.backend.publish(ONE)
    stage.connect()
    until(lambda: stage.status()["interfaces"][0]["attached"])
    until(lambda: addresses(stage) == {"10.0.0.1"})
    assert answered(stage) == 1


def rename(stage: FastStage, now: str) -> None:
    for words in (("down",), ("name", now)):
        stage.server.ip("link", "set", "server", *words)
    stage.server.ip("link", "set", now, "up")


def ingress(namespace: Namespace, interface: str) -> str:
    """The qdiscs, the filters and the XDP programs at an interface."""
    shown = namespace.run("tc", "qdisc", "show", "dev", interface).stdout
    shown += namespace.run("tc", "filter", "show", "dev", interface, "ingress").stdout
    return shown + namespace.run("ip", "-d", "link", "show", interface).stdout


def is_clean(shown: str) -> bool:
    return not any(trace in shown for trace in ("clsact", "fastpath", "prog/xdp"))


@pytest.mark.parametrize("mode", ["tc", "xdp-generic"])
def test_renamed_interface_keeps_the_program_and_gives_it_back(
    tmp_path_factory: pytest.TempPathFactory, mode: str
) -> None:
    with fast_stage([zone()], TWO, tmp_path_factory.mktemp("fast"), "--mode", mode) as stage:
        assert answered(stage) == 1
        rename(stage, 'out"side')
        until(lambda: "renamed to out?side" in stage.status()["interfaces"][0]["problem"])
        assert stage.status()["interfaces"][0]["attached"]
        assert any("renamed" in problem for problem in problems(str(stage.socket)))
        assert answered(stage) == 1
        assert not is_clean(ingress(stage.server, 'out"side'))
        stage.daemons[0].terminate()
        assert stage.daemons[0].wait(30) == 0
        assert is_clean(ingress(stage.server, 'out"side'))
        assert addresses(stage) == {"10.0.0.1", "10.0.0.2"}


def test_program_follows_the_name_when_another_interface_gets_it(stage: FastStage) -> None:
    rename(stage, "before")
    until(lambda: stage.status()["interfaces"][0]["problem"])
    stage.server.ip("link", "add", "server", "type", "veth", "peer", "name", "other")
    until(lambda: not stage.status()["interfaces"][0]["problem"])
    assert is_clean(ingress(stage.server, "before"))
    assert "fastpath" in ingress(stage.server, "server")
    assert answered(stage) == 0


@pytest.mark.parametrize("mode", ["tc", "xdp-generic"])
def test_interface_that_moves_to_another_namespace_takes_no_program_along(
    tmp_path_factory: pytest.TempPathFactory, mode: str
) -> None:
    with (
        own_namespace() as elsewhere,
        fast_stage([zone()], TWO, tmp_path_factory.mktemp("fast"), "--mode", mode) as stage,
    ):
        assert answered(stage) == 1
        stage.server.ip("link", "set", "server", "netns", elsewhere.name)
        until(lambda: not stage.status()["interfaces"][0]["attached"])
        until(lambda: is_clean(ingress(elsewhere, "server")))
        stage.daemons[0].terminate()
        assert stage.daemons[0].wait(30) == 0
        assert is_clean(ingress(elsewhere, "server"))


def test_detach_finds_what_a_killed_daemon_left_at_a_renamed_interface(stage: FastStage) -> None:
    stage.daemons[0].kill()
    stage.daemons[0].wait()
    rename(stage, "before")
    assert "fastpath" in ingress(stage.server, "before")
    stage.command("detach")
    assert "fastpath" not in ingress(stage.server, "before")


def test_datagram_with_the_pseudo_headers_sum_alone_is_answered_without_a_wire_only(
    stage: FastStage,
) -> None:
    """The kernel leaves such a checksum to the hardware. A bridge may have got it from a wire."""
    assert answered(stage) == 1, "veth: the client left the checksum to the hardware"
    stage.server.ip("link", "add", "bridge", "type", "bridge")
    stage.server.ip("address", "flush", "dev", "server")
    stage.server.ip("link", "set", "server", "master", "bridge")
    stage.server.ip("address", "add", f"{FAST}/24", "dev", "bridge")
    stage.server.ip("link", "set", "bridge", "up")
    stage.daemons[0].terminate()
    stage.daemons[0].wait(30)
    stage.start_daemon(interface="bridge")
    stage.wait_until_ready()
    before = stage.decisions()
    assert addresses(stage) == {"10.0.0.1", "10.0.0.2"}
    until(lambda: stage.decisions()["checksum"] > before["checksum"])
    assert stage.decisions()["answered"] == before["answered"]
    leave_checksums_to_hardware(stage.client, "client", wanted=False)
    assert answered(stage) == 1


def test_second_backend_is_refused_while_the_first_renews_its_lease(stage: FastStage) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.connect(str(stage.socket))
        other.sendall(hello(1232))
        assert b"another backend is connected" in other.recv(1000)
    assert answered(stage) == 1


@pytest.mark.parametrize("room", [("--names", "3"), ("--answers", "4")])
def test_names_without_room_are_left_to_powerdns_and_changes_stay_right(
    tmp_path_factory: pytest.TempPathFactory, room: tuple[str, str]
) -> None:
    """There are five slots; they are used again and again."""
    first, two = {"10.0.0.1"}, {"10.0.0.1", "10.0.0.2"}
    with fast_stage([zone()], TWO, tmp_path_factory.mktemp("fast"), *room) as stage:
        for turn in range(12):
            pools, wanted = ((ONE, first), (TWO, two))[turn % 2]
            stage.backend.publish(pools)
            until(lambda wanted=wanted: addresses(stage) == wanted)  # type: ignore[misc]
        told = stage.status()
        assert stage.link.refused > 0
        assert 0 < told["names"] <= int(room[1])


def test_privileges_are_dropped(stage: FastStage) -> None:
    pid = stage.daemons[0].pid
    text = Path(f"/proc/{pid}/status").read_text()
    lines = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    kept = 1 << 12 | 1 << 39  # CAP_NET_ADMIN, CAP_BPF
    assert int(lines["CapEff"], 16) == int(lines["CapPrm"], 16) == kept
    assert int(lines["CapBnd"], 16) == kept
    assert lines["NoNewPrivs"] == "1"


def test_generic_xdp_answers_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    with fast_stage([zone()], TWO, tmp_path_factory.mktemp("fast"), "--mode", "xdp-generic") as stage:
        assert answered(stage) == 1


def test_what_became_of_a_question_is_told_when_it_is_final(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """In this mode a packet seldom has room for a long answer: PowerDNS answers then, and that is told."""
    eight = views(view(*(member(number) for number in range(1, 9))))
    with fast_stage([zone()], eight, tmp_path_factory.mktemp("fast"), "--mode", "xdp-generic") as stage:
        log = stage.folder / "trace"
        tracing = stage.server.start(str(built()), "trace", "--socket", str(stage.socket), log=log)
        ask = ("dig", f"@{FAST}", "+tries=1", "+time=10", "+nocookie")

        def is_tracing() -> bool:
            stage.client.run(*ask, HOST, "A")
            return " A answered" in log.read_text()

        def asked() -> tuple[int, int, int]:
            (counts,) = (row for row in stage.status()["asked"] if row["type"] == "SRV")
            return counts["answered"], counts["passed"], counts["failed"]

        def how_it_ended() -> str:
            """The decision on a question; counters, in total and by name, and trace agree."""
            before, asked_before, told_before = stage.decisions(), asked(), srv_told()
            assert "status: NOERROR" in stage.client.run(*ask, OWNER, "SRV").stdout
            after, asked_after = stage.decisions(), asked()
            ((became, count),) = {
                (reason, after[reason] - before[reason])
                for reason in after
                if after[reason] != before[reason]
            }
            assert count == 1
            kinds = [became == "answered", became not in ("answered", "not_grown"), became == "not_grown"]
            assert asked_after == tuple(
                before + more for before, more in zip(asked_before, kinds, strict=True)
            )
            until(lambda: len(srv_told()) > len(told_before), told=log)
            assert srv_told() == [*told_before, [OWNER, "SRV", became]]
            return became

        def srv_told() -> list[list[str]]:
            return [line.split()[1:] for line in log.read_text().splitlines() if "SRV" in line]

        try:
            until(is_tracing, told=log)
            until(lambda: how_it_ended() in ("answered", "not_grown"))  # else the machine stood still
        finally:
            tracing.terminate()
            tracing.wait(30)


def send_frame(stage: FastStage, sent: bytes) -> None:
    """From the client, to the server's MAC address."""
    (link,) = json.loads(stage.server.run("ip", "-j", "link", "show", "server").stdout)
    whole = bytes.fromhex(link["address"].replace(":", "")) + sent[6:]

    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind(("client", 0))
            wire.send(whole)

    call_in(Path("/run/netns") / stage.client.name, send)


@pytest.mark.parametrize("mode", ["tc", "xdp-generic"])
def test_question_in_a_vlan_that_is_not_the_interface_is_left_alone(
    tmp_path_factory: pytest.TempPathFactory, mode: str
) -> None:
    asked = frame(question(OWNER))
    tagged = asked[:12] + b"\x81\0\0\7" + asked[12:]
    with fast_stage([zone()], TWO, tmp_path_factory.mktemp("fast"), "--mode", mode) as stage:
        before = stage.decisions()
        sent = 0

        def is_answered() -> bool:
            nonlocal sent
            send_frame(stage, tagged)
            send_frame(stage, asked)
            sent += 1
            return stage.decisions()["answered"] > before["answered"]

        until(is_answered)  # at once, unless the machine stood still
        until(lambda: sum(stage.decisions().values()) >= sum(before.values()) + sent)
        assert sum(stage.decisions().values()) == sum(before.values()) + sent


def test_xdp_is_refused_where_vlan_tags_are_out_of_its_sight(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Also when that is turned on later: a question in any VLAN would look like one in none."""
    with fast_stage([zone()], TWO, tmp_path_factory.mktemp("fast"), "--mode", "xdp-generic") as stage:
        assert answered(stage) == 1
        take_vlan_tags_out(stage.server, "server", wanted=True)
        until(lambda: not stage.status()["interfaces"][0]["attached"])
        assert "ethtool -K NAME rxvlan off, or use tc" in stage.status()["interfaces"][0]["problem"]
        assert "xdp" not in stage.server.run("ip", "link", "show", "server").stdout
        assert answered(stage) == 0
        take_vlan_tags_out(stage.server, "server", wanted=False)
        until(lambda: stage.status()["interfaces"][0]["attached"])
        until(lambda: answered(stage) == 1)


def test_xdp_generic_is_refused_at_a_bridge(stage: FastStage) -> None:
    stage.server.ip("link", "add", "bridge", "type", "bridge")
    other = stage.folder / "other.sock"
    stage.start_daemon("--mode", "xdp-generic", "--socket", str(other), interface="bridge")
    until(other.exists)
    told = stage.server.run(str(built()), "status", "--socket", str(other)).stdout
    (interface,) = json.loads(told)["interfaces"]
    assert not interface["attached"]
    assert "a bridge hands VLAN tags on" in interface["problem"]


def test_mac_address_of_before_another_programs_end_is_no_longer_this_hosts(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The interface was another XDP program's first; its MAC address changed in the meantime."""
    before, now = "02:00:00:00:00:71", "02:00:00:00:00:72"
    mode = ("--mode", "xdp-generic")
    with fast_stage([zone()], TWO, tmp_path_factory.mktemp("fast"), *mode) as stage:
        first = stage.daemons[0]
        stage.server.ip("link", "delete", "server")
        until(lambda: not stage.status()["interfaces"][0]["attached"])
        first.send_signal(signal.SIGSTOP)
        other = stage.folder / "other.sock"
        holder = stage.start_daemon(*mode, "--socket", str(other))
        stage.connect()
        stage.server.ip("link", "set", "server", "address", before, "promisc", "on")

        def holds() -> bool:
            told = stage.server.run(str(built()), "status", "--socket", str(other)).stdout
            return bool(told) and bool(json.loads(told)["interfaces"][0]["attached"])

        until(holds)
        first.send_signal(signal.SIGCONT)
        until(lambda: "another XDP program" in stage.status()["interfaces"][0]["problem"])
        stage.server.ip("link", "set", "server", "address", now)
        holder.terminate()
        holder.wait(30)
        until(lambda: stage.status()["interfaces"][0]["attached"])
        stage.wait_until_ready()

        def is_answered(mac: str) -> bool:
            stage.client.ip("neigh", "replace", FAST, "lladdr", mac, "dev", "client")
            counted = stage.decisions()["answered"]
            stage.client.run("dig", f"@{FAST}", "+tries=1", "+time=1", "+nocookie", HOST, "A")
            return stage.decisions()["answered"] > counted

        until(lambda: is_answered(now))
        assert not is_answered(before)


def test_xdp_answers_frames_for_this_host_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A promiscuous interface, the port of a bridge, the backup of VRRP: frames of other hosts come by."""
    options = ("--mode", "xdp-generic", "--mac", VIRTUAL_MAC)
    with fast_stage([zone()], TWO, tmp_path_factory.mktemp("fast"), *options) as stage:

        def ask(mac: str) -> int:
            """How many are answered of a question in a frame to this MAC address."""
            stage.client.ip("neigh", "replace", FAST, "lladdr", mac, "dev", "client")
            before = stage.decisions()
            stage.client.run("dig", f"@{FAST}", "+tries=1", "+time=1", "+nocookie", HOST, "A")
            after = stage.decisions()
            assert sum(after.values()) > sum(before.values()), "the program saw it"
            return after["answered"] - before["answered"]

        stage.server.ip("link", "set", "server", "promisc", "on")
        assert ask("02:00:00:00:00:77") == 0
        assert ask(VIRTUAL_MAC) == 1
        stage.server.ip("link", "set", "server", "address", "02:00:00:00:00:78")
        until(lambda: ask("02:00:00:00:00:78") == 1)
        stage.server.ip("link", "set", "server", "address", "02:00:00:00:00:79")
        until(lambda: ask("02:00:00:00:00:79") == 1)
        assert ask("02:00:00:00:00:78") == 0, "it was the interface's address"


def test_real_time_kernel_is_refused() -> None:
    pretend = "mount -t tmpfs none /sys/kernel && echo 1 >/sys/kernel/realtime"
    command = ["unshare", "--mount", "sh", "-c", f"{pretend} && exec {built()} probe"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "PREEMPT_RT" in done.stderr


def test_mac_addresses_of_groups_are_refused() -> None:
    for wrong in ("01:00:5e:00:00:01", "00:00:5e:00:01", "00:00:5e:00:01:07:08", "x"):
        command = [str(built()), "run", "--interface", "eth0", "--address", "10.0.0.1", "--mac", wrong]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, "is no MAC address of a host" in done.stderr) == (1, True)


def test_native_xdp_on_veth_is_refused_with_the_reason_and_powerdns_answers(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Attached, it would take questions and lose their answers."""
    with fast_stage([zone()], TWO, tmp_path_factory.mktemp("fast"), "--mode", "xdp") as stage:
        assert addresses(stage) == {"10.0.0.1", "10.0.0.2"}
        (interface,) = stage.status()["interfaces"]
        assert not interface["attached"]
        assert "would lose the answers in mode xdp: use tc" in interface["problem"]
        assert [interface["problem"] in said for said in problems(str(stage.socket))] == [True]
        assert "not at server: a veth interface" in (stage.folder / "fastpath.log").read_text()


def test_probe_without_rights_says_which_are_missing() -> None:
    needs_bpf()
    dropped = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--")
    done = subprocess.run(
        [*dropped, built(), "probe"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "it needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN" in done.stderr
