"""The check by SIP over SCTP where SCTP is: what only runs there."""

import re
import sys

from tests.support.namespaces import Namespace

ASK_ITSELF = """
import asyncio, socket
from ipaddress import ip_address
from ppe_agent.checks.base import Timing
from ppe_agent.checks.sip import SipOptionsCheck

def connect_from_there(self, address):
    self.bind(address)
    super(socket.socket, self).connect(address)

async def main(own):
    check = SipOptionsCheck(ip_address(own[0]), own[1], Timing(250, 5000, 2, 2), "sctp")
    for _ in range(2):
        print((await check.attempt()).life)
    await check.close()

with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP) as free:
    free.bind(("127.0.0.1", 0))
    own = free.getsockname()
socket.socket.connect = connect_from_there
asyncio.run(main(own))
with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP) as server:
    server.bind(own)
"""

# Answers each OPTIONS of one association with the next of these.
SERVER = """
import re, socket, sys
answers = ["200 OK", "483 Too Many Hops", "503 Service Unavailable", "408 Request Timeout", "404 Not Found"]
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP)
listener.bind(("127.0.0.1", int(sys.argv[1])))
listener.listen(5)
print("listens", flush=True)
while True:
    client, _ = listener.accept()
    while data := client.recv(65536):
        same = re.findall(rb"(?im)^(?:via|from|to|call-id|cseq):.*\\r\\n", data)
        first = f"SIP/2.0 {answers.pop(0)}\\r\\n".encode()
        client.send(first + b"".join(same) + b"Content-Length: 0\\r\\n\\r\\n")
"""
ASK_A_SERVER = f"""
import asyncio, signal, socket, subprocess, sys
from ipaddress import ip_address
from ppe_agent.checks.base import Timing
from ppe_agent.checks.sip import SipOptionsCheck

async def main(port):
    check = SipOptionsCheck(ip_address("127.0.0.1"), port, Timing(250, 1000, 2, 2), "sctp")
    seen_early = asyncio.Event()
    check._asker._on_closed = seen_early.set
    async def show():
        finding = await check.attempt()
        print(finding.life, finding.words, sep=": ")
    await show()
    command = [sys.executable, "-c", {SERVER!r}, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        server.stdout.readline()
        for _ in range(5):
            await show()
        server.send_signal(signal.SIGSTOP)
        await show()
        assert not seen_early.is_set()
        server.kill()
        async with asyncio.timeout(10):
            await seen_early.wait()
    await show()
    await check.close()

with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP) as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
asyncio.run(main(port))
"""


def test_a_server_that_answers_hangs_and_dies(namespace: Namespace) -> None:
    """It is asked on one association; the end of that is seen without asking."""
    asked = namespace.run(sys.executable, "-c", ASK_A_SERVER, sctp=True)
    assert asked.stderr == ""
    assert re.sub(r"port \d+", "port", asked.stdout).splitlines() == [
        "refused: nothing listens on SCTP port",
        "alive: OPTIONS answered 200 OK",
        "alive: OPTIONS answered 483 Too Many Hops",
        "unwell: OPTIONS answered 503 Service Unavailable",
        "unwell: OPTIONS answered 408 Request Timeout",
        "alive: OPTIONS answered 404 Not Found",
        "silent: no answer to OPTIONS on SCTP port within 1000 ms",
        "refused: nothing listens on SCTP port",
    ]


def test_an_association_with_itself_is_no_life_and_leaves_the_port_to_the_server(
    namespace: Namespace,
) -> None:
    """SCTP allows it (RFC 9260, 5.2.1): who is given the port of the server for his own end finds himself."""
    asked = namespace.run(sys.executable, "-c", ASK_ITSELF, sctp=True)
    assert (asked.stdout.split(), asked.stderr) == (["refused", "refused"], "")
