"""`rspdns check` warns of what is allowed and probably not meant; `rspdns zone list|show|remove`."""

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rspdns.check import warnings
from rspdns.cli import main
from rspdns.configuration import load_configuration

from tests.backend.making import FIXED, UDP, ZONE

THREE = 'registrars = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "zones.d").mkdir()
    write_zone(tmp_path, UDP)
    (tmp_path / "rspdns.toml").write_text(THREE + f'[admin]\nsocket = "{tmp_path}/admin.sock"\n')
    return tmp_path / "rspdns.toml"


def write_zone(folder: Path, pools: str, head: str = "", name: str = ZONE) -> None:
    text = f'zone = "{name}"\nstatic = "{name}.zone"\n{head}\n{pools}'
    (folder / "zones.d" / f"{name}.toml").write_text(text)
    (folder / "zones.d" / f"{name}.zone").write_text(FIXED)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def warned(config: Path, registered: set[str] | None = None) -> str:
    return "\n".join(map(str, warnings(config, load_configuration(config), registered)))


def test_nothing_to_warn_of(config: Path) -> None:
    assert warned(config, {"sip-udp"}) == ""


def test_two_registrars_are_too_few(config: Path) -> None:
    config.write_text(config.read_text().replace(', "10.0.0.3"', ""))
    assert warned(config).startswith(f"{config}:1: registrars: with two registrars")


def test_a_registrar_that_no_server_reaches(config: Path) -> None:
    config.write_text(config.read_text().replace("10.0.0.2", "127.0.0.2").replace("10.0.0.3", "[::1]:3864"))
    first, second = warned(config).splitlines()
    assert first.startswith(f"{config}:1: registrars[1]: 127.0.0.2 is reached from this host only")
    assert second.startswith(f"{config}:1: registrars[2]: ::1 is reached from this host only")


def test_long_ttls_and_open_doors(config: Path) -> None:
    write_zone(config.parent, UDP.replace("10.0.0.0/8", "0.0.0.0/0"), "ttl = 61\nnegative_ttl = 300")
    said = warned(config)
    zone = config.parent / "zones.d" / f"{ZONE}.toml"
    assert f"{zone}:3: ttl: 61 s: resolvers may send clients to a dead server" in said
    assert f"{zone}:4: negative_ttl: 300 s: a returning server may stay hidden" in said
    assert "pool[0].accept: whoever reaches a registrar may join from anywhere" in said
    write_zone(config.parent, UDP, "ttl = 60")
    assert warned(config) == ""


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("a CNAME b\nb CNAME C\nc CNAME a\n", f"5: a.{ZONE} CNAME: a loop of CNAME records"),
        (
            "a CNAME a\n",
            f"5: a.{ZONE} CNAME: a loop of CNAME records, which has no answer: a.{ZONE} -> a.{ZONE}",
        ),
        ("sub NS ns.sub\nns.sub A 10.0.1.2\nwww.sub A 10.0.1.3\n", f"7: www.sub.{ZONE} A: is never answered"),
        ("sub NS ns2\nns2 A 10.0.1.2\nsub TXT x\n", f"7: sub.{ZONE} TXT: is never answered"),
        (
            "".join(f'{n} TXT "{"x" * 250}" "{"y" * 250}" "{"z" * 200}"\n' for n in range(100)),
            "this and the 99",
        ),
    ],
)
def test_records_that_are_never_answered_or_transferred(config: Path, lines: str, words: str) -> None:
    file = config.parent / "zones.d" / f"{ZONE}.zone"
    file.write_text(FIXED.lstrip() + lines)
    (said,) = warned(config).splitlines()
    assert words in said
    assert said.startswith(f"{file}:")


def test_ordinary_aliases_delegations_and_large_records_are_no_reason_to_warn(config: Path) -> None:
    lines = "a CNAME b\nb CNAME ns1\nc CNAME b\nout CNAME example.com.\n"
    lines += (
        "sub NS ns.sub\nsub DS 1 13 2 " + "ab" * 32 + "\nns.sub A 10.0.1.2\nns.sub AAAA 2001:db8::1\n"
        "sub2 NS ns.sub\nsub2 NS ns.sub2\nns.sub2 A 10.0.1.4\n"
    )
    lines += "".join(f'{n} TXT "{"x" * 250}" "{"y" * 250}"\n' for n in range(120))
    (config.parent / "zones.d" / f"{ZONE}.zone").write_text(FIXED + lines)
    assert warned(config) == ""


def test_a_handle_nobody_registers(config: Path) -> None:
    zone = config.parent / "zones.d" / f"{ZONE}.toml"
    assert f"{zone}:6: pool[0].handle: no server registers 'sip-udp'" in warned(config, set())


def test_the_command_warns_and_is_content_unless_strict(config: Path) -> None:
    config.write_text(config.read_text().replace(', "10.0.0.2", "10.0.0.3"', ""))
    result = run("check", "--offline", "-c", config)
    assert result.exit_code == 0
    assert f"warning: {config}:1: registrars: when the only registrar fails" in result.output
    assert result.output.endswith(f"{config}: no errors, 1 warning\n")
    assert run("check", "--offline", "--strict", "-c", config).exit_code == 1


