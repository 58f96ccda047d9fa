"""Zones, nested ones too, their pools and zone files: every error, told where it is."""

from pathlib import Path

import pytest
from daemon_kit.config_file import ConfigurationErrors, parse
from rspdns.check import warnings
from rspdns.configuration import load_configuration
from rspdns.zones.configuration import ZoneConfig
from rspdns.zones.loading import load_zones

from tests.backend.configuration_files import GOOD, changed, errors, head, only_error, pool_error, write
from tests.backend.making import FIXED, UDP, ZONE

OUTER, INNER = "example.net", "ims.example.net"
CUT = "ims NS ns1.ims\nims DS 1 13 2 " + "00" * 32 + "\nns1.ims A 10.7.7.7\nns1.ims AAAA 2001:db8::7\n"
NO_CUT = "lies inside the zone example.net"
SMALL_ZONE = """\
zone = "{zone}"
static = "{file}"
[[pool]]
handle = "sip"
service = "_sip._udp"
name = "as"
accept = ["{accept}"]
"""
MASTER = """\
$TTL 300
@ SOA ns1 hostmaster 1 7200 900 1209600 300
@ NS ns1
@ NS ns2
ns1 A 192.0.2.1
ns2 A 192.0.2.2
"""


@pytest.mark.parametrize(
    ("keys", "location", "word"),
    [
        ({"handles": '["a", "b"]'}, (3, "pool[0]"), "either handle or handles"),
        ({"handle": ""}, (3, "pool[0]"), "either handle or handles"),
        ({"handle": '""'}, (8, "pool[0].handle"), "1 to 32 bytes"),
        ({"handle": '"rspdns-sentinel-1"'}, (8, "pool[0].handle"), "sentinel"),
        ({"handle": '"not a label"', "label": ""}, (3, "pool[0]"), "needs a label"),
        ({"accept": "[]"}, (8, "pool[0].accept"), "at least one"),
        ({"accept": "[1]"}, (8, "pool[0].accept[0]"), "text"),
        ({"max_answers": "1"}, (9, "pool[0].max_answers"), "2"),
        ({"answers": '"every"'}, (9, "pool[0].answers"), "all"),
        ({"answers": '"all"', "max_answers": "8"}, (3, "pool[0]"), "no use for max_answers"),
        ({"answers": '"all"', "max_addresses": "2"}, (3, "pool[0]"), "no use for max_addresses"),
        ({"weights": '"broad"'}, (9, "pool[0].weights"), "wide"),
        ({"naptr_service": '"SIP D2U"'}, (9, "pool[0].naptr_service"), "SIP+D2U"),
        ({"when_empty": '"static"'}, (9, "pool[0].when_empty"), f"no SRV record at _sip._udp.as.{ZONE}"),
        ({"verify": '"icmp"'}, (9, "pool[0].verify"), "tcp"),
        ({"verify": '"tcp"'}, (3, "pool[0]"), "needs a service over TCP"),
        ({"service": '"_sip._sctp"', "verify": '"sip-options"'}, (3, "pool[0]"), "UDP or TCP"),
        ({"service": '"_sips._tcp"', "verify": '"sip-options"'}, (3, "pool[0]"), "_sips._tcp is not"),
        ({"report_unreachable": "true"}, (3, "pool[0]"), "needs verify"),
        ({"verify_interval_ms": "1"}, (9, "pool[0].verify_interval_ms"), "20"),
        ({"name": f'"{".".join(["long" * 12] * 5)}"'}, (8, "pool[0].name"), "longer than 255"),
        ({"name": f'"{".".join(["long" * 12] * 4)}"'}, (8, "pool[0].name"), "do not fit"),
    ],
)
def test_a_wrong_key_of_a_pool_is_told_at_its_line(
    tmp_path: Path, keys: dict[str, str], location: tuple[int, str], word: str
) -> None:
    file, line, key, problem = pool_error(tmp_path, changed(**keys))
    assert (file, line, key) == ("one.toml", *location)
    assert word in problem


