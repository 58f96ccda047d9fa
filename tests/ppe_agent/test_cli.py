"""The command, as far as it needs no registrar."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.namespaces import Namespace

CONFIG = """\
registrars = ["10.99.0.1"]
[state]
path = "{state}"
[control]
path = "{state}/control.sock"
[[as]]
name = "sip-1"
handle = "sip-as-udp"
transport = "udp"
port = 5060
[[as.check]]
type = "sip-options"
"""


@pytest.fixture
def host(namespace: Namespace) -> Namespace:
    """A host with the address 10.99.0.1 and no others but loopback."""
    namespace.run("ip", "address", "add", "10.99.0.1/32", "dev", "lo")
    return namespace


def ppe_agent(
    host: Namespace, *arguments: str | Path, sctp: bool = False
) -> subprocess.CompletedProcess[str]:
    return host.run(sys.executable, "-m", "ppe_agent.cli", *map(str, arguments), sctp=sctp)


def write(directory: Path, text: str = CONFIG) -> Path:
    file = directory / "agent.toml"
    file.write_text(text.format(state=directory))
    return file


def test_check_says_what_it_understood(host: Namespace, tmp_path: Path) -> None:
    file = write(tmp_path)
    result = ppe_agent(host, "check", "-c", file)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (
        "sip-1: udp 10.99.0.1 port 5060 in pool sip-as-udp, policy least-used, "
        "while these pass: sip-options\n"
        f"{file}: no errors\n"
    )


def test_check_and_run_name_every_error_without_a_traceback(host: Namespace, tmp_path: Path) -> None:
    file = write(tmp_path, CONFIG.replace("sip-as-udp", "h" * 33).replace("port = 5060", "prot = 5060"))
    for command in ("check", "run"):
        result = ppe_agent(host, command, "-c", file)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.splitlines() == [
            f"{file}:6: as[0].port: is missing",
            f"{file}:8: as[0].handle: a pool handle has 1 to 32 bytes, this one 33 (is '{'h' * 33}')",
            f"{file}:10: as[0].prot: unknown key; did you mean 'port'?",
        ]


def test_check_says_that_an_address_is_not_on_this_host(host: Namespace, tmp_path: Path) -> None:
    file = write(tmp_path, CONFIG.replace("port = 5060", 'port = 5060\naddress = "10.99.0.2"'))
    assert ppe_agent(host, "check", "-c", file).stderr == (
        f"{file}:11: as[0].address: 10.99.0.2 is no address of this host; "
        '"auto" takes the one towards the first registrar; a server on another host needs remote = true\n'
    )
    file = write(tmp_path, CONFIG.replace("10.99.0.1", "10.20.0.1"))
    assert ppe_agent(host, "check", "-c", file).stderr == (
        f'{file}:6: as[0].address: "auto" finds no address: no way to 10.20.0.1: Network is unreachable; '
        "write the address of the server\n"
    )


def test_commands_say_when_no_agent_runs(host: Namespace, tmp_path: Path) -> None:
    file = write(tmp_path)
    for command in ("status", "drain", "undrain"):
        result = ppe_agent(host, command, "-c", file)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr == (
            f"error: nothing answers at {tmp_path}/control.sock; is the service running?\n"
        )


@pytest.mark.skipif(Path("/proc/net/sctp").exists(), reason="this kernel has SCTP")
def test_run_says_that_there_is_no_sctp(host: Namespace, tmp_path: Path) -> None:
    result = ppe_agent(host, "run", "--log-level", "error", "-c", write(tmp_path))
    assert result.returncode == 1
    assert result.stderr == (
        "error: no SCTP here: load the kernel module (modprobe sctp), or start this with sctp-run\n"
    )


def test_run_says_where_it_cannot_keep_its_state(host: Namespace, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = CONFIG.replace('path = "{state}"', 'path = "{state}/file"')
    result = ppe_agent(host, "run", "-c", write(tmp_path, text), sctp=True)
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: state directory {tmp_path}/file can't be written")
    assert "Traceback" not in result.stderr
