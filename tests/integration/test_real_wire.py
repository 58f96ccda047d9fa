"""Messages of rsplib's own programs on the wire: our codec reads them, and writes the same.

Three registrars, a pool element for each policy, a pool user and hsdump in a network namespace; one pool
element leaves, one registrar is killed and its elements are taken over; all of it is captured and held
against the codec.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.rserpool.captures import CODECS, check, messages
from tests.support.namespaces import SCTP_RUN, Namespace
from tests.support.registrars import Registrars
from tests.support.waiting import until

PROGRAMS = ["rspregistrar", "rspserver", "rspterminal", "hsdump", "tcpdump"]
MISSING = [program for program in PROGRAMS if shutil.which(program) is None]

ADDRESS = "10.77.0.1"
"""Not a loopback address: rsplib passes over those in messages."""
POLICIES = [
    "RoundRobin",
    "WeightedRoundRobin:3",
    "Random",
    "WeightedRandom:4",
    "Priority:5",
    "LeastUsed",
    "LeastUsedDegradation:0.1",
    "PriorityLeastUsed:0.1",
    "RandomizedLeastUsed",
    "LeastUsedDPF:0.5",
    "WeightedRandomDPF:5:0.5",
]
AT_START = {"Presence", "ListRequest", "ListResponse"}
WHILE_SERVING = {
    "Registration",
    "RegistrationResponse",
    "HandleUpdate",
    "EndpointKeepAlive",
    "EndpointKeepAliveAck",
}

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(not SCTP_RUN.exists(), reason=f"not built: {SCTP_RUN}"),
]


class Scene:
    """The namespace, its capture, and what has been seen in it so far."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        self.namespace = namespace
        self.folder = folder
        self.capture = folder / "capture.pcap"
        for setup in (
            "link add rsplib type veth peer name rsplib-peer",
            "link set rsplib up",
            "link set rsplib-peer up",
            f"address add {ADDRESS}/24 dev rsplib",
        ):
            namespace.ip(*setup.split())
        log = folder / "tcpdump.log"
        command = [
            "tcpdump",
            "-i",
            "lo",
            "-U",
            "-B",
            "4096",
            "-Z",
            "root",
            "-w",
            str(self.capture),
            "sctp",
        ]
        namespace.start(*command, log=log)
        until(lambda: log.exists() and "listening" in log.read_text(), told="tcpdump")

    def start(self, name: str, *command: str) -> subprocess.Popen[str]:
        return self.namespace.start(*command, sctp=True, log=self.folder / f"{name}.log")

    def kinds(self) -> set[str]:
        return set(check(self.capture).seen)

    def wait_for_kinds(self, kinds: set[str]) -> None:
        until(lambda: kinds <= self.kinds(), told=f"{kinds} (registrars' logs in {self.folder})")


def start_server(scene: Scene, number: int, policy: str) -> subprocess.Popen[str]:
    return scene.start(
        f"server-{number}",
        "rspserver",
        "-echo",
        f"-policy={policy}",
        f"-poolhandle=pool-{number}",
        f"-local={ADDRESS}:0",
        f"-registrar={ADDRESS}:3863",
        "-asapannounce=off",
        "-rereginterval=1000",
    )


def registered_policies(capture: Path) -> set[int]:
    """The policy types that pool elements registered with."""
    found = set()
    for captured in messages(capture):
        message = CODECS[captured.ppid].decode(captured.data)
        if type(message).__name__ == "Registration":
            found.add(message.pool_element.policy.TYPE)
    return found


def end(process: subprocess.Popen[str], number: signal.Signals) -> None:
    os.killpg(process.pid, number)


def test_everything_rsplib_says(namespace: Namespace, tmp_path: Path) -> None:
    scene = Scene(namespace, tmp_path)
    registrars = Registrars(namespace, tmp_path, ADDRESS).programs
    scene.wait_for_kinds(AT_START)

    servers = [start_server(scene, number, policy) for number, policy in enumerate(POLICIES)]
    scene.wait_for_kinds(WHILE_SERVING)
    until(
        lambda: len(registered_policies(scene.capture)) == len(POLICIES),
        told="a registration for each policy",
    )

    terminal = f"sleep 3 | rspterminal -poolhandle=pool-0 -registrar={ADDRESS}:3864"
    scene.start("terminal", "sh", "-c", terminal)
    scene.wait_for_kinds({"HandleResolution", "HandleResolutionResponse"})
    tables = check(scene.capture).seen["HandleTableResponse"]
    scene.start("hsdump", "hsdump", f"{ADDRESS}:9902")
    until(lambda: check(scene.capture).seen["HandleTableResponse"] > tables, told="the table for hsdump")

    end(servers[1], signal.SIGINT)
    scene.wait_for_kinds({"Deregistration", "DeregistrationResponse"})

    end(registrars[0], signal.SIGKILL)
    scene.wait_for_kinds({"InitTakeover", "InitTakeoverAck"})

    report = check(scene.capture)
    assert not report.problems, report.problems[:5]
