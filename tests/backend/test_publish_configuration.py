"""The tables [[publish]] and their key files: what is right, and the words for what is not."""

from pathlib import Path

import pytest
from rspdns.check import warnings
from rspdns.configuration import differing, load_configuration
from rspdns.publish.configuration import read_key

from tests.backend.configuration_files import GOOD, head, only_error, write
from tests.backend.making import UDP, ZONE
from tests.support.primaries import KEY, PAGE, SECRET, example

PUBLISH = f'[[publish]]\nname = "primary"\nserver = "10.0.0.53:53"\nzone = "{ZONE}"\n'


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "tsig.key"
    path.write_text(KEY)
    path.chmod(0o600)
    return path


def published(tmp_path: Path, text: str) -> Path:
    return write(tmp_path, GOOD + text, one=head() + UDP)


def test_table_of_the_page_is_right(tmp_path: Path, key: Path) -> None:
    table = example("toml", "[[publish]]").replace("/etc/rspdns/keys/primary.key", str(key))
    (found,) = load_configuration(published(tmp_path, table)).publications
    assert (found.endpoint, found.zone, found.withdraw) == (("10.0.0.53", 53), ZONE, "stay")
    table += example("toml", "withdraw")
    (found,) = load_configuration(published(tmp_path, table)).publications
    assert (found.withdraw, found.expire_s) == ("expire", 300)
    assert str(round(found.expire_s / 3)) in PAGE


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (PUBLISH.replace(":53", ""), "publish[0].server", "an IP address and a port"),
        (PUBLISH.replace(ZONE, "other.example"), "publish[0].zone", f"there are: {ZONE}"),
        (PUBLISH + 'withdraw = "remove"\n', "publish[0].withdraw", "stay"),
        (PUBLISH + "expire_s = 60\n", "publish[0].expire_s", 'needs withdraw = "expire"'),
        (PUBLISH + PUBLISH, "publish[1].name", "is there twice"),
        (PUBLISH + PUBLISH.replace("primary", "again"), "publish[1]", "the same server as 'primary'"),
        (PUBLISH + 'key = "tsig.key"\n', "publish[0].key", "by its whole path"),
    ],
)
def test_each_error_has_its_place(tmp_path: Path, text: str, place: str, words: str) -> None:
    file, line, where, problem = only_error(published(tmp_path, text))
    assert (file, where) == ("rspdns.toml", place)
    assert line > 1
    assert words in problem


def test_too_many_are_refused(tmp_path: Path) -> None:
    tables = (PUBLISH.replace("primary", f"p{n}").replace(".53:", f".{n}:") for n in range(1, 18))
    (_, _, place, problem) = only_error(published(tmp_path, "".join(tables)))
    assert (place, problem) == ("publish", "17 publications; 16 at most")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (KEY.replace("hmac-sha256", "hmac-sha3"), "'hmac-sha3' is none of hmac-sha256"),
        (KEY.replace(SECRET, "no base64"), "other than one TSIG key"),
        (KEY.replace(SECRET, "c2Vj*"), "the secret is no base64"),
        (KEY.replace("algorithm hmac-sha256;", ""), "other than one TSIG key"),
        (KEY + KEY, "other than one TSIG key"),
        ("secret", "other than one TSIG key"),
        (KEY.replace("rspdns-key", "a..b"), "the name of the key: the name has an empty label"),
    ],
)
def test_wrong_key_file_is_told_without_its_secret(tmp_path: Path, key: Path, text: str, words: str) -> None:
    key.write_text(text)
    path = published(tmp_path, f'{PUBLISH}key = "{key}"\n')
    (_, _, place, problem) = only_error(path)
    assert place == "publish[0].key"
    assert words in problem
    assert SECRET not in problem
    assert load_configuration(path, without_page=True).publications, "DNS goes on"


def test_key_that_everybody_may_read_is_refused(tmp_path: Path, key: Path) -> None:
    key.chmod(0o644)
    (_, _, _, problem) = only_error(published(tmp_path, f'{PUBLISH}key = "{key}"\n'))
    assert "everybody on this host may read" in problem


def test_key_is_read_as_bind_writes_it(key: Path) -> None:
    found = read_key(str(key))
    assert (found.name, found.algorithm, len(found.secret)) == ("rspdns-key", "hmac-sha256", 32)
    assert SECRET not in repr(found)
    key.write_text(f"# a comment\n/* key */ {KEY.replace('hmac-sha256', 'HMAC-SHA512')} // end\n")
    assert read_key(str(key)).algorithm == "hmac-sha512"


def test_reload_takes_publications_over(tmp_path: Path) -> None:
    before = load_configuration(published(tmp_path, ""))
    after = load_configuration(published(tmp_path, PUBLISH))
    assert differing(before, after) == []
    assert before.with_files(before.zones, before.access, (), after).publications == after.publications


def test_check_warns_of_unsigned_updates_and_of_servfail(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + PUBLISH, one=f'{head()}{UDP}when_empty = "servfail"\n')
    found = {error.key: error.problem for error in warnings(path, load_configuration(path), None)}
    assert "anybody on the way can change the zone" in found["publish[0].server"]
    assert "its records are removed there" in found["publish[0].zone"]
    path = write(tmp_path, GOOD + PUBLISH.replace("10.0.0.53", "127.0.0.1"), one=head() + UDP)
    assert not any(
        error.key.startswith("publish") for error in warnings(path, load_configuration(path), None)
    )