def test_an_error_in_one_file_of_a_zone_hides_none_in_the_other(tmp_path: Path) -> None:
    (tmp_path / "zones.d").mkdir()
    (tmp_path / "zones.d" / "one.zone").write_text(FIXED + "@ NS ns9\nas A 10.0.0.1\n")
    wrong = UDP + changed(handle='"other"', service='"_sip._tcp"', when_empty='"static"', ttll="3")
    assert [error[:3] for error in errors(write(tmp_path, GOOD, one=head() + wrong))] == [
        ("one.toml", 11, "pool[1].label"),
        ("one.toml", 16, "pool[1].when_empty"),
        ("one.toml", 17, "pool[1].ttll"),
        ("one.zone", 6, f"{ZONE} NS"),
    ]


def test_each_name_server_without_address_is_told_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "zones.d").mkdir()
    (tmp_path / "zones.d" / "one.zone").write_text(FIXED + "@ NS ns8\n@ NS ns9\n")
    found = errors(write(tmp_path, GOOD, one=head() + UDP))
    end = len(FIXED.splitlines())
    assert [error[:3] for error in found] == [("one.zone", end + line, f"{ZONE} NS") for line in (1, 2)]


def test_an_error_in_a_zone_file_hides_none_of_the_pools(tmp_path: Path) -> None:
    (tmp_path / "zones.d").mkdir()
    fixed = FIXED.replace("10.0.1.1", "10.0.1.300") + "as A 10.0.0.1\nfar.example. A 10.0.0.1\n"
    (tmp_path / "zones.d" / "one.zone").write_text(fixed)
    wrong = UDP + changed(handle='"other"', service='"_sip._tcp"')
    found = errors(write(tmp_path, GOOD, one=head() + wrong))
    assert ("one.toml", "pool[1].label") in {(file, key) for file, _, key, _ in found}
    lines = [line for file, line, *_ in found if file == "one.zone"]
    assert lines == [5, 6, 7], "ns1 is not told to lack its address"


@pytest.mark.parametrize("wrong", [{"when_emtpy": '"static"'}, {"when_empty": '"Static"'}])
def test_errors_that_only_follow_from_another_error_are_not_told(
    tmp_path: Path, wrong: dict[str, str]
) -> None:
    fixed = FIXED + "_sip._udp.as SRV 0 0 5060 ns1\nas A 10.0.0.1\n@ NS as\n"
    file, line, key, _ = pool_error(tmp_path, changed(**wrong), fixed)
    assert (file, line, key) == ("one.toml", 9, f"pool[0].{next(iter(wrong))}")


def test_zones_with_errors_are_compared_with_others(tmp_path: Path) -> None:
    other = head("two", "example.org") + changed(accept='["10.0.0.0/16"]', verfy='"sip-options"')
    found = errors(write(tmp_path, GOOD, one=head() + UDP + "maxanswers = 3\n", two=other))
    assert [error[:3] for error in found] == [
        ("one.toml", 10, "pool[0].maxanswers"),
        ("two.toml", 8, "pool[0].accept"),
        ("two.toml", 9, "pool[0].verfy"),
    ]


@pytest.mark.parametrize("wrong", [{"max_answer": "3"}, {"max_answers": "1"}])
def test_a_wrong_key_hides_no_rule_between_keys(tmp_path: Path, wrong: dict[str, str]) -> None:
    (tmp_path / "zones.d").mkdir()
    pools = changed(handle="", report_unreachable="true", **wrong)
    found = errors(write(tmp_path, GOOD, one=head() + pools))
    words = " ".join(problem for *_, problem in found)
    assert "needs either handle or handles" in words
    assert "report_unreachable needs verify" in words
    assert len(found) == 3


