"""The lines of keys in TOML documents of every shape."""

import tomllib
from typing import Any

import pytest
from daemon_kit.toml_lines import Location, key_lines
from hypothesis import given
from hypothesis import strategies as st


def paths_of(value: Any, here: Location = ()) -> set[Location]:
    """Return every path of parsed data."""
    found = {here}
    if isinstance(value, dict):
        for key, inner in value.items():
            found |= paths_of(inner, (*here, key))
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            found |= paths_of(inner, (*here, position))
    return found


DOCUMENT = '''\
# a comment with = and [brackets]
title = "x = 1 # no comment"
servers = [
    "10.0.0.1",   # ] no end
    '10.0.0.2', "]",
]
text = """
[not.a.table]
key = "no key" \\""" still in it
"""
literal = \'\'\'
\\ no escape here
\'\'\'\'
"quoted \\"key\\" \\u00e9" = 1
'a.b'.c = 2
inline = { x = 1, y.z = [ { deep = true }, { deep = false } ], e = {} }
when = 1979-05-27 07:32:00
matrix = [[1, 2], [
  3, 4]]

[owner]   # comment
name = "Tom"
[[as]]
name = "one"
  [[as.check]]
  type = "a"
  [[as.check]]
  type = "b"
  [as.load]
  source = "cpu"
[[as]]
name = "two"
[as.load]
source = "none"
[[as.check]]
type = "c"
[a.b.c]
d = 1
[a]
z = 1
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 1),
        (("title",), 2),
        (("servers",), 3),
        (("servers", 0), 4),
        (("servers", 1), 5),
        (("servers", 2), 5),
        (("text",), 7),
        (("literal",), 11),
        (('quoted "key" é',), 14),
        (("a.b", "c"), 15),
        (("inline", "y", "z", 1, "deep"), 16),
        (("inline", "e"), 16),
        (("when",), 17),
        (("matrix", 1), 18),
        (("matrix", 1, 0), 19),
        (("owner",), 21),
        (("as",), 23),
        (("as", 0), 23),
        (("as", 0, "check", 1, "type"), 28),
        (("as", 0, "load", "source"), 30),
        (("as", 1), 31),
        (("as", 1, "load"), 33),
        (("as", 1, "check", 0, "type"), 36),
        (("a", "b"), 37),
        (("a", "b", "c", "d"), 38),
        (("a",), 39),
    ],
)
def test_each_kind_of_key_is_found_at_its_line(path: Location, line: int) -> None:
    assert key_lines(DOCUMENT)[path] == line


def test_every_key_and_item_of_the_data_has_a_line() -> None:
    assert set(key_lines(DOCUMENT)) == paths_of(tomllib.loads(DOCUMENT))


def test_windows_line_ends() -> None:
    assert key_lines(DOCUMENT.replace("\n", "\r\n")) == key_lines(DOCUMENT)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "a = 1", "a=''", 'a=""', "a = [\n]", "[t]"])
def test_the_keys_found_are_those_that_tomllib_reads(text: str) -> None:
    assert set(key_lines(text)) == paths_of(tomllib.loads(text))


# Documents made of pieces that look like each other's syntax: every piece is one key with its value.
keys = st.sampled_from(["a", "b-1", '"c d"', "'e.f'", '"\\"g\\""', '"#"', '"]"', "1"])
scalars = st.sampled_from(
    [
        "1",
        "-1.5e3",
        "true",
        "inf",
        "1979-05-27T07:32:00Z",
        '"]"',
        "'}'",
        '"# \\" \\\\"',
        "'\\'",
        '"""a"""',
        '""',
        '"""\n] = "x" \\""" \n"""',
        "'''\n[a]\n'''",
        '"""a"""""',
        "'''b''''",
    ]
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[ # ]\n" + ",\n".join(items) + "\n]"),
        st.dictionaries(keys, inner, max_size=3).map(
            lambda items: "{ " + ", ".join(f"{key} = {value}" for key, value in items.items()) + " }"
        ),
    ),
    max_leaves=6,
)
pairs = st.tuples(st.lists(keys, min_size=1, max_size=3).map(" . ".join), values).map(" = ".join)
headers = (
    st.lists(keys, min_size=1, max_size=3)
    .map(".".join)
    .flatmap(lambda name: st.sampled_from([f"[{name}]", f"[[{name}]]", f"[[ {name} ]] # ]"]))
)
documents = st.lists(st.one_of(pairs, headers, st.just("# x = 1"), st.just("")), max_size=8).map("\n".join)


@given(documents)
def test_agrees_with_tomllib_on_what_is_there(document: str) -> None:
    try:
        data = tomllib.loads(document)
    except tomllib.TOMLDecodeError:
        return  # duplicate keys
    lines = key_lines(document)
    assert set(lines) == paths_of(data)
    for path, line in lines.items():
        if path and isinstance(path[-1], str):
            assert any(character in document.split("\n")[line - 1] for character in path[-1])
