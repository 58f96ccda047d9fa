"""Configuration errors: all of them, each at its file, line and key."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from daemon_kit.config_file import (
    ConfigurationErrors,
    StrictModel,
    TomlDocument,
    duplicates,
    find,
    load,
    parse,
)
from pydantic import ConfigDict, Field, field_validator, model_validator


class Held(StrictModel):
    type: Literal["held"]
    interval_ms: int = Field(ge=10)


class Asked(StrictModel):
    type: Literal["asked"]
    timeout_ms: int = 250


class Ruled(StrictModel):
    type: Literal["ruled"]
    low: int = 0
    high: int = 9

    @model_validator(mode="after")
    def _in_order(self) -> "Ruled":
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Server(StrictModel):
    name: str
    port: int = Field(ge=1, le=65535)
    check: list[Annotated[Held | Asked | Ruled, Field(discriminator="type")]] = Field(default=[])

    @field_validator("name")
    @classmethod
    def _short(cls, value: str) -> str:
        if len(value) > 8:
            raise ValueError("Longer than 8 bytes")
        return value


class Config(StrictModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    registrars: list[str]
    server: list[Server] = Field(default=[], alias="as")

    @classmethod
    def document_problems(cls, document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
        yield from duplicates(document, ("as", "*", "name"))


class Watched(StrictModel):
    check: tuple[Asked, ...]
    load: Ruled


class Whole(StrictModel):
    server: list[Watched] = Field(alias="as")


def errors_of(text: str, model: type[StrictModel] = Config) -> list[str]:
    with pytest.raises(ConfigurationErrors) as caught:
        parse(text, "agent.toml", model)
    return str(caught.value).split("\n")


def test_a_right_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('registrars = ["10.0.0.1"]\n[[as]]\nname = "a"\nport = 5060\n')
    assert load(file, Config).server[0].port == 5060


def test_every_error_is_named_at_once() -> None:
    text = """\
registrars = "10.0.0.1"
regstrars = 1

[[as]]
name = "too-long-a-name"
prot = 5060

[[as]]
name = "one"
port = 70000
[[as.check]]
type = "held"
timeout_ms = 3
[[as.check]]
type = "wild"
[[as.check]]

[[as]]
name = "one"
port = 5.5
"""
    assert errors_of(text) == [
        'agent.toml:1: registrars: must be a list: ["10.0.0.1"]',
        "agent.toml:2: regstrars: unknown key; did you mean 'registrars'?",
        "agent.toml:4: as[0].port: is missing",
        "agent.toml:5: as[0].name: longer than 8 bytes (is 'too-long-a-name')",
        "agent.toml:6: as[0].prot: unknown key; did you mean 'port'?",
        "agent.toml:10: as[1].port: must be at most 65535 (is 70000)",
        "agent.toml:11: as[1].check[0].interval_ms: is missing",
        "agent.toml:13: as[1].check[0].timeout_ms: unknown key; known: interval_ms, type",
        "agent.toml:15: as[1].check[1].type: 'wild' is none of 'held', 'asked', 'ruled'",
        "agent.toml:16: as[1].check[2].type: is missing",
        "agent.toml:19: as[2].name: 'one' is there twice",
        "agent.toml:20: as[2].port: must be a whole number (is 5.5)",
    ]


def test_an_unknown_key_hides_no_rule_between_the_keys_of_its_table() -> None:
    check = '[[as]]\nname = "a"\nport = 1\n[[as.check]]\ntype = "ruled"\nlow = 10\nhihg = 20\n'
    assert errors_of(f"registrars = []\n{check}") == [
        "agent.toml:5: as[0].check[0]: low is above high",
        "agent.toml:8: as[0].check[0].hihg: unknown key; did you mean 'high'?",
    ]


def test_a_table_without_its_parent_is_shown_where_it_belongs() -> None:
    assert errors_of('registrars = []\n[[as]]\nname = "a"\nport = 1\n[[check]]\ntype = "asked"\n') == [
        "agent.toml:5: check: unknown at the top of the file; write [[as.check]]"
    ]


def test_a_missing_table_is_shown_as_it_is_written() -> None:
    assert errors_of("", Whole) == ["agent.toml:1: as: is missing: write [[as]]"]
    assert errors_of("[[as]]\n", Whole) == [
        "agent.toml:1: as[0].check: is missing: write [[as.check]]",
        "agent.toml:1: as[0].load: is missing: write [as.load]",
    ]


def test_a_missing_key_of_the_document_points_at_its_first_line() -> None:
    assert errors_of("\n\n") == ["agent.toml:1: registrars: is missing"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb = \nc = 2\n", 2),
        ("a = 1\nb = 2\na = 3\n", 3),
        ("[t]\n[t]\n", 2),
        ("a = 1\n\nb = [1,\n2", 4),
        ("a = 1\nb = '''x\n\n", 2),
    ],
)
def test_syntax_errors_name_their_line(text: str, line: int) -> None:
    found = errors_of(text)
    assert len(found) == 1
    assert found[0].startswith(f"agent.toml:{line}: not TOML: ")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationErrors, match=r"absent\.toml: can't be read: No such file"):
        load(tmp_path / "absent.toml", Config)
    with pytest.raises(ConfigurationErrors, match="can't be read: Is a directory"):
        load(tmp_path, Config)
    (tmp_path / "latin.toml").write_bytes(b"a = 1\nb = '\xe4'\n")
    with pytest.raises(ConfigurationErrors, match=r"latin\.toml:2: not UTF-8"):
        load(tmp_path / "latin.toml", Config)


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    assert errors_of("a = " + "[" * 50_000 + "]" * 50_000) == ["agent.toml: nested too deeply"]


def test_locate_and_find() -> None:
    text = TomlDocument("", "[[as]]\nname = 'a'\n[[as]]\nname = 'b'\n")
    assert text.locate(("as", 1, "name")) == (4, "as[1].name")
    assert text.locate(("as", 1, "tag", "port")) == (3, "as[1].port")
    document = {"as": [{"name": "a"}, {"other": 1}, 3, {"name": "b"}]}
    assert list(find(document, ("as", "*", "name"))) == [(("as", 0, "name"), "a"), (("as", 3, "name"), "b")]
    assert list(find("nonsense", ("as", "*", "name"))) == []


def test_a_text_where_a_list_is_wanted_is_shown_as_a_list() -> None:
    assert errors_of('registrars = "/run/x"') == ['agent.toml:1: registrars: must be a list: ["/run/x"]']
    assert errors_of("registrars = []\n[as]\nport = 3") == [
        "agent.toml:2: as: must be a list: a table of it begins with [[as]]"
    ]
    assert errors_of("registrars = 3") == ["agent.toml:1: registrars: must be a list (is 3)"]


def test_errors_name_no_class_of_ours() -> None:
    assert errors_of("registrars = []\nas = [3]") == ["agent.toml:2: as[0]: must be a table (is 3)"]
