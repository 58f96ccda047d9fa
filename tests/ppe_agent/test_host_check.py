"""The faults of this host that `ppe-agent check` names, by the addresses of the kernel; it changes
nothing."""

import os
import re
import sys
from ipaddress import ip_address, ip_network
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from daemon_kit.addresses import is_on_this_host
from ppe_agent import cli, client_addresses, configuration, host_check
from ppe_agent.addresses import NoLocalAddress, address_towards

from tests.ppe_agent.whole_agent import write

CHECK = '[[as.check]]\ntype = "{type}"\n{key}\n'


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "is_on_this_host", lambda address: True)


def check(directory: Path, text: str = "") -> Result:
    """Run the command on a right configuration with `text` at its end."""
    write(directory, 5060)
    with (directory / "agent.toml").open("a") as file:
        file.write(text)
    return CliRunner().invoke(cli.main, ["check", "-c", str(directory / "agent.toml")])


def test_a_configuration_that_fits_the_host_is_well_and_nothing_is_made_or_run(tmp_path: Path) -> None:
    command = f'command = ["/bin/sh", "-c", "touch {tmp_path}/was-run"]'
    done = check(tmp_path, CHECK.format(type="exec", key=command))
    assert (done.exit_code, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["agent.toml"]


def test_address_that_no_registrar_will_take_is_an_error_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, 5060)
    path = tmp_path / "agent.toml"
    text = re.sub(r"(?m)^address = .*\n", "", path.read_text())
    lines = text.replace("\nport = ", '\naddress = "2001:db8::1"\nport = ')

    def problems(text: str) -> str:
        path.write_text(text)
        return str(CliRunner().invoke(cli.main, ["check", "-c", str(path)]).stderr)

    said = problems(lines)
    assert "2001:db8::1 never joins: no registrar here has an IPv6 address" in said
    assert f"agent.toml:{lines[: lines.index('address = ')].count(chr(10)) + 1}: as[0].address" in said
    assert "never joins" not in problems(
        re.sub("registrars = .*", 'registrars = ["127.0.0.1", "::1"]', lines)
    )
    assert "never joins" not in problems(text)


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        (
            "198.51.100.0/24",
            "servers can't answer clients in 198.51.100.0/24, since no route leads it to this",
        ),
        ("2001:db8::/48", "has no IPv4 network, which a server with relay = true needs"),
    ],
)
def test_servers_that_could_not_answer_relayed_clients_are_an_error(
    tmp_path: Path, clients: str, words: str
) -> None:
    write(tmp_path, 5060)
    path = tmp_path / "agent.toml"
    relay = f'[relay]\naccept = ["10.1.0.0/16"]\nclients = ["{clients}"]\n'
    text = path.read_text().replace("\nport = ", "\nrelay = true\nport = ")
    path.write_text(text.replace("[[as]]", f"{relay}[[as]]", 1))
    said = CliRunner().invoke(cli.main, ["check", "-c", str(path)]).stderr
    assert f"relay.clients: {words}" in said


def test_loopback_and_the_networks_of_this_host_are_no_place_for_relayed_clients(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    routes = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
    address = "{:08X}".format(int.from_bytes(ip_address("198.18.4.0").packed, sys.byteorder))
    mask = "{:08X}".format(int.from_bytes(ip_address("255.255.255.0").packed, sys.byteorder))
    (tmp_path / "route").write_text(f"{routes}eth7 {address} 00000000 0001 0 0 0 {mask} 0 0 0\n")
    monkeypatch.setattr(client_addresses, "_IPV4_ROUTES", tmp_path / "route")
    networks = [ip_network("127.64.0.0/10"), ip_network("198.18.0.0/15")]
    first, second = client_addresses.cautions(networks)
    assert first.startswith("127.64.0.0/10 is loopback: a server that trusts its own host trusts")
    assert second.startswith("198.18.0.0/15 collides with the route to 198.18.4.0/24 by eth7")
    assert list(client_addresses.cautions([ip_network("2001:2::/48")])) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CHECK.format(type="exec", key='command = ["/nowhere/check"]'), "/nowhere/check: No such file"),
        (CHECK.format(type="exec", key='command = ["/etc/passwd"]'), "/etc/passwd is no program"),
        (CHECK.format(type="exec", key='command = ["no-such-check", "-q"]'), "no program no-such-check in /"),
        (CHECK.format(type="https", key='ca_file = "/nowhere/ca.pem"'), "/nowhere/ca.pem: No such file"),
        (CHECK.format(type="https", key='ca_file = "/etc/passwd"'), "/etc/passwd: it holds no certificates"),
        (CHECK.format(type="tls", key='ca_file = "/nowhere/ca.pem"'), "/nowhere/ca.pem: No such file"),
        (CHECK.format(type="https", key='ca_file = "/dev/zero"'), "/dev/zero: it is no regular file"),
    ],
)
def test_a_program_or_file_that_the_host_lacks_is_an_error_with_its_line(
    tmp_path: Path, text: str, words: str
) -> None:
    done = check(tmp_path, text)
    key = text.splitlines()[-1].split()[0]
    last = len((tmp_path / "agent.toml").read_text().splitlines())
    assert done.stderr.startswith(f"{tmp_path}/agent.toml:{last}: as[0].check[1].{key}: {words}")
    assert (done.exit_code, done.stdout) == (1, "")


