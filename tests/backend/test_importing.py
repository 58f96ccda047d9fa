"""`rspdns import`: what is carried over, what is not and why. The real programs take what is written."""

import json
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rspdns.cli import main
from rspdns.configuration import load_configuration
from rspdns.importing import vscf
from rspdns.importing.model import ImportProblem
from rspdns.zones.configuration import PoolConfig

from tests.support.namespaces import Namespace, own_namespace

REGISTRARS = ("--registrar", "10.99.0.1", "--registrar", "10.99.0.11", "--registrar", "10.99.0.12")
GDNSD = """\
options => { listen => 127.0.0.1, dns_port => 5399, run_dir => "FOLDER/run", state_dir => "FOLDER/state" }
service_types => {
  web => { plugin => "http_status", vhost => "www.example.com", url_path => "/checkme", interval => 2 }
  sip = { plugin = tcp_connect port = 5060 } # as gdnsd's own examples have it
  odd => { plugin => "http_status", ok_codes => [ 200, 302 ] }
}
plugins => {
  multifo => {
    sip => { service_types => sip, lb01 => 10.99.0.2, lb02 => 10.99.0.3 }
    both => {
      service_types = [ sip ]
      addrs_v4 => [ 10.99.0.2, 10.99.0.4 ], addrs_v6 => { a => 2001:db8::1 }
    }
    bare => [ 10.99.0.9 ]
    odd => { service_types => odd, a => 10.99.0.2 }
    careless => { service_types => sip, ignore_health => true, a => 10.99.0.2 }
  }
  weighted => {
    service_types => web
    corp => { lb01 => [ 10.99.0.2, 60 ], lb02 => [ 10.99.0.3, 40 ] }
    cdn => { dc1 => { a => [ 127.0.0.1, 2 ] }, dc2 => { b => [ 127.0.0.2, 2 ] } }
    cn => { service_types => up, foo => [ lb01.example.org., 99 ] }
  }
  simplefo => { fo => { service_types => sip, primary => 10.99.0.2, secondary => 10.99.0.3 } }
  metafo => { resources => {
    tiers => {
      datacenters => [ dc1, dc2 ],
      dcmap => { dc1 => %multifo!sip, dc2 => { service_types => sip, x => 10.99.0.4 } }
    }
  } }
}
"""
GDNSD_ZONE = """\
@ SOA ns1 hostmaster 1 7200 1800 259200 900
@ NS ns1
ns1 A 10.99.0.53
sip 300/30 DYNA multifo!sip
both 300 DYNA multifo!both
bare 300 DYNA multifo!bare
odd 300 DYNA multifo!odd
careless 300 DYNA multifo!careless
corp 300 DYNC weighted!corp
cdn 300 DYNA weighted!cdn
cn 300 DYNC weighted!cn
fo 60 DYNA simplefo!fo
tiers 60 DYNA metafo!tiers
@ MX 10 corp
"""
LUA_ZONE = """\
$ORIGIN .
example.org 3600 IN SOA ns1.example.org. hostmaster.example.org. 1 10800 3600 604800 3600
example.org 3600 IN NS ns1.example.org.
ns1.example.org 3600 IN A 192.0.2.53
www.example.org 60 IN LUA A "ifportup(443, {'192.0.2.1', '192.0.2.2'})"
www.example.org 60 IN LUA AAAA "ifportup(443, {'2001:db8::1'})"
tiers.example.org 60 IN LUA A ( "ifurlup('https://w.example.org/up?x=1', {{'192.0.2.1', '192.0.2.2'}, "
  "{'198.51.100.1'}}, {stringmatch='OK', timeout=2})" )
near.example.org 60 IN LUA A "ifportup(443, {'192.0.2.1'}, {selector='pickclosest'})"
any.example.org 60 IN LUA A "pickwrandom({{10,'192.0.2.1'}, {90,'192.0.2.2'}})"
kept.example.org 60 IN LUA A "pickwhashed({{10,'192.0.2.1'}, {90,'192.0.2.2'}})"
logic.example.org 60 IN LUA A ";if country('DE') then return '192.0.2.1' else return '192.0.2.2' end"
text.example.org 60 IN LUA TXT "os.date()"
"""
DEFINITIONS = {
    "services": [
        {
            "name": "web",
            "id": "web-1",
            "address": "192.0.2.1",
            "port": 8080,
            "socket_path": "/run/web.sock",
            "weights": {"passing": 10, "warning": 1},
            "checks": [
                {"http": "http://localhost:8080/health", "interval": "5s"},
                {"tcp": "192.0.2.1:8080"},
            ],
        },
        {"name": "web", "address": "192.0.2.2", "port": 8080, "check": {"tcp": "127.0.0.1:8080"}},
        {"name": "rpc", "address": "192.0.2.1", "port": 9000, "check": {"grpc": "127.0.0.1:9000"}},
        {"name": "lone", "port": 9000},
        {"name": "Bad_Name", "address": "192.0.2.1", "port": 9000},
    ]
}
HEALTH = [
    {
        "Node": {"Node": "n1", "Address": "192.0.2.7"},
        "Service": {
            "ID": "db1",
            "Service": "db",
            "Address": "",
            "Port": 5432,
            "Weights": {"Passing": 3, "Warning": 3},
        },
        "Checks": [
            {"CheckID": "serfHealth", "ServiceID": ""},
            {"CheckID": "c", "Name": "port", "ServiceID": "db1", "Definition": {"TCP": "192.0.2.7:5432"}},
        ],
    }
]
CATALOG = [
    {
        "Address": "192.0.2.8",
        "ServiceID": "db2",
        "ServiceName": "db",
        "ServiceAddress": "",
        "ServicePort": 5432,
    }
]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["import", *map(str, arguments)])


