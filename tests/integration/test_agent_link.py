"""The sidecar on a host of its own, and what can lie between it and the registrars."""

import os
import re
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.support.backend import HANDLE
from tests.support.chain import Chain
from tests.support.namespaces import Namespace
from tests.support.registrars import PoolWatch, Registrars

REGISTRAR, ADDRESS = "10.98.0.1", "10.98.0.2"
TRANSLATION = f"""
table ip translation {{
    chain there {{ type filter hook prerouting priority raw; ip saddr {ADDRESS} ip saddr set 10.98.0.9; }}
    chain back {{ type route hook output priority raw; ip daddr 10.98.0.9 ip daddr set {ADDRESS}; }}
}}
"""
MOST_OF_A_CORE = 0.05
"""It takes a fifth of this at most on a machine that is not busy."""
REFUSAL = (
    r"registrar \S+ refuses it: .*\(cause 0xf008\S*\); next attempt in \d+ s. The registrar sees this host "
    rf"under another address than {ADDRESS}: set address to the one that faces the registrars .*, and let no "
    "address translation stand between"
)


Link = tuple[Namespace, Chain, psutil.Process]


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Link]:
    """The host of the registrars, the host of a server and its agent, and the agent's process."""
    directory = tmp_path_factory.mktemp("link")
    made = [Namespace(f"rspdns-link-{os.getpid()}-{name}") for name in ("there", "here")]
    try:
        elsewhere, here = made
        elsewhere.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", here.name)
        for namespace, address in ((elsewhere, REGISTRAR), (here, ADDRESS)):
            namespace.ip("address", "add", f"{address}/24", "dev", "eth0")
            namespace.ip("link", "set", "eth0", "up")
        registrars = Registrars(elsewhere, directory, REGISTRAR)
        chain = Chain(here, directory, address=ADDRESS, registrars=registrars)
        chain.watch = PoolWatch(elsewhere, HANDLE, registrars.addresses, directory / "watch.log")
        chain.sidecar.configure_server(HANDLE, "tcp-hold", "tcp")
        chain.start_tcp()
        agent = chain.sidecar.start()
        yield elsewhere, chain, psutil.Process(agent.pid)
    finally:
        for namespace in made:
            namespace.close()


def test_a_silent_host_leaves_and_comes_back(link: Link) -> None:
    elsewhere, chain, agent = link
    identifier = chain.until_in()
    began_s, used_s = time.monotonic(), sum(agent.cpu_times()[:2])
    for silent_s in (1.5, 6.0):  # its associations survive the first silence, and don't survive the second
        elsewhere.ip("link", "set", "eth0", "down")
        chain.until_out(timeout_s=4)
        assert chain.sidecar.until_state("in" if silent_s < 2 else "joining")["check"][0]["state"] == "up"
        time.sleep(silent_s)
        elsewhere.ip("link", "set", "eth0", "up")
        assert chain.until_in() == identifier
    share = (sum(agent.cpu_times()[:2]) - used_s) / (time.monotonic() - began_s)
    assert share < MOST_OF_A_CORE, "does it wait without sleeping?"


def test_behind_an_address_translation_it_is_refused_and_says_why(link: Link) -> None:
    """A registrar takes no server at addresses that its agent does not speak from."""
    elsewhere, chain, _ = link
    identifier = chain.until_in()
    (chain.folder / "translation.nft").write_text(TRANSLATION)
    done = elsewhere.run("nft", "-f", str(chain.folder / "translation.nft"))
    assert done.returncode == 0, done.stderr
    chain.sidecar.until_status(lambda status: re.fullmatch(REFUSAL, status["reason"]) is not None)
    chain.until_out()
    assert elsewhere.run("nft", "delete", "table", "ip", "translation").returncode == 0
    chain.sidecar.until_state("in")
    assert chain.until_in() == identifier
