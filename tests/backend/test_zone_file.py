"""Master files."""

from pathlib import Path

import pytest
from daemon_kit.config_file import ConfigurationErrors
from rspdns.rrset import OtherData, Record
from rspdns.zones import file as zone_file
from rspdns.zones.file import StaticZone, load_zone_file, parse_zone_file

from tests.backend.making import FIXED, ZONE


def errors_of(text: str) -> list[str]:
    with pytest.raises(ConfigurationErrors) as caught:
        parse_zone_file(text, "z", ZONE)
    return str(caught.value).splitlines()


def parsed(more: str) -> StaticZone:
    return parse_zone_file(FIXED + more, "z", ZONE)


def test_records_have_lower_case_owners_and_whole_contents_without_final_dots() -> None:
    static = parsed('MAIL 60 MX 10 mx.example.ORG.\n@ TXT "a@b; c" "d"\nsrv SRV 0 0 0 .\n')
    assert static.records[f"mail.{ZONE}"] == (
        Record(f"mail.{ZONE}", "MX", OtherData("MX", "10 mx.example.ORG"), 60),
    )
    assert static.records[ZONE][-1] == Record(ZONE, "TXT", OtherData("TXT", '"a@b; c" "d"'), 3600)
    assert static.records[f"srv.{ZONE}"][0].content == "0 0 0 ."


def test_many_types_are_read() -> None:
    static = parsed(
        'x CAA 0 issue "ca.example.net"\nx LOC 52 22 23 N 4 53 32 E 0m\nx TLSA 3 1 0 aabb\nx SSHFP 9 9 aabb\n'
        "x HTTPS 1 . alpn=h2\n*.x TYPE65400 \\# 2 abcd\ny DNAME example.org.\n"
    )
    assert [record.type for record in static.records[f"x.{ZONE}"]] == ["CAA", "LOC", "TLSA", "SSHFP", "HTTPS"]
    assert static.records[f"x.{ZONE}"][-1].content == '1 . alpn="h2"'
    assert static.records[f"*.x.{ZONE}"][0].content == "\\# 2 abcd"
    assert static.records[f"y.{ZONE}"][0].content == "example.org"


def test_records_that_powerdns_reads_in_one_form_only_are_given_in_that_form() -> None:
    static = parsed('c CERT PKIX 7 RSASHA256 AQID\nh HTTPS 1 . alpn="h2,h3" port="8443" ipv4hint=192.0.2.1\n')
    assert static.records[f"c.{ZONE}"][0].content == "1 7 8 AQID"
    content = static.records[f"h.{ZONE}"][0].content
    assert 'alpn="h2,h3"' in content
    assert "port=8443" in content
    assert "ipv4hint=192.0.2.1" in content


def test_records_of_one_set_share_the_smallest_ttl_and_twins_count_once() -> None:
    static = parsed("x 60 A 10.0.0.1\nx 30 A 10.0.0.2\nx 90 A 10.0.0.1\n")
    assert [(record.content, record.ttl) for record in static.records[f"x.{ZONE}"]] == [
        ("10.0.0.1", 30),
        ("10.0.0.2", 30),
    ]


def test_soa_and_ns_are_required() -> None:
    assert errors_of("$TTL 60\nns1 A 10.0.0.1\n") == [
        f"z: {ZONE}: the zone has no NS record at its apex",
        f"z: {ZONE}: the zone has no SOA record",
    ]
    text = "$TTL 60\n@ SOA ns1 h 1 2 3 4 5\nsub NS ns1\n"
    assert errors_of(text) == [f"z: {ZONE}: the zone has no NS record at its apex"]


def test_missing_soa_and_ns_are_told_beside_bad_records_unless_one_of_these_may_be_it() -> None:
    missing = [f"z: {ZONE}: the zone has no NS record at its apex", f"z: {ZONE}: the zone has no SOA record"]
    for bad, is_told in (
        ("www A nowhere", True),
        ("@ SOA ns1 h 1 2 3", False),
        (f"{ZONE}. NS", False),
        ("  NS ns1 ns2", False),
        ("$GENERATE 1-2 x", False),
        ("www.example.com. A 10.0.0.1", False),
    ):
        found = errors_of(f"$TTL 60\nns1 A 10.0.0.1\n{bad}\n")
        assert found.pop().startswith("z:3: "), bad
        assert found == (missing if is_told else []), bad


def test_every_error_is_told_with_its_line() -> None:
    found = errors_of(
        """$TTL 3600
@     SOA   ns1 hostmaster 1 7200 900 1209600 300
@     NS    ns1
ns1   A     10.0.1.300
www   AA    10.0.1.1
www   A
far.example.com. A 10.0.1.1
alias CNAME www
alias A     10.0.1.1
sub   SOA   ns1 hostmaster 1 7200 900 1209600 300
@     SOA   ns1 hostmaster 1 7200 900 1209600 300
x..y  A     10.0.1.1
$INCLUDE /etc/passwd
long  4000000000 A 10.0.1.1
sig   NSEC  www A
"""
    )
    lines = [int(line.split(":")[1]) for line in found]
    assert lines == [4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15]
    assert "10.0.1.300" in found[0]
    assert "unknown record type 'AA'" in found[1]
    assert f"far.example.com: lies outside the zone {ZONE}" in found[3]
    assert "$INCLUDE" in found[8]


