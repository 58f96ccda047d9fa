"""agent.toml: what is right is read, what is wrong is named, all of it at once."""

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from daemon_kit.config_file import ConfigurationErrors, parse
from daemon_kit.errors import FatalError
from ppe_agent import configuration, consistency
from ppe_agent.configuration import (
    AgentConfig,
    addresses_of,
    control_path,
    load_configuration,
    registered_addresses,
)
from pydantic import ValidationError
from rserpool.policies import WeightedRandom

from rserpool import (
    LeastUsed,
    PoolKey,
    Protocol,
    RegistrarAddress,
    RoundRobin,
    pool_key_line,
    server_key_line,
)

RIGHT = """\
registrars = ["10.20.0.1", "10.20.0.1:3864"]

[[as]]
name = "sip-1"
handle = "sip-as-udp"
transport = "udp"
address = "auto"
port = 5060
policy = "least-used"
[[as.check]]
type = "sip-options"
[[as.check]]
type = "tcp-hold"
port = 5061
fall = 1
[as.load]
source = "file"
path = "/run/sip/load"
"""


@pytest.fixture(autouse=True)
def this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this host be 10.20.0.5 and 10.20.0.6."""
    own = [ip_address("10.20.0.5"), ip_address("10.20.0.6")]
    monkeypatch.setattr(configuration, "is_on_this_host", lambda address: address in own)
    for module in (configuration, consistency):
        monkeypatch.setattr(module, "address_towards", lambda host, port: own[0])


def read(tmp_path: Path, text: str) -> object:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    return load_configuration(file)


def errors_of(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationErrors) as caught:
        read(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/", "").split("\n")


def test_a_right_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text(RIGHT)
    config = load_configuration(tmp_path / "agent.toml")
    assert config.registrars == (RegistrarAddress("10.20.0.1"), RegistrarAddress("10.20.0.1", 3864))
    assert config.reregistration_ms == 2000
    (server,) = config.servers
    assert addresses_of(server, config.registrars[0]) == (ip_address("10.20.0.5"),)
    assert [(check.type, getattr(check, "port", None), check.fall) for check in server.check] == [
        ("sip-options", None, 2),
        ("tcp-hold", 5061, 1),
    ]
    assert server.policy_with(0.25) == LeastUsed(0.25)
    assert config.state.path == Path("/var/lib/ppe-agent")
    assert config.control.path == Path("/run/ppe-agent/control.sock")


@pytest.mark.parametrize(
    ("lines", "policy"),
    [('policy = "round-robin"', RoundRobin()), ('policy = "weighted-random"\nweight = 7', WeightedRandom(7))],
)
def test_each_policy_is_read_with_its_weight_or_load(tmp_path: Path, lines: str, policy: object) -> None:
    text = RIGHT.replace('policy = "least-used"', lines).split("[as.load]")[0]
    (tmp_path / "agent.toml").write_text(text)
    assert load_configuration(tmp_path / "agent.toml").servers[0].policy_with(0.5) == policy


def test_every_error_of_the_file_is_told_at_once(tmp_path: Path) -> None:
    text = """\
registrars = ["10.20.0.1", "registrar.example.net", "10.20.0.1:3863", "127.0.0.1"]
reregistration = 2000

[[as]]
name = "one"
handle = "a-handle-of-33-bytes-aborts-rspre"
transport = "udp"
address = "192.0.2.77"
port = 5060
policy = "weighted-random"

[[as]]
name = "one"
handle = "pool"
transport = "tcp"
address = ["10.20.0.5", "10.20.0.6"]
port = 0
policy = "round-robin"
weight = 3
[[as.check]]
type = "sip-option"
[[as.check]]
type = "tcp-hold"
intervall_ms = 3
fall = 0
[as.load]
source = "cpu"

