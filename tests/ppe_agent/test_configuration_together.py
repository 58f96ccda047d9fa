"""A key that is wrong does not hide what is wrong between the keys of its table."""

from pathlib import Path

import pytest
from daemon_kit.config_file import ConfigurationErrors
from ppe_agent import configuration
from ppe_agent.configuration import load_configuration

SERVER = """\
registrars = ["10.20.0.1"]
[[as]]
name = "sip-1"
handle = "sip"
transport = "udp"
address = "10.20.0.5"
port = 5060
"""
CHECK = SERVER + "[[as.check]]\n"
LOAD = CHECK + 'type = "tcp"\n[as.load]\n'
UNKNOWN = "intervall_ms: unknown key; did you mean 'interval_ms'?"


@pytest.fixture(autouse=True)
def this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "is_on_this_host", lambda address: True)


def errors_of(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "agent.toml").write_text(text)
    with pytest.raises(ConfigurationErrors) as caught:
        load_configuration(tmp_path / "agent.toml")
    return str(caught.value).replace(f"{tmp_path}/", "").split("\n")


@pytest.mark.parametrize(
    ("keys", "problems"),
    [
        ('source = "file"', ['10: as[0].load: source "file" needs a path']),
        (
            'source = "http-json"',
            [
                '10: as[0].load: source "http-json" needs a pointer',
                '10: as[0].load: source "http-json" needs a url',
            ],
        ),
        ('path = "/run/load"', ["11: as[0].load.path: source \"cpu\" takes no path (is '/run/load')"]),
        ('source = "high"', []),
        ('source = "file"\npath = 3', []),
    ],
)
def test_errors_between_the_keys_of_a_load_are_told_beside_unknown_keys(
    tmp_path: Path, keys: str, problems: list[str]
) -> None:
    last = 11 + len(keys.split("\n"))
    errors = errors_of(tmp_path, f"{LOAD}{keys}\nintervall_ms = 3\n")
    assert f"agent.toml:{last}: as[0].load.{UNKNOWN}" in errors
    between = [error.removeprefix("agent.toml:") for error in errors if "source" in error.split(": ", 2)[2]]
    assert between == problems


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            'type = "process"',
            '8: as[0].check[0]: type "process" needs a pid_file, or the name of the process: process = "..."',
        ),
        (
            'type = "http"\nverify = false',
            '10: as[0].check[0].verify: "verify" is for type "https" (is False)',
        ),
        (
            'type = "http"\nca_file = "/etc/ca.pem"',
            '10: as[0].check[0].ca_file: "ca_file" is for type "https" (is \'/etc/ca.pem\')',
        ),
        (
            'type = "https"\nstatus = [399, 200]',
            "10: as[0].check[0].status: status is the lowest and the highest that count as good: [200, 399]",
        ),
        (
            'type = "systemd"\nunit = "kamailio"',
            "10: as[0].check[0].unit: a unit is named with its kind: kamailio.service, say",
        ),
        (
            'type = "tls"\nhost = "sip.example.net."',
            "10: as[0].check[0].host: a name of a certificate: sip.example.net (international names as "
            "xn--...) (is 'sip.example.net.')",
        ),
        (
            'type = "tls"\nfail_days = -1',
            "10: as[0].check[0].fail_days: must be at least 0 (is -1)",
        ),
        (
            'type = "tls"\nsni = "sip.example.net"',
            "10: as[0].check[0].sni: unknown key; did you mean 'host'?",
        ),
    ],
)
def test_of_a_check(tmp_path: Path, keys: str, problem: str) -> None:
    last = 9 + len(keys.split("\n"))
    errors = errors_of(tmp_path, f"{CHECK}{keys}\nintervall_ms = 3\n")
    assert errors == [f"agent.toml:{problem}", f"agent.toml:{last}: as[0].check[0].{UNKNOWN}"]


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("10.20.0.1/24", "'10.20.0.1/24' is no IP address"),
        ("224.0.0.1", "224.0.0.1 is not the address of a host"),
        ("10.20.0.5", "10.20.0.5 is an address of this host, whose kernel always answers itself"),
    ],
)
def test_address_that_can_not_be_asked_for_an_echo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, problem: str
) -> None:
    monkeypatch.setattr("ppe_agent.checks.configuration.is_on_this_host", lambda asked: True)
    tcp = '[[as.check]]\ntype = "tcp"\n'
    (error,) = errors_of(tmp_path, f'{CHECK}type = "icmp"\naddress = "{address}"\n{tcp}')
    assert error.startswith(f"agent.toml:10: as[0].check[0].address: {problem}")


def test_echo_of_this_host_or_without_a_check_of_the_server_proves_nothing(tmp_path: Path) -> None:
    errors = errors_of(tmp_path, f'{CHECK}type = "icmp"\n')
    assert errors == [
        "agent.toml:8: as[0].check: icmp alone does not see the server itself: add a check of it, tcp say",
        'agent.toml:9: as[0].check[0].type: "icmp" would ask this host, whose kernel always answers itself: '
        "add the address to ask, the gateway's say",
    ]


def test_a_wrong_pid_file_counts_as_given(tmp_path: Path) -> None:
    (error,) = errors_of(tmp_path, f'{CHECK}type = "process"\npid_file = 3\n')
    assert error.startswith("agent.toml:10: as[0].check[0].pid_file: ")


def test_a_url_without_its_scheme_is_told_how_to_write_it(tmp_path: Path) -> None:
    load = '[as.load]\nsource = "prometheus"\nmetric = "calls"\nurl = "127.0.0.1:9090/metrics"\n'
    (error,) = errors_of(tmp_path, f'{CHECK}type = "tcp"\n{load}')
    words = "a URL begins with http:// or https://: http://127.0.0.1/load, say"
    assert error == f"agent.toml:13: as[0].load.url: {words} (is '127.0.0.1:9090/metrics')"
