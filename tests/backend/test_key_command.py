"""`rspdns key`: made, derived, rolled; what is wrong with a file is said, and no secret with it."""

import stat
from ipaddress import ip_address
from pathlib import Path

import pytest
from click.testing import CliRunner
from daemon_kit.config_file import ConfigurationErrors
from rspdns.cli import main
from rspdns.configuration import load_configuration

from rserpool import Protocol, read_pool_keys, read_server_keys
from tests.backend.configuration_files import GOOD, changed, head, write


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["key", *map(str, arguments)])
    return done.exit_code, done.output


def test_a_pool_key_is_made_for_the_owner_and_the_group_and_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "pool.key"
    assert run("new", file) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    before = file.read_text()
    code, words = run("new", file)
    assert (code, file.read_text()) == (1, before)
    assert "is there already" in words


def test_a_key_is_derived_for_one_server_and_replaces_its_former_key(tmp_path: Path) -> None:
    pool, mine = tmp_path / "pool.key", tmp_path / "server.key"
    run("new", pool)
    code, line = run("derive", pool, "udp", "10.20.0.5", 5060)
    (derived,) = read_server_keys(line)
    (key,) = read_pool_keys(pool.read_text())
    assert (code, derived) == (0, key.server_key(Protocol.UDP, ip_address("10.20.0.5"), 5060))
    for port in (5060, 5061, 5060):
        assert run("derive", pool, "udp", "10.20.0.5", port, "-o", mine)[0] == 0
    assert [server_key.port for server_key in read_server_keys(mine.read_text())] == [5061, 5060]
    assert stat.S_IMODE(mine.stat().st_mode) == 0o640


def test_keys_roll(tmp_path: Path) -> None:
    pool = tmp_path / "pool.key"
    run("new", pool)
    first = run("derive", pool, "udp", "10.20.0.5", 5060)
    assert run("new", "--roll", pool)[0] == 0
    assert len(read_pool_keys(pool.read_text())) == 2
    assert run("derive", pool, "udp", "10.20.0.5", 5060) != first
    code, words = run("new", "--roll", pool)
    assert code == 1
    assert "has two keys" in words


def test_check_says_what_a_file_holds_and_no_secret(tmp_path: Path) -> None:
    pool, mine = tmp_path / "pool.key", tmp_path / "server.key"
    run("new", pool)
    run("derive", pool, "tcp", "2001:db8::5", 443, "-o", mine)
    assert "key of a pool, fingerprint " in run("check", pool)[1]
    assert "key of tcp 2001:db8::5 port 443, fingerprint " in run("check", mine)[1]
    for file in (pool, mine):
        assert file.read_text().split()[-1] not in run("check", file)[1]


@pytest.mark.parametrize(
    ("mode", "text", "complaint"),
    [
        (0o644, None, "everybody on this host may read the key: chmod o= "),
        (0o600, "pool-key 12", "line 1: the key itself must be 64 hex digits"),
        (0o600, "\xe4", "holds other than ASCII text"),
    ],
)
def test_what_is_wrong_with_a_key_file_is_said_at_the_zones_key(
    tmp_path: Path, mode: int, text: str | None, complaint: str
) -> None:
    pool = tmp_path / "pool.key"
    run("new", pool)
    if text is not None:
        pool.write_text(text)
    pool.chmod(mode)
    code, words = run("check", pool)
    assert code == 1
    assert complaint in words
    with pytest.raises(ConfigurationErrors) as raised:
        load_configuration(write(tmp_path, GOOD, one=head() + changed(key=f'"{pool}"')))
    (error,) = raised.value.errors
    assert error.key == "pool[0].key"
    assert f"{pool}: " in error.problem
    assert complaint in error.problem


def test_a_zone_reads_its_key_and_shows_it_nowhere(tmp_path: Path) -> None:
    pool = tmp_path / "pool.key"
    run("new", pool)
    loaded = load_configuration(write(tmp_path, GOOD, one=head() + changed(key=f'"{pool}"')))
    config = loaded.zones[0].sites[0].pools[0].config
    assert config.key is not None
    (key,) = config.key.keys
    for shown in (repr(config), str(config.key), str(config.model_dump())):
        assert key.secret.hex() not in shown
        assert repr(key.secret)[2:-1] not in shown
