"""Real resolvers with a TTL of 30 s forget what changed, as `[[resolver]]` has them do."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rspdns_lab.resolvers.programs import RESOLVERS

from tests.support.backend import OWNER, ZONE
from tests.support.chain import SIP_PORTS, Chain
from tests.support.namespaces import end, own_namespace
from tests.support.waiting import until

LIVE = set(SIP_PORTS)
LAST = SIP_PORTS[-1]
TTL_S = 30
SOON_S = 10.0
"""Far less than the TTL."""
KEYS = [key for key in RESOLVERS if key != "kresd"]


class ToldChain:
    """The chain, and all resolvers on the same host, each at an address of its own."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.programs: dict[str, subprocess.Popen[str]] = {}
        own, pdns = chain.address, chain.pdns.folder / "pdns.conf"  # some ask no name server at 127.0.0.1
        text = pdns.read_text()
        pdns.write_text(text.replace("local-address=127.0.0.1\n", f"local-address=127.0.0.1,{own}\n"))
        tables = ""
        for key in KEYS:
            folder = chain.folder / key
            folder.mkdir()
            resolver, address = RESOLVERS[key], self.address(key)
            chain.namespace.ip("address", "add", f"{address}/32", "dev", "lo")
            text = resolver.configured(address, [own], folder)
            (folder / resolver.file).write_text(text.replace("demo.example", ZONE))
            keys = {"name": key, **resolver.told(address, folder)}
            tables += "\n[[resolver]]\n" + "".join(f"{name} = {json.dumps(keys[name])}\n" for name in keys)
            self.start(key)
        config = chain.backend.config
        config.write_text(config.read_text() + tables)
        zone = config.parent / "zones.d" / f"{ZONE}.toml"
        zone.write_text(f"ttl = {TTL_S}\n{zone.read_text()}")

    @staticmethod
    def address(key: str) -> str:
        return f"127.0.0.{71 + KEYS.index(key)}"

    def start(self, key: str) -> None:
        folder, resolver = self.chain.folder / key, RESOLVERS[key]
        command = resolver.command(folder / resolver.file, folder)
        self.programs[key] = self.chain.namespace.start(*command, log=folder / "log")

    def targets_at(self, key: str) -> set[int]:
        """Return the ports in the SRV records that a resolver gives."""
        words = ("dig", "+short", "+tries=1", "+time=2", f"@{self.address(key)}", OWNER, "SRV")
        lines = self.chain.namespace.run(*words).stdout.splitlines()
        return {int(line.split()[2]) for line in lines if line.endswith(f".{ZONE}.")}

    def status(self, key: str) -> dict[str, Any]:
        status = self.chain.backend.status()
        assert status is not None
        return next(each for each in status["resolvers"] if each["name"] == key)

    def override(self, *words: str) -> None:
        done = self.chain.backend.command("override", *words)
        assert done.returncode == 0, done.stderr

    def log(self) -> str:
        status = self.chain.backend.status()
        return json.dumps(status and status["resolvers"])


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToldChain]:
    with own_namespace() as namespace:
        chain = Chain(namespace, tmp_path_factory.mktemp("told"))
        for port in SIP_PORTS:
            chain.start_sip(port)
        chain.start_sidecar()
        made = ToldChain(chain)
        chain.start()
        until(lambda: chain.targets_at(OWNER) == LIVE, told=chain.sidecar.log)
        for key in KEYS:
            until(lambda key=key: made.targets_at(key) == LIVE, 60, chain.folder / key / "log")  # type: ignore[misc]
        yield made


@pytest.mark.parametrize("key", KEYS)
def test_resolver_forgets_a_server_that_leaves_and_one_that_comes(lab: ToldChain, key: str) -> None:
    until(lambda: lab.targets_at(key) == LIVE, SOON_S, lab.log)
    lab.override(f"{lab.chain.address}:{LAST}", "down", "--reason", "a test")
    try:
        until(lambda: lab.targets_at(key) == LIVE - {LAST}, SOON_S, lab.log)
    finally:
        lab.override("clear", "--all")
    until(lambda: lab.targets_at(key) == LIVE, SOON_S, lab.log)
    status = lab.status(key)
    assert status["problem"] is None
    assert status["flushes"] > 2
    assert status["failed"] == 0


