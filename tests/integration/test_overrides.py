"""`rspdns override` on the whole chain: answers of PowerDNS, a restart, the end of the time."""

import getpass
import json
import re
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backend import HANDLE, OWNER
from tests.support.chain import SIP_PORTS, Chain
from tests.support.namespaces import REPOSITORY, end, own_namespace
from tests.support.waiting import until

PAGE = (REPOSITORY / "docs" / "how-to" / "dns" / "maintain-a-server.md").read_text()
LIVE = set(SIP_PORTS)
LAST = SIP_PORTS[-1]
SOON_S = 2.0


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    with own_namespace() as namespace:
        made = Chain(namespace, tmp_path_factory.mktemp("overrides"))
        for port in SIP_PORTS:
            made.start_sip(port)
        made.start_sidecar()
        made.start()
        until(lambda: made.targets_at(OWNER) == LIVE, told=made.sidecar.log)
        yield made


def said(chain: Chain, *words: str) -> str:
    done = chain.backend.command("override", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(chain: Chain, *words: str) -> str:
    before = chain.backend.status()
    done = chain.backend.command("override", *words)
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stderr
    after = chain.backend.status()
    assert before is not None
    assert after is not None
    assert after["overrides"] == before["overrides"]
    return done.stderr


def until_shown(chain: Chain, ports: set[int]) -> float:
    """Wait until DNS shows just these; return the seconds."""
    began_s = time.monotonic()
    until(lambda: chain.targets_at(OWNER) == ports, SOON_S, chain.backend.log)
    return time.monotonic() - began_s


def test_server_is_taken_out_over_a_killed_backend_and_put_in_again(chain: Chain) -> None:
    server = f"{chain.address}:{LAST}"
    assert "nothing was changed" in said(chain, server, "down", "--reason", "new kernel", "--dry-run")
    assert chain.targets_at(OWNER) == LIVE
    told = said(chain, server, "down", "--reason", "new kernel", "--for", "1h")
    assert f"{server}" in told
    assert "33.3 % ->     out" in told
    assert until_shown(chain, LIVE - {LAST}) < SOON_S
    out = next(each for each in chain.backend.pool()["out"] if each["port"] == LAST)
    assert (out["cause"], out["missing"]) == ("overridden", False)
    assert f"by {getpass.getuser()}, until " in out["reason"]
    assert out["reason"].endswith(": new kernel")
    assert chain.backend.pool()["missing"] == 0
    assert "OK" in chain.backend.command("status", "--nagios").stdout
    end(chain.backend.process, signal.SIGKILL)
    chain.backend.start()
    for _ in range(100):
        assert LAST not in chain.targets_at(OWNER)
    until(chain.backend.is_known, 40, chain.backend.log)
    assert chain.targets_at(OWNER) == LIVE - {LAST}
    assert f"{server} down, ends in 59 min" in said(chain, "list")
    assert "cleared: 1" in said(chain, "clear", "1")
    until_shown(chain, LIVE)


def test_commands_of_the_page_do_what_it_says(chain: Chain) -> None:
    lines = PAGE.partition("```sh\n")[2].partition("```")[0].splitlines()
    assert len(lines) > 5
    for line in lines:
        for number, port in enumerate(SIP_PORTS, 11):
            line = re.sub(rf"10\.20\.0\.{number}(:5060)?", f"{chain.address}:{port}", line)
        line = line.replace("sip-as-udp", HANDLE)
        program, *words = shlex.split(line)
        assert program == "rspdns"
        done = chain.backend.command(*words)
        assert done.returncode == 0, (line, done.stderr)
    until_shown(chain, LIVE)


def test_override_ends_by_itself(chain: Chain) -> None:
    server = f"{chain.address}:{LAST}"
    said(chain, server, "down", "--reason", "a moment", "--for", "3s")
    began_s = time.monotonic()
    until_shown(chain, LIVE - {LAST})
    until(lambda: chain.targets_at(OWNER) == LIVE, 10, chain.backend.log)
    assert 2 < time.monotonic() - began_s < 6
    assert "no override" in said(chain, "list")


def test_share_is_shown_in_the_weights(chain: Chain) -> None:
    server = f"{chain.address}:{LAST}"
    said(chain, server, "share=5%", "--reason", "canary")
    try:

        def weights() -> dict[int, int]:
            lines = chain.pdns.short(OWNER, "SRV")
            return {int(line.split()[2]): int(line.split()[1]) for line in lines}

        def is_shared() -> bool:
            found = weights()
            return found.keys() == LIVE and abs(found[LAST] / sum(found.values()) - 0.05) < 0.005

        until(is_shared, SOON_S, chain.backend.log)
    finally:
        said(chain, "clear", "--all")


def test_what_can_not_be_is_refused_with_a_clear_word(chain: Chain) -> None:
    address = chain.address
    assert "no server is known there" in refused(chain, "10.3.3.3", "down", "--reason", "x")
    assert "no server has this name" in refused(chain, "sip-77", "down", "--reason", "x")
    assert "is no duration: write 90s" in refused(chain, address, "down", "--reason", "x", "--for", "2weeks")
    assert "an action is down, drain, up or share=5%" in refused(chain, address, "half", "--reason", "x")
    assert "would lose its last member" in refused(chain, f"{address}:*", "down", "--reason", "x")
    assert "Missing option '--reason'" in refused(chain, address, "down")
    said(chain, f"{address}:{LAST}", "down", "--reason", "first")
    try:
        words = refused(chain, f"{address}:{LAST}", "up", "--reason", "second")
        assert f"(down {address}:{LAST}) names some of these servers, too: clear it first" in words
    finally:
        said(chain, "clear", "--all")
    until_shown(chain, LIVE)


def test_each_change_is_a_line_of_the_log_with_its_author(chain: Chain) -> None:
    said(chain, f"{chain.address}:{LAST}", "down", "--reason", "audited")
    said(chain, "clear", "--all")
    lines = map(json.loads, Path(chain.backend.log).read_text().splitlines())
    changes = [line for line in lines if line.get("event") == "changed"]
    done, cleared = changes[-2:]
    assert (done["action"], cleared["action"]) == ("override", "override cleared")
    assert done["by"] == cleared["by"] == getpass.getuser()
    assert done["what"] == cleared["what"]
    assert re.fullmatch(rf"\d+: down {re.escape(chain.address)}:{LAST}", done["what"])
    assert (done["before"], cleared["after"]) == (None, None)
    assert done["after"] == cleared["before"] == f"by {getpass.getuser()}: audited"
    until_shown(chain, LIVE)
