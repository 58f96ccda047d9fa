"""The pages of docs/how-to, pasted: their files are written and their commands run, on hosts with systemd.

A fence whose `title` is a path is that file. With "at the end of" before the path it is appended; with "in"
it is an excerpt, which a walk appends or leaves. A shell block, or an indented one, is a list of commands.
The rest of a page is for readers. The hosts stand on one link, with the addresses that the pages use.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.live_systemd import LiveSystemd, live_systemd
from tests.support.namespaces import REPOSITORY, Namespace, own_namespace
from tests.support.pages import APPENDED, EXCERPT, Block, read
from tests.support.waiting import until

DOCS = REPOSITORY / "docs"
HOSTS = {
    "r1": "10.0.0.1",
    "r2": "10.0.0.2",
    "r3": "10.0.0.3",
    "u1": "10.0.0.11",
    "u2": "10.0.0.12",
    "u3": "10.0.0.13",
    "gateway": "10.1.0.31",
    "ns1": "192.0.2.1",
    "ns2": "198.51.100.1",
    "as1": "10.20.0.5",
    "as2": "10.20.0.6",
    "as3": "10.20.0.7",
    "distributor": "192.0.2.10",
    "bind": "192.0.2.11",
    "nsd": "192.0.2.12",
    "knot": "192.0.2.13",
    "cache1": "10.0.0.53",
    "cache2": "10.0.0.54",
    "client": "10.1.0.5",
}
"""The hosts of the pages and their addresses."""
NETWORKS = ("10.0.0.0/8", "192.0.2.0/24", "198.51.100.0/24")
PREPARE = """
systemd-sysusers
systemd-tmpfiles --create /usr/local/lib/tmpfiles.d/rspdns.conf
ip link set lo up
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The one that Debian gives root."""
SHELL = ("indented", "sh", "bash", "console")


def blocks(page: str) -> list[Block]:
    """The blocks of a page, from its path below docs/."""
    return read((DOCS / page).read_text())


@dataclass(frozen=True)
class Walk:
    """How one page is pasted."""

    page: str
    """Its path below docs/how-to."""
    host: str | tuple[str, ...] = "ns1"
    """The host of all blocks that `hosts` does not name; of several, each in turn, with its name and address
    in the place of the first one's."""
    hosts: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """Words of a heading, a title or a block: the hosts of the blocks with these words."""
    others: tuple[str, ...] = ()
    """Hosts that no block is pasted at."""
    words: Mapping[str, str | Callable[[Site], str]] = field(default_factory=dict)
    """Words of the page, and those that a reader puts in their place."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Beginnings of lines that are not run, or headings whose blocks are not, and the reason."""
    appended: tuple[str, ...] = ()
    """Words of the excerpts that are appended to their files."""
    by_hand: Mapping[str, Callable[[Site], None]] = field(default_factory=dict)
    """Steps that the page gives in prose, before the block with these words; "" at its beginning."""
    ends: Callable[[Site], None] | None = None
    """Looks at the result, beside healthy services."""

    def hosts_of(self, block: Block) -> tuple[str, ...]:
        """The hosts at which the block is pasted."""
        named = [
            hosts
            for words, hosts in self.hosts.items()
            if words in block.text or words in (*block.headings, block.title)
        ]
        hosts = named[0] if named else self.host
        return (hosts,) if isinstance(hosts, str) else hosts

    def strangers(self) -> set[str]:
        """Its words that the page does not have."""
        there = blocks(f"how-to/{self.page}")
        ours = (*self.hosts, *self.words, *self.left_out, *self.appended, *self.by_hand)
        texts = [text for block in there for text in (*block.headings, block.title, block.text)]
        return {words for words in ours if not any(words in text for text in texts)}

    def every_host(self) -> set[str]:
        """All hosts that it needs."""
        wanted = {*self.others}
        for hosts in (self.host, *self.hosts.values()):
            wanted |= {hosts} if isinstance(hosts, str) else {*hosts}
        return wanted