[[as]]
name = "three/3"
handle = ""
transport = "quic"
port = 1
policy = "least-loaded"
check = []
[as.load]
source = "file"
"""
    assert errors_of(tmp_path, text) == [
        "agent.toml:1: registrars[1]: registrar 'registrar.example.net': not an IP address",
        "agent.toml:1: registrars[2]: 10.20.0.1:3863 is there twice",
        "agent.toml:1: registrars[3]: 127.0.0.1 is not an address that a registrar can use",
        "agent.toml:2: reregistration: unknown key; did you mean 'reregistration_ms'?",
        "agent.toml:4: as[0].check: is missing: write [[as.check]]",
        "agent.toml:4: as[0].weight: is missing; policy weighted-random needs it",
        "agent.toml:6: as[0].handle: a pool handle has 1 to 32 bytes, this one 33 "
        "(is 'a-handle-of-33-bytes-aborts-rspre')",
        "agent.toml:8: as[0].address: 192.0.2.77 is no address of this host; "
        '"auto" takes the one towards the first registrar; a server on another host needs remote = true',
        "agent.toml:13: as[1].name: 'one' is there twice",
        "agent.toml:16: as[1].address: tcp takes one address; several are for sctp",
        "agent.toml:17: as[1].port: must be at least 1 (is 0)",
        "agent.toml:19: as[1].weight: policy round-robin takes no weight",
        "agent.toml:21: as[1].check[0].type: 'sip-option' is unknown; did you mean 'sip-options'?",
        "agent.toml:24: as[1].check[1].intervall_ms: unknown key; did you mean 'interval_ms'?",
        "agent.toml:25: as[1].check[1].fall: must be at least 1 (is 0)",
        "agent.toml:26: as[1].load: policy round-robin carries no load; take least-used, "
        "or leave [as.load] out",
        "agent.toml:30: as[2].name: a name has 1 to 64 letters, digits, '.', '_' or '-' (it names a file) "
        "(is 'three/3')",
        "agent.toml:31: as[2].handle: a pool handle has 1 to 32 bytes, this one 0",
        "agent.toml:32: as[2].transport: 'quic' is none of 'udp', 'tcp', 'sctp'",
        "agent.toml:34: as[2].policy: 'least-loaded' is unknown; did you mean 'least-used'?",
        "agent.toml:35: as[2].check: at least one [[as.check]] is needed",
        'agent.toml:36: as[2].load: source "file" needs a path',
    ]


@pytest.mark.parametrize("length", [1, 32])
def test_handles_that_fit(tmp_path: Path, length: int) -> None:
    read(tmp_path, RIGHT.replace("sip-as-udp", "h" * length))


def test_a_handle_is_measured_in_bytes(tmp_path: Path) -> None:
    assert "this one 34" in errors_of(tmp_path, RIGHT.replace("sip-as-udp", "ä" * 17))[0]


@pytest.mark.parametrize("address", ["0.0.0.0", "224.0.0.1", "fe80::1", "::", "127.0.0.1", "::1"])
def test_addresses_that_are_not_one_host(tmp_path: Path, address: str) -> None:
    (error,) = errors_of(tmp_path, RIGHT.replace("auto", address))
    assert error.startswith(
        f"agent.toml:7: as[0].address: {address} is not an address at which others reach this host"
    )


def test_every_wrong_address_is_told(tmp_path: Path) -> None:
    several = '["192.0.2.1", "zzz", "0.0.0.0"]'
    error, _ = errors_of(tmp_path, RIGHT.replace('"auto"', several))
    assert "192.0.2.1 is no address of this host; 'zzz' is no IP address; 0.0.0.0 is not" in error


def with_another(first: str, second: str, port: str = "5060") -> str:
    """Return a file with two servers of a pool, which differ in nothing else than this."""
    other = RIGHT.split("\n\n")[1].replace("sip-1", "sip-2").replace("port = 5060", f"port = {port}")
    return (RIGHT.replace('"auto"', first) + other.replace('"auto"', second)).replace('"udp"', '"sctp"')


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ('"auto"', '"auto"', "10.20.0.5"),
        ('"auto"', '"10.20.0.5"', "10.20.0.5"),
        ('["10.20.0.5"]', '"10.20.0.5"', "10.20.0.5"),
        ('["10.20.0.5", "10.20.0.6"]', '["10.20.0.6", "10.20.0.5"]', "10.20.0.5, 10.20.0.6"),
        ('["10.20.0.5", "10.20.0.6"]', '"10.20.0.6"', "10.20.0.6"),
        ('"2001:db8::1"', '"2001:DB8:0::0:1"', "2001:db8::1"),
    ],
)
def test_the_same_server_twice_in_a_pool_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, second: str, shared: str
) -> None:
    monkeypatch.setattr(configuration, "is_on_this_host", lambda address: True)
    (error,) = errors_of(tmp_path, with_another(first, second))
    assert (
        error == f"agent.toml:24: as[1].port: the same pool, transport, address ({shared}) and port as in "
        "another [[as]]"
    )


def test_the_same_server_twice_where_the_registrars_are_not_known_yet(tmp_path: Path) -> None:
    multicast = 'registrars = "multicast"\n[multicast]\naccept = ["10.20.0.0/24"]\n'
    servers = with_another('"auto"', '"auto"').split("\n", 1)[1]
    (error,) = errors_of(tmp_path, multicast + servers)
    assert "address (auto) and port" in error


@pytest.mark.parametrize("group", ["10.20.0.1:3863", "[ff02::50]:3863", "[ff01::50]:3863"])
def test_a_group_to_which_no_registrar_can_announce_itself(tmp_path: Path, group: str) -> None:
    accept = "2001:db8::/64" if "[" in group else "10.20.0.0/24"
    multicast = f'registrars = "multicast"\n[multicast]\naccept = ["{accept}"]\ngroup = "{group}"\n'
    (error,) = errors_of(tmp_path, multicast + RIGHT.split("\n", 1)[1])
    assert error.startswith("agent.toml:4: multicast.group: ")
    assert "ff05::50" in error


@pytest.mark.parametrize(
    ("accept", "group", "wrong"),
    [
        (
            '["10.20.0.0/24", "2001:db8::/64"]',
            "",
            "2001:db8::/64 is not IPv4 as the group 239.0.0.50",
        ),
        ('["10.20.0.0/24"]', 'group = "[ff05::50]:3863"', "10.20.0.0/24 is not IPv6 as the group [ff05::50]"),
    ],
)
def test_networks_from_which_no_announcement_comes(
    tmp_path: Path, accept: str, group: str, wrong: str
) -> None:
    multicast = f'registrars = "multicast"\n[multicast]\n{group}\naccept = {accept}\n'
    (error,) = errors_of(tmp_path, multicast + RIGHT.split("\n", 1)[1])
    position = accept.count(",")
    assert error.startswith(f"agent.toml:4: multicast.accept[{position}]: {wrong}")


def test_two_servers_on_one_host_may_differ_in_address_or_port(tmp_path: Path) -> None:
    read(tmp_path, with_another('"auto"', '"10.20.0.6"'))
    read(tmp_path, with_another('"auto"', '["10.20.0.5"]', "5070"))


def test_an_address_twice_in_a_server_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "is_on_this_host", lambda address: True)
    text = RIGHT.replace('"auto"', '["2001:db8::1", "2001:db8:0::1"]').replace('"udp"', '"sctp"')
    assert errors_of(tmp_path, text) == ["agent.toml:7: as[0].address: an address is there twice"]


def test_members_of_a_pool_that_do_not_agree(tmp_path: Path) -> None:
    other = RIGHT.split("\n\n")[1].replace("sip-1", "sip-2").replace("5060", "5070").split("[as.load]")[0]
    text = RIGHT + other.replace('"udp"', '"tcp"').replace("least-used", "random")
    assert errors_of(tmp_path, text) == [
        "agent.toml:22: as[1].transport: 'tcp', but pool 'sip-as-udp' above has 'udp': all must agree",
        "agent.toml:25: as[1].policy: 'random', but pool 'sip-as-udp' above has 'least-used': all must agree",
    ]


def test_the_control_socket_is_found_in_a_file_with_errors(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('nonsense = 1\n[control]\npath = "/run/mine.sock"')
    assert control_path(file) == Path("/run/mine.sock")
    file.write_text("[control]")
    assert control_path(file) == Path("/run/ppe-agent/control.sock")
    file.write_text("[control")
    with pytest.raises(ConfigurationErrors, match=":1: not TOML"):
        control_path(file)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[control]\npath = 3", "agent.toml:2: control.path: must be text, in quotes"),
        ('[control]\npath = ""', "agent.toml:2: control.path: a path is not empty"),
        ('[control]\npath = "/run/\\u0000"', "agent.toml:2: control.path: a path holds no NUL byte"),
        ('control = "/run/mine.sock"', "agent.toml:1: control: must be a table: [control]"),
    ],
)
def test_a_control_socket_that_is_none_is_not_replaced_by_another(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationErrors) as caught:
        control_path(file)
    assert str(caught.value) == f"{tmp_path}/{problem}"


@pytest.mark.parametrize(
    "text", ["", "as = 3\nregistrars = 3", "[as]\nname = 3", "registrars = []\nas = [3]"]
)
def test_files_of_the_wrong_shape_are_refused(tmp_path: Path, text: str) -> None:
    assert errors_of(tmp_path, text)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('handle = "sip-as-udp"', 'pool = "sip-as-udp"', "as[0].pool: unknown key; did you mean 'handle'?"),
        (
            'transport = "udp"',
            'protocol = "udp"',
            "as[0].protocol: unknown key; did you mean 'transport'?",
        ),
        ('"sip-options"', '"tcphold"', "as[0].check[0].type: 'tcphold' is unknown; did you mean 'tcp-hold'?"),
        ('"sip-options"', '"command"', "as[0].check[0].type: 'command' is unknown; did you mean 'exec'?"),
        ('"sip-options"', '"Service"', "as[0].check[0].type: 'Service' is unknown; did you mean 'systemd'?"),
        ("port = 5060", 'port = "sip"', "as[0].port: must be a whole number (is 'sip')"),
        ("port = 5060", "port = 5060.5", "as[0].port: must be a whole number (is 5060.5)"),
        ("port = 5060", "port = [5060]", "as[0].port: must be a whole number"),
        ('handle = "sip-as-udp"', "handle = 5060", "as[0].handle: must be text, in quotes (is 5060)"),
        (
            "port = 5060",
            'port = 5060\npolicy = "least_used"',
            "as[0].policy: 'least_used' is unknown; did you mean 'least-used'?",
        ),
        (
            'type = "sip-options"',
            'type = "exec"\ncommand = "asterisk -rx status"',
            "as[0].check[0].command: must be a list, the program and its arguments: "
            '["asterisk", "-rx", "status"]',
        ),
        (
            'type = "sip-options"',
            'type = "exec"\ncommand = "asterisk -rx \'core show channels\' | grep 1"',
            "as[0].check[0].command: must be a list, the program and its arguments: "
            '["/bin/sh", "-c", "asterisk -rx \'core show channels\' | grep 1"]',
        ),
    ],
)
def test_a_nearly_right_key_or_value_of_the_agent_is_told_how_it_is_written(
    before: str, after: str, words: str
) -> None:
    text = (
        'registrars = ["10.0.0.1"]\n[[as]]\nname = "one"\nhandle = "sip-as-udp"\ntransport = "udp"\n'
        'port = 5060\n[[as.check]]\ntype = "sip-options"\n'
    )
    with pytest.raises(ConfigurationErrors) as found:
        parse(text.replace(before, after), "agent.toml", AgentConfig)
    assert words in str(found.value)


def test_a_number_in_quotes_is_that_number(tmp_path: Path) -> None:
    text = RIGHT.replace("port = 5060", 'port = "5060"')
    assert read(tmp_path, text) == read(tmp_path, RIGHT)


@pytest.mark.parametrize("table", ["state", "control"])
@pytest.mark.parametrize("path", ["/run/a\0b", ""])
def test_a_path_the_system_cannot_take_is_refused(table: str, path: str) -> None:
    with pytest.raises(ValidationError, match="a path "):
        AgentConfig.model_validate({"registrars": ["10.0.0.1"], table: {"path": path}})


def test_the_installed_example_is_right() -> None:
    found = load_configuration(Path(__file__).resolve().parents[2] / "ppe-agent" / "examples" / "agent.toml")
    assert [server.name for server in found.servers] == ["sip-1"]
    assert len(found.registrars) == 3


REMOTE = """\
registrars = ["10.20.0.1"]
[[as]]
name = "far"
handle = "sip-as-udp"
transport = "udp"
remote = true
address = "10.30.0.7"
port = 5060
policy = "round-robin"
[[as.check]]
type = "sip-options"
"""


def test_a_remote_server_serves_at_its_address_and_is_registered_at_this_hosts(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text(REMOTE)
    config = load_configuration(tmp_path / "agent.toml")
    (server,) = config.servers
    assert addresses_of(server, config.registrars[0]) == (ip_address("10.30.0.7"),)
    assert registered_addresses(server, config.registrars[0]) == (ip_address("10.20.0.5"),)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('address = "10.30.0.7"\n', "", "remote = true needs the server's own address"),
        ('"10.30.0.7"', '"2001:db8::7"', "takes an IPv4 address only"),
        ('"10.30.0.7"', '"10.20.0.5"', "is an address of this host: leave remote = true out"),
        ("remote = true", "remote = false", "a server on another host needs remote = true"),
        ("sip-options", "process", '"process" looks at this host, but the server is remote'),
        ("sip-options", "tcp-hold", "tcp-hold alone does not see that the server's host is silent"),
        ("round-robin", "least-used", 'the load "cpu" would be this host\'s, but the server is remote'),
    ],
)
def test_a_setting_that_a_remote_server_can_not_have_is_an_error(
    tmp_path: Path, old: str, new: str, told: str
) -> None:
    assert any(told in error for error in errors_of(tmp_path, REMOTE.replace(old, new)))


def test_servers_of_one_pool_are_all_remote_or_none(tmp_path: Path) -> None:
    """The zone takes all that a host of `remote_agents` registers for remote."""
    second = RIGHT.partition("\n\n")[2].replace('policy = "least-used"', 'policy = "round-robin"')
    second = second.partition("[as.load]")[0]
    (told,) = errors_of(tmp_path, f"{REMOTE}{second}")
    assert "remote: False, but pool 'sip-as-udp' above has True" in told


def test_a_relayed_server_is_on_this_host_and_not_reached_over_sctp(tmp_path: Path) -> None:
    local = REMOTE.replace('remote = true\naddress = "10.30.0.7"\n', "relay = true\n")
    local = local.replace(
        '[[as.check]]\ntype = "sip-options"', '[[as.check]]\ntype = "sip-options"\n[as.load]\nsource = "none"'
    )
    relay = '[relay]\naccept = ["10.1.0.0/16"]\n'
    (tmp_path / "agent.toml").write_text(local + relay)
    found = load_configuration(tmp_path / "agent.toml").relay
    assert found is not None
    assert (found.port, found.networks) == (4630, (ip_network("10.1.0.0/16"),))
    assert "needs [relay] with accept" in errors_of(tmp_path, local)[0]
    assert (
        "is for servers on this host"
        in errors_of(tmp_path, REMOTE.replace("remote = true", "remote = true\nrelay = true") + relay)[0]
    )
    over_sctp = local.replace('"udp"', '"sctp"').replace("sip-options", "tcp")
    assert any("is for TCP and UDP" in error for error in errors_of(tmp_path, over_sctp + relay))


SERVER_KEY = server_key_line(PoolKey(bytes(32)).server_key(Protocol.UDP, ip_address("10.1.2.3"), 5060))


def test_a_key_file_is_read_and_gives_the_last_key_of_the_server(tmp_path: Path) -> None:
    file = tmp_path / "server.key"
    newer = server_key_line(PoolKey(b"\x01" * 32).server_key(Protocol.UDP, ip_address("10.1.2.3"), 5060))
    file.write_text(f"{SERVER_KEY}\n{newer}\n")
    file.chmod(0o640)
    (tmp_path / "agent.toml").write_text(RIGHT.replace("[[as]]", f'[[as]]\nkey = "{file}"', 1))
    found = load_configuration(tmp_path / "agent.toml").servers[0].key
    assert found is not None
    assert server_key_line(found.of(Protocol.UDP, (ip_address("10.1.2.3"),), 5060)) == newer
    with pytest.raises(FatalError, match=r"holds no key for udp 10.1.2.4 5060: rspdns key derive FILE udp"):
        found.of(Protocol.UDP, (ip_address("10.1.2.4"),), 5060)
    assert newer.split()[-1] not in repr(found)


def test_a_key_is_nothing_for_a_remote_server_nor_a_key_of_the_whole_pool(tmp_path: Path) -> None:
    file = tmp_path / "pool.key"
    file.write_text(f"{pool_key_line(PoolKey(bytes(32)))}\n")
    file.chmod(0o600)
    told = errors_of(tmp_path, REMOTE.replace("[[as]]", f'[[as]]\nkey = "{file}"', 1))
    assert any("has no use for a remote server" in error for error in told)
    assert any("is the key of the whole pool, which no sidecar may hold" in error for error in told)


CELLS = RIGHT.replace(
    'registrars = ["10.20.0.1", "10.20.0.1:3864"]\n',
    """[[handlespace]]
