"""rsplib's own programs find what the sidecar registers."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.backend import ADDRESS, HANDLE
from tests.support.chain import Chain
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
def chain(namespace: Namespace, tmp_path: Path) -> Chain:
    """A host of two addresses whose agent has registered an SCTP server at both."""
    chain = Chain(namespace, tmp_path, registrars="alone")
    namespace.ip("address", "add", f"{SECOND_ADDRESS}/24", "dev", "eth0")
    chain.sidecar.configure_server(HANDLE, "tcp-hold", "sctp")
    chain.sidecar.config.write_text(
        chain.sidecar.config.read_text()
        .replace('type = "tcp-hold"', 'type = "tcp-hold"\nport = 5061')
        .replace("\nport = 5060", f'\nport = 5060\naddress = ["{ADDRESS}", "{SECOND_ADDRESS}"]')
    )
    namespace.start(sys.executable, "-c", SERVER, ADDRESS, sctp=True, log=tmp_path / "server.log")
    chain.sidecar.start()
    return chain


def test_hsdump_shows_what_was_configured(chain: Chain) -> None:
    identifier = chain.until_in()
    index = chain.registrars.hsdump(1)
    assert f'Pool "{HANDLE}", Policy "LeastUsed", Protocol SCTP, CtrlCh=no' in index
    assert f"${identifier}" in index
    assert "life=6000ms" in index
    assert "l=25.000%" in index
    found = re.search(r"userT: \{(.*)\} 5060/SCTP", index)
    assert found, index
    assert set(re.findall(r"[0-9.]+", found[1])) == {ADDRESS, SECOND_ADDRESS}


def test_rsplibs_pool_user_talks_to_the_server(chain: Chain) -> None:
    identifier = chain.until_in()
    user = subprocess.Popen(
        chain.namespace.command(
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
