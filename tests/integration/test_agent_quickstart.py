"""The configurations on connecting a server: all are right; those whose servers Debian 12 has are run."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ppe_agent import configuration, consistency
from ppe_agent.configuration import load_configuration

from tests.support.backend import ADDRESS
from tests.support.chain import Chain
from tests.support.namespaces import REPOSITORY
from tests.support.quickstart import configure, page, start_kamailio
from tests.support.stalls import share_of_a_core

NAMES = ("kamailio", "opensips", "asterisk", "web")
MOST_OF_A_CORE = 0.02
"""Two to three times what it takes here (tests/support/sidecar_cost.py), for slower machines."""


REGISTER = f"""
import socket
lines = [
    "REGISTER sip:{ADDRESS} SIP/2.0",
    "Via: SIP/2.0/UDP {ADDRESS}:5081;branch=z9hG4bK1",
    "From: <sip:service@{ADDRESS}>;tag=1",
    "To: <sip:service@{ADDRESS}>",
    "Call-ID: register",
    "CSeq: 1 REGISTER",
    "Contact: <sip:service@{ADDRESS}:5080>",
    "Content-Length: 0",
]
with socket.socket(type=socket.SOCK_DGRAM) as client:
    client.bind(("{ADDRESS}", 5081))
    client.settimeout(30)
    client.sendto("\\r\\n".join([*lines, "", ""]).encode(), ("{ADDRESS}", 5060))
    print(client.recv(4096).decode())
"""


@contextlib.contextmanager
def calls(chain: Chain) -> Iterator[None]:
    """Twenty calls a second, of half a second each, through Kamailio to a SIPp; each ends by its BYE."""
    run, labs = chain.namespace, REPOSITORY / "labs" / "rspdns_lab"
    common = ["sipp", "-i", ADDRESS, "-nostdin", "-sf"]
    answering = [*common, str(labs / "chain/side_by_side/uas.xml"), "-p", "5080", "-s", "as1"]
    run.start(*answering, log=chain.folder / "uas.log")
    registered = run.run(sys.executable, "-c", REGISTER).stdout
    assert " 200 OK" in registered, registered
    calling = [
        *common,
        str(labs / "ims/uac.xml"),
        "-p",
        "5090",
        "-s",
        ADDRESS,
        "-r",
        "20",
        "-m",
        "80",
        f"{ADDRESS}:5060",
    ]
    caller = run.start(*calling, log=chain.folder / "uac.log")
    yield
    caller.wait(60)  # a busy machine may lose one call of them


@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_is_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (configuration, consistency):
        monkeypatch.setattr(module, "address_towards", lambda *_: "10.0.0.9")
    (tmp_path / "agent.toml").write_text(page(name))
    (server,) = load_configuration(tmp_path / "agent.toml").servers
    assert server.name == name


def test_the_pages_configuration_keeps_a_kamailio_in_its_pool(chain: Chain) -> None:
    configure(chain, page("kamailio").replace("capacity  = 2000", "capacity  = 20"))
    server = start_kamailio(chain.namespace, chain.folder, ADDRESS)
    agent = chain.sidecar.start()
    chain.until_in()
    status = chain.sidecar.until_status(lambda now: now["state"] == "in" and now["load_problem"] is None)
    assert status["load"] == 0
    time.sleep(1)  # it gathers its memory
    shares: list[float] = []
    while not shares or shares[-1] > MOST_OF_A_CORE:
        assert len(shares) < 6, f"it takes {shares} of a core"
        shares.append(share_of_a_core(agent.pid, 1.5))
    assert [check["last"] for check in status["check"]] == [
        "connection held",
        "OPTIONS answered 483 Too Many Hops",
    ]
    with calls(chain):
        chain.sidecar.until_status(lambda now: now["load"] > 0.2)
    chain.sidecar.until_status(lambda now: now["load"] < 0.1)
    os.killpg(server.pid, signal.SIGSTOP)
    chain.until_out()
    os.killpg(server.pid, signal.SIGCONT)
    chain.until_in()
    os.killpg(server.pid, signal.SIGKILL)
    chain.until_out()
    assert chain.sidecar.until_state("down")["reason"] == "tcp-hold: nothing listens on port 5060"


def test_the_pages_configuration_keeps_a_web_service_in_its_pool(chain: Chain) -> None:
    configure(chain, page("web"))
    (chain.folder / "health").write_text("ok\n")
    server = chain.namespace.start(
        *(sys.executable, "-m", "http.server", "8080", "--bind", ADDRESS, "-d", str(chain.folder)),
        log=chain.folder / "web.log",
    )
    chain.sidecar.start()
    chain.until_in()
    (chain.folder / "health").write_text("the database is gone\n")
    chain.until_out()
    assert chain.sidecar.until_state("down")["reason"] == "http: answered 200 OK, without 'ok' in it"
    (chain.folder / "health").write_text("ok\n")
    chain.until_in()
    os.killpg(server.pid, signal.SIGKILL)
    chain.until_out()
