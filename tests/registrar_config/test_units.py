"""The systemd units, read by systemd itself where it is installed."""

import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest
from registrar_config.kernel_timers import SCTPD_OPTIONS

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "registrar-config" / "examples" / "systemd"
UNIT = "rspdns-registrar@.service"


def read(path: Path) -> ConfigParser:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    return unit


def installed(folder: Path, *, with_sctp_run: bool) -> None:
    """Put the units into `folder` as they would be installed, with programs that exist here."""
    for path in [UNITS / UNIT] + [UNITS / f"{UNIT}.d/sctp-run.conf"] * with_sctp_run:
        text = re.sub(r"/usr/(local/)?bin/(rspdns-registrar|sctp-run)", "/bin/true", path.read_text())
        target = folder / path.relative_to(UNITS)
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)
    if with_sctp_run:
        text = (ROOT / "sctp-userland/systemd/sctpd.service").read_text()
        (folder / "sctpd.service").write_text(text.replace("/usr/local/bin/sctpd", "/bin/true"))


def test_the_registrars_unit_always_starts_it_again_and_within_a_second() -> None:
    unit = read(UNITS / UNIT)
    assert unit["Service"]["Restart"] == "always"
    assert unit["Service"]["RestartSec"] == "200ms"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0", "or systemd gives up after five starts"


def test_sctpd_is_never_given_up() -> None:
    unit = read(ROOT / "sctp-userland/systemd/sctpd.service")
    assert unit["Service"]["Restart"] == "always"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0", "or systemd gives up after five starts"


def test_the_watchdog_of_what_carries_sctp_comes_first() -> None:
    """Who waits for sctpd answers nobody meanwhile, and is not to be blamed."""
    ours = read(UNITS / UNIT)["Service"]["WatchdogSec"].removesuffix("s")
    assert int(ours) >= 2 * int(read(ROOT / "sctp-userland/systemd/sctpd.service")["Service"]["WatchdogSec"])


@pytest.mark.parametrize(
    "unit",
    [
        UNITS / UNIT,
        ROOT / "sctp-userland/systemd/sctpd.service",
        ROOT / "ppe-agent/systemd/ppe-agent.service",
    ],
)
def test_what_answers_keep_alives_gets_a_processor_before_others(unit: Path) -> None:
    """Beside other work, 3,000 elements lost 300 to 800 associations in half a minute; with this weight 3."""
    assert int(read(unit)["Service"]["CPUWeight"]) >= 1000


def test_the_registrars_unit_reads_the_file_that_render_writes() -> None:
    unit = read(UNITS / UNIT)["Service"]
    assert unit["EnvironmentFile"] == "/etc/rspdns/registrar-%i.env"
    assert unit["ExecStart"].endswith("rspdns-registrar run $REGISTRAR_OPTIONS")


def test_sctpd_as_a_service_has_the_same_timers_as_one_started_by_sctp_run() -> None:
    unit = read(ROOT / "sctp-userland/systemd/sctpd.service")
    assert unit["Service"]["ExecStart"].endswith(SCTPD_OPTIONS)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("with_sctp_run", [False, True])
def test_systemd_knows_every_key(tmp_path: Path, with_sctp_run: bool) -> None:
    installed(tmp_path, with_sctp_run=with_sctp_run)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "rspdns-registrar@r1.service")]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    ours = [line for line in said.stderr.splitlines() if "rspdns-registrar" in line]
    assert not ours, ours


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_finds_little_that_it_is_exposed_to(tmp_path: Path) -> None:
    installed(tmp_path, with_sctp_run=False)
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(tmp_path / UNIT)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r"exposure level for \S+: ([0-9.]+)", said.stdout)
    assert found, said.stdout + said.stderr
    assert float(found[1]) < 2.5, said.stdout
