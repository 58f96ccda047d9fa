"""An sctpd that was taken over: whatever it answers, the programs that ask it live on."""

import os
import subprocess
import sys

import pytest
from daemon import HERE, PRELUDE, sanitized

from tests.support.builds import runtime
from tests.support.namespaces import Namespace

# ruff: noqa: E501  (programs given as text)
pytestmark = [pytest.mark.integration, pytest.mark.exact, pytest.mark.timeout(120)]

ASKS = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
calls = 0
def attempt(call, *arguments):
    global calls
    calls += 1
    try:
        return call(*arguments)
    except (OSError, ValueError, struct.error, TimeoutError):
        return None
address = ("127.0.0.1", 5000)
while calls < 300:
    sock = attempt(one_to_many, socket.AF_INET, False) or attempt(one_to_one)
    if sock is None:
        continue
    sock.settimeout(0.05)
    for call in [
        lambda: sock.bind(address), lambda: sock.listen(5), lambda: sock.connect(address), lambda: sock.accept(),
        lambda: sock.getsockname(), lambda: sock.getpeername(), lambda: sock.recv(10, socket.MSG_DONTWAIT),
        lambda: sock.recv(100000, socket.MSG_DONTWAIT), lambda: sock.recv(10, socket.MSG_PEEK | socket.MSG_DONTWAIT),
        lambda: sock.send(b"x" * 1000), lambda: send(sock, b"x", to=address),
        lambda: get_option(sock, SCTP_STATUS, bytes(176)), lambda: get_option(sock, SCTP_RTOINFO, bytes(16)),
        lambda: sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), lambda: peeloff(sock, 1),
        lambda: addresses_of(sock, 1, peer=True), lambda: addresses_of(sock, 1, peer=False),
        lambda: connectx(sock, [address]), lambda: sock.recvmsg(50, 500, socket.MSG_DONTWAIT),
    ]:
        attempt(call)
    sock.close()
print("lives")
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_programs_live_on_whatever_sctpd_answers(namespace: Namespace, seed: int) -> None:
    """With the library's own sanitizers: they died by SIGSEGV, by SIGBUS, or read past a reply."""
    library = sanitized() / "library" / "libsctp-userland.so"
    daemon = namespace.start(sys.executable, str(HERE / "hostile_daemon.py"), str(1000 * seed))
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == "listening\n"
    run = subprocess.run(
        namespace.command(sys.executable, "-c", PRELUDE + "import struct\n" + ASKS),
        env={**os.environ, "LD_PRELOAD": f"{runtime()} {library}", "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    assert run.stdout == "lives\n"
