"""The whole chain over IPv6 alone, with a multihomed SIP server over SCTP and one over UDP."""

import json
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from tests.ppe_agent.servers import DATA
from tests.support.waiting import until
from tests.support.whole_chain import OWNER, SCTP_OWNER, WholeChain, kill, other_pool, own_namespace

ADDRESS, SECOND = "2001:db8::1", "2001:db8::2"
AGENT = """\
registrars = {registrars}
[state]
path = "{folder}/agent-state"
[control]
path = "{folder}/agent.sock"
[[as]]
name = "udp"
handle = "sip-udp"
transport = "udp"
port = 5060
[[as.check]]
type = "sip-options"
[as.load]
source = "none"
[[as]]
name = "sctp"
handle = "sip-sctp"
transport = "sctp"
address = ["{first}", "{second}"]
port = 5070
[[as.check]]
type = "sip-options"
[as.damping]
falls = 0
[as.load]
source = "sip-options"
header = "Active-Calls"
capacity = 10
smoothing_ms = 0
"""


class SixChain(WholeChain):
    """Registrars, backend, agent and both SIP servers have no IPv4 address at all."""

    address = ADDRESS

    def start_sipp(self, port: int, transport: str, *, sctp: bool = False) -> None:
        where = ["-i", f"[{ADDRESS}]", "-p", str(port), "-t", transport, "-nostdin"]
        log = self.folder / f"sipp-{port}.out"
        self.sipp = self.namespace.start(
            "sipp", "-sf", str(DATA / "options-load.xml"), *where, log=log, sctp=sctp
        )

    def start_agent_for_both(self) -> None:
        config = self.folder / "agent.toml"
        config.write_text(
            AGENT.format(
                registrars=json.dumps(self.registrars), folder=self.folder, first=ADDRESS, second=SECOND
            )
        )
        self.namespace.start(
            *(sys.executable, "-m", "ppe_agent.cli", "run", "--log-json", "-c", str(config)),
            sctp=True,
            log=self.folder / "agent.log",
        )

    def until_shown(self, owner: str, ports: set[int]) -> None:
        until(lambda: self.targets_at(owner) == ports, told=self.folder / "agent.log")


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SixChain]:
    with own_namespace() as namespace:
        chain = SixChain(
            namespace,
            tmp_path_factory.mktemp("six"),
            f'{other_pool("sctp", "s")}when_empty = "nodata"\n',
        )
        done = namespace.run("ip", "address", "add", f"{SECOND}/64", "dev", "eth0", "nodad")
        assert done.returncode == 0, done.stderr
        chain.start_sipp(5060, "u1")
        chain.start_sipp(5070, "s1", sctp=True)
        chain.start_agent_for_both()
        chain.start()
        chain.until_shown(OWNER, {5060})
        chain.until_shown(SCTP_OWNER, {5070})
        yield chain


def test_a_multihomed_server_is_answered_with_both_addresses(chain: SixChain) -> None:
    (record,) = chain.pdns.short(SCTP_OWNER, "SRV")
    assert set(chain.pdns.short(record.split()[3], "AAAA")) == {ADDRESS, SECOND}
    (record,) = chain.pdns.short(OWNER, "SRV")
    assert chain.pdns.short(record.split()[3], "AAAA") == [ADDRESS]
    assert chain.pdns.short(record.split()[3], "A") == []


def test_the_load_told_in_a_header_over_sctp_is_its_weight(chain: SixChain) -> None:
    until(lambda: chain.pdns.short(SCTP_OWNER, "SRV")[0].split()[1] == "700", told=chain.folder / "agent.log")


def test_options_over_sctp_sees_it_hang_wake_and_die(chain: SixChain) -> None:
    os.killpg(chain.sipp.pid, signal.SIGSTOP)
    chain.until_shown(SCTP_OWNER, set())
    os.killpg(chain.sipp.pid, signal.SIGCONT)
    chain.until_shown(SCTP_OWNER, {5070})
    kill(chain.sipp)
    chain.until_shown(SCTP_OWNER, set())
    assert chain.targets_at(OWNER) == {5060}, "the other server is well"
    chain.start_sipp(5070, "s1", sctp=True)
    chain.until_shown(SCTP_OWNER, {5070})
