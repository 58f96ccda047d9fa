"""The check `tls` on nginx, with certificates that openssl makes for the test."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import pytest
from daemon_kit.finding import Finding, Life
from ppe_agent import server
from ppe_agent.checks.base import CheckState, PeriodicCheck
from ppe_agent.checks.configuration import TlsConfig
from ppe_agent.checks.make import make_check
from ppe_agent.checks.tls import ExpiryLimits, judge
from structlog.testing import capture_logs

from tests.ppe_agent.servers import ended, free_port, tcp_server
from tests.ppe_agent.servers import running as running_quietly
from tests.ppe_agent.watching import watching
from tests.ppe_agent.whole_agent import running
from tests.support.certificates import NAME, authority, certificate_of
from tests.support.waiting import until_async

HERE = ip_address("127.0.0.1")
DAY_S = 86_400
NGINX = """\
daemon off;
pid {folder}/pid;
error_log {folder}/error.log info;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/t1;
    proxy_temp_path {folder}/t2;
    fastcgi_temp_path {folder}/t3;
    uwsgi_temp_path {folder}/t4;
    scgi_temp_path {folder}/t5;
    {servers}
}}
"""
SERVER = (
    "server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {crt}; ssl_certificate_key {key}; {more} }}\n"
)


@dataclass
class Web:
    """nginx, with a port for each kind of certificate."""

    folder: Path
    ports: dict[str, int]
    process: subprocess.Popen[str]

    def check(self, port: str | int, **keys: object) -> PeriodicCheck:
        """Return the check of a port, by its configuration."""
        number = self.ports[port] if isinstance(port, str) else port
        given = {"type": "tls", "host": NAME, "ca_file": str(self.folder / "ca.pem"), "timeout_ms": 10_000}
        config = TlsConfig.model_validate({**given, "port": number, **keys})
        check = make_check(config, HERE, 5060, "tcp")
        assert isinstance(check, PeriodicCheck)
        return check


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    folder = tmp_path_factory.mktemp("tls")
    ca = authority(folder, "ca")
    authority(folder, "other")
    long, soon, over = (certificate_of(folder, ca, days) for days in (50, 5, -1))
    kinds = {
        "good": (long, "ssl_protocols TLSv1.2 TLSv1.3;"),
        "tls1.2": (long, "ssl_protocols TLSv1.2;"),
        "tls1.1": (long, "ssl_protocols TLSv1.1; ssl_ciphers DEFAULT@SECLEVEL=0;"),
        "soon": (soon, "ssl_protocols TLSv1.3;"),
        "over": (over, ""),
    }
    ports = {kind: free_port() for kind in [*kinds, "plain"]}
    servers = [SERVER.format(port=ports[kind], more=more, **files) for kind, (files, more) in kinds.items()]
    servers.append(f"server {{ listen 127.0.0.1:{ports['plain']}; }}")
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, servers="    ".join(servers)))
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    files_of_nginx = ("-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log"))
    with running_quietly(program, *files_of_nginx) as process:
        yield Web(folder, ports, process)


@pytest.fixture(autouse=True)
async def listening(web: Web) -> None:
    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((str(HERE), web.ports["good"])) == 0

    await until_async(listens, 30, (web.folder / "error.log").read_text)


async def attempt(check: PeriodicCheck) -> tuple[Life, str]:
    finding = await check.attempt()
    return finding.life, finding.words


async def test_handshake_with_a_trusted_certificate_is_life(web: Web) -> None:
    life = (Life.ALIVE, "TLSv1.3 handshake; its certificate expires in 49 days")
    assert await attempt(web.check("good")) == life
    assert await attempt(web.check("good", host=None)) == life, "the certificate has the address, too"
    older = (Life.ALIVE, "TLSv1.2 handshake; its certificate expires in 49 days")
    assert await attempt(web.check("tls1.2")) == older
    assert "in SSL handshake" not in (web.folder / "error.log").read_text(), "each handshake was whole"


async def test_expiry_of_the_certificate_is_told(web: Web) -> None:
    for port, days in (("good", 50), ("soon", 5)):
        expires_at_s = (await web.check(port).attempt()).expires_at_s
        assert expires_at_s == pytest.approx(time.time() + days * DAY_S, abs=3600)
    assert (await web.check("over").attempt()).expires_at_s is None


@contextlib.contextmanager
def s_server(port: int, folder: Path, log: Path) -> Iterator[subprocess.Popen[str]]:
    """Run OpenSSL's own server for one connection."""
    files = ("-cert", str(folder / "50.crt"), "-key", str(folder / "50.key"))
    with log.open("w") as output:
        process = subprocess.Popen(
            ["openssl", "s_server", "-accept", f"{HERE}:{port}", *files, "-naccept", "1"],
            stdin=subprocess.PIPE,  # it ends at the end of a file
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    with ended(process):
        yield process


async def test_check_ends_the_connection_by_a_goodbye(web: Web, tmp_path: Path) -> None:
    """RFC 8446, 6.1. Without, OpenSSL servers report an unexpected end for each check."""
    port, log = free_port(), tmp_path / "log"
    with s_server(port, web.folder, log) as process:
        await until_async(lambda: "ACCEPT" in log.read_text())
        assert (await attempt(web.check(port)))[0] is Life.ALIVE
        await until_async(lambda: process.poll() is not None)
    assert "CONNECTION CLOSED" in log.read_text()
    assert "ERROR" not in log.read_text()


async def test_certificate_that_clients_refuse_fails_the_check(web: Web) -> None:
    refused = "its certificate is refused: "
    other = str(web.folder / "other.pem")
    assert await attempt(web.check("over")) == (Life.UNWELL, f"{refused}certificate has expired")
    life, words = await attempt(web.check("good", ca_file=other))
    assert (life, words) == (Life.UNWELL, f"{refused}unable to get local issuer certificate")
    assert (await attempt(web.check("good", ca_file=None)))[0] is Life.UNWELL, "this host does not know it"
    life, words = await attempt(web.check("good", host="other.example"))
    assert life is Life.UNWELL
    assert words.startswith(f"{refused}Hostname mismatch, certificate is not valid for 'other.example'")


async def test_certificate_near_its_expiry_warns_and_then_fails(web: Web) -> None:
    life = (Life.ALIVE, "TLSv1.3 handshake, but its certificate expires in 4 days")
    assert await attempt(web.check("soon")) == life
    assert await attempt(web.check("soon", fail_days=4)) == life
    calm = (Life.ALIVE, "TLSv1.3 handshake; its certificate expires in 4 days")
    assert await attempt(web.check("soon", warn_days=0)) == calm
    failed = (Life.UNWELL, "its certificate expires in 4 days; fail_days is 5")
    assert await attempt(web.check("soon", fail_days=5)) == failed


@pytest.mark.parametrize(
    ("left_days", "life", "doubt"),
    [
        (14, Life.ALIVE, ""),
        (13.99, Life.ALIVE, "its certificate expires in 13 days"),
        (3, Life.ALIVE, "its certificate expires in 3 days"),
        (2.99, Life.UNWELL, ""),
        (-0.01, Life.UNWELL, ""),
    ],
)
def test_thresholds_count_whole_days_before_the_expiry(left_days: float, life: Life, doubt: str) -> None:
    finding = judge("TLSv1.3", left_days * DAY_S, ExpiryLimits(warn_days=14, fail_days=3))
    assert (finding.life, finding.doubt) == (life, doubt)


def test_days_are_counted_in_words() -> None:
    never = ExpiryLimits(0, 0)
    assert judge("TLSv1.3", 1.5 * DAY_S, never).words.endswith("expires in 1 day")
    assert judge("TLSv1.3", 0.5 * DAY_S, never).words.endswith("expires in 0 days")


async def test_port_without_tls_is_unwell(web: Web) -> None:
    life, words = await attempt(web.check("plain"))
    assert (life, words) == (
        Life.UNWELL,
        f"port {web.ports['plain']}: no TLS handshake: wrong version number",
    )
    life, words = await attempt(web.check("tls1.1"))
    assert (life, words.partition("no TLS handshake: ")[1]) == (Life.UNWELL, "no TLS handshake: ")


async def test_server_that_closes_every_connection_is_silent(web: Web) -> None:
    with tcp_server(port := free_port(), idle_timeout_s=0):
        assert (await attempt(web.check(port)))[0] is Life.SILENT


async def test_server_that_accepts_and_never_shakes_hands_is_out_until_it_wakes(web: Web) -> None:
    async with watching(web.check("good", interval_ms=250, timeout_ms=1000)) as watcher:
        await watcher.until_state(CheckState.UP)
        os.killpg(web.process.pid, signal.SIGSTOP)
        try:
            await watcher.until_state(CheckState.DOWN)
        finally:
            os.killpg(web.process.pid, signal.SIGCONT)
        assert watcher.last == f"no TLS handshake on port {web.ports['good']} within 1000 ms"
        await watcher.until_state(CheckState.UP)


async def test_port_on_which_nothing_listens_is_refused(web: Web) -> None:
    port = free_port()
    assert await attempt(web.check(port)) == (Life.REFUSED, f"nothing listens on port {port}")


@pytest.mark.parametrize(
    "answer",
    [
        b"\x16\x03\x03\xff\xff",
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x16\x03\x03\x00\x04\x00\x00\x00\x00" * 9999,
    ],
    ids=["half a record", "alert", "many messages"],
)
async def test_hostile_bytes_are_no_life_and_end_in_time(web: Web, answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)

    listener = await asyncio.start_server(serve, str(HERE), 0)
    async with listener:
        check = web.check(listener.sockets[0].getsockname()[1], timeout_ms=300)
        async with asyncio.timeout(20):
            assert (await attempt(check))[0] in (Life.UNWELL, Life.SILENT)


async def test_file_of_authorities_that_is_none_is_named(web: Web, tmp_path: Path) -> None:
    finding = await web.check("good", ca_file=str(tmp_path / "no.pem")).attempt()
    words = f"ca_file {tmp_path}/no.pem: No such file or directory"
    assert (finding.life, finding.words) == (Life.UNKNOWN, words)


async def test_renewed_file_of_authorities_counts_from_the_next_handshake(web: Web, tmp_path: Path) -> None:
    """The first context was kept, so that the renewed certificate was refused until a restart."""
    trusted = tmp_path / "trusted.pem"
    shutil.copy(web.folder / "other.pem", trusted)
    check = web.check("good", ca_file=str(trusted))
    assert (await attempt(check))[0] is Life.UNWELL
    shutil.copy(web.folder / "ca.pem", trusted)
    assert (await attempt(check))[0] is Life.ALIVE
    trusted.write_text("half")
    assert (await attempt(check))[0] is Life.ALIVE, "a file being written takes no trust away"


async def test_warning_is_logged_once_for_each_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, monkeypatch, 5060) as (agent, _, _):
        keeper = agent._servers.running[0]
        assert isinstance(keeper, server.ServerKeeper)
        with capture_logs() as lines:
            for doubt in ("in 2 days", "in 2 days", "", "in 2 days", "in 1 day"):
                keeper._on_outcome(0, Finding(Life.ALIVE, "handshake", doubt=doubt))
            keeper._on_outcome(0, Finding(Life.UNWELL, "refused", doubt="in 0 days"))
        warned = [(line["log_level"], line["saw"]) for line in lines if line["event"] == "check_warns"]
        assert warned == [("warning", "handshake, but in 2 days"), ("warning", "handshake, but in 1 day")]