def gdnsd_files(folder: Path) -> Path:
    made = folder / "gdnsd"
    (made / "zones").mkdir(parents=True)
    for part in ("run", "state"):
        (made / part).mkdir()
    (made / "config").write_text(GDNSD.replace("FOLDER", str(made)))
    (made / "zones" / "example.com").write_text(GDNSD_ZONE)
    return made


def pools_of(directory: Path) -> dict[str, PoolConfig]:
    """The pools of an imported configuration, as the backend reads it."""
    (zone,) = load_configuration(directory / "rspdns.toml").zones
    return {pool.config.name: pool.config for site in zone.sites for pool in site.pools}


def agent_of(directory: Path, address: str, handle: str) -> str:
    text = (directory / "agents" / address / "agent.toml").read_text()
    (part,) = [part for part in text.split("[[as]]")[1:] if f'handle = "{handle}"' in part]
    return part


def test_gdnsd_is_carried_over_and_the_rest_is_told_with_its_line(tmp_path: Path) -> None:
    into = tmp_path / "new"
    done = run("gdnsd", gdnsd_files(tmp_path), "--into", into, *REGISTRARS)
    assert done.exit_code == 0, done.output
    pools = pools_of(into)
    assert set(pools) == {"sip", "both", "corp", "fo", "tiers"}
    assert {name: str(pool.service) for name, pool in pools.items()} == {
        **dict.fromkeys(("sip", "both", "fo", "tiers"), "_sip._tcp"),
        "corp": "_http._tcp",
    }
    assert [pools[name].max_addresses for name in ("sip", "corp", "fo")] == [2, 1, 1]
    corp = agent_of(into, "10.99.0.2", "corp-http")
    for line in (
        'policy = "weighted-random"',
        "weight = 60",
        'type = "http"',
        'path = "/checkme"',
        'host = "www.example.com"',
        "status = [200, 200]",
    ):
        assert line in corp
    assert "priority = 2" in agent_of(into, "10.99.0.2", "tiers-sip")
    assert "priority = 1" in agent_of(into, "10.99.0.4", "tiers-sip")
    told = [
        line.partition("zones/")[2] for line in done.output.splitlines() if line.startswith("not carried")
    ]
    assert [line.partition(" ")[0] for line in told] == [f"example.com:{n}:" for n in (6, 7, 8, 10, 11)]
    for number, why in enumerate(
        ("say --check tcp and --port", "ok_codes 200, 302", "ignore_health", "is a group", "is no address")
    ):
        assert why in told[number]
    report = (into / "REPORT.txt").read_text()
    assert all(line in report for line in told)
    assert "up_thresh 0.5: all servers are answered when none lives" in report
    zone = (into / "zones.d" / "example.com.zone").read_text()
    assert "@ 86400 IN MX 10 corp.example.com." in zone, "gdnsd's default TTL"
    assert "fo 60 IN A 10.99.0.2" in zone
    assert "fo 60 IN A 10.99.0.3" not in zone, "gdnsd answers the primary when both are dead"


