"""rspdns.toml and the zones it leads to."""

from ipaddress import ip_network
from pathlib import Path

import pytest
from daemon_kit.config_file import ConfigurationErrors
from rserpool.parameters import Protocol
from rspdns.configuration import BackendConfig, load_configuration

from tests.backend.making import FIXED, UDP, ZONE

EXAMPLES = Path(__file__).parents[2] / "backend" / "examples"
GOOD = 'registrars = ["10.0.0.1"]\n'


def write(directory: Path, main: str, **zones: str) -> Path:
    """Write a configuration; the argument `name` becomes `name.toml`, with a good zone file `name.zone`."""
    (directory / "zones.d").mkdir(exist_ok=True)
    for name, text in zones.items():
        (directory / "zones.d" / f"{name}.toml").write_text(text)
        if not (directory / "zones.d" / f"{name}.zone").exists():
            (directory / "zones.d" / f"{name}.zone").write_text(FIXED)
    (directory / "rspdns.toml").write_text(main)
    return directory / "rspdns.toml"


def head(name: str = "one", zone: str = ZONE) -> str:
    return f'zone = "{zone}"\nstatic = "{name}.zone"\n'


def errors(path: Path) -> list[tuple[str, int, str, str]]:
    with pytest.raises(ConfigurationErrors) as caught:
        load_configuration(path)
    return [(Path(error.file).name, error.line, error.key, error.problem) for error in caught.value.errors]


def one_error(path: Path) -> tuple[str, int, str, str]:
    (error,) = errors(path)
    return error


def pool_error(tmp_path: Path, pools: str, fixed: str = FIXED) -> tuple[str, int, str, str]:
    (tmp_path / "zones.d").mkdir()
    (tmp_path / "zones.d" / "one.zone").write_text(fixed)
    return one_error(write(tmp_path, GOOD, one=head() + pools))


def changed(**keys: str) -> str:
    """The pool, with these keys instead of or besides its own."""
    lines = [line for line in UDP.strip().splitlines() if line.split(" ")[0] not in keys]
    return "\n".join([*lines, *(f"{key} = {value}" for key, value in keys.items() if value)]) + "\n"


def test_the_example_is_good() -> None:
    config = load_configuration(EXAMPLES / "rspdns.toml")
    assert config.registrars == ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    assert [address.asap_port for address in config.registrar_addresses] == [3863] * 3
    assert config.accept_by_handle.keys() == {"sip-as-udp", "sip-as-tcp"}
    (zone,) = config.zones
    (site,) = zone.sites
    assert (zone.name, site.name) == ("ims.example.net", "as.ims.example.net")
    assert [pool.owner for pool in site.pools] == [
        "_sip._udp.as.ims.example.net",
        "_sip._tcp.as.ims.example.net",
    ]


def test_defaults(tmp_path: Path) -> None:
    config = load_configuration(write(tmp_path, GOOD, one=head() + changed(label="")))
    assert (config.max_stale_s, config.poll_hot_ms) == (3600, 50)
    pool = config.zones[0].sites[0].pools[0].config
    assert (pool.target_label, pool.when_empty, pool.max_answers, pool.max_addresses) == (
        "sip-udp",
        "last-good",
        8,
        2,
    )
    assert pool.protocol is Protocol.UDP
    assert pool.accept == (ip_network("10.0.0.0/8"),)
    assert config.zones[0].config.negative_ttl_s == 1


def test_names_are_taken_as_written_by_people(tmp_path: Path) -> None:
    config = load_configuration(
        write(tmp_path, GOOD, one=head(zone="IMS.Example.net.") + changed(name='"AS"', service='"_SIP._UDP"'))
    )
    assert config.zones[0].sites[0].pools[0].owner == f"_sip._udp.as.{ZONE}"


def test_no_zone_at_all_is_a_backend_before_its_first_zone(tmp_path: Path) -> None:
    assert load_configuration(write(tmp_path, GOOD)).zones == ()


