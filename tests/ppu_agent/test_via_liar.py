"""A member's host that lists another's address as its own (RFC 9260, section 5.4) gets none of its data."""

import contextlib
import json
import sys
from collections import Counter

import pytest

from tests.support.namespaces import Namespace, own_namespace

pytestmark = pytest.mark.integration
CLIENT, HONEST, LIAR = "10.96.0.9", "10.96.0.1", "10.96.0.4"
EACH = 10

ANSWERS = """
import asyncio, sys
from dataclasses import replace
from rserpool import DataChannels
def answer(association, message, _):
    channels.send(association, replace(message, data=sys.argv[1].encode()))
async def run():
    global channels
    channels = DataChannels(
        on_message=answer,
        local_addresses=sys.argv[1:],
        port=4630,
        listens=True,
    )
    print("listening", flush=True)
    await asyncio.sleep(600)
asyncio.run(run())
"""
"""A ppe-agent that answers with the first of these addresses, and says that it has them all."""

ASKS = """
import asyncio, json, sys
from ipaddress import ip_address
from ppu_agent.destinations import Destination
from ppu_agent.via import Channels
from rserpool import Protocol
honest, liar = (Destination(ip_address(host), Protocol.UDP, 5060) for host in sys.argv[1:3])
answers = []
async def ask(server, count):
    for number in range(count):
        channels.send(server, 4630, number, b"")
        await asyncio.sleep(0.02)
async def answered(count):
    while len(answers) < count:
        await asyncio.sleep(0.01)
async def run():
    global channels
    channels = Channels(lambda address, flow, data: answers.append((address, data)), ipv6=False)
    channels.start()
    count = int(sys.argv[3])
    for turn, server in enumerate((liar, honest, liar, honest), start=1):
        await ask(server, count)
        await asyncio.wait((asyncio.create_task(answered(turn * count)),), timeout=10)
    print(json.dumps([[str(address), data.decode()] for address, data in answers]), flush=True)
    await channels.close()
asyncio.run(run())
"""


def test_lying_init_ack_gets_no_datagram_of_another_member_and_keeps_its_own() -> None:
    with contextlib.ExitStack() as stack:
        network, client, honest, liar = (stack.enter_context(own_namespace()) for _ in range(4))
        network.ip("link", "add", "switch", "type", "bridge")
        network.ip("link", "set", "switch", "up")
        for number, (host, address) in enumerate(((client, CLIENT), (honest, HONEST), (liar, LIAR))):
            _plug_in(network, host, f"port{number}", address)
        liar.run("sysctl", "-w", "net.ipv4.conf.all.arp_ignore=1")  # it lies in SCTP only
        liar.ip("address", "add", f"{HONEST}/32", "dev", "lo")
        # As behind a packet filter: else the HEARTBEAT to the claimed address is answered by an ABORT.
        for line in (
            "table ip filter",
            "chain ip filter input { type filter hook input priority 0; }",
            "rule ip filter input ip protocol sctp @th,96,8 4 drop",
        ):
            assert honest.run("nft", f"add {line}").returncode == 0
        for host, addresses in ((honest, [HONEST]), (liar, [LIAR, HONEST])):
            listening = host.start(sys.executable, "-c", ANSWERS, *addresses, sctp=True)
            assert listening.stdout is not None
            assert listening.stdout.readline() == "listening\n", listening.communicate(timeout=10)
        asked = client.run(sys.executable, "-c", ASKS, HONEST, LIAR, str(EACH), sctp=True)
        assert asked.returncode == 0, asked.stderr
        answers = Counter((server, answered_by) for server, answered_by in json.loads(asked.stdout))
        assert answers == {(HONEST, HONEST): 2 * EACH, (LIAR, LIAR): 2 * EACH}


def _plug_in(network: Namespace, host: Namespace, port: str, address: str) -> None:
    network.ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.name)
    network.ip("link", "set", port, "master", "switch", "up")
    host.ip("address", "add", f"{address}/24", "dev", "eth0")
    host.ip("link", "set", "eth0", "up")