def test_option_of_import_stands_in_for_a_check_that_is_missing(tmp_path: Path) -> None:
    into = tmp_path / "new"
    done = run("gdnsd", gdnsd_files(tmp_path), "--into", into, *REGISTRARS, "--check", "tcp", "--port", 8080)
    assert done.exit_code == 0, done.output
    assert pools_of(into)["bare"].service == "_port8080._tcp"
    assert "port = 8080" in agent_of(into, "10.99.0.9", "bare-port8080")


def test_nothing_is_written_over_and_nothing_by_halves(tmp_path: Path) -> None:
    source = gdnsd_files(tmp_path)
    (tmp_path / "there").mkdir()
    done = run("gdnsd", source, "--into", tmp_path / "there", *REGISTRARS)
    assert (done.exit_code, "is there already" in done.output) == (1, True)
    assert not list((tmp_path / "there").iterdir())
    (source / "zones" / "example.com").write_text(
        "@ SOA a b 1 2 3 4 5\n_x._tcp.corp SRV 0 0 1 a\ncorp CNAME a\ncorp 1 DYNA weighted!corp\n"
    )
    done = run("gdnsd", source, "--into", tmp_path / "new", *REGISTRARS)
    assert done.exit_code == 1, done.output
    (source / "zones" / "example.com").write_text("@ SOA a b 1 2 3 4 5\ncdn 1 DYNA weighted!cdn\n")
    done = run("gdnsd", source, "--into", tmp_path / "new", *REGISTRARS)
    assert "nothing can be carried over" in done.output
    (source / "config").write_text("plugins => {\n  weighted => {\n")
    done = run("gdnsd", source, "--into", tmp_path / "new", *REGISTRARS)
    assert "config:2: the file ends too soon" in done.output
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["gdnsd", "there"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a => { b", "x:1: after the key 'b' belongs =>"),
        ("a => 1\na => 2", "x:2: 'a' is there twice"),
        ("a => ]", "x:1: ']' can't stand here"),
        ("a => $include{y}", "x:1: $include of y: No such file"),
        ("\n$include{y/*}", "x:2: $include{y/*}: no such file"),
        ("a => " + "[" * 100, "too many brackets"),
        ("=> 1", "x:1: '=>' stands where a key belongs"),
    ],
)
def test_error_in_gdnsds_configuration_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(ImportProblem) as caught:
        vscf.read(text, "x")
    assert told in str(caught.value)


def test_gdnsds_files_that_include_each_other_are_read_as_gdnsd_reads_them(tmp_path: Path) -> None:
    """A file as a value, a file and a folder among keys; comments of both kinds; escapes outside quotes."""
    (tmp_path / "plugins.d").mkdir()
    for name, text in (
        ("config", 'a => 15 ; b => no key, a comment\n$include{plugins.d}\nc => $include{ "list" } # d\n'),
        ("list", "[ 192.0.2.1, white\\ space ]"),
        ("plugins.d/one", "d => { e => \\092=== }".replace("\\092===", "\\092\\=x") + "\n$include{../two*}"),
        ("two.cfg", "f => 1"),
    ):
        (tmp_path / name).write_text(text)
    found = vscf.read((tmp_path / "config").read_text(), str(tmp_path / "config"))
    assert list(found.values) == ["a", "d", "f", "c"]
    c, d, f = found.values["c"], found.values["d"], found.values["f"]
    assert isinstance(c, vscf.Array)
    assert [item.text for item in c.values if isinstance(item, vscf.Text)] == ["192.0.2.1", "white space"]
    assert isinstance(d, vscf.Hash)
    assert isinstance(e := d.values["e"], vscf.Text)
    assert (e.text, e.found_at.file) == ("\\=x", str(tmp_path / "plugins.d" / "one"))
    assert f.found_at.file.endswith("two.cfg")
    (tmp_path / "two.cfg").write_text("$include{plugins.d}")
    with pytest.raises(ImportProblem, match="too many files within each other"):
        vscf.read((tmp_path / "config").read_text(), str(tmp_path / "config"))


