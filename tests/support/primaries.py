"""Primary name servers that take DNS UPDATE: BIND, Knot and PowerDNS, with the lines of the how-to page."""

import contextlib
import re
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import dns.exception
import dns.message
import dns.query
import dns.rdatatype
import dns.tsigkeyring
import dns.update

from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.pages import blocks
from tests.support.waiting import until

PAGE = (REPOSITORY / "docs" / "how-to" / "dns" / "publish-by-dns-update.md").read_text()
KEY_NAME = "rspdns-key"
SECRET = "3WeVb3L0mI3bTkMNuqzCcqv4cwEn4fnXZcqRkJq4aGk="  # noqa: S105 - of the tests alone
KEY = f'key "{KEY_NAME}" {{\n\talgorithm hmac-sha256;\n\tsecret "{SECRET}";\n}};\n'
SCHEMA = Path("/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql")
START_S = 30.0


def example(language: str, first: str) -> str:
    """The block of the page in this language that holds `first`."""
    (block,) = (block for block in blocks(PAGE, language) if first in block)
    return block


def free_port() -> int:
    """A port of 127.0.0.1 that is free for UDP and TCP."""
    while True:
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            with contextlib.suppress(OSError):
                udp.bind(tcp.getsockname())
                return int(tcp.getsockname()[1])


class Primary:
    """A name server with one zone of its own; `fixed` are the zone's records as they are at first.

    It is at 127.0.0.1, of this host or of `namespace`.
    """

    program: ClassVar[str]

    def __init__(self, folder: Path, zone: str, fixed: str, namespace: Namespace | None = None) -> None:
        self.namespace = namespace
        self.zone = zone
        self.folder = folder / self.program
        self.folder.mkdir()
        self.port = free_port()
        self.server = f"127.0.0.1:{self.port}"
        self.log = self.folder / "log"
        self.key = self.folder / "tsig.key"
        self.key.write_text(KEY)
        self.key.chmod(0o640)
        (self.folder / "zone").write_text(fixed)
        self._process: subprocess.Popen[bytes] | None = None
        self.configure()

    def configure(self) -> None:
        """Write its configuration."""
        raise NotImplementedError

    def command(self) -> Sequence[str]:
        """The command that runs it."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self.log.open("ab") as log:
            command = self.command() if self.namespace is None else self.namespace.command(*self.command())
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        until(lambda: self.serial() is not None, START_S, self.log)

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    def freeze(self) -> None:
        """Let it hang."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def ask(self, name: str, kind: str) -> list[str] | None:
        """The data of an RRset, sorted; None if it does not answer."""
        if self.namespace is not None:
            words = ["dig", "@127.0.0.1", "-p", str(self.port), "+tcp", "+short", "+tries=1", name, kind]
            done = self.namespace.run(*words)
            return sorted(done.stdout.splitlines()) if done.returncode == 0 else None
        try:
            message = dns.message.make_query(name, kind)
            answer = dns.query.tcp(message, "127.0.0.1", port=self.port, timeout=2)
        except (OSError, dns.exception.DNSException, EOFError):
            return None
        wanted = dns.rdatatype.from_text(kind)
        return sorted(str(rdata) for rrset in answer.answer if rrset.rdtype == wanted for rdata in rrset)

    def targets(self, owner: str) -> list[int]:
        """The identifiers in its SRV records."""
        labels = (text.split()[3].partition(".")[0] for text in self.ask(owner, "SRV") or [])
        return sorted(int(label, 16) for label in labels if re.fullmatch("[0-9a-f]{8}", label))

    def serial(self) -> int | None:
        """The serial of its SOA record."""
        found = self.ask(self.zone, "SOA")
        return int(found[0].split()[2]) if found else None

    def update(self) -> dns.update.UpdateMessage:
        """An UPDATE that somebody else makes, with the same key."""
        ring = dns.tsigkeyring.from_text({KEY_NAME: SECRET})
        return dns.update.UpdateMessage(self.zone, keyring=ring, keyalgorithm="hmac-sha256")

    def edit(self, message: dns.update.UpdateMessage) -> None:
        """Send such an UPDATE."""
        answer = dns.query.tcp(message, "127.0.0.1", port=self.port, timeout=5)
        assert answer.rcode() == 0, answer

    def cpu_s(self) -> float:
        """Seconds of processor that it used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


class Bind(Primary):
    program = "named"
    policy = "dnssec-validation no;"

    def configure(self) -> None:
        lines = example("text", "update-policy").replace("/etc/bind/rspdns.key", str(self.key))
        lines = lines.replace("/var/lib/bind/ims.example.net", str(self.folder / "zone"))
        (self.folder / "conf").write_text(
            f'options {{ directory "{self.folder}"; pid-file "{self.folder}/pid"; '
            f'session-keyfile "{self.folder}/session"; listen-on port {self.port} {{ 127.0.0.1; }}; '
            "listen-on-v6 { none; }; recursion no; dnssec-validation no; };\n"
            f"controls {{ }};\n{lines.replace('ims.example.net', self.zone)}"
        )

    def command(self) -> Sequence[str]:
        return ["named", "-g", "-n", "1", "-c", str(self.folder / "conf")]


class Knot(Primary):
    program = "knotd"

    def configure(self) -> None:
        lines = example("yaml", "update-owner").replace("SECRET", SECRET)
        lines = lines.replace("/var/lib/knot", str(self.folder)).replace("ims.example.net.zone", "zone")
        (self.folder / "conf").write_text(
            f"server:\n  listen: 127.0.0.1@{self.port}\n  rundir: {self.folder}\n"
            f"database:\n  storage: {self.folder}\n{lines.replace('ims.example.net', self.zone)}"
        )

    def command(self) -> Sequence[str]:
        return ["knotd", "-c", str(self.folder / "conf")]


class PowerDns(Primary):
    program = "pdns_server"

    def configure(self) -> None:
        with contextlib.closing(sqlite3.connect(self.folder / "zones.sqlite3")) as database:
            database.executescript(SCHEMA.read_text())
        lines = example("ini", "dnsupdate").replace("/var/lib/powerdns", str(self.folder))
        (self.folder / "pdns.conf").write_text(
            f"{lines}\nlocal-address=127.0.0.1\nlocal-port={self.port}\nsocket-dir={self.folder}\n"
        )
        self.util("load-zone", self.zone, str(self.folder / "zone"))
        commands = example("sh", "TSIG-ALLOW-DNSUPDATE")
        for line in commands.replace("SECRET", SECRET).replace("ims.example.net", self.zone).splitlines():
            self.util(*line.removeprefix("pdnsutil ").split())

    def util(self, *words: str) -> None:
        """Run pdnsutil."""
        command = ["pdnsutil", f"--config-dir={self.folder}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)

    def command(self) -> Sequence[str]:
        return ["pdns_server", f"--config-dir={self.folder}"]


PRIMARIES = (Bind, Knot, PowerDns)


@contextlib.contextmanager
def running(
    kind: type[Primary], folder: Path, zone: str, fixed: str, namespace: Namespace | None = None
) -> Iterator[Primary]:
    """A primary that runs."""
    primary = kind(folder, zone, fixed, namespace)
    try:
        primary.start()
        yield primary
    finally:
        primary.stop()