def test_zones_are_listed_and_shown(config: Path) -> None:
    assert run("zone", "list", "-c", config).output == f"{ZONE}\n  _sip._udp.as.{ZONE}\n"
    shown = run("zone", "show", ZONE.upper() + ".", "-c", config).output
    for words in (
        f"SRV          _sip._udp.as.{ZONE}",
        f"NAPTR        as.{ZONE} (SIP+D2U)",
        "accept       10.0.0.0/8",
        f"{ZONE}. 3600 IN NS ns1.{ZONE}.",
        f"ns1.{ZONE}. 3600 IN A 10.0.1.1",
    ):
        assert words in shown, shown
    missing = run("zone", "show", "other.example", "-c", config)
    assert (missing.exit_code, "zone list" in missing.output) == (1, True)


def test_a_zone_is_removed_with_its_files_and_no_other_one_s(config: Path) -> None:
    zones = config.parent / "zones.d"
    other = UDP.replace("sip-udp", "other")
    (zones / "b.toml").write_text(f'zone = "b.example"\nstatic = "{ZONE}.zone"\n{other}')
    refused = CliRunner().invoke(main, ["zone", "remove", ZONE, "-c", str(config)], input="n\n")
    assert (refused.exit_code, "nothing was deleted" in refused.output) == (1, True)
    assert run("zone", "remove", ZONE, "--yes", "-c", config).exit_code == 0
    assert sorted(path.name for path in zones.iterdir()) == ["b.toml", f"{ZONE}.zone"]
    assert run("zone", "remove", "b.example", "--yes", "-c", config).exit_code == 0
    assert list(zones.iterdir()) == []
    assert run("zone", "remove", ZONE, "--yes", "-c", config).exit_code == 1


def test_a_zone_with_errors_can_be_removed(config: Path) -> None:
    write_zone(config.parent, UDP.replace("accept", "axept"))
    assert run("zone", "show", ZONE, "-c", config).exit_code == 1
    assert run("zone", "remove", ZONE, "--yes", "-c", config).exit_code == 0
    assert list((config.parent / "zones.d").iterdir()) == []


def complete(config: Path, *words: str) -> set[str]:
    """The words that bash offers after these, by the script that the installed program prints for it."""
    script = f"""
        eval "$(_RSPDNS_COMPLETE=bash_source rspdns)"
        COMP_WORDS=({" ".join(words)}) COMP_CWORD={len(words) - 1}
        _rspdns_completion rspdns
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    program = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
        env={"PATH": f"{program}:/usr/bin:/bin"},
    )
    return set(done.stdout.split())


def test_bash_completes_commands_and_zones(config: Path) -> None:
    assert complete(config, "rspdns", "st") == {"status"}
    assert complete(config, "rspdns", "zone", "") >= {"add", "list", "show", "remove"}
    zones = config.parent / "zones.d"
    assert complete(config, "rspdns", "zone", "show", "--zones-dir", str(zones), "im") == {ZONE}


class Told:
    """A daemon that tells one status to everybody who connects."""

    def __init__(self, path: Path, **of_status: object) -> None:
        status = {
            "mode": "tc",
            "interfaces": [],
            "names": 1,
            "lease_ms": 900,
            "generation": 1,
            "decisions": {},
        }
        body = b"s" + json.dumps(status | {"asked": []} | of_status).encode()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._tell, args=(struct.pack("=I", len(body)) + body,))
        self._thread.start()

    def _tell(self, reply: bytes) -> None:
        connection, _ = self._listener.accept()
        with connection, self._listener:
            connection.recv(100)
            connection.sendall(reply)


def with_fastpath(config: Path) -> Path:
    """The daemon's socket, which the configuration names now."""
    path = config.parent / "fast.sock"
    config.write_text(f'{config.read_text()}[fastpath]\nsocket = "{path}"\n')
    return path


def test_fast_path_without_its_daemon_is_told_with_what_to_do(config: Path) -> None:
    with_fastpath(config)
    said = warned(config, {"sip-udp"})
    assert (
        f"{config}:5: fastpath.socket: no rspdns-fastpath listens there: PowerDNS answers everything" in said
    )


def test_interface_without_the_program_and_driver_that_lets_no_packet_grow_are_told(config: Path) -> None:
    away = {"name": "eth1", "attached": False, "problem": "its driver has no XDP"}
    Told(with_fastpath(config), interfaces=[away], decisions={"not_grown": 3})
    first, second = warned(config, {"sip-udp"}).splitlines()
    assert first.endswith("fastpath.socket: the interface eth1: its driver has no XDP")
    assert "packets have no room for an answer there (not_grown)" in second


def test_fast_path_that_works_is_not_warned_of(config: Path) -> None:
    Told(with_fastpath(config))
    assert warned(config, {"sip-udp"}) == ""


def test_old_kernel_is_told_before_anything_is_tried(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_fastpath(config)
    old = os.uname_result(("Linux", "ns", "5.10.0-28-amd64", "#1", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: old)
    assert "Linux 5.10.0-28-amd64: rspdns-fastpath needs 6.1 or later" in warned(config, {"sip-udp"})
