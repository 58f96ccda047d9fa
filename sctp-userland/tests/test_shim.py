"""`sctp-run --shim`: SCTP in TCP's place behaves as TCP, by rules, over more than one path."""

# ruff: noqa: E501  (programs given as text)

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from daemon import BESIDE, daemons, sctpd
from shim import ALL_BY_SCTP, SHIM, associations, run, shimmed

from tests.support.namespaces import Namespace
from tests.support.waiting import until

pytestmark = pytest.mark.integration

CASES = Path(__file__).parent / "tcp_cases.py"
MULTIHOMED = ALL_BY_SCTP.replace("rto_min_ms", 'addresses = ["10.1.0.{0}", "10.2.0.{0}"]\nrto_min_ms')
BAD = """wait_ms = 0
tri = "first"
remote = "sctp"
[defaults]
local = "x"
[[rule]]
end = "lokal"
use = "sctp"
use = "tcp"
address = "10.1.1.1/24"
port = "80-70"
[[rule]]
port = [80]
junk
"""
BAD_TOLD = """:1: wait_ms: write a whole number from 1 to 10000
:2: tri: there is no such key
:3: remote: there is no such key here: it belongs under [default]
:4: [defaults]: there is no such table: write [[rule]] or [default]
:7: end: write "local" or "remote"
:9: use: it stands here twice
:10: address: write an address or a network whose further bits are 0, such as "10.1.1.0/24"
:11: port: write a port such as 80, or ports such as "8000-9000"
:13: port: the value is no "text", number or ["list", "of texts"] on one line
:14: write key = value, [[rule]] or [default]
:12: [[rule]]: end is missing: write end = "local" or end = "remote"
:12: [[rule]]: use is missing: write use = "sctp" or use = "tcp"
"""
RULES = """
[default]
remote = "sctp"
[[rule]]
end = "remote"
use = "tcp"
address = "10.1.1.0/24"
port = "8000-9000"
[[rule]]
end = "remote"
use = "tcp"
address = "fd00:1::/64"
"""
EXPLAINED = {
    ("remote", "10.1.1.7:8000"): "tcp, by {rules}:4",
    ("remote", "10.1.1.7:9001"): "sctp, by {rules}:3",
    ("remote", "10.1.2.7:8000"): "sctp, by {rules}:3",
    ("remote", "[::ffff:10.1.1.7]:9000"): "tcp, by {rules}:4",
    ("remote", "[fd00:1::7]:22"): "tcp, by {rules}:9",
    ("remote", "[fd00:2::7]:22"): "sctp, by {rules}:3",
    ("local", "10.1.1.7:8000"): "tcp, by the default",
}


def rules(folder: Path, text: str) -> Path:
    path = folder / f"shim-{len(list(folder.iterdir()))}.toml"
    path.write_text(text)
    return path


def failed_cases(host: Namespace, *command: str) -> dict[str, str]:
    lines = [json.loads(line) for line in run(host, *command, timeout_s=120).splitlines()]
    assert len(lines) > 20
    return {line["case"]: line["error"] for line in lines if line["error"]}


def test_tcp_passes_the_cases(namespace: Namespace) -> None:
    assert not failed_cases(namespace, sys.executable, str(CASES))


@pytest.mark.usefixtures("sanitized_daemon")
def test_sctp_passes_the_cases_of_tcp(namespace: Namespace, tmp_path: Path) -> None:
    command = shimmed(rules(tmp_path, ALL_BY_SCTP), sys.executable, str(CASES), "sctp")
    assert not failed_cases(namespace, *command)


