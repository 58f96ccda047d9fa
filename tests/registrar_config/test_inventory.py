"""The inventory: what it means, every error in it at once, and the files made from it."""

import shlex
from ipaddress import ip_address
from pathlib import Path

import pytest
from click.testing import CliRunner
from daemon_kit.config_file import ConfigurationErrors
from registrar_config.cli import main
from registrar_config.inventory import Inventory, load_inventory
from registrar_config.kernel_timers import KERNEL_TIMERS_MS, SCTPD_OPTIONS
from registrar_config.render import render_files

EXAMPLE = Path(__file__).resolve().parents[2] / "registrar-config" / "examples" / "inventory.toml"


def read(folder: Path, text: str) -> Inventory:
    file = folder / "inventory.toml"
    file.write_text(text)
    return load_inventory(file)


def registrars(*addresses: str) -> str:
    return "".join(
        f'[[registrar]]\nname = "r{number}"\naddress = "{address}"\n'
        for number, address in enumerate(addresses, start=1)
    )


def test_the_example_has_three_registrars_on_three_machines() -> None:
    settings = load_inventory(EXAMPLE).registrars
    assert list(settings) == ["r1", "r2", "r3"]
    assert {(registrar.asap.port, registrar.enrp.port) for registrar in settings.values()} == {(3863, 9901)}
    assert [str(peer) for peer in settings["r2"].peers] == ["10.0.0.1:9901", "10.0.0.3:9901"]


def test_on_one_machine_each_gets_ports_of_its_own(tmp_path: Path) -> None:
    settings = list(read(tmp_path, registrars(*["fd00::1"] * 3)).registrars.values())
    assert [registrar.asap.port for registrar in settings] == [3863, 3864, 3865]
    assert [registrar.enrp.port for registrar in settings] == [9901, 9902, 9903]
    assert settings[0].asap.address == ip_address("fd00::1")


def test_a_given_port_is_not_given_to_another(tmp_path: Path) -> None:
    text = registrars("10.0.0.1") + registrars("10.0.0.1").replace("r1", "r2") + "asap_port = 3863\n"
    assert [registrar.asap.port for registrar in read(tmp_path, text).registrars.values()] == [3864, 3863]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "registrar: is missing"),
        (registrars("10.0.0.1") * 2, ":5: registrar[1].name: 'r1' is there twice"),
        (registrars("10.0.0.1", "fd00::1"), ":6: registrar[1].address: the registrars must all have IPv4"),
        ('announce = "10.0.0.9"\n', ":1: announce: '10.0.0.9': no multicast address: 239.0.0.50"),
        ('announce = "[ff02::50]:9"\n', ":1: announce: '[ff02::50]:9': announcements to it come from"),
        ('announce = "ff05::50"\n' + registrars("10.0.0.1"), ":1: announce: [ff05::50]:3863 is of another"),
        (registrars("127.0.0.1"), "rspregistrar uses no loopback"),
        (registrars("nonsense"), ":3: registrar[0].address: "),
        (registrars("10.0.0.1") + "asap_prot = 1\n", "did you mean 'asap_port'?"),
        (registrars("10.0.0.1") + "asap_port = 70000\n", ":4: registrar[0].asap_port: "),
        (registrars("10.0.0.1") + "asap_port = 99\nenrp_port = 99\n", "must differ from asap_port"),
        (
            registrars("10.0.0.1").replace('"r1"', '"r1"\nenrp_port = 7')
            + registrars("10.0.0.1").replace('"r1"', '"r2"\nenrp_port = 7'),
            "another registrar at 10.0.0.1 has this port",
        ),
        (registrars("10.0.0.1") + '[[agent]]\nname = "r1"\naddresses = ["10.1.0.0/16"]\n', "different names"),
        (registrars("10.0.0.1") + '[[agent]]\nname = "a"\naddresses = ["10.1.0.7/16"]\n', ":6: agent[0]"),
        (registrars("10.0.0.1") + '[[agent]]\nname = "../a"\naddresses = ["10.1.0.7"]\n', "agent[0].name"),
        (registrars("10.0.0.1") + '[[pool]]\nhandles = ["a"]\n', ":4: pool[0]: needs policy or transport"),
        (registrars("10.0.0.1") + '[[pool]]\nhandles = ["a"]\npolicy = "x"\n', ":6: pool[0].policy: "),
        (registrars("10.0.0.1") + '[[backend]]\nname = "b"\naddresses = []\n', "addresses: needs at least 1"),
        (registrars("10.0.0.1") + 'outside = "192.0.2.1"\n', ":4: registrar[0].outside: it is for WireGuard"),
        (registrars("10.0.0.1") + 'outside = "here"\n[wireguard]\n', "'here' is not ADDRESS or ADDRESS:PORT"),
        (
            registrars("10.0.0.1") + '[wireguard]\nhosts = ["10.9.0.1"]\n',
            ":5: wireguard.hosts[0]: no registrar",
        ),
    ],
)
def test_an_error_says_where_and_what(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationErrors) as caught:
        read(tmp_path, text)
    assert problem in str(caught.value)