def test_what_no_zone_of_gdnsd_names_is_told_and_zones_without_pools(tmp_path: Path) -> None:
    source = gdnsd_files(tmp_path)
    config = (source / "config").read_text()
    config = config.replace("port = 5060 }", "port = 5060\n proxy => yes }").replace(
        "bare =>", "spare => [ 10.99.0.8 ]\n    bare =>"
    )
    (source / "config").write_text(config)
    (source / "zones" / "fixed.example").write_text("@ SOA a b 1 2 3 4 5\n@ NS a\na A 192.0.2.1\n")
    done = run("gdnsd", source, "--into", tmp_path / "new", *REGISTRARS)
    assert done.exit_code == 0, done.output
    lines = dict(enumerate(config.splitlines(), start=1))
    (spare,) = [number for number, line in lines.items() if "spare" in line]
    (proxy,) = [number for number, line in lines.items() if "proxy" in line]
    for told in (
        f"config:{spare}: multifo!spare: no record of a zone names it",
        f"config:{proxy}: service type sip, proxy: it has no counterpart",
        "fixed.example: it has no DYNA or DYNC record",
    ):
        assert told in done.output
    assert not (tmp_path / "new" / "zones.d" / "fixed.example.toml").exists()


def test_powerdns_lua_records_become_pools_and_the_rest_is_reported(tmp_path: Path) -> None:
    (tmp_path / "zone").write_text(LUA_ZONE)
    into = tmp_path / "new"
    done = run("powerdns", tmp_path / "zone", "--into", into, *REGISTRARS)
    assert done.exit_code == 0, done.output
    pools = pools_of(into)
    assert {name: (str(pool.service), pool.max_addresses) for name, pool in pools.items()} == {
        "www": ("_https._tcp", 1),
        "tiers": ("_https._tcp", 1),
    }
    assert "port = 443" in agent_of(into, "2001-db8--1", "www-https"), "A and AAAA are one pool"
    first = agent_of(into, "192.0.2.2", "tiers-https")
    for line in ("priority = 2", 'path = "/up?x=1"', 'host = "w.example.org"', 'contains = "OK"'):
        assert line in first
    assert "priority = 1" in agent_of(into, "198.51.100.1", "tiers-https")
    for number, why in (
        (9, "selector 'pickclosest' has no counterpart"),
        (10, "say --port and --check tcp"),
        (11, "say --port and --check tcp"),
        (12, "more than one call with literals"),
        (13, "LUA records of type TXT"),
    ):
        assert any(f"zone:{number}:" in told and why in told for told in done.output.splitlines())
    assert "timeout = 2 is left out" in (into / "REPORT.txt").read_text()


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ("\"ifurlup('http://[::1', {{'192.0.2.1'}})\"", "is no URL"),
        ("", "the type of the answer and a snippet in quotes"),
        ("\"ifportup(99999, {'192.0.2.1'})\"", "99999 is no port"),
        ("\"ifportup(443, '192.0.2.1')\"", "no list"),
        ("\"pickwrandom({{'x','192.0.2.1'}})\"", "say --port"),
    ],
)
def test_one_lua_record_that_is_wrong_leaves_the_others(tmp_path: Path, record: str, why: str) -> None:
    (tmp_path / "zone").write_text(f"{LUA_ZONE}wrong.example.org 60 IN LUA A {record}\n")
    done = run("powerdns", tmp_path / "zone", "--into", tmp_path / "new", *REGISTRARS)
    assert done.exit_code == 0, done.output
    number = LUA_ZONE.count("\n") + 1
    assert any(f"zone:{number}: wrong" in told and why in told for told in done.output.splitlines())
    assert "www" in pools_of(tmp_path / "new")


def test_zone_files_of_gdnsd_that_include_others(tmp_path: Path) -> None:
    """Relative to the including file; @Z and @F are the zone; a missing file is told with its line."""
    source = gdnsd_files(tmp_path)
    zones = source / "zones"
    (zones / "parts").mkdir()
    (zones / "example.com").write_text(
        "@ SOA ns1 host 1 7200 1800 259200 900\n@Z NS ns1.@F\nns1 A 10.99.0.53\n$INCLUDE parts/one sub\n"
    )
    (zones / "parts" / "one").write_text(
        "\nsip 300/30 DYNA multifo!sip\n$INCLUDE two\ncdn 300 DYNA weighted!cdn\n"
    )
    (zones / "parts" / "two").write_text("www.@Z A 192.0.2.7\n")
    done = run("gdnsd", source, "--into", tmp_path / "new", *REGISTRARS)
    assert done.exit_code == 0, done.output
    assert set(pools_of(tmp_path / "new")) == {"sip.sub"}
    assert "parts/one:4: cdn.sub DYNA" in done.output
    fixed = (tmp_path / "new" / "zones.d" / "example.com.zone").read_text()
    assert "www 86400 IN A 192.0.2.7" in fixed
    assert "@ 86400 IN NS ns1.example.com." in fixed
    (zones / "parts" / "two").unlink()
    done = run("gdnsd", source, "--into", tmp_path / "again", *REGISTRARS)
    assert "parts/one:3: $INCLUDE of" in done.output


