"""Strangers flood a host: associations live on, others can begin, and memory stays bounded."""

import json
import sys

import pytest
from daemon import HERE, PRELUDE, resident_mb
from two_hosts import serve

from tests.support.namespaces import Namespace

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

FLOOD_S = 5
LEAST_SENT = 20_000
MEMORY_MB = 30
"""More than is needed by what a flood leaves: it must not grow with the packets."""

CALLER = """
import json
known = one_to_one()
known.bind(("10.1.0.1", 7000))
known.connect(("10.1.0.2", 5000))
known.settimeout(20)

def ask(sock, number):
    sock.send(b"%d" % number)
    assert sock.recv(100) == b"%d" % number

ask(known, 0)
print("calls", flush=True)
end_s, asked, began = time.monotonic() + 6, 0, 0
while time.monotonic() < end_s:
    ask(known, asked)
    asked += 1
    if sys.argv[1:] == ["new"] and asked % 50 == 0:
        new = one_to_one()
        new.settimeout(20)
        new.connect(("10.1.0.2", 5000))
        ask(new, asked)
        new.close()
        began += 1
    time.sleep(0.005)
print(json.dumps({"asked": asked, "began": began}))
"""


@pytest.mark.parametrize(
    ("flood", "begins"),
    [
        (("inits",), False),  # several times of what can be answered: another one's turn may not come
        (("inits", "20000"), True),
        (("closed", "20000"), True),
        (("data", "30000"), True),
        (("forged", "30000"), True),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_floods_neither_end_associations_nor_keep_others_from_beginning(
    hosts: tuple[Namespace, Namespace], flood: tuple[str, ...], begins: bool
) -> None:
    attacked = hosts[1]
    attacked.ip("route", "add", "10.9.0.0/16", "via", "10.1.0.1")
    serve(attacked, "10.1.0.2")
    before_mb = resident_mb(attacked)
    kind, *rate = flood
    stranger = hosts[0].start(sys.executable, str(HERE / "flood.py"), kind, "10.1.0.2", str(FLOOD_S), *rate)
    assert stranger.stdout is not None
    assert stranger.stdout.readline() == "made\n"
    caller = hosts[0].start(sys.executable, "-c", PRELUDE + CALLER, *(["new"] if begins else []), sctp=True)
    assert caller.stdout is not None
    assert caller.stdout.readline() == "calls\n"
    told, problems = caller.communicate(timeout=120)
    assert caller.returncode == 0, problems
    done = json.loads(told)
    assert int(stranger.stdout.readline()) > LEAST_SENT
    assert done["asked"] > 100, done
    assert done["began"] > 1 or not begins, done
    assert resident_mb(attacked) < before_mb + MEMORY_MB


FORGES_ABORTS = """
import random
from raw_sctp import chunk, packet
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, 132)
ports = [int(port) for port in sys.argv[1:]]
aborts = [chunk(6, flags, b"") for flags in (0, 1)] * 100
forged = [packet(*ports, random.getrandbits(32), abort) for abort in aborts]
begun, sent = time.monotonic(), 0
print("floods", flush=True)
while time.monotonic() < begun + 10:
    for one in forged:
        raw.sendto(one, ("127.0.0.1", 0))
    sent += len(forged)
    time.sleep(max(0, begun + sent / 2000 - time.monotonic()))
"""
BESIDE_ABORTS = """
import subprocess
def rate(client, server):
    begun, number = time.monotonic(), 0
    while time.monotonic() < begun + 0.7:
        client.send(b"x")
        assert server.recv(100) == b"x"
        number += 1
    return number
held = [one_to_one() for _ in range(300)]
with connected() as (client, server):
    before = rate(client, server)
    ports = [str(one.getsockname()[1]) for one in (server, client)]
    with subprocess.Popen([sys.executable, "-c", sys.argv[1], *ports], stdout=subprocess.PIPE) as flood:
        flood.stdout.readline()
        print(before, rate(client, server))
        flood.kill()
"""


def test_aborts_with_a_wrong_tag_cost_their_target_little(namespace: Namespace) -> None:
    """2,000 a second, with and without the T bit: the target kept a tenth of its round trips."""
    run = namespace.run(sys.executable, "-c", PRELUDE + BESIDE_ABORTS, PRELUDE + FORGES_ABORTS, sctp=True)
    assert run.returncode == 0, run.stderr
    before, beside = map(int, run.stdout.split())
    assert beside > before / 3, run.stdout
