"""The systemd units of every service: what they must say, and what systemd itself says of them."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path

import pytest
from registrar_config import SCTPD_OPTIONS

from tests.support.namespaces import REPOSITORY

BACKEND = REPOSITORY / "backend/systemd"
SIDECAR = REPOSITORY / "ppe-agent/systemd"
REGISTRAR = REPOSITORY / "registrar-config/examples/systemd"
FASTPATH = REPOSITORY / "fastpath/systemd/rspdns-fastpath.service"
SCTPD = REPOSITORY / "sctp-userland/systemd/sctpd.service"
REGISTRAR_UNIT = "rspdns-registrar@.service"
SCTP_RUN = f"{REGISTRAR_UNIT}.d/sctp-run.conf"
PROGRAMS = re.compile(
    r"/usr/(local/)?bin/(rspdns-registrar|rspdns|ppe-agent|sctp-run|sctpd)(?= |$)", re.MULTILINE
)
INSTALLED: Mapping[str, Mapping[str, Path]] = {
    "rspdns": {"rspdns.service": BACKEND / "rspdns.service", "rspdns.socket": BACKEND / "rspdns.socket"},
    "rspdns-news": {"rspdns-news.service": BACKEND / "rspdns-news.service"},
    "rspdns-gateway": {"rspdns-gateway.service": BACKEND / "rspdns-gateway.service"},
    "ppe-agent": {"ppe-agent.service": SIDECAR / "ppe-agent.service"},
    "rspdns-registrar": {REGISTRAR_UNIT: REGISTRAR / REGISTRAR_UNIT},
    "rspdns-filter": {"rspdns-filter.service": REGISTRAR / "rspdns-filter.service"},
    "rspdns-registrar with sctp-run": {
        REGISTRAR_UNIT: REGISTRAR / REGISTRAR_UNIT,
        SCTP_RUN: REGISTRAR / SCTP_RUN,
        "sctpd.service": SCTPD,
    },
}
needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")


def read(path: Path) -> ConfigParser:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    return unit


def installed(folder: Path, service: str) -> list[str]:
    """Put the units of a service into `folder` as they would be installed, with programs that exist here."""
    for name, path in INSTALLED[service].items():
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(PROGRAMS.sub("/bin/true", path.read_text()))
    return [str(folder / name.replace("@", "@r1")) for name in INSTALLED[service] if "/" not in name]


@needs_systemd
@pytest.mark.parametrize("service", INSTALLED)
def test_systemd_knows_every_key(tmp_path: Path, service: str) -> None:
    units = installed(tmp_path, service)
    command = ["systemd-analyze", "verify", "--man=no", *units]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    ours = [line for line in said.stderr.splitlines() if service.split()[0] in line]
    assert not ours, ours


@needs_systemd
@pytest.mark.parametrize(
    "unit",
    [SIDECAR / "ppe-agent.service", REGISTRAR / REGISTRAR_UNIT, BACKEND / "rspdns-gateway.service"],
    ids=lambda path: path.name,
)
def test_systemd_finds_little_that_the_service_is_exposed_to(tmp_path: Path, unit: Path) -> None:
    (tmp_path / unit.name).write_text(PROGRAMS.sub("/bin/true", unit.read_text()))
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(tmp_path / unit.name)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r"exposure level for \S+: ([0-9.]+)", said.stdout)
    assert found, said.stdout + said.stderr
    assert float(found[1]) < 2.5, said.stdout


# The backend


def test_powerdns_starts_after_the_backend_but_does_not_end_with_it() -> None:
    unit = read(BACKEND / "rspdns.service")
    assert unit["Unit"]["Before"] == "pdns.service"
    assert "pdns.service" in unit["Install"]["WantedBy"].split()
    assert "RequiredBy" not in unit["Install"]


def test_the_backends_socket_outlives_its_service() -> None:
    service, socket = read(BACKEND / "rspdns.service"), read(BACKEND / "rspdns.socket")
    assert socket["Socket"]["ListenStream"].startswith(f"/run/{service['Service']['RuntimeDirectory']}/")
    assert service["Service"]["RuntimeDirectoryPreserve"] == "yes"


# The sidecar


def test_the_sidecar_runs_as_a_user_that_sysusers_makes() -> None:
    assert read(SIDECAR / "ppe-agent.service")["Service"]["User"] == "ppe-agent"
    done = subprocess.run(
        ["systemd-sysusers", "--dry-run", str(SIDECAR / "ppe-agent.sysusers")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "ppe-agent" in done.stdout + done.stderr


# Registrars, and what carries SCTP


@pytest.mark.parametrize("unit", [REGISTRAR / REGISTRAR_UNIT, SCTPD], ids=lambda path: path.name)
def test_systemd_always_starts_registrars_and_sctpd_again(unit: Path) -> None:
    assert read(unit)["Service"]["Restart"] == "always"


@pytest.mark.parametrize(
    "unit",
    [
        *(REGISTRAR / REGISTRAR_UNIT, SCTPD, BACKEND / "rspdns.service", FASTPATH),
        *(SIDECAR / "ppe-agent.service", REPOSITORY / "ppu-agent/systemd/ppu-agent.service"),
    ],
    ids=lambda path: path.name,
)
def test_systemd_never_gives_up_starting_a_service(unit: Path) -> None:
    assert read(unit)["Unit"]["StartLimitIntervalSec"] == "0", "or it gives up after five starts"


def test_systemd_starts_a_registrar_again_within_a_second() -> None:
    assert read(REGISTRAR / REGISTRAR_UNIT)["Service"]["RestartSec"] == "200ms"


def test_the_watchdog_of_sctpd_comes_before_that_of_the_registrar() -> None:
    """A registrar that waits for sctpd answers nobody meanwhile, and is not to be blamed."""
    ours = read(REGISTRAR / REGISTRAR_UNIT)["Service"]["WatchdogSec"].removesuffix("s")
    assert int(ours) >= 2 * int(read(SCTPD)["Service"]["WatchdogSec"])


@pytest.mark.parametrize(
    "unit", [REGISTRAR / REGISTRAR_UNIT, SCTPD, SIDECAR / "ppe-agent.service"], ids=lambda path: path.name
)
def test_services_that_answer_keep_alives_get_a_processor_before_others(unit: Path) -> None:
    """Beside other work, 3,000 elements lost 300 to 800 associations in half a minute; with this weight 3."""
    assert int(read(unit)["Service"]["CPUWeight"]) >= 1000


def test_the_registrars_unit_reads_the_file_that_render_writes() -> None:
    unit = read(REGISTRAR / REGISTRAR_UNIT)["Service"]
    assert unit["EnvironmentFile"] == "/etc/rspdns/registrar-%i.env"
    assert unit["ExecStart"].endswith(" $REGISTRAR_OPTIONS")


def test_sctpd_as_a_service_has_the_same_timers_as_sctpd_started_by_sctp_run() -> None:
    assert read(SCTPD)["Service"]["ExecStart"].endswith(SCTPD_OPTIONS)