@pytest.mark.parametrize("wrong", [{"max_answer": "3"}, {"max_answers": "1"}])
def test_a_wrong_key_hides_no_rule_about_values(tmp_path: Path, wrong: dict[str, str]) -> None:
    (tmp_path / "zones.d").mkdir()
    pools = changed(handle='"no.label"', label="", verify='"tcp"', **wrong)
    words = " ".join(problem for *_, problem in errors(write(tmp_path, GOOD, one=head() + pools)))
    assert 'verify = "tcp" needs a service over TCP' in words
    assert "needs a label" in words


def test_a_handle_is_in_one_pool_of_a_zone_only(tmp_path: Path) -> None:
    other = changed(handle="", handles='["x", "sip-udp"]', label='"v"', service='"_sip._tcp"')
    assert pool_error(tmp_path, UDP + other)[:3] == ("one.toml", 13, "pool[1].handles[1]")


def test_labels_of_one_name_differ(tmp_path: Path) -> None:
    other = changed(handle='"other"', service='"_sip._tcp"')
    file, _, key, problem = pool_error(tmp_path, UDP + other)
    assert (file, key) == ("one.toml", "pool[1].label")
    assert f"u.as.{ZONE}" in problem


def test_targets_and_names_stay_apart(tmp_path: Path) -> None:
    other = changed(handle='"other"', name='"@"', label='"as"')
    assert pool_error(tmp_path, UDP + other)[2] == "pool[1].label"


@pytest.mark.parametrize(
    ("record", "word"),
    [
        ("as A 10.0.0.1", "gives this name its addresses"),
        ("_sip._udp.as SRV 0 0 5060 ns1", "gives this name its SRV records"),
        ('as NAPTR 1 1 "s" "SIP+D2U" "" x', "NAPTR record of SIP+D2U"),
        ("as CNAME ns1", "cannot stand at the name of a pool"),
        ("_sip._udp.as CNAME ns1", "cannot stand at the name of a pool"),
        ("u.as CNAME ns1", "cannot stand at the name of a pool"),
        ("x.u.as A 10.0.0.1", "belong to the pool's members"),
        ("_udp.as NS ns1", f"hides _sip._udp.as.{ZONE}"),
        ("_udp.as DNAME example.org.", f"hides _sip._udp.as.{ZONE}"),
        ("@ NS ns9", f"ns9.{ZONE} has no address"),
    ],
)
def test_fixed_records_in_the_way_of_live_ones_are_errors_at_their_line(
    tmp_path: Path, record: str, word: str
) -> None:
    file, line, _, problem = pool_error(tmp_path, UDP, FIXED + record + "\n")
    assert file == "one.zone"
    assert line == 6
    assert word in problem


def test_static_records_are_welcome_where_they_stand_in(tmp_path: Path) -> None:
    (tmp_path / "zones.d").mkdir()
    (tmp_path / "zones.d" / "one.zone").write_text(FIXED + "_sip._udp.as SRV 0 0 5060 ns1\nas A 10.0.0.1\n")
    config = load_configuration(write(tmp_path, GOOD, one=head() + changed(when_empty='"static"')))
    assert len(config.zones[0].sites[0].static) == 2


def test_a_pool_may_be_in_several_zones_with_the_same_networks_and_probing(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, one=head() + UDP, two=head("two", "example.org") + UDP)
    assert [zone.name for zone in load_configuration(path).zones] == ["example.org", ZONE]
    write(tmp_path, GOOD, two=head("two", "example.org") + changed(accept='["10.0.0.0/16"]'))
    assert only_error(path)[:3] == ("two.toml", 8, "pool[0].accept")
    write(tmp_path, GOOD, two=head("two", "example.org") + changed(verify='"sip-options"'))
    file, _, key, problem = only_error(path)
    assert (file, key) == ("two.toml", "pool[0].verify")
    assert "verified in another way" in problem


def test_a_zone_in_two_files_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, one=head() + UDP, two=head("two"))
    assert only_error(path)[:3] == ("two.toml", 1, "zone")


