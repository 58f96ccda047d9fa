"""The emulated link: its disciplines on traces, under ASan and UBSan, and real TCP between two hosts."""

import math
import os
import random
import socket
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from rspdns_lab.errors import LabError
from rspdns_lab.link import Discipline, Link, LinkSetting
from rspdns_lab.net.network import Host, LabNetwork, call_in

from tests.labs.link_replays import build_replay

SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
MBIT = 1e6
BULK, SYN = 1, 2


@dataclass(frozen=True)
class Arrival:
    at_us: int
    flow: int
    length: int = 1000
    is_syn: bool = False


@dataclass(frozen=True)
class Fate:
    number: int
    at_us: int
    what: str


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_replay(tmp_path_factory.mktemp("link") / "link", *SANITIZED)


def replay(
    program: Path, setting: LinkSetting | str, trace: Sequence[Arrival], seed: int = 1
) -> Sequence[Fate]:
    lines = "".join(f"{each.at_us} {each.flow} {each.length} {each.is_syn:d}\n" for each in trace)
    numbers = setting if isinstance(setting, str) else setting.numbers
    done = subprocess.run(
        [program, str(seed), numbers], input=lines, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(done.stderr)
    found = [line.split() for line in done.stdout.splitlines()]
    fates = [Fate(int(number), int(at_us), what) for number, at_us, what in found]
    assert sorted(fate.number for fate in fates) == list(range(len(trace))), "each packet has one fate"
    return fates


def random_trace(seed: int) -> Sequence[Arrival]:
    """Packets of 1,000 bytes and SYNs of 60, three a millisecond; of the large ones, 8 Mbit/s carry one."""
    dice = random.Random(seed)
    at_us, trace = 0.0, []
    for _ in range(1000):
        at_us += dice.expovariate(3 / 1000)
        is_syn = dice.random() < 0.3
        trace.append(Arrival(int(at_us), dice.randrange(9), 60 if is_syn else 1000, is_syn))
    return trace


def wrong_syn_drops(trace: Sequence[Arrival], fates: Sequence[Fate], rate_bps: float) -> int:
    """How often a SYN was dropped while a standard packet was queued: computed from the fates alone."""
    fate_of = {fate.number: fate for fate in fates}
    wrong = 0
    for fate in fates:
        if fate.what == "delivered" or not trace[fate.number].is_syn:
            continue
        for number in range(fate.number):
            other, end = trace[number], fate_of[number]
            service_us = other.length * 8e6 / rate_bps if end.what == "delivered" else 0
            if not other.is_syn and end.at_us - service_us > fate.at_us + 1:
                wrong += 1
                break
    return wrong


def test_rate_and_delay_are_exact_and_the_queue_has_its_limit(program: Path) -> None:
    setting = LinkSetting(rate_bps=8 * MBIT, delay_ms=20, queue=3)
    fates = replay(program, setting, [Arrival(1000, BULK)] * 6)
    delivered = [fate.at_us for fate in fates if fate.what == "delivered"]
    assert delivered == [22_000, 23_000, 24_000, 25_000], "the one that is sent does not wait"
    assert [fate.what for fate in fates if fate.number > 3] == ["full", "full"]


def test_losses_are_the_share_asked_for_and_repeat_with_the_seed(program: Path) -> None:
    setting = LinkSetting(loss=0.05)
    trace = [Arrival(at * 10, BULK) for at in range(20_000)]
    runs = [replay(program, setting, trace, seed) for seed in (1, 1, 2)]
    lost = [sum(fate.what == "lost" for fate in fates) for fates in runs]
    assert runs[0] == runs[1] != runs[2]
    assert all(880 < count < 1120 for count in lost), "5 % of 20,000, within four deviations"


@pytest.mark.parametrize(
    ("load", "wait", "gentle", "average"),
    [
        (1.05, True, True, 5 + 10 * 0.0714 / 0.1),
        (1.05, False, True, 5 + 10 * 0.0244 / 0.1),
        (1.25, True, True, 15 + 15 * (0.3 - 0.1) / 0.9),
        (1.25, False, True, 15 + 15 * (0.111 - 0.1) / 0.9),
        (1.25, True, False, 15.0),
    ],
)
def test_queue_settles_where_red_drops_what_is_too_much(
    load: float, wait: bool, gentle: bool, average: float, program: Path
) -> None:
    """The share that must be dropped, d = 1 - 1/load, fixes p, and with it the average queue.

    The packets between two drops are 1/p to 2/p with `wait`, each as likely (p = 1.5 d), and 1 to 1/p without
    (p = d / (2 - d)); p grows from 0 at `min` to max_p at `max`, then to 1 at twice `max`, if gentle.
    """
    setting = LinkSetting(
        8 * MBIT, discipline=Discipline.RED, min=5, max=15, weight=0.002, gentle=gentle, wait=wait
    )
    trace = [Arrival(int(at * 1000 / load), BULK) for at in range(20_000)]
    fates = replay(program, setting, trace)
    waits = [fate.at_us - 1000 - trace[fate.number].at_us for fate in fates if fate.what == "delivered"]
    assert sum(waits[5000:]) / len(waits[5000:]) / 1000 == pytest.approx(average, rel=0.12)
    assert {fate.what for fate in fates} == {"delivered", "early"}


def test_redfavor_drops_no_syn_while_a_standard_packet_waits(program: Path) -> None:
    rate = 8 * MBIT
    displaced = 0
    for seed in range(4):
        trace = random_trace(seed)
        settings = [
            LinkSetting(rate, queue=20, discipline=discipline, max_p=0.5)
            for discipline in (Discipline.RED_FAVOR, Discipline.RED)
        ]
        favored, plain = (replay(program, setting, trace, seed) for setting in settings)
        displaced += sum(fate.what == "displaced" for fate in favored)
        assert wrong_syn_drops(trace, favored, rate) == 0
        assert wrong_syn_drops(trace, plain, rate) > 0, "the check finds what RED does"
    assert displaced > 100


def test_syns_go_in_behind_queued_syns_and_the_last_standard_packet_makes_way(program: Path) -> None:
    setting = LinkSetting(8 * MBIT, queue=4, discipline=Discipline.RED_FAVOR, min=90, max=100)
    order = [BULK, BULK, BULK, BULK, BULK, SYN, SYN, BULK, SYN, SYN, SYN]
    trace = [Arrival(at, kind, 1000, kind == SYN) for at, kind in enumerate(order)]
    fates = replay(program, setting, trace)
    assert [fate.number for fate in fates if fate.what == "delivered"] == [0, 5, 6, 8, 9]
    assert [fate.number for fate in fates if fate.what == "displaced"] == [4, 3, 2, 1]
    assert [fate.number for fate in fates if fate.what == "full"] == [7, 10], "nothing but SYNs is queued"


def test_cap_leaves_others_in_a_syn_flood_what_red_leaves_them(program: Path) -> None:
    """SYNs of 60 bytes at six times the rate: the published algorithm gives them the whole link."""
    flood = [Arrival(at * 10, SYN, 60, True) for at in range(20_000)]
    trace = sorted([*flood, *(Arrival(at * 500, BULK) for at in range(400))], key=lambda each: each.at_us)

    def through(discipline: Discipline, share: float = 1.0) -> int:
        setting = LinkSetting(8 * MBIT, queue=50, discipline=discipline, syn_share=share)
        fates = replay(program, setting, trace)
        return sum(fate.what == "delivered" and trace[fate.number].flow == BULK for fate in fates)

    red = through(Discipline.RED)
    assert red > 20
    assert through(Discipline.RED_FAVOR) < 5
    assert through(Discipline.RED_FAVOR, 0.1) > 0.7 * red


def test_choke_strikes_the_flow_that_has_most_in_the_queue(program: Path) -> None:
    def dropped(discipline: Discipline) -> Counter[bool]:
        setting = LinkSetting(8 * MBIT, queue=100, discipline=discipline, min=10, max=40)
        fates = replay(program, setting, trace)
        return Counter(trace[fate.number].flow == 0 for fate in fates if fate.what != "delivered")

    dice = random.Random(1)
    trace = [Arrival(at * 500, 0 if dice.random() < 0.6 else dice.randrange(1, 100)) for at in range(10_000)]
    choke, red = dropped(Discipline.CHOKE), dropped(Discipline.RED)
    assert choke[True] > 3 * choke[False]
    assert red[True] < 2 * red[False]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("1,2", "not the numbers of a setting"),
        (f"{LinkSetting().numbers},1", "not the numbers of a setting"),
        (LinkSetting(loss=math.nan), "not the numbers of a setting"),
        (LinkSetting(queue=0), "no such queue"),
        (LinkSetting(delay_ms=70_000), "too long a delay"),
        (LinkSetting(min=20), "RED can't work so"),
    ],
)
def test_bad_settings_are_told(setting: LinkSetting | str, problem: str, program: Path) -> None:
    with pytest.raises(LabError, match=problem):
        replay(program, setting, [])