def test_a_missing_zones_directory_is_an_error(tmp_path: Path) -> None:
    main = GOOD + 'zones_dir = "elsewhere"\n'
    (tmp_path / "rspdns.toml").write_text(main)
    *place, problem = one_error(tmp_path / "rspdns.toml")
    assert place == ["rspdns.toml", len(main.splitlines()), "zones_dir"]
    assert f"{tmp_path}/elsewhere: the zones directory can't be read" in problem


def test_every_error_of_all_files_at_once(tmp_path: Path) -> None:
    (tmp_path / "zones.d").mkdir()
    (tmp_path / "zones.d" / "two.zone").write_text(FIXED + "www A 10.0.0.300\n")
    path = write(
        tmp_path,
        """registrars = ["10.0.0.1", "10.0.0.1", "no host:x"]
folow = "poll"
[pdns]
connector = "tcp:1.2.3.4:5"
""",
        one=f"""zone = "{ZONE}"
static = "none.zone"
ttl = -1
[[pool]]
handle = "{"x" * 33}"
service = "_sip._xyz"
name = "as"
when_empty = "panic"
[[pool]]
handle = "sip"
label = "a_b"
service = "_sip._udp"
name = "a..s"
accept = ["10.20.0.1/16"]
max_answer = 1
""",
        two=head("two", "example.org") + UDP + UDP.replace('"u"', '"v"'),
    )
    found = errors(path)
    places = {(file, line, key) for file, line, key, _ in found}
    assert places >= {
        ("rspdns.toml", 1, "registrars[1]"),
        ("rspdns.toml", 1, "registrars[2]"),
        ("rspdns.toml", 2, "folow"),
        ("rspdns.toml", 4, "pdns.connector"),
        ("one.toml", 2, "static"),
        ("one.toml", 3, "ttl"),
        ("one.toml", 4, "pool[0].accept"),
        ("one.toml", 5, "pool[0].handle"),
        ("one.toml", 6, "pool[0].service"),
        ("one.toml", 8, "pool[0].when_empty"),
        ("one.toml", 11, "pool[1].label"),
        ("one.toml", 13, "pool[1].name"),
        ("one.toml", 14, "pool[1].accept[0]"),
        ("one.toml", 15, "pool[1].max_answer"),
        ("two.toml", 12, "pool[1].handle"),
        ("two.toml", 14, "pool[1].service"),
        ("two.zone", 6, ""),
    }
    assert len(found) == len(places) == 17
    problems = {(file, line): problem for file, line, _, problem in found}
    assert "33" in problems["one.toml", 5]
    assert "did you mean 'follow'" in problems["rspdns.toml", 2]
    assert "host bits" in problems["one.toml", 14]


