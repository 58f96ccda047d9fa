"""The backend's own probe of a member that ICMP tells of; as a program, the probing, on both event loops."""

import asyncio
import sys
from ipaddress import ip_address

import uvloop
from pool_user import Member, ProbePlan
from pool_user.probe.methods import listen_for_life

from rserpool import Protocol, RoundRobin
from tests.support.namespaces import REPOSITORY, Namespace

REJECTED = {5060: "host-unreachable", 5061: "prot-unreachable", 5062: "host-prohibited"}
RULES = "".join(f"tcp dport {port} reject with icmp type {kind}; " for port, kind in REJECTED.items())


async def probe() -> None:
    for port in REJECTED:
        member = Member(1, 1, (ip_address("127.0.0.1"),), port, Protocol.TCP, RoundRobin(), 0.0)
        finding = await listen_for_life(member, ProbePlan("tcp", timeout_s=2))
        print(f"{finding.life}: {finding.words}")


def test_member_that_icmp_calls_unreachable_is_silent_and_the_words_say_why(namespace: Namespace) -> None:
    table = f"table inet t {{ chain c {{ type filter hook input priority 0; {RULES}}}; }}"
    assert not namespace.run("nft", table).stderr
    result = namespace.run("env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", __name__)
    words = ["no route to host", "protocol not available", "no route to host"]
    assert result.stdout.splitlines() == [f"silent: {each}" for each in words] * 2, result.stderr


if __name__ == "__main__":
    asyncio.run(probe())
    uvloop.run(probe())
