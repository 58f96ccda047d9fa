"""rsplib's own programs find what the sidecar registers."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.agent_host import ADDRESS, HANDLE, Host
from tests.support.namespaces import Namespace

# Echoes over SCTP, and accepts TCP connections for the check.
SERVER = """
import socket, sys, threading
held = []
listener = socket.create_server((sys.argv[1], 5061))
def hold():
    while True:
        held.append(listener.accept())
threading.Thread(target=hold, daemon=True).start()
echo = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
echo.bind((sys.argv[1], 5060))
echo.listen(5)
while True:
    client, _ = echo.accept()
    while data := client.recv(1000):
        client.send(data)
    client.close()
"""


SECOND_ADDRESS = "10.99.0.2"


@pytest.fixture
def host(namespace: Namespace, tmp_path: Path) -> Host:
    """A host of two addresses whose agent has registered an SCTP server at both."""
    host = Host(namespace, tmp_path)
    namespace.ip("address", "add", f"{SECOND_ADDRESS}/24", "dev", "eth0")
    host.configure("tcp-hold", "sctp")
    host.config.write_text(
        host.config.read_text()
        .replace('type = "tcp-hold"', 'type = "tcp-hold"\nport = 5061')
        .replace("\nport = 5060", f'\nport = 5060\naddress = ["{ADDRESS}", "{SECOND_ADDRESS}"]')
    )
    namespace.start(sys.executable, "-c", SERVER, ADDRESS, sctp=True, log=tmp_path / "server.log")
    host.start_agent()
    return host


def test_hsdump_shows_what_was_configured(host: Host) -> None:
    identifier = host.until_in()
    dump = host.namespace.run("hsdump", f"{ADDRESS}:9901", sctp=True)
    assert dump.returncode == 0, dump.stderr
    index = dump.stdout.split("*-- Index:")[1].split("*-- Selection:")[0]
    assert f'Pool "{HANDLE}", Policy "LeastUsed", Protocol SCTP, CtrlCh=no' in index
    assert f"${identifier}" in index
    assert "life=6000ms" in index
    assert "l=25.000%" in index
    found = re.search(r"userT: \{(.*)\} 5060/SCTP", index)
    assert found, index
    assert set(re.findall(r"[0-9.]+", found[1])) == {ADDRESS, SECOND_ADDRESS}


def test_rsplibs_pool_user_talks_to_the_server(host: Host) -> None:
    identifier = host.until_in()
    user = subprocess.Popen(
        host.namespace.command(
            "rspterminal", f"-poolhandle={HANDLE}", f"-registrar={ADDRESS}:3863", sctp=True
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert user.stdin is not None
        time.sleep(1)
        user.stdin.write("is anybody there\n")
        user.stdin.flush()
        time.sleep(2)
    finally:
        user.terminate()
        said, _ = user.communicate(timeout=60)
    assert f"from PE ${identifier}> is anybody there" in said
