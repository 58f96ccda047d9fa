"""Strangers flood a host: associations live on, others can begin, and memory stays bounded."""

import json
import sys

import pytest

from tests.sctp.daemon import PRELUDE, resident_mb
from tests.sctp.two_hosts import serve
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
    stranger = hosts[0].start(sys.executable, "-m", "tests.sctp.flood", kind, "10.1.0.2", str(FLOOD_S), *rate)
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
