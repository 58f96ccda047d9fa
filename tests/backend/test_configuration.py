"""rspdns.toml and the zones it leads to."""

from ipaddress import ip_network
from pathlib import Path

import pytest
from daemon_kit.config_file import ConfigurationErrors
from rspdns.configuration import BackendConfig, load_configuration

from rserpool import Protocol, RegistrarAddress
from tests.backend.configuration_files import GOOD, changed, errors, head, only_error, write
from tests.backend.making import FIXED, UDP, ZONE

EXAMPLES = Path(__file__).parents[2] / "backend" / "examples"


def test_the_example_is_good() -> None:
    config = load_configuration(EXAMPLES / "rspdns.toml")
    assert config.registrars == ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    assert [RegistrarAddress.parse(text).asap_port for text in config.all_registrars] == [3863] * 3
    assert config.accept_by_handle.keys() == {"sip-as-udp", "sip-as-tcp"}
    (zone,) = config.zones
    (site,) = zone.sites
    assert (zone.name, site.name) == ("ims.example.net", "as.ims.example.net")
    assert [pool.owner for pool in site.pools] == [
        "_sip._udp.as.ims.example.net",
        "_sip._tcp.as.ims.example.net",
    ]


def test_keys_that_are_left_out_have_their_defaults(tmp_path: Path) -> None:
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
    *location, problem = only_error(tmp_path / "rspdns.toml")
    assert location == ["rspdns.toml", len(main.splitlines()), "zones_dir"]
    assert f"{tmp_path}/elsewhere: the zones directory can't be read" in problem


def test_a_file_that_is_not_there_is_the_only_error(tmp_path: Path) -> None:
    *location, problem = only_error(tmp_path / "rspdns.toml")  # not also zones_dir in a line of no file
    assert location[0] == "rspdns.toml"
    assert problem == "can't be read: No such file or directory"


def test_every_error_of_all_files_is_told_at_once(tmp_path: Path) -> None:
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
    locations = {(file, line, key) for file, line, key, _ in found}
    assert locations >= {
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
    assert len(found) == len(locations) == 17
    problems = {(file, line): problem for file, line, _, problem in found}
    assert "33" in problems["one.toml", 5]
    assert "did you mean 'follow'" in problems["rspdns.toml", 2]
    assert "neither a network nor one host: write '10.20.0.0/16' for the network" in problems["one.toml", 14]


def test_a_file_that_can_not_be_read_is_told_where_it_is_named(tmp_path: Path) -> None:
    main = GOOD + '\nzones_dirr = "x"\n[admin]\nread_tokens = "nowhere"\n'
    found = errors(write(tmp_path, main, one=head("missing") + UDP))
    line = main.splitlines().index('read_tokens = "nowhere"') + 1
    assert [error[:3] for error in found] == [
        ("rspdns.toml", line - 2, "zones_dirr"),
        ("rspdns.toml", line, "admin.read_tokens"),
        ("one.toml", 2, "static"),
    ]
    assert f"{tmp_path}/nowhere: can't be read: No such file" in found[1][3]
    assert f"{tmp_path}/zones.d/missing.zone: can't be read: No such file" in found[2][3]


def test_files_in_zones_d_that_do_not_end_in_toml_are_ignored(tmp_path: Path) -> None:
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
def test_a_connector_open_to_others_and_an_unknown_key_are_refused(
    tmp_path: Path, text: str, key: str, problem: str
) -> None:
    found = only_error(write(tmp_path, GOOD + text))
    assert found[2] == key
    assert found[3].startswith(problem)


@pytest.mark.parametrize("value", ["a\\u0000b", ""])
@pytest.mark.parametrize(
    "text", ["zones_dir = X", "[admin]\nsocket = X", "[state]\npath = X", "[pdns]\ncontrol = [X]"]
)
def test_a_path_the_system_cannot_take_is_an_error(tmp_path: Path, text: str, value: str) -> None:
    problem = only_error(write(tmp_path, GOOD + text.replace("X", f'"{value}"') + "\n"))[3]
    assert problem.startswith("a path ")


def test_the_connector_s_path_holds_no_nul_byte(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + '[pdns]\nconnector = "unix:/run/a\\u0000b"\n')
    *_, key, problem = only_error(path)
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
    _, line, key, problem = only_error(write(tmp_path, SHARED))
    assert (line, key) == (1, "registrars[1]")
    assert "10.0.0.1:3864/9902" in problem
    assert 'follow = "poll"' in problem
    assert load_configuration(write(tmp_path, SHARED + 'follow = "poll"\n')).follow == "poll"
    config = load_configuration(write(tmp_path, SHARED.replace("3864", "3864/9902")))
    assert config.follow == "enrp", "the default"
    assert [RegistrarAddress.parse(text).enrp_port for text in config.all_registrars] == [9901, 9902]


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("deep_per_s = -1", "fastpath.limit.deep_per_s", "0"),
        ("deep_per_s = 5\nslip = 0", "fastpath.limit.slip", "1"),
        ("all_per_s = 5\nipv4_prefix_bits = 33", "fastpath.limit.ipv4_prefix_bits", "32"),
        ("all_per_s = 5\ndepth = 3", "fastpath.limit.depth", "unknown key"),
    ],
)
def test_a_limit_that_can_not_be_kept_is_refused(tmp_path: Path, text: str, key: str, problem: str) -> None:
    *_, where, words = only_error(write(tmp_path, f"{GOOD}[fastpath.limit]\n{text}\n"))
    assert where == key
    assert problem in words