def test_reading_goes_on_after_a_broken_record_of_several_lines() -> None:
    found = errors_of(
        """$TTL 3600
@     SOA   ns1 hostmaster (
            1 7200
            900 1209600 )
@     NS    ns1
ns1   A     nowhere
"""
    )
    assert [int(line.split(":")[1]) for line in found] == [2, 6]


@pytest.mark.parametrize("bare", ["$TTL", "$ORIGIN", "$INCLUDE", "$GENERATE", "$TTL ; no value", "www"])
def test_a_line_of_a_single_word_is_blamed_itself(bare: str) -> None:
    found = errors_of(f"{FIXED}{bare}\nx A 10.0.0.1\ny A 10.0.0.300\n")
    assert [int(line.split(":")[1]) for line in found] == [6, 8]
    assert repr(bare) in found[0]
    for end in ("", "\n", "\r\n"):
        (error,) = errors_of(FIXED + bare + end)
        assert error.startswith(f"z:6: {bare!r} is not understood: ")


def test_lines_are_counted_as_editors_do() -> None:
    found = errors_of(
        f"; a\x0cpage, a\u2028line\n{FIXED}x A nowhere\n$GENERATE 1-2 y$ 4000000000 A 10.0.0.$\n"
    )
    assert [int(line.split(":")[1]) for line in found] == [7, 8, 8]


def test_a_missing_or_binary_file_is_one_clear_error(tmp_path: object) -> None:
    with pytest.raises(ConfigurationErrors, match="can't be read: No such file"):
        load_zone_file(f"{tmp_path}/none.zone", ZONE)
    for text in ("\0\1\2", '"', "(", "$TTL", "@ SOA", "\\999", "$GENERATE 1-2", "ü. A 1.2.3.4"):
        assert errors_of(text)


HEAD = len(FIXED.splitlines())


def long_text(octets: int) -> str:
    """TXT data of this number of octets: strings of 255, each behind its length."""
    whole, rest = divmod(octets, 256)
    return " ".join([f'"{"x" * 255}"'] * whole + ([f'"{"x" * (rest - 1)}"'] if rest else []))


def test_a_record_that_fits_into_no_message_is_an_error() -> None:
    assert parsed(f"big TXT {long_text(65_000)}\n").records[f"big.{ZONE}"]
    for octets in (65_530, 65_535, 65_536, 100_000):
        (told,) = errors_of(FIXED + f"ok A 10.0.0.1\nbig TXT {long_text(octets)}\n")
        assert told.startswith(
            f"z:{HEAD + 2}: big.{ZONE} TXT: its data have {octets} octets; a DNS message has"
        )


def test_records_that_fit_into_no_message_together_are_told_once() -> None:
    lines = "".join(f"big TXT {long_text(20_000 + number)}\n" for number in range(6))
    (told,) = errors_of(FIXED + lines)
    assert told.startswith(f"z:{HEAD + 4}: big.{ZONE} TXT: the TXT records here have 80")


def test_nothing_stands_below_a_dname() -> None:
    told = errors_of(FIXED + "old DNAME example.org.\nx.old A 10.0.0.1\na.b.old TXT t\nold TXT beside\n")
    where = f"nothing may stand below the DNAME record of old.{ZONE} (RFC 6672 section 2.3)"
    assert told == [f"z:{HEAD + 2}: x.old.{ZONE}: {where}", f"z:{HEAD + 3}: a.b.old.{ZONE}: {where}"]
    assert f"DNAME record of {ZONE}" in errors_of(FIXED + "@ DNAME example.org.\n")[0]
    (told_twice,) = errors_of(FIXED + "old DNAME example.org.\nold DNAME example.com.\n")
    assert "one DNAME record at most" in told_twice


@pytest.mark.parametrize("range_text", ["1-2000000000", "0-65536", "0-1000000/15"])
def test_a_generate_with_too_many_steps_is_refused_before_its_first(range_text: str) -> None:
    (told,) = errors_of(FIXED + f"$GENERATE {range_text} h$ A 10.0.0.1\n")
    assert told.startswith(f"z:{HEAD + 1}: '$GENERATE {range_text} h$ A 10.0.0.1': it makes ")
    assert told.endswith(" records, and may make 65536 at most")


def test_a_generate_makes_its_records() -> None:
    static = parsed("$generate 1-20/2 h$ A 10.0.0.$\ntext TXT $GENERATE 1-2000000000\n")
    assert [name for name in static.records if name[0] == "h"] == [
        f"h{number}.{ZONE}" for number in range(1, 21, 2)
    ]


def test_the_records_of_a_zone_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zone_file, "MAX_RECORDS", 100)
    (told,) = errors_of(FIXED + "$GENERATE 1-200 h$ A 10.0.0.$\nwrong\n")
    assert told.endswith("': the zone has more than 100 records")
    assert told.startswith(f"z:{HEAD + 1}: ")


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "z").write_bytes(b"\xef\xbb\xbf" + FIXED.lstrip().encode())
    assert load_zone_file(tmp_path / "z", ZONE).records[f"ns1.{ZONE}"]


@pytest.mark.parametrize(
    "line", ["h1 4294967296 A 10.0.0.1", "h1 IN 99999999999w A 10.0.0.1", "$TTL 4294967296"]
)
def test_a_ttl_that_is_too_large_is_told_as_a_ttl(line: str) -> None:
    with pytest.raises(ConfigurationErrors) as caught:
        parse_zone_file(FIXED + line + "\n", "zone.zone", ZONE)
    (problem,) = str(caught.value).splitlines()
    assert "is no TTL; one has 0 to 2147483647 s" in problem
    assert "record type" not in problem
