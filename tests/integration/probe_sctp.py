"""Probes an SCTP server and a port where none is: run by test_probe_sctp.py where SCTP works."""

import asyncio
import socket
import sys
from ipaddress import ip_address

import uvloop
from pool_user.probe.methods import probe
from pool_user.probe.probing import Plan
from pool_user.views import Member
from rserpool.parameters import Protocol
from rserpool.policies import RoundRobin


def member(port: int) -> Member:
    return Member(1, 1, (ip_address("127.0.0.1"),), port, Protocol.SCTP, RoundRobin(), 0.0)


async def main() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP) as server:
        server.bind(("127.0.0.1", 5060))
        server.listen(5)
        results = [await probe(member(port), Plan(timeout_s=2)) for port in (5060, 5061, 5060)]
    print(" ".join(result.value for result in results))


if __name__ == "__main__":
    (uvloop.run if sys.argv[1] == "uvloop" else asyncio.run)(main())
