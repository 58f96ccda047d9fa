"""Rights to use the admin API: tokens, rates, and the lines of `rspdns check` about the table [admin]."""

import os
from pathlib import Path

import pytest
from daemon_kit.config_file import ConfigurationErrors
from rspdns.admin.access import Access, Right, read_access
from rspdns.admin.guard import RateLimit
from rspdns.configuration import BackendConfig, differing, load_configuration

from tests.backend.admin_paper import READER, WRITER, tokens


def access(folder: Path, **keys: str) -> Access:
    files = {"read_tokens": None, "write_tokens": None, "certificate": None, "key": None, **keys}
    found, errors = read_access(folder, *files.values())
    assert not errors
    return found


def test_each_token_gives_its_right(tmp_path: Path) -> None:
    read = tokens(tmp_path, "read", "# who may look", READER + "  # the wall", "", "other-0123456789abcdef")
    write = tokens(tmp_path, "write", WRITER)
    both = access(tmp_path, read_tokens=read, write_tokens=write)
    assert both.right_of(f"Bearer {READER}") is Right.READ
    assert both.right_of(f"bearer {WRITER}") is Right.WRITE
    for wrong in (
        None,
        "",
        "Bearer",
        "Bearer \udcff\udc80",
        f"Basic {WRITER}",
        f"Bearer {WRITER}x",
        f"Bearer {WRITER[:-1]}",
        READER,
    ):
        assert both.right_of(wrong) is Right.NOTHING, wrong
    assert READER not in repr(both)


def test_without_a_file_reading_is_open_and_writing_is_for_nobody() -> None:
    assert Access().right_of(None) is Right.READ
    assert Access().right_of("Bearer ") is Right.READ
    assert Access().right_of(f"Bearer {WRITER}") is Right.READ


def test_every_error_of_the_files_is_told_with_its_line(tmp_path: Path) -> None:
    short = tokens(tmp_path, "short", "", "tooshort", READER, "with space 0123456789abc", mode=0o644)
    empty = tokens(tmp_path, "empty", "# none")
    (tmp_path / "cert").write_text("no certificate")
    _, errors = read_access(tmp_path, short, empty, "cert", "missing")
    said = "\n".join(map(str, errors))
    assert f"{tmp_path}/short:2: a token has 20 or more" in said
    assert f"{tmp_path}/short:4: " in said
    assert f"{tmp_path}/short: everybody may read these tokens: chmod o=" in said
    assert f"{tmp_path}/empty: holds no token" in said
    assert f"{tmp_path}/missing: can't be read: No such file or directory" in said
    assert READER not in said
    os.mkfifo(tmp_path / "pipe", 0o600)
    _, pipes = read_access(tmp_path, "pipe", None, "cert", "pipe")
    assert [str(error) for error in pipes] == [
        f"{tmp_path}/pipe: can't be read: it is no regular file (a pipe, a device or a socket)"
    ] * 2
    _, missing = read_access(tmp_path, "nowhere", None, None, None)
    assert "nowhere: can't be read" in str(missing[0])


def problems(folder: Path, admin: str) -> str:
    (folder / "zones.d").mkdir(exist_ok=True)
    (folder / "rspdns.toml").write_text(f'registrars = ["10.0.0.1"]\n[admin]\n{admin}\n')
    with pytest.raises(ConfigurationErrors) as caught:
        load_configuration(folder / "rspdns.toml")
    return str(caught.value)


def test_elsewhere_than_on_loopback_it_needs_tls_and_tokens(tmp_path: Path) -> None:
    said = problems(tmp_path, 'listen = "192.0.2.1:8054"')
    assert "rspdns.toml:3: admin.listen: needs TLS and tokens, as it is not on loopback: " in said
    assert "admin.tls_certificate, admin.tls_key, admin.read_tokens" in said
    assert "needs admin.names" in problems(tmp_path, 'listen = "[::]:8054"')
    assert "admin.tls_key: needs tls_certificate too" in problems(tmp_path, 'tls_key = "x"')


@pytest.mark.parametrize("listen", ["8054", "localhost:8054", "127.0.0.1:0", "http://127.0.0.1:1"])
def test_a_wrong_address_to_listen_at_is_told_at_its_line(tmp_path: Path, listen: str) -> None:
    assert "rspdns.toml:3: admin.listen: " in problems(tmp_path, f'listen = "{listen}"')


def test_keys_that_need_a_restart_are_named() -> None:
    old = BackendConfig(registrars=("10.0.0.1",))
    assert differing(old, old) == []
    new = BackendConfig.model_validate({"registrars": ["10.0.0.2"], "admin": {"listen": "off"}})
    assert differing(old, new) == ["registrars", "admin.listen"]
    tokens = BackendConfig.model_validate({"registrars": ["10.0.0.1"], "admin": {"read_tokens": "x"}})
    assert differing(old, tokens) == [], "read again at once"
    secure = {"tls_certificate": "a", "tls_key": "b"}
    tls = BackendConfig.model_validate({"registrars": ["10.0.0.1"], "admin": secure})
    assert differing(old, tls) == ["admin.tls_certificate", "admin.tls_key"]


def test_a_client_that_asks_too_often_waits() -> None:
    limit = RateLimit(per_s=2, burst=3)
    assert [limit.allow("192.0.2.1", 100.0) for _ in range(5)] == [True, True, True, False, False]
    assert limit.is_spent("192.0.2.1", 100.0)
    assert limit.allow("192.0.2.2", 100.0), "others do not"
    assert limit.allow("192.0.2.1", 100.6)
    assert not limit.allow("192.0.2.1", 100.6)


def test_the_rate_limit_counts_an_ipv6_network_as_one_client_and_knows_1024_at_most() -> None:
    limit = RateLimit(per_s=1, burst=1)
    assert limit.allow("2001:db8::1", 0.0)
    assert not limit.allow("2001:db8::2", 0.0)
    assert limit.allow("2001:db8:0:1::1", 0.0)
    for number in range(3000):
        limit.allow(f"10.0.{number // 250}.{number % 250}", 0.0)
    assert len(limit._clients) <= 1024
