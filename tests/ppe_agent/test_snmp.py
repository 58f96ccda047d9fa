"""SNMP as a check and as a load, asked of net-snmp's own agent."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import pytest
from daemon_kit.config_file import parse
from daemon_kit.finding import Finding, Life
from ppe_agent import consistency
from ppe_agent.checks.make import make_check
from ppe_agent.checks.snmp import SnmpQuestion
from ppe_agent.configuration import AgentConfig
from ppe_agent.host_check import lacks
from ppe_agent.load_sources import LoadUnknown, make_source

HERE = ip_address("127.0.0.1")
NUMBER = "1.3.6.1.4.1.8072.9999.9999.1"
TEXT = "1.3.6.1.2.1.1.1.0"
SECRETS = ("auth-of-the-reader", "priv-of-the-reader", "word-of-the-community")
AGENT = f"""\
agentaddress udp:127.0.0.1:{{port}}
createUser reader SHA-256 "{SECRETS[0]}" AES "{SECRETS[1]}"
rouser reader authpriv
rocommunity {SECRETS[2]} 127.0.0.1
override .{NUMBER} integer 42
"""
V3 = f"""\
defVersion 3
defSecurityName reader
defSecurityLevel authPriv
defAuthType SHA-256
defAuthPassphrase {SECRETS[0]}
defPrivType AES
defPrivPassphrase {SECRETS[1]}
"""
V2C = f"defVersion 2c\ndefCommunity {SECRETS[2]}\n"
CONFIG = """\
registrars = ["10.20.0.1"]
[[as]]
name = "one"
handle = "sip"
transport = "udp"
port = 5060
[[as.check]]
type = "snmp"
oid = "{oid}"
range = [{low}, {high}]
credentials = "{file}"
port = {port}
[as.load]
source = "snmp"
oid = "{oid}"
capacity = 100
credentials = "{file}"
port = {port}
"""


@dataclass
class SnmpAgent:
    port: int
    folder: Path

    def credentials(self, text: str) -> Path:
        file = self.folder / str(abs(hash(text))) / "snmp.conf"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o600)
        return file

    def config(self, text: str = V3, oid: str = NUMBER, low: float = 0) -> AgentConfig:
        file = self.credentials(text)
        text = CONFIG.format(oid=oid, low=low, high=100, file=file, port=self.port)
        return parse(text, "agent.toml", AgentConfig)


@pytest.fixture(autouse=True)
def this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this host have a way to the registrar."""
    monkeypatch.setattr(consistency, "address_towards", lambda host, port: ip_address("10.20.0.5"))


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SnmpAgent]:
    folder = tmp_path_factory.mktemp("snmp")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "snmpd.conf").write_text(AGENT.format(port=port))
    log = folder / "snmpd.log"
    program = shutil.which("snmpd") or "/usr/sbin/snmpd"
    process = subprocess.Popen(
        [program, "-f", "-Lf", str(log), "-C", "-c", str(folder / "snmpd.conf")],
        env={**os.environ, "SNMP_PERSISTENT_DIR": str(folder / "kept"), "MIBS": ""},
    )
    try:
        deadline_s = time.monotonic() + 40
        while "NET-SNMP version" not in (log.read_text() if log.exists() else ""):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.02)
        yield SnmpAgent(port, folder)
    finally:
        process.kill()
        process.wait()


async def attempt(config: AgentConfig) -> Finding:
    """Try once, or again when the machine stood still for a whole timeout."""
    (check,) = config.servers[0].check
    made = make_check(check.model_copy(update={"timeout_ms": 10_000}), HERE, 5060, "udp")
    return await made.attempt()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("text", [V3, V2C], ids=["v3 with authPriv", "v2c"])
async def test_a_number_within_the_range_is_life(agent: SnmpAgent, text: str) -> None:
    assert await attempt(agent.config(text)) == Finding(Life.ALIVE, "it is 42")
    outcome = await attempt(agent.config(text, low=43))
    assert outcome == Finding(Life.UNWELL, "it is 42, not from 43 to 100")


@pytest.mark.parametrize("text", [V3, V2C], ids=["v3 with authPriv", "v2c"])
async def test_the_load_is_the_share_of_the_capacity(agent: SnmpAgent, text: str) -> None:
    config = agent.config(text).servers[0].load
    assert config is not None
    source = make_source(config, HERE, 5060, "udp")
    assert source is not None
    assert await source.read() == 0.42


@pytest.mark.parametrize(
    ("text", "oid", "reason"),
    [
        (V3, TEXT, f"{TEXT} is no number:"),
        (V3, NUMBER[:-1] + "77", "No Such"),
        (V3.replace(SECRETS[1], "another-passphrase"), NUMBER, ""),
        (V3.replace("reader", "stranger"), NUMBER, "snmpget: Unknown user name"),
        (V2C + "defNonsense no-word-of-ours\n", NUMBER[:-1] + "77", "No Such"),
    ],
    ids=["text", "no such object", "wrong passphrase", "unknown user", "unknown word in snmp.conf"],
)
async def test_a_failed_snmp_question_is_told_without_secrets(
    agent: SnmpAgent, text: str, oid: str, reason: str
) -> None:
    config = agent.config(text, oid)
    (check,) = config.servers[0].check
    # A wrong passphrase is not answered at all: the timeout is waited for.
    made = make_check(check.model_copy(update={"timeout_ms": 1500}), HERE, 5060, "udp")
    outcome = await made.attempt()  # type: ignore[attr-defined]
    assert outcome.life in (Life.SILENT, Life.UNKNOWN)
    assert reason in outcome.words
    load = config.servers[0].load
    assert load is not None
    source = make_source(load.model_copy(update={"timeout_ms": 1500}), HERE, 5060, "udp")
    assert source is not None
    with pytest.raises((LoadUnknown, TimeoutError)) as caught:
        await source.read()
    for word in (*SECRETS, "another-passphrase", "no-word-of-ours"):
        assert word not in outcome.words + str(caught.value)


def test_no_secret_is_on_the_command_line_or_in_the_environment(agent: SnmpAgent) -> None:
    question = SnmpQuestion(HERE, agent.port, NUMBER, agent.credentials(V3))
    told = " ".join([*question.command(1000), *question.environment.values()])
    assert not any(word in told for word in SECRETS)
    assert (
        SnmpQuestion(ip_address("::1"), 161, NUMBER, Path("/x/snmp.conf")).command(1000)[-2]
        == "udp6:[::1]:161"
    )


def test_the_file_with_secrets_is_for_the_sidecar_only(agent: SnmpAgent) -> None:
    config = agent.config()
    assert not [lack for lack in lacks(config) if "secrets" in lack.problem]
    (check,) = config.servers[0].check
    check.credentials.chmod(0o644)  # type: ignore[union-attr]
    told = {lack.location: lack.problem for lack in lacks(config) if "secrets" in lack.problem}
    assert set(told) == {("as", 0, "check", 0, "credentials"), ("as", 0, "load", "credentials")}
    assert "chmod o=" in next(iter(told.values()))
