"""The prober against a real PowerDNS: every question is accounted for, whatever happens to the server."""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from rspdns_lab.net.network import Host, LabNetwork
from rspdns_lab.net.processes import Program
from rspdns_lab.observe.observations import Recorder, start_prober
from rspdns_lab.observe.verdict import Kind

from tests.support.waiting import until

pytestmark = pytest.mark.integration

SRV, A = 0, 1
ZONE = """$ORIGIN demo.example.
@ 1 IN SOA ns.demo.example. hostmaster.demo.example. 1 60 60 600 1
@ 1 IN NS ns.demo.example.
ns 1 IN A 10.53.0.21
_sip._udp.as 1 IN SRV 0 10 5060 one.u.as
_sip._udp.as 1 IN SRV 0 10 5060 two.u.as
one.u.as 1 IN A 10.53.0.31
two.u.as 1 IN A 10.53.0.32
as 1 IN A 10.53.0.31
as 1 IN A 10.53.0.32
"""


@pytest.fixture
def network() -> Iterator[LabNetwork]:
    with LabNetwork(f"rspdns-probertest-{os.getpid()}-{uuid.uuid4().hex[:4]}") as made:
        yield made


def static_server(host: Host, folder: Path) -> Program:
    (folder / "zone").write_text(ZONE)
    (folder / "named.conf").write_text(f'zone "demo.example" {{ type master; file "{folder}/zone"; }};\n')
    return Program(
        "pdns",
        host,
        [
            "pdns_server",
            "--no-config",
            "--launch=bind",
            f"--bind-config={folder}/named.conf",
            f"--local-address={host.address}",
            f"--socket-dir={folder}",
            "--daemon=no",
            "--guardian=no",
        ],
        folder / "pdns.log",
    )


def test_every_question_is_answered_or_counted_as_unanswered(network: LabNetwork, tmp_path: Path) -> None:
    server = network.add_host("ns1", "10.53.0.21")
    client = network.add_host("client", "10.53.0.41")
    pdns = static_server(server, tmp_path)
    pdns.start()
    recorder = Recorder(complete=[True, False])
    prober = start_prober(
        client, ["10.53.0.21"], ["SRV:_sip._udp.as.demo.example", "A:as.demo.example"], recorder, tmp_path
    )
    until(
        lambda: (
            {(0, SRV), (0, A)}
            <= {key for key, reading in recorder.latest.items() if reading.kind is Kind.ANSWER}
        )
    )
    asked_from_s = time.monotonic()
    time.sleep(1)
    answers = [answer for answer in recorder.since(asked_from_s) if answer.kind is Kind.ANSWER]
    assert len(answers) > 200  # 2,000 on an idle machine
    assert {answer.names for answer in answers} == {frozenset({"10.53.0.31", "10.53.0.32"})}
    assert {answer.complete for answer in answers if answer.question == SRV} == {True}
    assert all(
        answer.answered_at_s is not None and answer.answered_at_s > answer.asked_at_s for answer in answers
    )

    killed_at_s = pdns.kill()
    time.sleep(2.5)
    after = [answer for answer in recorder.since(killed_at_s + 0.2) if answer.asked_at_s < killed_at_s + 1.0]
    assert after
    assert {answer.kind for answer in after} == {Kind.TIMEOUT}

    prober.stop()
    assert not prober.is_running


def test_a_missing_server_does_not_stop_it(network: LabNetwork, tmp_path: Path) -> None:
    client = network.add_host("client", "10.53.0.41")
    recorder = Recorder(complete=[False])
    prober = start_prober(client, ["10.53.0.99"], ["A:as.demo.example"], recorder, tmp_path)
    until(lambda: recorder.observations)
    assert prober.is_running
    assert {answer.kind for answer in recorder.observations} == {Kind.TIMEOUT}
    prober.stop()


def test_garbage_from_the_server_is_recorded_as_malformed(network: LabNetwork, tmp_path: Path) -> None:
    server = network.add_host("ns1", "10.53.0.21")
    client = network.add_host("client", "10.53.0.41")
    script = (
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('10.53.0.21', 53))\n"
        "while True:\n    data, peer = s.recvfrom(2000)\n    s.sendto(b'', peer)\n    s.sendto(b'x', peer)\n"
        "    s.sendto(data[:2] + b'\\xff' * 30, peer)\n"
    )
    liar = Program("liar", server, ["python3", "-c", script], tmp_path / "liar.log")
    liar.start()
    recorder = Recorder(complete=[False])
    prober = start_prober(client, ["10.53.0.21"], ["A:as.demo.example"], recorder, tmp_path)
    until(lambda: any(answer.kind is Kind.MALFORMED for answer in recorder.observations))
    assert prober.is_running
    prober.stop()
    liar.stop()


def test_a_prober_ends_when_its_reader_is_gone() -> None:
    command = [
        sys.executable,
        "-m",
        "rspdns_lab.observe.prober",
        "--server",
        "127.0.0.1:9",
        "--question",
        "A:example",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.close()
        assert process.wait(timeout=20) is not None