def test_directives_that_only_gdnsd_has_are_named_and_all_else_is_carried_over(tmp_path: Path) -> None:
    source = gdnsd_files(tmp_path)
    (source / "zones" / "example.com").write_text(
        "@ SOA ns1 host 1 7200 1800 259200 900\n@ NS ns1\nns1 A 10.99.0.53\n"
        "$ADDR_LIMIT_V4 1\nsip DYNA multifo!sip\n"
    )
    done = run("gdnsd", source, "--into", tmp_path / "new", *REGISTRARS)
    assert done.exit_code == 0, done.output
    assert set(pools_of(tmp_path / "new")) == {"sip"}
    assert "example.com:4: $ADDR_LIMIT_V4 1" in done.output


def test_a_record_that_cannot_be_read_is_told_with_its_line(tmp_path: Path) -> None:
    source = gdnsd_files(tmp_path)
    zone = source / "zones" / "example.com"
    zone.write_text("@ SOA ns1 host 1 7200 1800 259200 900\n@ NS ns1\nns1 A 10.99.0.53.7\nx A 10.99.0.1\n")
    done = run("gdnsd", source, "--into", tmp_path / "new", *REGISTRARS)
    assert done.exit_code != 0
    assert re.search(rf"{zone}:[34], or the record before: ", done.output)
    assert done.output.count(str(zone)) == 1


def test_powerdns_weights_with_the_port_that_the_user_says(tmp_path: Path) -> None:
    (tmp_path / "zone").write_text(LUA_ZONE)
    into = tmp_path / "new"
    done = run("powerdns", tmp_path / "zone", "--into", into, *REGISTRARS, "--port", 80, "--check", "tcp")
    assert done.exit_code == 0, done.output
    assert {"any", "kept"} <= set(pools_of(into))
    assert "weight = 90" in agent_of(into, "192.0.2.2", "any-http")
    assert "a client is not kept at one server" in (into / "REPORT.txt").read_text()