def test_a_wrong_address_is_told_once(tmp_path: Path) -> None:
    """Not also that the list is too short without it."""
    text = registrars("10.0.0.1") + '[[agent]]\nname = "a"\naddresses = ["10.1.0.7/16"]\n'
    with pytest.raises(ConfigurationErrors) as caught:
        read(tmp_path, text)
    assert len(caught.value.errors) == 1


def test_the_option_file_is_what_run_takes(tmp_path: Path) -> None:
    files = render_files(
        read(tmp_path, "agent_reregistration_ms = 500\n" + registrars("10.0.0.1", "10.0.0.2", "10.0.0.3"))
    )
    settings = dict(
        line.split("=", 1)
        for line in files["r2"]["registrar-r2.env"].splitlines()
        if not line.startswith("#")
    )
    assert settings["SCTPD_OPTIONS"] == SCTPD_OPTIONS
    arguments = shlex.split(settings["REGISTRAR_OPTIONS"])
    assert arguments[:3] == ["--number=2", "--address=10.0.0.2:3863", "--enrp-port=9901"]
    assert "--peer=10.0.0.1:9901" in arguments
    assert "--agent-reregistration-ms=500" in arguments
    assert CliRunner().invoke(main, ["run", *arguments, "--help"]).exit_code == 0


def test_every_host_gets_the_sctp_timers() -> None:
    for files in render_files(load_inventory(EXAMPLE)).values():
        text = files["sysctl.d/90-rspdns-sctp.conf"]
        for name, value in KERNEL_TIMERS_MS.items():
            assert f"net.sctp.{name} = {value}\n" in text
        assert "sctp" in files["modules-load.d/rspdns-sctp.conf"].split()


