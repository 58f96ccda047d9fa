"""The named.conf of a distributor: right by BIND's own word, and what can't be in one."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pdns_config import DistributorSettings, distributor_conf, render_named_conf

KEY = 'key "transfer" {\n\talgorithm hmac-sha256;\n\tsecret "bm90IHNvIHNlY3JldCBpbiBoZXJlIQ==";\n};\n'


def settings(**other: Any) -> DistributorSettings:
    values: dict[str, Any] = {
        "listen": "192.0.2.10",
        "primary": "192.0.2.1",
        "zones": ["ims.example.net"],
        "secondaries": ["192.0.2.11", "192.0.2.12"],
    }
    return DistributorSettings(**values | other)


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"zones": ["a.example", "b.example."], "secondaries": []},
        {"listen": "2001:db8::10", "primary": "2001:db8::1", "secondaries": ["2001:db8::11"]},
        {"key": "transfer"},
        {"signs": True},
    ],
)
def test_bind_takes_the_configuration(tmp_path: Path, other: dict[str, Any]) -> None:
    if "key" in other:
        (tmp_path / "key").write_text(KEY)
        other = {**other, "key_file": str(tmp_path / "key")}
    file = tmp_path / "named.conf"
    file.write_text(render_named_conf(settings(directory=str(tmp_path), **other)))
    done = subprocess.run(["named-checkconf", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_secondary_is_told_and_may_transfer() -> None:
    text = render_named_conf(settings())
    assert "also-notify { 192.0.2.11; 192.0.2.12; };" in text
    assert "allow-transfer { 192.0.2.11; 192.0.2.12; };" in text
    keyed = render_named_conf(settings(key="transfer", key_file="/etc/bind/transfer.key"))
    assert 'also-notify { 192.0.2.11 key "transfer"; 192.0.2.12 key "transfer"; };' in keyed
    assert 'allow-transfer { key "transfer"; };' in keyed
    assert 'include "/etc/bind/transfer.key";' in keyed


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"listen": "ns1"}, "'ns1' is no IP address"),
        ({"secondaries": ["192.0.2.300"]}, "'192.0.2.300' is no IP address"),
        ({"zones": []}, "name at least one zone"),
        ({"zones": ['a"; };']}, "is no zone that named.conf can hold"),
        ({"port": 0}, "the port 0 is not in 1..65535"),
        ({"key": "transfer"}, "a key needs its name and its file"),
        ({"key": 'a"', "key_file": "/key"}, "is no name of a key"),
        ({"directory": "/a b"}, "is no whole path that named.conf can hold"),
    ],
)
def test_what_cant_be_in_a_named_conf_is_refused(other: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="") as raised:
        settings(**other)
    assert words in str(raised.value)


def test_command_prints_it() -> None:
    words = ["--listen", "192.0.2.10", "--primary", "192.0.2.1", "--zone", "ims.example.net"]
    done = CliRunner().invoke(distributor_conf, [*words, "--secondary", "192.0.2.11"])
    assert done.output == render_named_conf(settings(secondaries=["192.0.2.11"]))
    wrong = CliRunner().invoke(distributor_conf, [*words, "--secondary", "ns2"])
    assert (wrong.exit_code, "no IP address" in wrong.output) == (1, True)