def test_zones_inside_each_other_do_not_share_an_owner(tmp_path: Path) -> None:
    outer = head("two", "example.net") + changed(name='"as.ims"', handle='"other"')
    path = write(tmp_path, GOOD, one=head() + UDP, two=outer)
    assert only_error(path)[:3] == ("two.toml", 7, "pool[0].name")


@pytest.mark.parametrize("value", ["a\\u0000b", ""])
def test_a_zone_file_of_no_possible_path_is_an_error(tmp_path: Path, value: str) -> None:
    path = write(tmp_path, GOOD, one=f'zone = "{ZONE}"\nstatic = "{value}"\n')
    assert any(problem.startswith("a path ") for *_, problem in errors(path))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("handle =", "pool =", "pool[0].pool: unknown key; did you mean 'handle'?"),
        (
            "max_answers",
            "when_empty = 'last_good'\nmax_answers",
            "'last_good' is unknown; did you mean 'last-good'?",
        ),
        (
            "max_answers",
            "verify = 'sip_options'\nmax_answers",
            "'sip_options' is unknown; did you mean 'sip-options'?",
        ),
    ],
)
def test_a_nearly_right_key_or_value_of_a_zone_is_told_how_it_is_written(
    before: str, after: str, words: str
) -> None:
    text = (
        'zone = "a.example"\nstatic = "a.zone"\n[[pool]]\nhandle = "sip"\n'
        'service = "_sip._udp"\nname = "as"\naccept = ["10.0.0.0/8"]\nmax_answers = 8\n'
    )
    with pytest.raises(ConfigurationErrors) as found:
        parse(text.replace(before, after), "a.toml", ZoneConfig)
    assert words in str(found.value)


def test_every_error_of_the_expected_servers_is_told(tmp_path: Path) -> None:
    """Also those that are not in `accept`, and how many there are beside the first eight."""
    wrong = ('"10.0.0.1" = "a"', '"10.0.0.2:5060" = 2', '"10.0.0.3:0" = "c"', '"10.0.0.4:5060" = "-"')
    twice = ('"10.0.0.5:5060" = "e"', '"10.0.0.6:5060" = "e"', '"192.0.2.1:5060" = "g"')
    pool = UDP + f"expect = {{{', '.join((*wrong, *twice))}}}\n"
    foreign, own = (problem for *_, problem in errors(write(tmp_path, GOOD, one=head() + pool)))
    assert foreign.startswith("expect: 192.0.2.1 (g) is not in accept")
    for words in (
        "'10.0.0.1' is",
        "10.0.0.2:5060, 2,",
        "'10.0.0.3:0' is",
        "10.0.0.4:5060, '-',",
        "e is there",
    ):
        assert words in own
    many = ", ".join(f'"10.0.0.{number}" = "a"' for number in range(20))
    _, _, key, said = only_error(write(tmp_path, GOOD, one=head() + UDP + f"expect = {{{many}}}\n"))
    assert key == "pool[0].expect"
    assert said.count(" is no address with a port") == 8
    assert said.endswith("; 12 more errors")


def files(folder: Path, outer: str, pools: str = "") -> Path:
    (folder / "zones.d").mkdir()
    (folder / "zones.d" / "outer.zone").write_text(FIXED + outer)
    own = head("inner", INNER) + UDP
    return write(folder, GOOD, outer=head("outer", OUTER) + pools, inner=own)


def problems(folder: Path, outer: str, pools: str = "") -> list[str]:
    files(folder, outer, pools)
    with pytest.raises(ConfigurationErrors) as caught:
        load_zones(folder / "zones.d")
    return str(caught.value).replace(f"{folder}/zones.d/", "").splitlines()


def test_delegation_and_glue_are_right(tmp_path: Path) -> None:
    path = files(tmp_path, CUT)
    assert not any(NO_CUT in str(warning) for warning in warnings(path, load_configuration(path), None))


