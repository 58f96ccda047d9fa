"""The configurations on connecting a server: all are right; those whose servers Debian 12 has are run."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from ppe_agent import configuration, consistency
from ppe_agent.configuration import load_configuration

from tests.support.backend import ADDRESS
from tests.support.chain import Chain
from tests.support.quickstart import KAMAILIO, configure, page
from tests.support.stalls import share_of_a_core

NAMES = ("kamailio", "opensips", "asterisk", "web")
MOST_OF_A_CORE = 0.02
"""Two to three times what it takes here (tests/support/sidecar_cost.py), for slower machines."""


# The demo's script, with the modules that the page names.


@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_is_right(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (configuration, consistency):
        monkeypatch.setattr(module, "address_towards", lambda *_: "10.0.0.9")
    (tmp_path / "agent.toml").write_text(page(name))
    (server,) = load_configuration(tmp_path / "agent.toml").servers
    assert server.name == name


def test_the_pages_configuration_keeps_a_kamailio_in_its_pool(chain: Chain) -> None:
    configure(chain, page("kamailio"))
    (chain.folder / "kamailio.cfg").write_text(KAMAILIO)
    listen = [f"udp:{ADDRESS}:5060", f"tcp:{ADDRESS}:5060", "tcp:127.0.0.1:9090"]
    server = chain.namespace.start(
        *("kamailio", "-f", str(chain.folder / "kamailio.cfg"), "-DD", "-E", "-m", "32", "-M", "4"),
        *(part for each in listen for part in ("-l", each)),
        *("-Y", str(chain.folder), "-P", str(chain.folder / "kamailio.pid")),
        log=chain.folder / "kamailio.log",
    )
    agent = chain.sidecar.start()
    chain.until_in()
    one = chain.sidecar.until_status(lambda one: one["state"] == "in" and one["load_problem"] is None)
    assert one["load"] == 0
    time.sleep(1)  # it gathers its memory
    shares: list[float] = []
    while not shares or shares[-1] > MOST_OF_A_CORE:
        assert len(shares) < 6, f"it takes {shares} of a core"
        shares.append(share_of_a_core(agent.pid, 1.5))
    assert [check["last"] for check in one["check"]] == [
        "connection held",
        "OPTIONS answered 483 Too Many Hops",
    ]
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