class Site:
    """Hosts with systemd at one link."""

    def __init__(self, machines: Mapping[str, LiveSystemd]) -> None:
        self.machines = machines

    def __getitem__(self, name: str) -> LiveSystemd:
        return self.machines[name]

    def copy(self, source: str, path: str, to: str, target: str) -> None:
        """Bring a file, or a folder, of one host to another, as `scp -r` by root does."""
        origin = f"{self[source].root}{path}"
        destination = f"{self[to].root}{target}"
        Path(destination).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-r", "--no-preserve=ownership", origin, destination], check=True)

    def paste(self, name: str, script: str) -> str:
        """Paste commands into a root shell of a host; the first that fails ends the walk."""
        done = self[name].try_run("bash", "-ec", f"cd /root; export HOME=/root PATH={PATH}\n{script}")
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"on {name}:\n{script}\n{said}\n{self[name].journal()[-6000:]}"
        return said

    def walk(self, walk: Walk) -> None:
        """Paste a page, block after block and without a pause, then wait until all is well."""
        seen = {*walk.by_hand}
        pasted = 0
        for block in [Block((), "text", "", ""), *blocks(f"how-to/{walk.page}")]:
            if not walk.left_out.keys().isdisjoint(block.headings):
                continue
            for words, act in walk.by_hand.items():
                if words in seen and (words in block.text or words in block.headings):
                    seen.discard(words)
                    act(self)
            for name in walk.hosts_of(block):
                pasted += self._paste_block(name, block, walk)
        assert pasted, "the page has nothing to paste"
        self.until_well(walk.page)
        if walk.ends is not None:
            walk.ends(self)

    def _paste_block(self, name: str, block: Block, walk: Walk) -> bool:
        text = block.text
        if len(walk.hosts_of(block)) > 1:
            first = walk.hosts_of(block)[0]
            text = re.sub(rf"\b{first}\b", name, text).replace(HOSTS[first], HOSTS[name])
        for words, instead in walk.words.items():
            if words in text:
                text = text.replace(words, instead if isinstance(instead, str) else instead(self))
        block = Block(block.headings, block.language, block.title, text)
        if block.path is not None:
            is_excerpt = block.title.startswith(EXCERPT)
            if is_excerpt and not any(words in text for words in walk.appended):
                return False
            path = block.path if block.path.startswith("/") else f"/root/{block.path}"
            target = Path(f"{self[name].root}{path}")
            before = target.read_text() if is_excerpt or block.title.startswith(APPENDED) else ""
            self[name].write(path, before + text)
            return True
        commands = block.commands(tuple(walk.left_out)) if block.language in SHELL else ""
        if commands.strip():
            self.paste(name, commands)
        return bool(commands.strip())

    def until_settled(self, name: str) -> None:
        """Wait until the registrar of a host is ready."""
        until(lambda: _is_settled(self[name]), told=self[name].journal, every_s=0.3)

    def until_well(self, page: str) -> None:
        """Wait until every service that runs says that all is well."""
        asked = 0
        for name, machine in self.machines.items():
            active = machine.run("systemctl", "list-units", "--plain", "--no-legend", "--state=active")
            asked += (ready := [question for unit, question in WELL.items() if unit in active]) != []
            until(
                lambda machine=machine, ready=ready: all(question(machine) for question in ready),  # type: ignore[misc]
                told=lambda name=name, machine=machine: _state(page, name, machine),  # type: ignore[misc]
                every_s=1,
            )
            failed = machine.run("systemctl", "list-units", "--plain", "--no-legend", "--state=failed")
            assert failed == "", f"{page}, on {name}: {failed}\n{machine.journal()[-6000:]}"
        assert asked, f"{page}: no service of rspdns runs"


def _is_in(machine: LiveSystemd) -> bool:
    said = machine.try_run("ppe-agent", "status", "--json")
    return said.returncode == 0 and all(server["state"] == "in" for server in json.loads(said.stdout)["as"])


def _is_settled(machine: LiveSystemd) -> bool:
    said = machine.run("journalctl", "--no-pager", "--unit=rspdns-registrar@*")
    return said.rfind("sentinel_registered") > said.rfind("Starting rspdns-registrar@")


WELL: Mapping[str, Callable[[LiveSystemd], bool]] = {
    "rspdns-registrar@": _is_settled,
    "ppe-agent.service": _is_in,
    "ppu-agent.service": lambda machine: machine.try_run("ppu-agent", "status", "--check").returncode == 0,
    "rspdns-gateway.service": lambda machine: machine.try_run("rspdns", "gateway", "status").returncode == 0,
    "rspdns.service": lambda machine: machine.try_run("rspdns", "status", "--nagios").returncode == 0,
}
"""The question to each unit that runs: is all well?"""


def _state(page: str, name: str, machine: LiveSystemd) -> str:
    asked = ("rspdns status --nagios; rspdns status", "ppe-agent status", "ppu-agent status --check")
    said = "\n".join(machine.try_run("sh", "-c", f"{command} 2>&1").stdout for command in asked)
    return f"{page}, on {name}: {said}\n{machine.journal()[-6000:]}"


@contextlib.contextmanager
def site(folder: Path, installed: Path, names: Sequence[str]) -> Iterator[Site]:
    """These hosts of HOSTS, started, at one link; ended afterwards."""
    with contextlib.ExitStack() as stack:
        link = stack.enter_context(own_namespace())
        link.ip("link", "add", "br0", "type", "bridge")
        link.ip("link", "set", "br0", "up")

        def start(name: str) -> LiveSystemd:
            (folder / name).mkdir()
            machine = stack.enter_context(live_systemd(folder / name, installed, PREPARE))
            _connect(machine, name, link)
            return machine

        with ThreadPoolExecutor() as starting:
            machines = dict(zip(names, starting.map(start, names), strict=True))
        yield Site(machines)


def _connect(machine: LiveSystemd, name: str, link: Namespace) -> None:
    """Give a host its name, and its address at the link."""
    ends = ("eth0", "netns", str(machine.pid), "type", "veth", "peer", name)
    link.ip("link", "add", *ends)
    link.ip("link", "set", name, "master", "br0", "up")
    machine.run("hostname", name)
    machine.run("ip", "link", "set", "eth0", "up")
    machine.run("ip", "address", "add", f"{HOSTS[name]}/32", "dev", "eth0")
    for network in NETWORKS:
        machine.run("ip", "route", "add", network, "dev", "eth0", "src", HOSTS[name])
    lines = "".join(f"{address} {each}.example.net {each}\n" for each, address in HOSTS.items())
    machine.write("/etc/hosts", f"127.0.0.1 localhost\n{lines}")