def test_check_tells_all_mistakes_with_their_lines(tmp_path: Path) -> None:
    path = rules(tmp_path, BAD)
    done = subprocess.run([SHIM, "check", path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "".join(f"{path}{line}\n" for line in BAD_TOLD.splitlines())
    done = subprocess.run(shimmed(path, "true"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "wait_ms: write" in done.stderr


def test_check_warns_of_addresses_of_another_host(namespace: Namespace, tmp_path: Path) -> None:
    path = rules(tmp_path, 'addresses = ["127.0.0.1", "10.1.0.77", "fd00::7", "::1"]\n')
    done = namespace.run(str(SHIM), "check", str(path))
    assert done.returncode == 0
    warned = [line.split(":", 3)[-1].split(" is none")[0] for line in done.stderr.splitlines()]
    assert warned == [" 10.1.0.77", " fd00::7"]


@pytest.mark.parametrize(("end", "address"), EXPLAINED)
def test_explain_names_the_rule(tmp_path: Path, end: str, address: str) -> None:
    path = rules(tmp_path, RULES)
    told = subprocess.run(
        [SHIM, "explain", "--rules", path, end, address], capture_output=True, text=True, check=True
    )
    expected = EXPLAINED[end, address].format(rules=path)
    assert told.stdout.splitlines()[0] == f"{end} {address}: {expected}"


SERVER = """
import socket, sys
server = socket.create_server((sys.argv[1], 8000))
print("listens", flush=True)
while True:
    connection, _ = server.accept()
    with connection:
        while got := connection.recv(65536):
            connection.sendall(got)
"""
TALK = """
import socket, sys, time
client = socket.create_connection(("10.1.0.2", 8000))
client.settimeout(20)
print("talks", flush=True)
longest, end = 0, time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    began = time.monotonic()
    client.sendall(b"x" * 200)
    got = 0
    while got < 200:
        piece = client.recv(200)
        assert piece
        got += len(piece)
    longest = max(longest, time.monotonic() - began)
    time.sleep(0.01)
print(longest)
"""
ASK = "import socket; s = socket.create_connection(('10.1.0.2', 8000)); s.sendall(b'hello'); print(s.recv(10), s.family)"


def serve(host: Namespace, *command: str) -> None:
    server = host.start(*command)
    assert server.stdout is not None
    assert server.stdout.readline() == "listens\n", server.stderr and server.stderr.read()


@pytest.mark.usefixtures("sanitized_daemon")
def test_server_that_gives_up_root_accepts(hosts: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    """As nginx does: root listens, workers of another user accept. sctpd is the one that sctp-run starts."""
    path = rules(tmp_path, ALL_BY_SCTP)
    code = SERVER.replace("while True:", "import os; os.setresuid(65534, 65534, 65534)\nwhile True:", 1)
    serve(hosts[1], *shimmed(path, sys.executable, "-c", code, "10.1.0.2"))
    ask = ASK.replace("s.sendall", "s.settimeout(20); s.sendall")
    assert run(hosts[0], *shimmed(path, sys.executable, "-c", ask)) == "b'hello' 2\n"


@pytest.mark.usefixtures("sanitized_daemon")
def test_connection_outlives_a_path(hosts: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    first, second = (rules(tmp_path, MULTIHOMED.format(number)) for number in (1, 2))
    serve(hosts[1], *shimmed(second, sys.executable, "-c", SERVER, "10.1.0.2"))
    talk = hosts[0].start(*shimmed(first, sys.executable, "-c", TALK, "3"))
    assert talk.stdout is not None
    assert talk.stderr is not None
    assert talk.stdout.readline() == "talks\n", talk.stderr.read()
    time.sleep(1)
    hosts[0].ip("link", "set", "link1", "down")
    assert float(talk.stdout.read() or "inf") < 2, talk.stderr.read()


@pytest.mark.usefixtures("sanitized_daemon")
def test_lost_association_is_a_reset(hosts: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    """A peer that never sent anything is lost: no orderly end."""
    path = rules(tmp_path, ALL_BY_SCTP)
    code = "import socket; s = socket.create_connection(('10.1.0.2', 8000)); print('talks', flush=True); s.recv(1)"
    serve(hosts[1], *shimmed(path, sys.executable, "-c", SERVER, "10.1.0.2"))
    talk = hosts[0].start(*shimmed(path, sys.executable, "-c", code))
    assert talk.stdout is not None
    assert talk.stderr is not None
    assert talk.stdout.readline() == "talks\n"
    os.kill(daemons(hosts[1])[0], signal.SIGTERM)  # it sends an ABORT
    talk.wait(30)
    assert "ConnectionResetError" in talk.stderr.read()


EXPLAIN = (str(SHIM), "explain")


def packet_filter(host: Namespace, rule: str) -> None:
    """Have a host drop packets that come by its links."""
    hook = "add chain inet shim input { type filter hook input priority 0; }"
    text = f'add table inet shim\n{hook}\nadd rule inet shim input iifname "link*" {rule}\n'
    subprocess.run([*host.command("nft"), "-f", "-"], input=text, text=True, check=True)


@pytest.mark.usefixtures("sanitized_daemon")
@pytest.mark.parametrize(
    ("peer", "told"),
    [
        ("sctpd refuses", "was refused"),
        ("kernel without SCTP", "was refused"),
        ("firewall refuses", "was refused"),
        ("firewall drops", "got no answer"),
    ],
)
def test_peer_without_the_shim_gets_tcp(
    hosts: tuple[Namespace, Namespace], tmp_path: Path, peer: str, told: str
) -> None:
    """The first connection finds out, and waits for no more than the answer; the next ones don't ask."""
    path = rules(tmp_path, f"wait_ms = {300 if 'no answer' in told else 10000}\n" + ALL_BY_SCTP)
    serve(hosts[1], sys.executable, "-c", SERVER, "10.1.0.2")
    if peer == "sctpd refuses":
        hosts[1].start(sctpd())
        until(lambda: hosts[1].run(sctpd(), "--status").returncode == 0, told="sctpd does not serve")
    elif peer.startswith("firewall"):
        packet_filter(hosts[1], f"meta l4proto sctp {'reject' if 'refused' in told else 'drop'}")
    hosts[0].start(sctpd(), "--everyone")
    began = f"import time\nbegan = time.monotonic()\n{ASK}\n"
    command = shimmed(
        path,
        sys.executable,
        "-c",
        f"{began}print(time.monotonic() - began < 5)\n{began}print(time.monotonic() - began < 0.15)",
    )
    assert run(hosts[0], *command).split() == ["b'hello'", "2", "True"] * 2
    explained = run(hosts[0], *EXPLAIN, "--rules", str(path), "remote", "10.1.0.2:8000")
    assert f"verdict: SCTP {told}: TCP for a minute" in explained


@pytest.mark.usefixtures("sanitized_daemon")
def test_lost_packets_are_no_silence(hosts: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    """Every other packet is lost, and a cookie that is lost is sent again after `wait_ms` only."""
    path = rules(tmp_path, ALL_BY_SCTP.replace("50", "500"))
    packet_filter(hosts[1], "meta l4proto sctp numgen inc mod 2 < 1 drop")
    serve(hosts[1], *shimmed(path, sys.executable, "-c", SERVER, "10.1.0.2"))
    hosts[0].start(sctpd(), "--everyone")
    assert run(hosts[0], *shimmed(path, sys.executable, "-c", ASK)).split() == ["b'hello'", "2"]
    told = run(hosts[0], *EXPLAIN, "--rules", str(path), "remote", "10.1.0.2:8000")
    assert "verdict: SCTP was answered" in told


SIGNALLED = """
import signal, socket
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
server = socket.create_server(("0.0.0.0", 8000))
print("listens", flush=True)
signal.sigwait([signal.SIGUSR1])
server.close()
print("closed", flush=True)
"""
"""A server that closes its listener, and goes on; a client has one, too, before it connects."""


@pytest.mark.usefixtures("sanitized_daemon")
def test_closed_listener_refuses_other_hosts(hosts: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    """A connection that is made and then reset would break a program that knows an answer to a refusal."""
    path = rules(tmp_path, ALL_BY_SCTP)
    after = ("signal.pause()", f"try:\n  {ASK}\nexcept OSError as error:\n  print(error)")
    programs = [
        host.start(*shimmed(path, sys.executable, "-c", SIGNALLED + code))
        for host, code in zip(reversed(hosts), after, strict=True)
    ]
    outputs = [program.stdout for program in programs if program.stdout is not None]
    assert [output.readline() for output in outputs] == ["listens\n"] * 2
    for program, output in zip(programs, outputs, strict=True):
        program.send_signal(signal.SIGUSR1)
        assert output.readline() == "closed\n"
    assert outputs[1].readline() == "[Errno 111] Connection refused\n"


@pytest.mark.usefixtures("sanitized_daemon")
def test_background_try_delays_no_connection(hosts: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    path = rules(tmp_path, 'try = "background"\n' + ALL_BY_SCTP)
    serve(hosts[1], *shimmed(path, sys.executable, "-c", SERVER, "10.1.0.2"))
    client = hosts[0].start(sctpd(), "--everyone")
    until(lambda: hosts[0].run(sctpd(), "--status").returncode == 0, told="sctpd does not serve")
    asked = (
        *shimmed(path, sys.executable, "-c"),
        f"{ASK}; import time; time.sleep(1); print(open('/proc/net/tcp').read().count(':1F40 01'))",
    )
    assert run(hosts[0], *asked).split()[-1] == "1"
    told = run(hosts[0], *EXPLAIN, "--rules", str(path), "remote", "10.1.0.2:8000")
    assert "verdict: SCTP was answered" in told
    assert run(hosts[0], *asked).split()[-1] == "0"
    assert client.poll() is None


NATIVE = (
    BESIDE
    + """
from sctp_api import *
server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
server.bind(("10.1.0.2", 8000))
server.listen(5)
print("listens", flush=True)
connection, _ = server.accept()
got = b""
while piece := connection.recv(65536):
    got += piece
print(len(got), flush=True)
"""
)


@pytest.mark.usefixtures("sanitized_daemon")
def test_native_server_gets_the_bytes_and_their_end(
    hosts: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    """It knows nothing of half-closes: SHUTDOWN is what it understands."""
    server = hosts[1].start(sys.executable, "-c", NATIVE, sctp=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "listens\n", server.stderr and server.stderr.read()
    code = "import socket; s = socket.create_connection(('10.1.0.2', 8000)); s.sendall(bytes(100000)); s.shutdown(1); print(s.recv(1))"
    assert run(hosts[0], *shimmed(rules(tmp_path, ALL_BY_SCTP), sys.executable, "-c", code)) == "b''\n"
    assert server.stdout.readline() == "100000\n"


NATIVE_CLIENT = """
import socket
client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
client.connect(("10.1.0.2", 8000))
client.sendall(b"hello")
print(client.recv(10))
"""


@pytest.mark.usefixtures("sanitized_daemon")
def test_native_client_is_served(hosts: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    serve(hosts[1], *shimmed(rules(tmp_path, ALL_BY_SCTP), sys.executable, "-c", SERVER, "10.1.0.2"))
    done = hosts[0].run(sys.executable, "-c", NATIVE_CLIENT, sctp=True)
    assert done.stdout == "b'hello'\n", done.stderr


ELSEWHERE = """
import ctypes, socket, sys
assert ctypes.CDLL(None, use_errno=True).unshare(0x40000000) == 0  # CLONE_NEWNET
server = socket.create_server(("0.0.0.0", 8000))
print("listens", flush=True)
sys.stdin.read()
"""


def test_listener_of_another_network_gets_no_associations(namespace: Namespace, tmp_path: Path) -> None:
    """There anybody can have a port that is root's here."""
    namespace.start(sctpd(), "--everyone")
    until(lambda: namespace.run(sctpd(), "--status").returncode == 0, told="sctpd does not serve")
    serve(namespace, sys.executable, "-c", SERVER, "0.0.0.0")
    path = rules(tmp_path, ALL_BY_SCTP)
    run(namespace, *shimmed(path, sys.executable, "-c", ELSEWHERE))
    assert "listening" not in run(namespace, sctpd(), "--status")
    code = "import socket, time; s = socket.create_server(('0.0.0.0', 8001)); time.sleep(1)"
    here = namespace.start(*shimmed(path, sys.executable, "-c", code))
    until(lambda: "shim listening" in run(namespace, sctpd(), "--status"), told="it listens")
    here.wait(10)


TIED = """
import socket, struct
MD5 = struct.pack("128sBBHi80s", struct.pack("=H2s4s", socket.AF_INET, b"", socket.inet_aton("10.9.9.9")), 0, 0, 3, 0, b"key")
OPTIONS = {
    "-": None,
    "device": (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo"),
    "mark": (socket.SOL_SOCKET, socket.SO_MARK, 7),
    "signature": (socket.IPPROTO_TCP, 14, MD5),
    "fast open": (socket.IPPROTO_TCP, 30, 1),
}
with socket.create_server(("127.0.0.1", 0)) as server:
    for name, option in OPTIONS.items():
        with socket.socket() as client:
            if option:
                client.setsockopt(*option)
            client.connect(server.getsockname())
            client.send(b"x")
            with server.accept()[0]:
                print(name, client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 4) == b"sctp")
            if not option:
                for later in (14, 31):
                    try:
                        client.setsockopt(socket.IPPROTO_TCP, later, MD5)
                    except OSError as error:
                        print(later, error.errno)
servers = [socket.socket() for _ in OPTIONS]
for server, option in zip(servers, OPTIONS.values()):
    server.bind(("127.0.0.1", 0))
    if option:
        server.setsockopt(*option)
    server.listen()
import subprocess, sys
status = subprocess.run([sys.argv[1], "--status"], capture_output=True, text=True, env={}).stdout
print(status.count("shim listening"))
"""


def test_socket_that_asks_for_more_of_tcp_stays_tcp(namespace: Namespace, tmp_path: Path) -> None:
    """SCTP in its place would go another way, or without a signature, and the program would not know."""
    path = rules(tmp_path, ALL_BY_SCTP)
    told = run(namespace, *shimmed(path, sys.executable, "-c", TIED, sctpd())).splitlines()
    assert told == [
        "- True",
        "14 92",
        "31 92",
        "device False",
        "mark False",
        "signature False",
        "fast open False",
        "1",
    ]


def test_bytes_go_past_the_library(namespace: Namespace, tmp_path: Path) -> None:
    """No call on a connection but its set-up is the library's: a program without it goes on with the descriptor."""
    code = """
import os, socket, subprocess, sys
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
    connection, _ = server.accept()
    os.set_inheritable(client.fileno(), True)
    environment = {"PATH": os.environ["PATH"]}
    subprocess.run(["sh", "-c", f"echo words >&{client.fileno()}"], env=environment, close_fds=False, check=True)
    print(connection.recv(100))
"""
    assert (
        run(namespace, *shimmed(rules(tmp_path, ALL_BY_SCTP), sys.executable, "-c", code)) == "b'words\\n'\n"
    )
    assert associations(namespace) == 0
