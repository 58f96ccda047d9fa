"""The whole chain over IPv6 alone, with a multihomed SIP server over SCTP and one over UDP."""

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.backend import OWNER, other_pool
from tests.support.chain import SCTP_OWNER, Chain
from tests.support.namespaces import kill, own_namespace
from tests.support.waiting import until

ADDRESS, SECOND = "2001:db8::1", "2001:db8::2"
LOADED = "options-load.xml"
SERVERS = f"""\
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
address = ["{ADDRESS}", "{SECOND}"]
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


class SixChain(Chain):
    """Registrars, backend, agent and both SIP servers have no IPv4 address at all."""

    over_sctp: subprocess.Popen[str]
    """The SIP server over SCTP."""

    def until_shown(self, owner: str, ports: set[int]) -> None:
        until(lambda: self.targets_at(owner) == ports, told=self.sidecar.log)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SixChain]:
    with own_namespace() as namespace:
        chain = SixChain(
            namespace,
            tmp_path_factory.mktemp("six"),
            f'{other_pool("sctp", "s")}when_empty = "nodata"\n',
            address=ADDRESS,
        )
        namespace.ip("address", "add", f"{SECOND}/64", "dev", "eth0", "nodad")
        chain.start_sip(5060, LOADED)
        chain.over_sctp = chain.start_sip(5070, LOADED, "s1")
        chain.sidecar.configure(SERVERS)
        chain.sidecar.start()
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
    until(lambda: chain.pdns.short(SCTP_OWNER, "SRV")[0].split()[1] == "700", told=chain.sidecar.log)


def test_options_over_sctp_sees_it_hang_wake_and_die(chain: SixChain) -> None:
    os.killpg(chain.over_sctp.pid, signal.SIGSTOP)
    chain.until_shown(SCTP_OWNER, set())
    os.killpg(chain.over_sctp.pid, signal.SIGCONT)
    chain.until_shown(SCTP_OWNER, {5070})
    kill(chain.over_sctp)
    chain.until_shown(SCTP_OWNER, set())
    assert chain.targets_at(OWNER) == {5060}, "the other server is well"
    chain.over_sctp = chain.start_sip(5070, LOADED, "s1")
    chain.until_shown(SCTP_OWNER, {5070})