def test_a_load_that_is_asked_of_a_missing_program(tmp_path: Path) -> None:
    write(tmp_path, 5060)
    file = tmp_path / "agent.toml"
    load = '[as.load]\nsource = "exec"\ncommand = ["/nowhere/load"]\n'
    file.write_text(file.read_text().replace("round-robin", "least-used") + load)
    done = CliRunner().invoke(cli.main, ["check", "-c", str(file)])
    assert "as[0].load.command: /nowhere/load: No such file" in done.stderr


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("0.25", "sip-5060: load from exec: 0.25 now"),
        ("busy", "warning: sip-5060: load from exec: "),
        ("7", "warning: sip-5060: load from exec: "),
    ],
)
def test_each_load_source_is_asked_once(tmp_path: Path, printed: str, words: str) -> None:
    write(tmp_path, 5060)
    file = tmp_path / "agent.toml"
    command = ["/bin/sh", "-c", f"echo asked >> {tmp_path}/asked; echo {printed}"]
    load = f'[as.load]\nsource = "exec"\ncommand = {command!r}\n'
    file.write_text(file.read_text().replace("round-robin", "least-used") + load)
    done = CliRunner().invoke(cli.main, ["check", "-c", str(file)])
    assert done.exit_code == 0
    assert words in done.output
    assert f"{file}: no errors" + (", 1 warning" if "warning" in words else "") + "\n" in done.output
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_a_program_that_only_the_path_of_this_user_lacks_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary user finds nothing in /usr/sbin; a service of systemd does."""
    monkeypatch.setenv("PATH", "/nowhere")
    done = check(tmp_path, CHECK.format(type="exec", key='command = ["sh", "-c", "true"]'))
    assert (done.exit_code, done.stderr) == (0, "")
    assert "as[0].check[1].command: no program sh in /nowhere; there is /" in done.stdout


def test_without_systemctl_a_check_of_units_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(host_check, "_PATH_OF_SERVICES", "/nowhere/either")
    done = check(tmp_path, CHECK.format(type="systemd", key='unit = "kamailio.service"'))
    assert "as[0].check[1].type: no program systemctl in /nowhere" in done.stderr


def test_a_damaged_state_is_told_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "sip-5060.json").write_text("{")
    done = check(tmp_path)
    assert done.exit_code == 1
    assert "sip-5060.json is damaged" in done.stderr
    assert (tmp_path / "state" / "sip-5060.json").read_text() == "{"


@pytest.mark.parametrize("below", ["", "/further/down"])
def test_a_directory_for_the_state_that_can_be_none(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    write(tmp_path, 5060)
    file = tmp_path / "agent.toml"
    file.write_text(file.read_text().replace("/state", f"/file{below}"))
    done = CliRunner().invoke(cli.main, ["check", "-c", str(file)])
    assert done.stderr == f"{file}:3: state.path: state directory: {tmp_path}/file is no directory\n"


def test_a_control_socket_with_too_long_a_path_is_an_error_at_its_line(tmp_path: Path) -> None:
    write(tmp_path, 5060)
    file = tmp_path / "agent.toml"
    file.write_text(file.read_text().replace("/control.sock", f"/{'x' * 100}/control.sock"))
    done = CliRunner().invoke(cli.main, ["check", "-c", str(file)])
    assert done.stderr.startswith(f"{file}:5: control.path: a unix socket's path has 107 bytes at most: ")


@pytest.mark.parametrize(
    ("path", "kept_in", "words"),
    [
        ("/link", "/state", "3: state.path: state directory: {}/link leads nowhere"),
        ("/link/further", "/state", "3: state.path: state directory: {}/link leads nowhere"),
        ("/a/b/s", "/control.sock", "5: control.path: control socket's directory: {}/a is not there"),
    ],
)
def test_a_directory_that_would_not_be_made(tmp_path: Path, path: str, kept_in: str, words: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    write(tmp_path, 5060)
    file = tmp_path / "agent.toml"
    right = file.read_text()
    file.write_text(right.replace(f'{kept_in}"', f'{path}"'))
    done = CliRunner().invoke(cli.main, ["check", "-c", str(file)])
    assert done.stderr == f"{file}:{words.format(tmp_path)}\n"
    file.write_text(right.replace(f'{kept_in}"', '/made/s"'))
    assert CliRunner().invoke(cli.main, ["check", "-c", str(file)]).exit_code == 0


def test_a_read_only_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    done = check(tmp_path)
    assert f"state.path: state directory: {tmp_path} is on a read-only file system" in done.stderr
    assert "control.path: control socket's directory: " in done.stderr


def test_lacking_permissions_of_this_user_are_told_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sidecar may run as another one, for whom its unit makes these directories."""
    monkeypatch.setattr(os, "access", lambda _, mode, **__: mode == os.R_OK)
    done = check(tmp_path, CHECK.format(type="exec", key='command = ["/bin/true"]'))
    assert (done.exit_code, done.stderr) == (0, "")
    told = done.stdout.splitlines()[1:-1]
    assert [line.split(": ")[1] for line in told] == ["state.path", "control.path", "as[0].check[1].command"]
    for line in told:
        assert "by the user " in line
        assert line.endswith("; no error if the sidecar runs as another user: run this check as that user")


def test_addresses_of_this_host_are_told_from_others() -> None:
    assert is_on_this_host(ip_address("127.0.0.1"))
    assert not is_on_this_host(ip_address("198.51.100.77"))
    assert not is_on_this_host(ip_address("2001:db8::77"))


def test_the_address_towards_a_host_is_found_or_there_is_no_way() -> None:
    assert address_towards("127.0.0.1", 3863) == ip_address("127.0.0.1")
    with pytest.raises(NoLocalAddress, match=r"no way to 255\.255\.255\.255: "):
        address_towards("255.255.255.255", 3863)
