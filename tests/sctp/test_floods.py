"""Strangers send as fast as they can: associations live on, others can begin, and memory stays bounded."""

import json
import sys

import pytest

from tests.sctp.daemon import PRELUDE, resident_mb
from tests.sctp.two_hosts import serve
from tests.support.namespaces import Namespace

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

FLOOD_S = 10
LEAST_SENT = 50_000
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
end_s, asked, began, waits = time.monotonic() + 12, 0, 0, []
while time.monotonic() < end_s:
    begun_s = time.monotonic()
    ask(known, asked)
    waits.append(time.monotonic() - begun_s)
    asked += 1
    if asked % 50 == 0:
        new = one_to_one()
        new.settimeout(20)
        new.connect(("10.1.0.2", 5000))
        ask(new, asked)
        new.close()
        began += 1
    time.sleep(0.005)
print(json.dumps({"asked": asked, "began": began, "waited_s": max(waits)}))
"""


@pytest.mark.parametrize("kind", ["inits", "closed", "forged"])
def test_floods_neither_end_associations_nor_keep_others_from_beginning(
    hosts: tuple[Namespace, Namespace], kind: str
) -> None:
    attacked = hosts[1]
    attacked.ip("route", "add", "10.9.0.0/16", "via", "10.1.0.1")
    serve(attacked, "10.1.0.2")
    before_mb = resident_mb(attacked)
    flood = hosts[0].start(sys.executable, "-m", "tests.sctp.flood", kind, "10.1.0.2", str(FLOOD_S))
    assert flood.stdout is not None
    caller = hosts[0].start(sys.executable, "-c", PRELUDE + CALLER, sctp=True)
    assert caller.stdout is not None
    assert caller.stdout.readline() == "calls\n"
    told, problems = caller.communicate(timeout=120)
    assert caller.returncode == 0, problems
    done = json.loads(told)
    assert flood.stdout.readline() == "made\n"
    assert int(flood.stdout.readline()) > LEAST_SENT
    assert done["asked"] > 100, done
    assert done["began"] > 1, done
    assert resident_mb(attacked) < before_mb + MEMORY_MB