@pytest.mark.parametrize(
    ("record", "key"),
    [
        ("ims TXT text", f"{INNER} TXT"),
        ("ims A 10.0.0.1", f"{INNER} A"),
        ("www.ims A 10.0.0.1", f"www.{INNER} A"),
        ("ns1.ims TXT text", f"ns1.{INNER} TXT"),
        ("b.ims NS ns1", f"b.{INNER} NS"),
        ("*.ims TXT text", f"*.{INNER} TXT"),
    ],
)
def test_a_record_that_belongs_into_the_inner_zone_is_an_error_of_the_outer_zone(
    tmp_path: Path, record: str, key: str
) -> None:
    (told,) = problems(tmp_path, CUT + record + "\n")
    line = len((FIXED + CUT).splitlines()) + 1
    assert told.startswith(f"outer.zone:{line}: {key}: belongs into the zone {INNER}, which is served here")


def test_a_pool_at_a_name_of_the_inner_zone(tmp_path: Path) -> None:
    pool = UDP.replace('"as"', '"x.ims"').replace("sip-udp", "other")
    (told,) = problems(tmp_path, "", pool)
    assert told.startswith("outer.toml:8: pool[0].name: the pool's names lie in the zone ims.example.net")


def test_a_zone_that_the_outer_one_does_not_delegate_is_warned_of(tmp_path: Path) -> None:
    path = files(tmp_path, "")
    (told,) = [
        str(warning) for warning in warnings(path, load_configuration(path), None) if NO_CUT in str(warning)
    ]
    assert told.startswith(f"{tmp_path}/zones.d/inner.toml:1: zone: {NO_CUT}")


def errors_in(folder: Path) -> list[str]:
    with pytest.raises(ConfigurationErrors) as caught:
        load_zones(folder)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def write_zone(folder: Path, name: str, *, zone: str = "example.org", accept: str = "10.0.0.0/8") -> None:
    (folder / f"{name}.toml").write_text(SMALL_ZONE.format(zone=zone, file="the.zone", accept=accept))


def test_a_zone_in_two_files_hides_no_difference_between_their_pools(tmp_path: Path) -> None:
    (tmp_path / "the.zone").write_text(MASTER)
    write_zone(tmp_path, "a")
    write_zone(tmp_path, "b", accept="10.1.0.0/16")
    write_zone(tmp_path, "c", zone="example.net", accept="10.2.0.0/16")
    told = "the pool 'sip' has other networks in {}; it can have but one list"
    assert errors_in(tmp_path) == [
        "b.toml:1: zone: the zone example.org is already in a.toml",
        f"b.toml:7: pool[0].accept: {told.format('a.toml')}",
        f"c.toml:7: pool[0].accept: {told.format('a.toml')}",
    ]


def test_a_bad_record_hides_no_name_server_without_an_address(tmp_path: Path) -> None:
    write_zone(tmp_path, "a")
    for bad, missing in (("www A nowhere", "ns2"), ("ns2 A nowhere", None)):
        (tmp_path / "the.zone").write_text(MASTER.replace("ns2 A 192.0.2.2", bad))
        found = errors_in(tmp_path)
        assert found.pop().startswith("the.zone:6: ")
        server = f"the name server {missing}.example.org has no address in this zone"
        assert found == ([f"the.zone:4: example.org NS: {server}"] if missing else [])


@pytest.mark.parametrize(("name", "right"), [(f"as.{ZONE}", "as"), (f"AS.{ZONE}.", "as"), (ZONE, "@")])
def test_a_name_with_the_zone_in_it_is_refused(tmp_path: Path, name: str, right: str) -> None:
    *_, key, problem = pool_error(tmp_path, changed(name=f'"{name}"'))
    assert (key, problem) == ("pool[0].name", f"is relative to the zone {ZONE}: write {right!r}")