def test_consul_definitions_and_answers_of_its_api(tmp_path: Path) -> None:
    for name, document in (("services", DEFINITIONS), ("health", HEALTH), ("catalog", CATALOG)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    listed = ",\n".join(json.dumps(definition) for definition in DEFINITIONS["services"])
    mesh = '{"name": "mesh", "kind": "connect-proxy", "port": 1}'
    (tmp_path / "services.json").write_text(f'{{"services": [\n{{"name": "x"}},\n\n{mesh},\n{listed}]}}')
    into = tmp_path / "new"
    files = sorted(tmp_path.glob("*.json"))
    more = ("--zone", "service.example.net", "--ns", "ns1=192.0.2.53")
    done = run("consul", *files, "--into", into, *REGISTRARS, *more)
    assert done.exit_code == 0, done.output
    pools = pools_of(into)
    assert {name: str(pool.service) for name, pool in pools.items()} == {"web": "_web._tcp", "db": "_db._tcp"}
    first = agent_of(into, "192.0.2.1", "web-web")
    for line in ("weight = 10", 'type = "http"', 'path = "/health"', 'type = "tcp"', "port = 8080"):
        assert line in first
    assert "weight = 3" in agent_of(into, "192.0.2.7", "db-db")
    for what, why in (
        ("service rpc", "grpc has no counterpart"),
        ("services.json:4: service mesh", "a connect-proxy of the mesh is no server"),
        ("service lone", "it has no address of its own"),
        ("service bad_name", "is no DNS label"),
        ("service db2", "say --check tcp"),
    ):
        assert any(what in told and why in told for told in done.output.splitlines()), done.output
    report = (into / "REPORT.txt").read_text()
    assert "the weight for warnings is left out" in report
    assert "services.json:5: service web-1: socket_path has no counterpart" in report


def test_a_file_that_is_none_of_consuls_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("3")
    (tmp_path / "x.hcl").write_text("service { }")
    more = ("--into", tmp_path / "new", *REGISTRARS, "--zone", "example.net", "--ns", "ns1=192.0.2.53")
    for name, why in (("x.json", "neither a service definition"), ("x.hcl", "HCL is not read")):
        done = run("consul", tmp_path / name, *more)
        assert (done.exit_code, why in done.output) == (1, True)
    (tmp_path / "x.json").write_text("[" * 100_000)
    done = run("consul", tmp_path / "x.json", *more)
    assert (done.exit_code, "too many brackets" in done.output) == (1, True)
    assert not (tmp_path / "new").exists()


@pytest.fixture(scope="module")
def host() -> Iterator[Namespace]:
    """A host with all addresses of gdnsd's servers."""
    with own_namespace() as namespace:
        namespace.give_address("10.99.0.1")
        for address in ("10.99.0.2/24", "10.99.0.3/24", "10.99.0.4/24"):
            namespace.ip("address", "add", address, "dev", "eth0")
        namespace.ip("address", "add", "2001:db8::1/64", "dev", "eth0", "nodad")
        yield namespace


def test_the_real_programs_take_what_is_written_and_gdnsd_answers_with_its_members(
    host: Namespace, tmp_path: Path
) -> None:
    source, into = gdnsd_files(tmp_path), tmp_path / "new"
    assert run("gdnsd", source, "--into", into, *REGISTRARS).exit_code == 0
    checked = host.run(
        sys.executable, "-m", "rspdns.cli", "check", "--offline", "-c", str(into / "rspdns.toml")
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for file in sorted(into.glob("agents/*/agent.toml")):
        state = f'[state]\npath = "{tmp_path}/state"\n[control]\npath = "{tmp_path}/agent.sock"\n'
        file.write_text(file.read_text() + state)  # the directories of a host that has the package
        checked = host.run(sys.executable, "-m", "ppe_agent.cli", "check", "-c", str(file))
        if file.parent.name == "2001-db8--1":
            assert "2001:db8::1 never joins: no registrar here has an IPv6 address" in checked.stderr
        else:
            assert checked.returncode == 0, checked.stdout + checked.stderr

    host.start("gdnsd", "-c", str(source), "start", log=tmp_path / "gdnsd.log")
    pools = pools_of(into)

    def answered(name: str, kind: str) -> set[str]:
        ask = (
            "dig",
            "+short",
            "+tries=1",
            "+time=2",
            "@127.0.0.1",
            "-p",
            "5399",
            f"{name}.example.com",
            kind,
        )
        done = host.run(*ask)
        return set(done.stdout.split()) if done.returncode == 0 else set()

    def until_answered(name: str, kind: str, expected: set[str]) -> None:
        """gdnsd draws; in the end each member was answered, and nobody else."""
        seen: set[str] = set()
        deadline_s = time.monotonic() + 60
        while seen != expected:
            assert time.monotonic() < deadline_s, f"{name}: {seen}, {(tmp_path / 'gdnsd.log').read_text()}"
            seen |= answered(name, kind)
            assert seen <= expected, name

    for name in ("sip", "both", "corp"):
        members = {str(network.network_address) for network in pools[name].accept}
        until_answered(name, "A", {address for address in members if ":" not in address})
    until_answered("both", "AAAA", {"2001:db8::1"})
    assert answered("fo", "A") == {"10.99.0.2"}
    assert answered("tiers", "A") == {"10.99.0.2", "10.99.0.3"}


def test_output_of_pdnsutil_is_read(tmp_path: Path) -> None:
    """A zone with LUA records, in the words of `pdnsutil list-zone`."""
    (tmp_path / "pdns.conf").write_text(
        f"launch=gsqlite3\ngsqlite3-database={tmp_path}/zones.sqlite3\nenable-lua-records=yes\n"
    )
    schema = Path("/usr/share/pdns-backend-sqlite3/schema/schema.sqlite3.sql").read_text()
    with sqlite3.connect(tmp_path / "zones.sqlite3") as database:
        database.executescript(schema)
    (tmp_path / "zone").write_text(LUA_ZONE)

    def pdnsutil(*arguments: str) -> str:
        command = ["pdnsutil", f"--config-dir={tmp_path}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout

    pdnsutil("load-zone", "example.org", str(tmp_path / "zone"))
    (tmp_path / "printed").write_text(pdnsutil("list-zone", "example.org"))
    for source in ("zone", "printed"):
        done = run("powerdns", tmp_path / source, "--into", tmp_path / f"from-{source}", *REGISTRARS)
        assert done.exit_code == 0, done.output
    written = [
        "".join(
            line
            for line in sorted((tmp_path / f"from-{source}" / "zones.d" / name).read_text().splitlines())
            if not line.startswith("[[pool]]")
        )
        for name in ("example.org.zone", "example.org.toml")
        for source in ("zone", "printed")
    ]
    assert (written[0], written[2]) == (written[1], written[3])