def test_render_writes_a_directory_for_each_entry(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["render", str(EXAMPLE), "--output", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("r1", "r2", "r3"),
        *("application-servers", "name-servers"),
    }
    assert (tmp_path / "out/r3/registrar-r3.env").exists()
    assert (tmp_path / "out/name-servers/rspdns.nft").exists()


def test_no_packet_filter_is_rendered_when_it_is_elsewhere(tmp_path: Path) -> None:
    agent = '[[agent]]\nname = "a"\naddresses = ["10.1.0.7"]\n'
    here = render_files(read(tmp_path, registrars("10.0.0.1") + agent))
    elsewhere = render_files(read(tmp_path, 'filter = "elsewhere"\n' + registrars("10.0.0.1") + agent))
    for name, files in here.items():
        assert files.keys() - elsewhere[name].keys() == {"rspdns.nft"}


def test_check_away_from_the_registrars_says_that_it_sees_no_filter() -> None:
    done = CliRunner().invoke(main, ["check", str(EXAMPLE)])
    assert done.exit_code == 0, done.output
    assert "No registrar is on this host" in done.output
    assert "No registrar" not in CliRunner().invoke(main, ["check", "--offline", str(EXAMPLE)]).output


def test_two_registrars_are_refused_with_the_reason_unless_forced(tmp_path: Path) -> None:
    file = tmp_path / "inventory.toml"
    file.write_text(registrars("10.0.0.1", "10.0.0.2"))
    command = ["render", str(file), "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 1
    assert "a takeover completes only when a third registrar acknowledges it" in done.output
    assert not (tmp_path / "out").exists()
    assert CliRunner().invoke(main, [*command, "--force"]).exit_code == 0
    assert "--force" in (tmp_path / "out/r1/registrar-r1.env").read_text()


def test_errors_of_the_file_are_told_without_a_traceback(tmp_path: Path) -> None:
    file = tmp_path / "inventory.toml"
    file.write_text("nonsense = 1\n" + registrars("10.0.0.1") + "x = 1\n")
    done = CliRunner().invoke(main, ["render", str(file)])
    assert done.exit_code == 1
    assert f"{file}:1: nonsense: unknown key" in done.output
    assert f"{file}:5: registrar[0].x: unknown key" in done.output
    assert "Traceback" not in done.output


def test_a_client_is_let_in_as_a_name_server_is(tmp_path: Path) -> None:
    entry = '[[backend]]\nname = "x"\naddresses = ["10.9.0.1"]\n'
    as_backend = read(tmp_path, registrars("10.0.0.1") + entry)
    as_client = read(
        tmp_path, registrars("10.0.0.1") + entry.replace("backend", "client") + 'follow = "enrp"\n'
    )
    assert render_files(as_client) == render_files(as_backend)


def test_a_client_asks_only_unless_it_is_let_follow(tmp_path: Path) -> None:
    entry = '[[backend]]\nname = "x"\naddresses = ["10.9.0.1"]\n'
    as_polling = read(tmp_path, registrars("10.0.0.1") + entry + 'follow = "poll"\n')
    as_client = read(tmp_path, registrars("10.0.0.1") + entry.replace("backend", "client"))
    assert render_files(as_client) == render_files(as_polling)


WIREGUARD = (
    "expected_elements = 9\n"
    + registrars("10.0.0.1", "10.0.0.1", "10.0.0.3")
    + """outside = "192.0.2.3:7000"
[[agent]]
name = "a"
addresses = ["10.1.0.0/16"]
handles = ["x"]
sctp_ports = [5060]
[[client]]
name = "c"
addresses = ["10.2.0.1"]
[wireguard]
hosts = ["10.1.0.7"]
"""
)


def test_wireguard_connects_every_host_with_the_registrars_and_keeps_its_keys(tmp_path: Path) -> None:
    file, made = tmp_path / "inventory.toml", tmp_path / "made"
    file.write_text(WIREGUARD)
    command = ["wireguard", str(file), "--output", str(made)]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    files = {path.name: path / "rspdns0.conf" for path in made.iterdir()}
    assert {*files} == {"10.0.0.1", "10.0.0.3", "10.1.0.7", "10.2.0.1"}, "r1 and r2 share a host"
    texts = {host: path.read_text() for host, path in files.items()}
    private = {host: text.split("PrivateKey = ")[1].split()[0] for host, text in texts.items()}
    assert len({*private.values()}) == 4
    for host, text in texts.items():
        assert files[host].stat().st_mode & 0o777 == 0o600
        peers = {line.split()[2].removesuffix("/32") for line in text.splitlines() if "AllowedIPs" in line}
        is_registrar = host in ("10.0.0.1", "10.0.0.3")
        assert peers == ({*files} if is_registrar else {"10.0.0.1", "10.0.0.3"}) - {host}
        assert private[host] not in done.output + "".join(texts[other] for other in texts.keys() - {host})
    assert "ListenPort = 7000" in texts["10.0.0.3"]
    assert "Endpoint = 192.0.2.3:7000" in texts["10.1.0.7"]
    assert "Endpoint = 10.0.0.1:51820" in texts["10.1.0.7"]

    files["10.2.0.1"].unlink()
    assert CliRunner().invoke(main, command).exit_code == 0
    again = {host: path.read_text() for host, path in files.items()}
    assert again["10.1.0.7"] == texts["10.1.0.7"], "no registrar's key has changed"
    assert again["10.2.0.1"] != texts["10.2.0.1"]
    assert again["10.0.0.1"] != texts["10.0.0.1"], "it knows the new key"
    files["10.1.0.7"].write_text("[Interface]\n")
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 1
    assert f"{files['10.1.0.7']} has no private key" in refused.output


def test_packet_filter_lets_sctp_in_by_the_tunnel_only(tmp_path: Path) -> None:
    lines = render_files(read(tmp_path, WIREGUARD))["a"]["rspdns.nft"].splitlines()
    rules = [line.strip() for line in lines if line.strip().endswith(("accept", "drop"))]
    tunnel = rules.index('iifname != "rspdns0" meta l4proto sctp counter drop')
    assert rules[:tunnel] == ["iif lo accept", "sctp dport { 5060 } accept"]
    assert "saddr" in rules[tunnel + 1]


def test_network_without_listed_hosts_is_told(tmp_path: Path) -> None:
    doubts = [*read(tmp_path, WIREGUARD.replace('["10.1.0.7"]', "[]")).doubts()]
    assert [doubt for doubt in doubts if "[wireguard]" in doubt and "10.1.0.0/16" in doubt], doubts
