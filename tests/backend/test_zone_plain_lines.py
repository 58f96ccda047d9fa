"""Plain lines, which are read without dnspython, are read as it reads them."""

import pytest
from daemon_kit.config_file import ConfigurationErrors
from hypothesis import example, given
from hypothesis import strategies as st
from rspdns.zones import file
from rspdns.zones.file import ZoneFileErrors, parse_zone_file
from rspdns.zones.plain_lines import plain_line

ZONE = "ims.example.net"
HEAD = "$TTL 3600\n@ SOA ns1 hostmaster 1 7200 900 1209600 300\n@ NS ns1\nns1 A 10.0.0.1\n"

names = st.sampled_from(
    [
        *("a", "b-1", "_sip._udp.as", "UPPER.Case", "*", "*.w", "x.ims.example.net.", "IN", "A", "300", "-"),
        *(
            "@",
            ".",
            r"a\.b",
            r"\097",
            "a..b",
            "é",
            "x" * 63,
            "x" * 64,
            "y." * 120 + "z",
            "out.example.",
            "$a",
        ),
        *("x." * 118 + "ims.example.net.", "x." * 119 + "ims.example.net.", '"q"', "a;b", "(", ""),
    ]
)
gaps = st.sampled_from([" ", "\t", "  \t ", "", "\x0b", "\xa0"])
numbers = st.sampled_from(
    ["0", "5", "65535", "65536", "007", "99999", "-1", "x", "\N{ARABIC-INDIC DIGIT ONE}"]
)
addresses = st.sampled_from(
    [
        *("10.0.0.1", "255.255.255.255", "256.1.1.1", "01.2.3.4", "1.2.3", "1.2.3.4.5", "2001:db8::1", "::"),
        *(
            "2001:DB8:0:0::0001",
            "::ffff:1.2.3.4",
            "::FFFF:102:304",
            "1::2::3",
            "g::1",
            "1:2:3:4:5:6:7:8",
            ":",
        ),
        *("12345::", "1:0:0:2:0:0:0:3", "::102:304", "64:ff9b::1"),
    ]
)
strings = st.lists(
    st.one_of(
        st.text(st.characters(min_codepoint=1, max_codepoint=300), max_size=8).map(lambda text: f'"{text}"'),
        st.text(st.sampled_from('ab ;()@#[]"\\~'), max_size=8).map(lambda text: f'"{text}"'),
        st.sampled_from(["bare", '""', f'"{"x" * 255}"', f'"{"x" * 256}"', '"open', '"a""b"']),
    ),
    min_size=1,
    max_size=3,
).flatmap(lambda found: st.sampled_from([" ", "  ", ""]).map(lambda gap: gap.join(found)))
data = st.one_of(
    st.builds("A{}{}".format, gaps, addresses),
    st.builds("AAAA{}{}".format, gaps, addresses),
    st.builds("{} {}".format, st.sampled_from(["CNAME", "NS", "PTR", "cname", "DNAME"]), names),
    st.builds("MX{}{}{}{}".format, gaps, numbers, gaps, names),
    st.builds("SRV {} {} {} {}".format, numbers, numbers, numbers, names),
    st.builds("SRV {} {} {}".format, numbers, numbers, names),
    st.builds("TXT{}{}".format, gaps, strings),
    st.sampled_from(["TYPE1 \\# 4 0a000001", 'CAA 0 issue "x"', "A ( 10.0.0.1 )", "MX ( 1", "a )"]),
)
ttls = st.sampled_from(
    ["", "", "60 ", "060 ", "1h ", "IN ", "60 IN ", "IN 60 ", "CH ", "2147483648 ", "999999999 ", "in "]
)
ends = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", " \n", "; why\n", " ; a\r b\n", "", " x\n", "\n\n"])
lines = st.one_of(
    st.builds("{}{}{}{}{}".format, names, gaps, ttls, data, ends),
    st.builds(" {}{}{}".format, ttls, data, ends),
    st.sampled_from(
        [
            *("$ORIGIN sub\n", "$ORIGIN .\n", "$ORIGIN UP.ims.example.net.\n", "$ORIGIN a\\.b\n", "$TTL 5\n"),
            *("$TTL x\n", "$GENERATE 1-3 g$ A 10.0.0.$\n", "; comment\n", "\n", "  \n", "$ORIGIN\n"),
        ]
    ),
)


def read(text: str) -> tuple[object, ...]:
    """All that is read of a text, and all that is told of it."""
    try:
        static, errors, unread = parse_zone_file(text, "zone", ZONE), [], None
    except ZoneFileErrors as problem:
        static, errors, unread = problem.rest, problem.errors, problem.unread
    return static.soa, list(static.records.items()), list(static.lines.items()), errors, unread


@example(HEAD.removeprefix("$TTL 3600\n"), [" A 10.0.0.1\n", " 60 CAA 0 issue x\n", "a A 10.0.0.1\n"])
@given(st.sampled_from(["", HEAD, HEAD.removeprefix("$TTL 3600\n")]), st.lists(lines, max_size=8))
def test_plain_lines_read_the_same_as_by_dnspython(head: str, more: list[str]) -> None:
    text = head + "".join(more)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(file, "plain_line", lambda *_: None)
        by_dnspython = read(text)
    assert read(text) == by_dnspython


@given(st.builds("{} {}{}{}".format, names, ttls, data, ends))
def test_a_line_that_is_no_record_is_never_read_as_a_plain_line(line: str) -> None:
    """An error is dnspython's to find and to explain."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(file, "plain_line", lambda *_: None)
        try:
            parse_zone_file(HEAD + line, "zone", ZONE)
        except ConfigurationErrors as problem:
            if any("is not understood" in error.problem for error in problem.errors):
                assert plain_line(line, 0, ZONE) is None or len(line.split(maxsplit=1)[0]) > 200


def test_lines_of_large_zones_are_plain() -> None:
    for line in (
        "host A 10.0.0.1\n",
        "host.example.net. 300 IN AAAA 2001:db8::1 ; the second one\n",
        "\tIN\tMX\t10\tmail\n",
        "_sip._udp 60 SRV 0 5 5060 host\n",
        'host TXT "v=spf1 -all" "(c)"\n',
        "1.2.0.192.in-addr.arpa. PTR host.example.net.\n",
    ):
        found = plain_line(line, 0, ZONE)
        assert found is not None, line
        assert found.end == len(line)