name = "eu"
registrars = ["10.20.0.1", "10.20.0.2"]
[[handlespace]]
name = "us"
registrars = ["10.20.1.1"]
""",
)


def test_each_server_has_the_registrars_of_its_handlespace(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text(CELLS.replace("port = 5060", 'port = 5060\nhandlespace = "us"'))
    config = load_configuration(tmp_path / "agent.toml")
    (server,) = config.servers
    assert config.registrars_of(server) == (RegistrarAddress("10.20.1.1"),)
    assert [each.host for each in config.all_registrars] == ["10.20.0.1", "10.20.0.2", "10.20.1.1"]
    assert server.pool == "us/sip-as-udp"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (CELLS, "agent.toml:8: as[0]: needs handlespace: there are several, eu, us"),
        (
            CELLS.replace("port = 5060", 'port = 5060\nhandlespace = "north"'),
            "agent.toml:14: as[0].handlespace: north: no [[handlespace]] has this name",
        ),
        (
            CELLS.replace("10.20.1.1", "10.20.0.2").replace("port = 5060", 'port = 5060\nhandlespace = "us"'),
            "agent.toml:6: handlespace[1].registrars[0]: 10.20.0.2 is in another handlespace already",
        ),
        ('registrars = ["10.20.0.9"]\n' + CELLS, "agent.toml:1: registrars: goes without [[handlespace]]"),
        (RIGHT.partition("\n")[2], "registrars are missing"),
    ],
)
def test_wrong_handlespaces_are_told(tmp_path: Path, text: str, words: str) -> None:
    assert any(words in line for line in errors_of(tmp_path, text)), errors_of(tmp_path, text)
