"""RED and CHOKe of the emulated link beside the kernel's own, in a User-Mode Linux guest.

A queue from which nothing departs is filled, again and again, by the kernel's qdisc below a `tbf` of 8 bit/s
and by a replay: the counts of what each reason dropped must have the same means. No clock has a part in it.
"""

import json
import random
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, variance
from typing import Final

import pytest
from rspdns_lab.link import Discipline, LinkSetting

from tests.labs.link_replays import build_replay
from tests.support.guest import guest_command

SO_SNDBUFFORCE: Final = 32
RUNS: Final = 60
PACKETS: Final = 60
FRAME_BYTES: Final = 1000
HEAVY_FLOW: Final = 0.5
RED: Final = "red limit 1000000 min 5000 max 15000 avpkt 1000 burst 9 probability 0.1 bandwidth 10Mbit"
CHOKE: Final = "choke limit 1000 min 5 max 15 burst 9 probability 0.1 bandwidth 10Mbit"
SLOW: Final = "tbf rate 8bit burst 1600 limit 10000000"
QDISCS: Final = {"RED": RED, "CHOKE": CHOKE}
MOST_DEVIATIONS: Final = 5
"""The kernel's gap between two drops is shorter by a packet than ns-2's: a deviation or two of these runs."""
Counts = Sequence[Mapping[str, int]]


def flows(seed: int) -> Sequence[int]:
    """Flow 0 sends half of all packets, each other flow a single one."""
    dice = random.Random(seed)
    return [0 if dice.random() < HEAVY_FLOW else number for number in range(1, PACKETS + 1)]


def replayed(program: Path, setting: LinkSetting) -> Counts:
    found = []
    for seed in range(RUNS):
        trace = "".join(f"0 {flow} {FRAME_BYTES} 0\n" for flow in flows(seed))
        command = [str(program), str(seed), setting.numbers]
        done = subprocess.run(command, input=trace, capture_output=True, text=True, check=True)
        fates = [line.split()[2] for line in done.stdout.splitlines()]
        found.append({why: fates.count(why) for why in ("early", "matched")})
    return found


def deviations(ours: Counts, theirs: Counts, why: str) -> float:
    """By how many standard deviations the means of a count differ."""
    these, those = ([run[why] for run in runs] for runs in (ours, theirs))
    spread = (variance(these) / len(these) + variance(those) / len(those)) ** 0.5
    return float(abs(mean(these) - mean(those)) / max(spread, 1e-9))


@pytest.mark.timeout(900)
def test_red_and_choke_drop_as_often_as_the_kernels(tmp_path: Path) -> None:
    results = tmp_path / "counts.json"
    words = {"python": sys.executable, "module": "tests.labs.test_link_on_a_kernel", "results": results}
    job = Path(__file__).parents[1] / "support" / "guest_python.sh"
    subprocess.run(
        guest_command(job, memory_mb=512, **words),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=880,
        check=False,
    )
    log = results.with_name("counts.json.log")
    assert results.exists(), log.read_text() if log.exists() else "the guest did not run its job"
    program = build_replay(tmp_path / "replay")
    for name, theirs in json.loads(results.read_text()).items():
        setting = LinkSetting(
            8, queue=1000, discipline=Discipline[name], gentle=False, wait=False, weight=theirs["weight"]
        )
        reasons = ("early", "matched") if name == "CHOKE" else ("early",)

        def apart(
            setting: LinkSetting, runs: Counts = theirs["runs"], reasons: Sequence[str] = reasons
        ) -> float:
            ours = replayed(program, setting)
            return max(deviations(ours, runs, why) for why in reasons)

        print(f"{name}: weight {setting.weight}, the means are {apart(setting):.1f} deviations apart")
        assert apart(setting) < MOST_DEVIATIONS
        others = replace(setting, max=25), replace(setting, weight=setting.weight / 4)
        assert min(map(apart, others)) > MOST_DEVIATIONS, "the check sees other settings"


# The program in the guest


def in_the_guest(results: Path) -> None:
    """Fill each of the kernel's queues."""
    for command in (
        "ip link add near type veth peer name far",
        "sysctl -qw net.ipv6.conf.near.disable_ipv6=1 net.ipv6.conf.far.disable_ipv6=1",
        "ip addr add 10.9.0.1/24 dev near",
        "ip link set near up",
        "ip link set far up",
        "ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev near",
    ):
        subprocess.run(command.split(), check=True)
    found = {}
    for name, words in QDISCS.items():
        new = [
            f"qdisc add dev near root handle 1: {SLOW}",
            f"qdisc add dev near parent 1:1 handle 10: {words}",
        ]
        tc(*new)
        runs, weight = [], 0.0
        for seed in range(RUNS):
            fill(flows(seed))
            said = tc("qdisc show dev near", "qdisc del dev near root", *new).partition("parent 1:1")[2]
            print(said, flush=True)
            weight = 2.0 ** -int(re.findall(r"ewma (\d+)", said)[0])
            dropped = int(re.findall(r"dropped (\d+)", said)[0])
            matched = 2 * int((re.findall(r"matched (\d+)", said) or ["0"])[0])  # in pairs
            runs.append({"early": dropped - matched, "matched": matched})
        tc("qdisc del dev near root")
        found[name] = {"runs": runs, "weight": weight}
    results.write_text(json.dumps(found))


def tc(*commands: str) -> str:
    command, lines = ["tc", "-statistics", "-details", "-batch", "-"], "\n".join(commands) + "\n"
    return subprocess.run(command, input=lines, capture_output=True, text=True, check=True).stdout


def fill(order: Sequence[int]) -> None:
    """Send a frame of 1,000 bytes for each flow, which is a port; a socket buffer holds them all."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 16_000_000)
        sock.bind(("10.9.0.1", 5000))
        for flow in order:
            sock.sendto(bytes(FRAME_BYTES - 42), ("10.9.0.2", 10_000 + flow))


if __name__ == "__main__":
    in_the_guest(Path(sys.argv[1]))