@pytest.fixture
def hosts() -> Iterator[tuple[LabNetwork, Host, Host]]:
    with LabNetwork(f"rspdns-labtest-{os.getpid()}-{uuid.uuid4().hex[:4]}") as network:
        yield network, network.add_host("near", "10.53.0.1"), network.add_host("far", "10.53.0.2")


def transfer(sender: Host, receiver: Host, megabytes: float) -> tuple[float, float]:
    """Send by TCP; return how long set-up took, and all of it, in s."""

    def listen() -> socket.socket:
        return socket.create_server((receiver.address, 5000))

    def connect() -> tuple[socket.socket, float]:
        began_s = time.monotonic()
        return socket.create_connection((receiver.address, 5000), 20), time.monotonic() - began_s

    def drain() -> None:
        accepted, _ = listener.accept()
        with accepted:
            while accepted.recv(65536):
                pass

    with call_in(receiver.path, listen) as listener:
        draining = threading.Thread(target=drain)
        draining.start()
        began_s = time.monotonic()
        sock, set_up_s = call_in(sender.path, connect)
        with sock:
            sock.sendall(bytes(int(megabytes * 1e6)))
        draining.join()
    return set_up_s, time.monotonic() - began_s


@pytest.mark.integration
def test_tcp_gets_rate_delay_and_losses_and_then_its_cable_back(
    hosts: tuple[LabNetwork, Host, Host], tmp_path: Path, program: Path
) -> None:
    network, near, far = hosts
    there = LinkSetting(rate_bps=8 * MBIT, delay_ms=30, loss=0.005, queue=50)
    with Link(network, near, tmp_path, there, LinkSetting(delay_ms=30), program=program) as link:
        set_up_s, all_s = transfer(near, far, 1.0)
        from_host, to_host = link.counters()
        log = link.program.log.read_text()
    assert 0.06 <= set_up_s < 0.5
    assert 1.0 < all_s < 20, "8 Mbit at 8 Mbit/s"
    assert from_host.syns == to_host.syns == 1
    assert from_host.delivered_bytes > 1e6
    assert from_host.arrived == from_host.delivered + from_host.lost + from_host.dropped + from_host.length
    assert (link.program.exit_status, log) == (0, "ready\n")
    assert transfer(near, far, 1.0)[0] < 0.05
    devices = call_in(network.switch.path, lambda: [name for _, name in socket.if_nameindex()])
    assert sorted(devices) == ["far", "lan0", "lo", "near"]
