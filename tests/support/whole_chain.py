"""The whole chain with members of both kinds: rsplib's own elements, and SIP servers with our agent."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.ppe_agent.servers import DATA, TCP_SERVER
from tests.support.chain import ADDRESS, HANDLE, OWNER, POOL, ZONE, Chain
from tests.support.exact import BrokenError
from tests.support.namespaces import Namespace
from tests.support.waiting import until

SIP_PORTS = (5060, 5061, 5062)
TCP_PORTS = (5070, 5071)


def other_pool(protocol: str, label: str) -> str:
    """Another pool at the same name: of this protocol, with this label in its targets."""
    return (
        POOL.replace("_udp", f"_{protocol}").replace('"u"', f'"{label}"').replace(HANDLE, f"sip-{protocol}")
    )


SCTP_OWNER = OWNER.replace("_udp", "_sctp")
TCP_OWNER = OWNER.replace("_udp", "_tcp")


@contextlib.contextmanager
def own_namespace() -> Iterator[Namespace]:
    """A namespace for all tests of a module."""
    namespace = Namespace(f"rspdns-test-{os.getpid()}-{uuid.uuid4().hex[:6]}")
    try:
        yield namespace
    finally:
        namespace.close()


def kill(process: subprocess.Popen[str]) -> None:
    """Kill what was started in a namespace, at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class WholeChain(Chain):
    """Chain, and what joins its pools. Everything logs into `folder/*.log`."""

    def add_registrar(self, address: str) -> None:
        """Let the backend ask one more registrar, whatever it is."""
        self.config.write_text(
            self.config.read_text().replace(
                json.dumps(self.registrars), json.dumps([*self.registrars, address])
            )
        )

    def is_known(self) -> bool:
        """Whether every pool is known, the three real registrars being settled."""
        status = self.status() or {"registrars": [], "zones": []}
        settled = [one["standing"] for one in status["registrars"][:3]] == ["settled"] * 3
        return settled and all(pool["known"] for zone in status["zones"] for pool in zone["pools"])

    def targets_at(self, owner: str) -> set[int]:
        """The ports in the SRV records of `owner`."""
        return {int(line.split()[2]) for line in self.pdns.short(owner, "SRV")}

    def start_rspserver(self, name: str, handle: str = "sip-sctp") -> subprocess.Popen[str]:
        """Start rsplib's echo server, which registers itself."""
        return self.namespace.start(
            *("rspserver", "-echo", "-policy=LeastUsed", f"-poolhandle={handle}", f"-local={ADDRESS}:0"),
            *(f"-registrar={registrar}" for registrar in self.registrars),
            *("-asapannounce=off", "-rereginterval=1000"),
            sctp=True,
            log=self.folder / f"{name}.log",
        )

    def start_sip(self, port: int) -> subprocess.Popen[str]:
        """Start SIPp, answering OPTIONS over UDP."""
        where = ["-i", ADDRESS, "-p", str(port), "-t", "u1", "-nostdin"]
        return self.namespace.start(
            "sipp", "-sf", str(DATA / "options.xml"), *where, log=self.folder / f"sipp-{port}.out"
        )

    def start_tcp(self, port: int) -> subprocess.Popen[str]:
        """Start a server that accepts TCP connections and holds them."""
        return self.namespace.start(sys.executable, "-c", TCP_SERVER, str(port), "-1", ADDRESS)

    def start_agent(
        self, udp: Sequence[int] = SIP_PORTS, tcp: Sequence[int] = (), registrars: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Start one agent for the SIP servers at the ports of `udp` and the TCP servers at those of `tcp`."""
        config = self.folder / "agent.toml"
        config.write_text(
            f"registrars = {json.dumps(list(registrars or self.registrars))}\n"
            f'[state]\npath = "{self.folder}/agent-state"\n[control]\npath = "{self.folder}/agent.sock"\n'
            + "".join(_server("udp", HANDLE, port, "sip-options") for port in udp)
            + "".join(_server("tcp", "sip-tcp", port, "tcp-hold") for port in tcp)
        )
        return self.namespace.start(
            *(sys.executable, "-m", "ppe_agent.cli", "run", "--log-json", "-c", str(config)),
            sctp=True,
            log=self.folder / "agent.log",
        )

    def hsdump(self, enrp_port: int) -> str:
        """The handlespace of one registrar, as rsplib's hsdump prints it: the index."""
        dump = self.namespace.run("hsdump", f"{ADDRESS}:{enrp_port}", sctp=True)
        assert dump.returncode == 0, dump.stdout + dump.stderr
        return dump.stdout.partition("*-- Index:")[2].partition("*-- Selection:")[0]

    def processes(self) -> dict[int, str]:
        """Every process of the namespace, with its command line."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.namespace.name], capture_output=True, text=True, check=True
        ).stdout
        found = {}
        for pid in map(int, listed.split()):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                found[pid] = b" ".join(words).decode(errors="replace").strip()
        return found

    def assert_calm(self, before: dict[int, str]) -> None:
        """Every process of `before` lives, and no log holds a traceback."""
        now = self.processes()
        assert not {pid: command for pid, command in before.items() if pid not in now}, "these died"
        for log in sorted(self.folder.rglob("*.log")):
            text = log.read_text(errors="replace")
            if "Traceback" in text:
                raise BrokenError(f"{log.name}:\n{text[-4000:]}")


def _server(transport: str, handle: str, port: int, check: str) -> str:
    return f"""[[as]]
name = "{transport}-{port}"
handle = "{handle}"
transport = "{transport}"
port = {port}
[[as.check]]
type = "{check}"
[as.damping]
falls = 0
[as.load]
source = "none"
"""


__all__ = [
    "ADDRESS",
    "HANDLE",
    "OWNER",
    "SCTP_OWNER",
    "SIP_PORTS",
    "TCP_OWNER",
    "TCP_PORTS",
    "ZONE",
    "WholeChain",
    "kill",
    "other_pool",
    "own_namespace",
    "until",
]
