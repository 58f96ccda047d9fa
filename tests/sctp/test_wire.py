"""sctpd on one side of two links, a kernel's SCTP (a User-Mode Linux guest) on the other."""

# ruff: noqa: E501  (programs given as text)

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.namespaces import Namespace

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
MESSAGES = int(os.environ.get("SCTP_WIRE_MESSAGES", "3000"))
PRELUDE = f"import sys; sys.path.insert(0, {str(HERE)!r})\nfrom sctp_api import *\nimport threading, time\nGUEST = ('10.5.0.2', 5000)\n"

ECHO = """
server = one_to_many()
server.bind(("0.0.0.0", 6000))
server.listen(16)
print("listening", flush=True)
while True:
    got = receive_data(server, timeout_s=1000)
    if got.data == b"abort me":
        send(server, b"", flags=ABORT, association=got.association)
    else:
        send(server, got.data, association=got.association)
"""

RUN_IN_GUEST = """
client = one_to_many()
send(client, {command!r}.encode(), to=GUEST)
print(receive_data(client, timeout_s=280).data.decode())
"""


def start_guest(namespace: Namespace) -> subprocess.Popen[str]:
    if not os.environ.get("RSPDNS_WIRE"):
        pytest.skip("slow, and its guest's network does not answer everywhere: set RSPDNS_WIRE=1 to run it")
    linux = shutil.which("linux.uml")
    if linux is None:
        pytest.skip("needs the package user-mode-linux")
    for link in (0, 1):
        tap = f"tap{link}"
        commands = (
            ("tuntap", "add", tap, "mode", "tap"),
            ("addr", "add", f"10.{5 + link}.0.1/24", "dev", tap),
            ("link", "set", tap, "up"),
        )
        for command in commands:
            namespace.ip(*command)
    return namespace.start(
        linux, "rootfstype=hostfs", "rw", "mem=512M", f"init={HERE / 'kernel' / 'guest.py'}", "quiet", "con=null",
        "con0=null,fd:1", "vec0:transport=tap,ifname=tap0,depth=128", "vec1:transport=tap,ifname=tap1,depth=128",
        f"job={HERE / 'kernel' / 'wire.py'}", log=Path(os.devnull),
    )  # fmt: skip


@pytest.fixture(scope="module")
def wire() -> Iterator[Namespace]:
    """Return the namespace of sctpd; the guest answers on 10.5.0.2 and 10.6.0.2."""
    namespace = Namespace(f"rspdns-wire-{os.getpid()}")
    try:
        guest = start_guest(namespace)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and guest.poll() is None:
            code = "client = one_to_many()\nsend(client, b'x', to=GUEST)\nreceive_data(client, timeout_s=2)"
            if namespace.run(sys.executable, "-c", PRELUDE + code, sctp=True).returncode == 0:
                break
        else:
            pytest.fail("the guest doesn't answer")
        yield namespace
    finally:
        namespace.close()


@pytest.fixture
def loss(wire: Namespace) -> Iterator[None]:
    """Lose 1 % of the packets in each direction."""
    rules = """add table inet loss
add chain inet loss input { type filter hook input priority 0; }
add chain inet loss output { type filter hook output priority 0; }
add rule inet loss input meta l4proto 132 numgen random mod 100 < 1 drop
add rule inet loss output meta l4proto 132 numgen random mod 100 < 1 drop
"""
    nft = wire.command("nft")
    made = subprocess.run([*nft, "-f", "-"], input=rules, text=True, capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"this host can't drop packets: {made.stderr}")
    yield
    subprocess.run([*nft, "delete", "table", "inet", "loss"], check=True)


