"""The files that the lab writes for its hosts are accepted by the programs that read them."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from pdns_config import PdnsSettings
from rspdns.configuration import load_configuration
from rspdns_lab.chain import texts
from rspdns_lab.chain.plan import (
    APPLICATION_SERVERS,
    HANDLE,
    NAME_SERVERS,
    REGISTRARS,
    SRV_OWNER,
    ZONE,
    LabSetting,
)
from rspdns_lab.chain.texts import write_name_server_files
from rspdns_lab.net.network import LabNetwork

REGISTRAR_LIST = list(REGISTRARS.values())


def test_the_backend_takes_its_configuration_and_the_zone(tmp_path: Path) -> None:
    write_name_server_files("10.53.0.21", REGISTRAR_LIST, list(NAME_SERVERS.values()), tmp_path, LabSetting())
    config = load_configuration(tmp_path / "rspdns.toml")
    assert config.registrars == tuple(REGISTRAR_LIST)
    [zone] = config.zones
    assert zone.name == ZONE
    assert set(config.accept_by_handle) == {HANDLE}
    assert SRV_OWNER.endswith(ZONE)
    control = PdnsSettings(socket_dir=str(tmp_path)).control_socket
    assert config.pdns.control == (control,)  # where the backend purges is where PowerDNS listens


def test_two_handlespaces_have_registrars_and_servers_of_their_own(tmp_path: Path) -> None:
    setting = LabSetting(members=8, cells=True)
    write_name_server_files("10.53.0.21", REGISTRAR_LIST, ["10.53.0.21"], tmp_path, setting)
    config = load_configuration(tmp_path / "rspdns.toml")
    assert [(each.name, len(each.registrars)) for each in config.handlespaces] == [("eu", 3), ("us", 3)]
    assert set(config.accept_by_handle) == {f"eu/{HANDLE}", f"us/{HANDLE}"}
    assert [setting.cell_of(name) for name in setting.application_servers] == ["eu"] * 4 + ["us"] * 4


def test_a_slow_machines_backend_has_more_patience(tmp_path: Path) -> None:
    write_name_server_files("10.53.0.21", REGISTRAR_LIST, ["10.53.0.21"], tmp_path, LabSetting(slow=10))
    assert load_configuration(tmp_path / "rspdns.toml").resolve_timeout_ms == 3000
    assert "timeout=20000" in (tmp_path / "pdns.conf").read_text()


@pytest.mark.parametrize(("verified", "method"), [(False, None), (True, "sip-options")])
def test_the_backend_probes_who_is_to_be_verified(tmp_path: Path, verified: bool, method: str | None) -> None:
    write_name_server_files(
        "10.53.0.21", REGISTRAR_LIST, ["10.53.0.21"], tmp_path, LabSetting(verified=verified)
    )
    [zone] = load_configuration(tmp_path / "rspdns.toml").zones
    assert [pool.verify for pool in zone.config.pools] == [method]


@pytest.mark.integration
def test_kamailio_takes_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "kamailio.cfg").write_text(texts.kamailio_cfg("127.0.0.1", "as1"))
    result = subprocess.run(
        ["kamailio", "-c", "-f", str(tmp_path / "kamailio.cfg")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.integration
def test_the_agent_takes_its_configuration(tmp_path: Path) -> None:
    with LabNetwork(f"rspdns-texttest-{os.getpid()}-{uuid.uuid4().hex[:4]}") as network:
        host = network.add_host("as1", APPLICATION_SERVERS["as1"])
        config = tmp_path / "agent.toml"
        config.write_text(texts.agent_toml("as1", host.address, REGISTRAR_LIST, tmp_path))
        result = subprocess.run(
            [
                "nsenter",
                f"--net={host.path}",
                sys.executable,
                "-m",
                "ppe_agent.cli",
                "check",
                "-c",
                str(config),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 0, result.stderr
    assert "no errors" in result.stdout
