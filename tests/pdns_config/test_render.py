"""The rendered files, and the settings that are refused."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pdns_config import OtherBackend, PdnsSettings, pdns_conf, render_pdns_conf
from rspdns.cli import main as rspdns_command

EXAMPLES = Path(__file__).resolve().parents[2] / "pdns-config" / "examples"


def settings_of(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    keys = [line.partition("=")[0] for line in lines]
    assert len(keys) == len(set(keys)), "a setting twice: PowerDNS would take the last one"
    return {key: line.partition("=")[2] for key, line in zip(keys, lines, strict=True)}


def test_addresses_and_paths_of_this_machine_are_written() -> None:
    text = render_pdns_conf(
        PdnsSettings("192.0.2.1", 5300, "unix:/run/x/remote.sock", "/run/x", backend_timeout_ms=700)
    )
    settings = settings_of(text)
    assert settings["local-address"] == "192.0.2.1"
    assert settings["local-port"] == "5300"
    assert settings["remote-connection-string"] == "unix:path=/run/x/remote.sock,timeout=700"
    assert settings["socket-dir"] == "/run/x"
    assert "setuid" not in settings


def test_several_addresses_and_a_user_are_rendered() -> None:
    settings = settings_of(render_pdns_conf(PdnsSettings(["192.0.2.1", "2001:db8::1"], user="pdns")))
    assert settings["local-address"] == "192.0.2.1, 2001:db8::1"
    assert (settings["setuid"], settings["setgid"]) == ("pdns", "pdns")


def test_a_hung_backend_cannot_end_powerdns() -> None:
    settings = settings_of(render_pdns_conf(PdnsSettings()))
    assert int(settings["overload-queue-length"]) < int(settings["max-queue-length"])
    assert int(settings["max-queue-length"]) > 5000


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"signed": True},
        {"near": True},
        {"beside": OtherBackend("bind", (("bind-config", "/etc/powerdns/named.conf"),))},
    ],
)
def test_every_line_is_short_and_every_setting_is_explained(case: dict[str, Any]) -> None:
    lines = render_pdns_conf(PdnsSettings(user="pdns", **case)).splitlines()
    assert max(len(line) for line in lines) <= 110
    settings = [index for index, line in enumerate(lines) if line and not line.startswith("#")]
    assert len(settings) > 20
    for index in settings:
        before = lines[index - 1]
        assert before.startswith("# "), lines[index]
        assert not before.startswith("# ---"), lines[index]


@pytest.mark.parametrize(
    "wrong",
    [
        {"listen_address": "localhost"},
        {"listen_port": 0},
        {"listen_port": 65536},
        {"connector": "unix:relative"},
        {"connector": "pipe:/bin/true"},
        {"connector": "unix:/run/a b"},
        {"connector": "unix:/run/a,timeout=1"},
        {"socket_dir": "/run/x\nlaunch=bind"},
        {"user": "pdns#"},
        {"script": '/x"y.lua'},
        {"backend_timeout_ms": 0},
        {"distributor_threads": 0},
        {"signed": True, "connector": "http:127.0.0.1:8053"},
        {"signed": True, "beside": OtherBackend("bind")},
        {"axfr": ["somewhere"]},
    ],
)
def test_a_setting_that_pdns_conf_cannot_hold_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        PdnsSettings(**wrong)  # type: ignore[arg-type]


def test_the_example_is_what_the_command_prints() -> None:
    printed = CliRunner().invoke(pdns_conf, ["--script", PdnsSettings().script]).output
    assert printed == (EXAMPLES / "pdns.conf").read_text()


def test_the_command_explains_a_wrong_address() -> None:
    result = CliRunner().invoke(pdns_conf, ["--listen", "somewhere"])
    assert result.exit_code == 1
    assert "'somewhere'" in result.output


def test_signed_zones_turn_dnssec_of_the_remote_backend_on() -> None:
    settings = settings_of(CliRunner().invoke(pdns_conf, ["--signed"]).output)
    assert settings["remote-dnssec"] == "yes"


def test_beside_another_backend() -> None:
    options = ["--beside", "bind", "--setting", "bind-config=/etc/powerdns/named.conf"]
    settings = settings_of(CliRunner().invoke(pdns_conf, options).output)
    assert settings["launch"] == "bind,remote"
    assert settings["bind-config"] == "/etc/powerdns/named.conf"


@pytest.mark.parametrize(
    "options", [["--setting", "a=b"], ["--beside", "remote"], ["--beside", "bind", "--signed"]]
)
def test_settings_that_do_not_go_together_are_refused(options: list[str]) -> None:
    result = CliRunner().invoke(pdns_conf, options)
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")


def test_every_installation_renders_it_by_a_command_on_the_path() -> None:
    done = CliRunner().invoke(rspdns_command, ["pdns-conf", "--listen", "192.0.2.1", "--script", "/x.lua"])
    settings = PdnsSettings(["192.0.2.1"], user="pdns", script="/x.lua")
    assert (done.exit_code, done.output) == (0, render_pdns_conf(settings))


def test_script_is_that_of_the_installation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (from_package,) = {settings_of(CliRunner().invoke(pdns_conf).output)["lua-prequery-script"]}
    assert "function prequery(" in Path(from_package).read_text()
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    (tmp_path / "name_table.lua").touch()
    printed = CliRunner().invoke(pdns_conf, ["--connector", "unix:/run/x/remote.sock"]).output
    assert settings_of(printed)["lua-prequery-script"] == f"{tmp_path}/name_table.lua"
    said = " ".join(line.removeprefix("# ") for line in printed.splitlines())
    assert f'RSPDNS_NAMES = "/run/x/remote.sock.names" and dofile("{tmp_path}/name_table.lua")' in said


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--listen", "'ns1' is no IP address to listen at"),
        ("--axfr", "'ns1' is no network that may transfer zones: write it like 192.0.2.0/24"),
    ],
)
def test_refusal_says_what_the_value_was_for(option: str, words: str) -> None:
    done = CliRunner().invoke(rspdns_command, ["pdns-conf", option, "ns1"])
    assert done.exit_code == 1
    assert words in done.output


def test_clients_that_resolvers_ask_for_are_passed_on_only_if_wanted() -> None:
    said = CliRunner().invoke(pdns_conf, ["--near"]).output
    assert settings_of(said)["edns-subnet-processing"] == "yes"
    assert "edns-subnet-processing" not in settings_of(CliRunner().invoke(pdns_conf).output)