@pytest.mark.parametrize(
    ("keys", "place", "word"),
    [
        ({"handles": '["a", "b"]'}, (3, "pool[0]"), "either handle or handles"),
        ({"handle": ""}, (3, "pool[0]"), "either handle or handles"),
        ({"handle": '""'}, (8, "pool[0].handle"), "1 to 32 bytes"),
        ({"handle": '"rspdns-sentinel-1"'}, (8, "pool[0].handle"), "sentinel"),
        ({"handle": '"not a label"', "label": ""}, (3, "pool[0]"), "needs a label"),
        ({"accept": "[]"}, (8, "pool[0].accept"), "at least one"),
        ({"accept": "[1]"}, (8, "pool[0].accept[0]"), "text"),
        ({"max_answers": "1"}, (9, "pool[0].max_answers"), "2"),
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
def test_one_wrong_key(tmp_path: Path, keys: dict[str, str], place: tuple[int, str], word: str) -> None:
    file, line, key, problem = pool_error(tmp_path, changed(**keys))
    assert (file, line, key) == ("one.toml", *place)
    assert word in problem


def test_an_error_in_one_file_of_a_zone_hides_none_in_the_other(tmp_path: Path) -> None:
    (tmp_path / "zones.d").mkdir()
    (tmp_path / "zones.d" / "one.zone").write_text(FIXED + "@ NS ns9\nas A 10.0.0.1\n")
    wrong = UDP + changed(handle='"other"', service='"_sip._tcp"', when_empty='"static"', ttll="3")
    assert [one[:3] for one in errors(write(tmp_path, GOOD, one=head() + wrong))] == [
        ("one.toml", 11, "pool[1].label"),
        ("one.toml", 16, "pool[1].when_empty"),
        ("one.toml", 17, "pool[1].ttll"),
        ("one.zone", 6, f"{ZONE} NS"),
    ]


def test_a_file_that_can_not_be_read_is_told_where_it_is_named(tmp_path: Path) -> None:
    main = GOOD + '\nzones_dirr = "x"\n[admin]\nread_tokens = "nowhere"\n'
    found = errors(write(tmp_path, main, one=head("missing") + UDP))
    line = main.splitlines().index('read_tokens = "nowhere"') + 1
    assert [one[:3] for one in found] == [
        ("rspdns.toml", line - 2, "zones_dirr"),
        ("rspdns.toml", line, "admin.read_tokens"),
        ("one.toml", 2, "static"),
    ]
    assert f"{tmp_path}/nowhere: can't be read: No such file" in found[1][3]
    assert f"{tmp_path}/zones.d/missing.zone: can't be read: No such file" in found[2][3]


def test_each_name_server_without_address_is_told_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "zones.d").mkdir()
    (tmp_path / "zones.d" / "one.zone").write_text(FIXED + "@ NS ns8\n@ NS ns9\n")
    found = errors(write(tmp_path, GOOD, one=head() + UDP))
    end = len(FIXED.splitlines())
    assert [one[:3] for one in found] == [("one.zone", end + line, f"{ZONE} NS") for line in (1, 2)]


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
def test_what_only_follows_from_an_error_is_not_told(tmp_path: Path, wrong: dict[str, str]) -> None:
    fixed = FIXED + "_sip._udp.as SRV 0 0 5060 ns1\nas A 10.0.0.1\n@ NS as\n"
    file, line, key, _ = pool_error(tmp_path, changed(**wrong), fixed)
    assert (file, line, key) == ("one.toml", 9, f"pool[0].{next(iter(wrong))}")


def test_zones_with_errors_are_compared_with_others(tmp_path: Path) -> None:
    other = head("two", "example.org") + changed(accept='["10.0.0.0/16"]', verfy='"sip-options"')
    found = errors(write(tmp_path, GOOD, one=head() + UDP + "maxanswers = 3\n", two=other))
    assert [one[:3] for one in found] == [
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
def test_nor_a_rule_about_values(tmp_path: Path, wrong: dict[str, str]) -> None:
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
        ("@ DNAME example.org.", f"hides as.{ZONE}"),
        ("@ NS ns9", f"ns9.{ZONE} has no address"),
    ],
)
def test_fixed_records_in_the_way_of_live_ones(tmp_path: Path, record: str, word: str) -> None:
    file, line, _, problem = pool_error(tmp_path, UDP, FIXED + record + "\n")
    assert file == "one.zone"
    assert line == 6
    assert word in problem


def test_static_records_are_welcome_where_they_stand_in(tmp_path: Path) -> None:
    (tmp_path / "zones.d").mkdir()
    (tmp_path / "zones.d" / "one.zone").write_text(FIXED + "_sip._udp.as SRV 0 0 5060 ns1\nas A 10.0.0.1\n")
    config = load_configuration(write(tmp_path, GOOD, one=head() + changed(when_empty='"static"')))
    assert len(config.zones[0].sites[0].static) == 2


