"""The backend's own probe of SCTP members; as a program, the probing, run where SCTP works."""

import asyncio
import socket
import sys
from ipaddress import ip_address

import pytest
import uvloop
from pool_user import Member, ProbePlan
from pool_user.probe.methods import listen_for_life

from rserpool import Protocol, RoundRobin
from tests.support.namespaces import REPOSITORY, Namespace


def member(port: int) -> Member:
    return Member(1, 1, (ip_address("127.0.0.1"),), port, Protocol.SCTP, RoundRobin(), 0.0)


async def probe_a_listener_and_a_closed_port() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP) as server:
        server.bind(("127.0.0.1", 5060))
        server.listen(5)
        findings = [
            await listen_for_life(member(port), ProbePlan(timeout_s=2)) for port in (5060, 5061, 5060)
        ]
    print(" ".join(finding.life for finding in findings))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_listener_is_alive_and_a_closed_port_is_not(namespace: Namespace, loop: str) -> None:
    result = namespace.run(
        *("env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", __name__, loop), sctp=True
    )
    assert result.stdout.split() == ["alive", "refused", "alive"], result.stderr


if __name__ == "__main__":
    (uvloop.run if sys.argv[1] == "uvloop" else asyncio.run)(probe_a_listener_and_a_closed_port())
