"""A service says what is wrong with SCTP here: there is none, or its timers are not tuned."""

import socket
import sys
from pathlib import Path

import pytest

from tests.support.namespaces import REPOSITORY, Namespace

LOOK = (
    "import structlog; from registrar_config.kernel_timers import report_kernel_timers; "
    "structlog.configure(processors=[structlog.processors.JSONRenderer()]); "
    "report_kernel_timers(structlog.get_logger())"
)


@pytest.mark.parametrize("tuned", [True, False])
def test_untuned_timers_of_sctpd_are_told(namespace: Namespace, tuned: bool) -> None:
    environment = {} if tuned else {"SCTPD_OPTIONS": ""}
    look = namespace.start(sys.executable, "-c", LOOK, sctp=True, environment=environment)
    said, problems = look.communicate(timeout=60)
    assert look.returncode == 0, problems
    if tuned:
        assert said == ""
    else:
        assert "sctpd_timers_do_not_fit" in said
        assert "SCTPD_OPTIONS='--rto-min 50" in said


def has_sctp() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, socket.IPPROTO_SCTP).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_sctp(), reason="this kernel has SCTP")
@pytest.mark.parametrize(
    ("module", "command", "example"),
    [
        ("rspdns.cli", "serve", "backend/examples/rspdns.toml"),
        ("ppe_agent.cli", "run", "ppe-agent/examples/agent.toml"),
    ],
)
def test_no_sctp_is_the_first_word(
    namespace: Namespace, tmp_path: Path, module: str, command: str, example: str
) -> None:
    text = (REPOSITORY / example).read_text()
    for folder in ("/run/rspdns", "/var/lib/rspdns"):
        text = text.replace(folder, str(tmp_path))
    if module == "ppe_agent.cli":
        text = text.replace("port = 5060", 'port = 5060\naddress = "10.99.0.1"')
        text = f'state.path = "{tmp_path}"\ncontrol.path = "{tmp_path}/control.sock"\n{text}'
    (tmp_path / "file.toml").write_text(text)
    (tmp_path / "zones.d").mkdir()
    namespace.give_address("10.99.0.1")
    done = namespace.run(sys.executable, "-m", module, command, "-c", str(tmp_path / "file.toml"))
    assert done.returncode == 1
    said = (done.stdout + done.stderr).splitlines()
    assert said == [
        "error: no SCTP here: load the kernel module (modprobe sctp), or start this with sctp-run"
    ]