def test_one_pool_may_be_in_several_zones_with_the_same_networks(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, one=head() + UDP, two=head("two", "example.org") + UDP)
    assert [zone.name for zone in load_configuration(path).zones] == ["example.org", ZONE]
    write(tmp_path, GOOD, two=head("two", "example.org") + changed(accept='["10.0.0.0/16"]'))
    assert one_error(path)[:3] == ("two.toml", 8, "pool[0].accept")
    write(tmp_path, GOOD, two=head("two", "example.org") + changed(verify='"sip-options"'))
    file, _, key, problem = one_error(path)
    assert (file, key) == ("two.toml", "pool[0].verify")
    assert "verified in another way" in problem


def test_one_zone_is_in_one_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, one=head() + UDP, two=head("two"))
    assert one_error(path)[:3] == ("two.toml", 1, "zone")


def test_zones_inside_each_other_do_not_share_an_owner(tmp_path: Path) -> None:
    outer = head("two", "example.net") + changed(name='"as.ims"', handle='"other"')
    path = write(tmp_path, GOOD, one=head() + UDP, two=outer)
    assert one_error(path)[:3] == ("two.toml", 5, "pool[0].service")


def test_only_files_of_toml_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, one=head() + UDP)
    (path.parent / "zones.d" / "one.toml.bak").write_text("rubbish")
    assert isinstance(load_configuration(path), BackendConfig)


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        (
            '[pdns]\nconnector = "http:192.0.2.1:8053"\n',
            "pdns.connector",
            "whoever reaches the connector may ask",
        ),
        ('[admin]\ntoken_file = "token"\n', "admin.token_file", "unknown key"),
    ],
)
def test_what_serving_does_not_do_is_refused(tmp_path: Path, text: str, key: str, problem: str) -> None:
    found = one_error(write(tmp_path, GOOD + text))
    assert found[2] == key
    assert found[3].startswith(problem)


@pytest.mark.parametrize("value", ["a\\u0000b", ""])
@pytest.mark.parametrize(
    "text", ["zones_dir = X", "[admin]\nsocket = X", "[state]\npath = X", "[pdns]\ncontrol = [X]"]
)
def test_a_path_the_system_cannot_take_is_an_error(tmp_path: Path, text: str, value: str) -> None:
    problem = one_error(write(tmp_path, GOOD + text.replace("X", f'"{value}"') + "\n"))[3]
    assert problem.startswith("a path ")


@pytest.mark.parametrize("value", ["a\\u0000b", ""])
def test_a_zone_file_of_no_possible_path_is_an_error(tmp_path: Path, value: str) -> None:
    path = write(tmp_path, GOOD, one=f'zone = "{ZONE}"\nstatic = "{value}"\n')
    assert any(problem.startswith("a path ") for *_, problem in errors(path))


def test_the_connector_s_path_holds_no_nul_byte(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + '[pdns]\nconnector = "unix:/run/a\\u0000b"\n')
    *_, key, problem = one_error(path)
    assert key == "pdns.connector"
    assert "NUL" in problem


def test_a_wrong_registrar_is_told_once_with_host_and_port(tmp_path: Path) -> None:
    file = tmp_path / "rspdns.toml"
    file.write_text('registrars = ["x:99999"]\n')
    with pytest.raises(ConfigurationErrors) as error:
        load_configuration(file)
    assert (
        "registrars[0]: registrar 'x:99999': 'x' is not an IP address and port 99999 is not in 1..65535\n"
        in f"{error.value}\n"
    )


SHARED = 'registrars = ["10.0.0.1", "10.0.0.1:3864"]\n'


def test_followed_registrars_have_enrp_ports_of_their_own(tmp_path: Path) -> None:
    _, line, key, problem = one_error(write(tmp_path, SHARED))
    assert (line, key) == (1, "registrars[1]")
    assert "10.0.0.1:3864/9902" in problem
    assert 'follow = "poll"' in problem
    assert load_configuration(write(tmp_path, SHARED + 'follow = "poll"\n')).follow == "poll"
    config = load_configuration(write(tmp_path, SHARED.replace("3864", "3864/9902")))
    assert config.follow == "enrp", "the default"
    assert [one.enrp_port for one in config.registrar_addresses] == [9901, 9902]