def test_resolver_that_hangs_or_is_away_is_named_delays_nothing_and_forgets_afterwards(
    lab: ToldChain,
) -> None:
    server = f"{lab.chain.address}:{LAST}"
    until(lambda: lab.targets_at("unbound") == LIVE, SOON_S, lab.log)
    lab.programs["unbound"].send_signal(signal.SIGSTOP)
    try:
        lab.override(server, "down", "--reason", "a test")
        for key in KEYS:
            if key != "unbound":
                until(lambda key=key: lab.targets_at(key) == LIVE - {LAST}, SOON_S, lab.log)  # type: ignore[misc]
        until(lambda: lab.status("unbound")["problem"] is not None, SOON_S, lab.log)
        nagios = lab.chain.backend.command("status", "--nagios").stdout
        assert "WARNING" in nagios
        assert "resolver unbound can't be told of changes: not done within 2 s" in nagios
    finally:
        lab.programs["unbound"].send_signal(signal.SIGCONT)
    until(lambda: lab.targets_at("unbound") == LIVE - {LAST}, 25, lab.log)
    until(lambda: lab.status("unbound")["problem"] is None, 25, lab.log)

    end(lab.programs["named"])
    lab.override("clear", "--all")
    until(lambda: lab.targets_at("kresd-0") == LIVE, SOON_S, lab.log)
    until(lambda: lab.status("named")["problem"] is not None, SOON_S, lab.log)
    assert "refused" in lab.status("named")["problem"].lower()
    lab.start("named")
    until(lambda: lab.status("named")["problem"] is None, 25, lab.log)


@pytest.mark.parametrize(
    ("key", "file", "words"),
    [
        ("named", "rndc.key", "closed the connection: is the key another one"),
        ("recursor", "api-key", "refuses the API key"),
        ("unbound", "unbound_server.pem", "it has another certificate than "),
    ],
)
def test_wrong_key_is_told_in_words_without_the_key(lab: ToldChain, key: str, file: str, words: str) -> None:
    path = lab.chain.folder / key / file
    right = path.read_text()
    if key == "unbound":
        other = lab.chain.folder / "other"
        other.mkdir()
        subprocess.run(["unbound-control-setup", "-d", str(other)], check=True, capture_output=True)
        wrong = (other / file).read_text()
    else:
        wrong = right.translate(str.maketrans("abcdefghij", "bcdefghija"))
        wrong = wrong if key == "recursor" else right.replace(right.split('"')[3], "c2VjcmV0c2VjcmV0")
    path.write_text(wrong)
    try:
        lab.override(f"{lab.chain.address}:{LAST}", "down", "--reason", "a test")
        until(lambda: words in str(lab.status(key)["problem"]), SOON_S, lab.log)
    finally:
        path.write_text(right)
        lab.override("clear", "--all")
    until(lambda: lab.status(key)["problem"] is None, 25, lab.log)
    log = Path(lab.chain.backend.log).read_text()
    assert "resolver_failed" in log
    assert "resolver_works_again" in log
    assert "Traceback" not in log
    for secret in (right, wrong):
        assert secret.strip() not in log


def test_unbound_whose_control_is_without_tls_is_told(lab: ToldChain) -> None:
    """Debian's own configuration names a socket first: then Unbound has no TLS at its addresses either."""
    file = lab.chain.folder / "unbound" / RESOLVERS["unbound"].file
    right = file.read_text()
    socket = f"  control-interface: {file.parent}/socket\n"
    file.write_text(right.replace("  control-interface:", f"{socket}  control-interface:", 1))
    end(lab.programs["unbound"])
    lab.start("unbound")
    try:
        lab.override(f"{lab.chain.address}:{LAST}", "down", "--reason", "a test")
        words = "a socket as its first control-interface turns TLS off"
        until(lambda: words in str(lab.status("unbound")["problem"]), SOON_S, lab.log)
    finally:
        file.write_text(right)
        end(lab.programs["unbound"])
        lab.start("unbound")
        lab.override("clear", "--all")
    until(lambda: lab.status("unbound")["problem"] is None, 25, lab.log)


def test_wrong_tables_are_told_with_file_line_and_key_and_nothing_changes(lab: ToldChain) -> None:
    config = lab.chain.backend.config
    right = config.read_text()
    config.write_text(f'{right}\n[[resolver]]\nname = "x"\ntype = "bind"\naddress = "unix:/run/x"\n')
    try:
        done = lab.chain.backend.command("check", "--offline")
        assert done.returncode != 0
        line = len(right.splitlines()) + 5
        assert f"{config}:{line}: resolver[{len(KEYS)}].address: bind is told by IP" in done.stderr
        assert lab.chain.backend.command("reload").returncode != 0
        status = lab.chain.backend.status()
        assert status is not None
        assert [each["name"] for each in status["resolvers"]] == KEYS
    finally:
        config.write_text(right)
    assert "note: 5 resolvers forget what changed" not in lab.chain.backend.command("check").stderr
