"""A call that reached no server, in a real Kamailio: do others fail with it?

After a call that tried every SRV target of a NAPTR record in vain, Kamailio from 5.3 on passes over that
record for all calls until its TTL ends (kamailio#4911). It then asks for the SRV records of the name itself.
"""

import sys
from pathlib import Path

from rspdns_lab.ims.hosts import cscf_cfg

from tests.support.backend import ADDRESS, HANDLE, POOL, ZONE
from tests.support.chain import Chain
from tests.support.members import Members
from tests.support.namespaces import own_namespace
from tests.support.waiting import until

PROXY = "127.0.0.1"
TIMER_MS = 300
TTL_S = 30
"""Longer than the test: no answer of a name server mends what Kamailio keeps."""
CALLER = f"""
import socket, sys, time
caller = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
caller.bind(("{PROXY}", 0))
caller.settimeout(4)
port = caller.getsockname()[1]
for number in range(int(sys.argv[1])):
    call = f"{{time.time():.6f}}"
    caller.sendto((
        "OPTIONS sip:as.{ZONE} SIP/2.0\\r\\n"
        f"Via: SIP/2.0/UDP {PROXY}:{{port}};branch=z9hG4bK{{call}}\\r\\n"
        "From: <sip:caller@example.net>;tag=1\\r\\nTo: <sip:as.{ZONE}>\\r\\n"
        f"Call-ID: {{call}}\\r\\nCSeq: 1 OPTIONS\\r\\nMax-Forwards: 70\\r\\nContent-Length: 0\\r\\n\\r\\n"
    ).encode(), ("{PROXY}", 5060))
    status = 100
    while status < 200:
        status = int(caller.recv(4000).split()[1])
    print(status, flush=True)
    time.sleep(0.1)
"""


def test_call_that_reached_no_server_spoils_no_other(tmp_path: Path) -> None:
    with own_namespace() as namespace:
        chain = Chain(namespace, tmp_path)
        chain.backend.write_zone(f"ttl = {TTL_S}\n{POOL}")
        members = Members(namespace, tmp_path, ADDRESS, chain.registrars.addresses)
        for number in (1, 2):
            members.add(number, HANDLE, 5000 + number)
        chain.start()
        until(lambda: chain.targets() == {1, 2}, told=chain.backend.log)
        text = cscf_cfg(PROXY).replace("32000", str(TIMER_MS)).replace("64000", str(TIMER_MS))
        assert f'"fr_timer", {TIMER_MS}' in text
        (tmp_path / "kamailio.cfg").write_text(text)
        (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        private = (sys.executable, "-m", "rspdns_lab.net.private_file", str(tmp_path / "resolv.conf"))
        kamailio = ("kamailio", "-f", str(tmp_path / "kamailio.cfg"), "-DD", "-E", "-Y", str(tmp_path))
        namespace.start(*private, "/etc/resolv.conf", *kamailio, log=tmp_path / "kamailio.log")

        def calls(count: int) -> list[int]:
            done = namespace.run(sys.executable, "-c", CALLER, str(count), timeout_s=60)
            return [int(line) for line in done.stdout.split()]

        until(lambda: calls(1) == [200], told=tmp_path / "kamailio.log")
        namespace.run("nft", "add table inet cut")
        namespace.run("nft", "add chain inet cut input { type filter hook input priority 0; }")
        namespace.run("nft", "add rule inet cut input udp dport 5001-5002 udp sport 5060 drop")
        assert calls(1) == [408], "both targets were tried in vain"
        namespace.run("nft", "delete table inet cut")
        assert calls(10) == [200] * 10