@pytest.fixture
def echo(wire: Namespace) -> Iterator[subprocess.Popen[str]]:
    process = wire.start(sys.executable, "-c", PRELUDE + ECHO, sctp=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    yield process
    process.kill()
    process.wait()


def run(wire: Namespace, code: str, timeout_s: float = 290) -> str:
    done = wire.run(sys.executable, "-c", PRELUDE + code, sctp=True, timeout_s=timeout_s)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_messages_to_a_kernel_under_loss(wire: Namespace, loss: None) -> None:
    code = f"""
client = one_to_many()
send(client, b"open", to=GUEST)
association = receive_data(client).association
def write():
    for number in range({MESSAGES}):
        send(client, b"%d" % number, association=association)
thread = threading.Thread(target=write)
thread.start()
for number in range({MESSAGES}):
    assert receive_data(client, timeout_s=60).data == b"%d" % number, number
thread.join()
print("all", not readable(client, 0.5))
"""
    assert run(wire, code) == "all True\n"


def test_messages_from_a_kernel_under_loss(wire: Namespace, echo: object, loss: None) -> None:
    assert run(wire, RUN_IN_GUEST.format(command=f"run talk 10.5.0.1 6000 {MESSAGES}")) == "all\n"


def test_large_messages(wire: Namespace) -> None:
    code = """
client = one_to_many()
for size in (1400, 1500, 9000, 65000):
    send(client, b"x" * size, to=GUEST)
    assert len(receive_data(client, room=100000).data) == size
print("all")
"""
    assert run(wire, code) == "all\n"


def test_kernel_refuses(wire: Namespace) -> None:
    code = """
try:
    one_to_one().connect(("10.5.0.2", 9))
except ConnectionRefusedError:
    print("refused")
"""
    assert run(wire, code) == "refused\n"


def test_abort_from_a_kernel(wire: Namespace) -> None:
    code = "client = one_to_many()\nsend(client, b'abort me', to=GUEST)\nreceive_change(client, COMM_LOST)\nprint('aborted')"
    assert run(wire, code) == "aborted\n"


def test_abort_to_a_kernel(wire: Namespace, echo: object) -> None:
    assert run(wire, RUN_IN_GUEST.format(command="run aborted 10.5.0.1 6000")) == "aborted\n"


def test_kernel_answers_an_unknown_association(wire: Namespace) -> None:
    """sctpd dies without a word; the next one's association from the same port replaces what the kernel still knows."""
    code = """
client = one_to_many()
client.bind(("10.5.0.1", 7000))
send(client, b"first", to=GUEST)
receive_data(client)
print("ready", flush=True)
time.sleep(100)
"""
    client = wire.start(sys.executable, "-c", PRELUDE + code, sctp=True)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    pids = subprocess.run(
        ["ip", "netns", "pids", wire.name], capture_output=True, text=True, check=True
    ).stdout.split()
    for pid in pids:
        if Path(f"/proc/{pid}/comm").read_text().strip() == "sctpd":
            os.kill(int(pid), signal.SIGKILL)
    client.kill()
    client.wait()
    again = "client = one_to_many()\nclient.bind(('10.5.0.1', 7000))\nsend(client, b'again', to=GUEST)\nprint(receive_data(client).data)"
    assert run(wire, again) == "b'again'\n"


def test_failover_with_a_kernel(wire: Namespace) -> None:
    code = """
client = one_to_many()
bindx(client, [("10.5.0.1", 0)])
bindx(client, [("10.6.0.1", client.getsockname()[1])])
association = connectx(client, [("10.5.0.2", 5000)])
receive_change(client, COMM_UP)
assert len(addresses_of(client, association, peer=True)) == 2
print("ready", flush=True)
end = time.monotonic() + 6
number = 0
while time.monotonic() < end:
    send(client, b"%d" % number, association=association)
    assert receive_data(client, timeout_s=20).data == b"%d" % number
    number += 1
    time.sleep(0.01)
print(number > 50, flush=True)
"""
    talk = wire.start(sys.executable, "-c", PRELUDE + code, sctp=True)
    assert talk.stdout is not None
    assert talk.stderr is not None
    assert talk.stdout.readline() == "ready\n"
    time.sleep(1.5)
    wire.ip("link", "set", "tap0", "down")
    try:
        assert talk.stdout.read() == "True\n", talk.stderr.read()
    finally:
        wire.ip("link", "set", "tap0", "up")
