"""A real PowerDNS in a network namespace, configured as pdns-config renders it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.query
from pdns_config import PdnsSettings, render_pdns_conf, write_script
from rspdns_lab.net.network import call_in

from tests.support.namespaces import Namespace
from tests.support.waiting import until

START_TIMEOUT_S = 60.0
TIMEOUT_S = 5.0
TRIES = 2
SUBNET = "+subnet="
LIKE_DIG = ("SRV", "A", "AAAA", "NS", "SOA")
"""Types whose records dnspython writes as dig does."""


class Pdns:
    """PowerDNS at `address` port 53 of `namespace`, asking the backend at `<folder>/<remote>`.

    `more` are settings of pdns-config.
    """

    def __init__(
        self,
        namespace: Namespace,
        folder: Path,
        name: str = "pdns",
        address: str = "127.0.0.1",
        remote: str = "remote.sock",
        **more: Any,
    ) -> None:
        self.namespace = namespace
        self.address = address
        self.folder = folder / name
        self.folder.mkdir()
        self.log = self.folder / "log"
        connector = f"unix:{folder}/{remote}"
        settings = PdnsSettings(
            listen_address=address,
            **{
                "connector": connector,
                "script": write_script(self.folder, connector),
                "socket_dir": str(self.folder),
                "denials": remote == "remote.sock",  # the table is beside the backend's own socket
                **more,
            },
        )
        self.control = Path(settings.control_socket)
        (self.folder / "pdns.conf").write_text(render_pdns_conf(settings))
        self.process: subprocess.Popen[str] | None = None

    def start(self, zone: str) -> None:
        """Start it and wait until it answers for `zone`."""
        self.process = self.namespace.start("pdns_server", f"--config-dir={self.folder}", log=self.log)
        end_s = time.monotonic() + START_TIMEOUT_S
        while not self.short(zone, "SOA"):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end_s, self.log.read_text()
            time.sleep(0.05)

    def dig(self, *question: str) -> str:
        """Return what dig prints."""
        times = [f"+tries={TRIES}", f"+time={TIMEOUT_S:.0f}"]
        return self.namespace.run("dig", f"@{self.address}", "+norec", *times, *question).stdout

    def short(self, *question: str) -> list[str]:
        """Return the answer's records, sorted, as `dig +short` gives them."""
        name, kind, *options = question
        if kind in LIKE_DIG and all(option.startswith(SUBNET) for option in options):
            reply = self.ask(name, kind, *options)
            return sorted(record.to_text() for rrset in reply.answer for record in rrset) if reply else []
        return sorted(self.dig("+short", *question).split("\n"))[1:]

    def ask(self, name: str, kind: str, *subnets: str) -> dns.message.Message | None:
        """Return the reply that dig would get, without starting a program; None without one."""
        options = [dns.edns.ECSOption.from_text(subnet.removeprefix(SUBNET)) for subnet in subnets]
        question = dns.message.make_query(name, kind, flags=0, use_edns=0, payload=1232, options=options)

        def exchange() -> dns.message.Message:
            family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM) as client:
                client.settimeout(TIMEOUT_S)
                client.connect((self.address, 53))
                client.send(question.to_wire())
                reply = dns.message.from_wire(client.recv(65535))
            if reply.flags & dns.flags.TC:
                return dns.query.tcp(question, self.address, timeout=TIMEOUT_S)
            return reply

        for _ in range(TRIES):
            with contextlib.suppress(OSError, dns.exception.Timeout):
                reply: dns.message.Message = call_in(Path("/run/netns") / self.namespace.name, exchange)
                return reply
        return None

    def util(self, *arguments: str) -> str:
        """Run pdnsutil with this configuration; return what it prints."""
        done = self.namespace.run("pdnsutil", f"--config-dir={self.folder}", *arguments, timeout_s=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def sign(self, zone: str) -> None:
        """Sign a zone; return when PowerDNS proves its denials, too.

        It reads the table of names, by which it denies those of unsigned zones, once a second.
        """
        self.util("secure-zone", zone)
        until(lambda: self.short(zone, "DNSKEY"))
        until(lambda: "\tNSEC\t" in self.dig("+dnssec", f"unsigned-a-moment-ago.{zone}", "A"))

    def stop(self) -> None:
        """End it."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(60)
