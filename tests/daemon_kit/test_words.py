"""Words for people: errors in configuration files, durations."""

import re

import pytest
from daemon_kit.addresses import read_address, read_network
from daemon_kit.config_file import ConfigurationErrors, TomlDocument
from daemon_kit.durations import duration
from daemon_kit.model_keys import meant, none_of
from daemon_kit.toml_lines import unclosed_quote


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "10.20.0.5/16",
            "'10.20.0.5/16' is neither a network nor one host: write '10.20.0.0/16' for the network, "
            "or '10.20.0.5/32' for this host alone",
        ),
        (
            "2001:db8::1/32",
            "'2001:db8::1/32' is neither a network nor one host: write '2001:db8::/32' for the network, "
            "or '2001:db8::1/128' for this host alone",
        ),
        (
            "10.0.0.0/33",
            "'10.0.0.0/33' is no network: after the slash belongs the length of its prefix, 0 to 32",
        ),
        ("::/x", "'::/x' is no network: after the slash belongs the length of its prefix, 0 to 128"),
        (
            "10.20.0/16",
            "'10.20.0/16' is no network: '10.20.0' is no IP address: it has four numbers, 10.0.0.1 say",
        ),
        ("foo", "'foo' is no IP address"),
    ],
)
def test_a_wrong_network_is_explained(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        read_network(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10.0.0.256", "'10.0.0.256' is no IP address: 256 is above 255"),
        ("10.0.0", "'10.0.0' is no IP address: it has four numbers, 10.0.0.1 say"),
        ("10.0.0.01", "'10.0.0.01' is no IP address: its numbers have no leading zeros"),
        ("10.0.0.1 ", "'10.0.0.1 ' is no IP address: there is a space in it"),
        ("sip.example.net", "'sip.example.net' is no IP address but a host name"),
        ("10.0.0.5/24", "'10.0.0.5/24' is no IP address: an address has no slash; '10.0.0.5' alone"),
        ("2001:db8::5/64", "'2001:db8::5/64' is no IP address: an address has no slash; '2001:db8::5' alone"),
        ("::1::2", "'::1::2' is no IP address"),
        ("", "'' is no IP address"),
        ("9" * 5000 + ".1.1.1", f"{'9' * 5000 + '.1.1.1'!r} is no IP address: {'9' * 20} is above 255"),
    ],
)
def test_a_wrong_address_is_explained(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        read_address(text)


def test_right_words_are_read() -> None:
    assert str(read_address("2001:DB8::1")) == "2001:db8::1"
    assert str(read_network("10.0.0.0/8")) == "10.0.0.0/8"
    assert str(read_network("10.0.0.1")) == "10.0.0.1/32"


@pytest.mark.parametrize(
    ("written", "meaning"),
    [("tcphold", "tcp-hold"), ("least_used", "least-used"), ("Last_Good", "last-good"), ("zzz", None)],
)
def test_a_misspelt_word_is_answered_with_what_was_meant(written: str, meaning: str | None) -> None:
    known = ("tcp", "tcp-hold", "least-used", "last-good")
    assert meant(written, known) == meaning
    said = none_of(written, known)
    assert said == (
        f"{written!r} is unknown; did you mean {meaning!r}?"
        if meaning
        else "'zzz' is none of 'tcp', 'tcp-hold', 'least-used', 'last-good'"
    )


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('a = 1\nb = ["10.0.0.1]\nc = 2\n', 2, 'a quote is not closed: b = ["10.0.0.1]'),
        ("a = 1\nb = ['x\"]\nc = 2\n", 2, "a quote is not closed: b = ['x\"]"),
        ('a = "x\nb = "y"\n', 1, 'a quote is not closed: a = "x'),
        ('a = """x\n\nb = 1\n', 1, 'a quote is not closed: a = """x'),
        ("a = sip-1\n", 1, "the value is no number, list or text; text stands in quotes: a = sip-1"),
        ('a = ["x"\nb = "y"\n', 2, "a list is not closed with ], or its elements lack quotes or the commas"),
    ],
)
def test_a_text_that_is_no_toml_is_told_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigurationErrors) as found:
        TomlDocument("agent.toml", text)
    assert str(found.value).startswith(f"agent.toml:{line}: not TOML: {words}")


def test_quotes_that_are_closed_are_not_complained_of() -> None:
    valid = 'a = \'\'\'it\'s \'\'\'\'\nb = """say \\""" """"\n# don\'t\nc = "don\'t" # "\nd = \'"\'\n'
    assert unclosed_quote(valid) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (-3.0, "0 s"),
        (0.44, "0.4 s"),
        (7.0, "7 s"),
        (9.99, "9.9 s"),
        (59.9, "59 s"),
        (60.0, "1 min 0 s"),
        (200.4, "3 min 20 s"),
        (4030.6, "1 h 7 min"),
        (4080.0, "1 h 8 min"),
        (86_399.0, "23 h 59 min"),
        (190_800.0, "2 d 5 h"),
    ],
)
def test_a_duration_is_written_for_people(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
