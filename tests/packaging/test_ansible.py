"""The Ansible role without Ansible: its inventory, and that its templates give what the programs read."""

import json
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ppe_agent import configuration, consistency
from ppe_agent.configuration import load_configuration as load_agent
from registrar_config import load_inventory
from rspdns.configuration import load_configuration

from rserpool import Protocol, new_pool_key, server_key_line
from tests.support.namespaces import REPOSITORY

ROLE = REPOSITORY / "packaging" / "ansible"
INVENTORY = """\
[[registrar]]
name = "r1"
address = "10.0.0.1"
[[registrar]]
name = "r2"
address = "10.0.0.1"
enrp_port = 9950
[[registrar]]
name = "r3"
address = "10.0.0.3"
asap_port = 3900
[[agent]]
name = "servers"
addresses = ["10.20.0.0/16", "10.0.0.3", "10.30.0.1/32"]
[[backend]]
name = "name-servers"
addresses = ["10.0.0.21"]
"""
DROP_IN = "/etc/systemd/system/ppe-agent.service.d"
SERVERS = [
    {
        "name": "one",
        "handle": "web",
        "transport": "tcp",
        "port": 8080,
        "policy": "least-used",
        "check": [{"type": "tcp-hold"}, {"type": "http", "path": "/up", "status": [200, 299]}],
        "damping": {"falls": 0},
        "load": {"source": "prometheus", "url": "http://127.0.0.1/m", "metric": "calls", "capacity": 10},
    },
    {
        "name": "two",
        "handle": "web-2",
        "transport": "tcp",
        "port": 81,
        "policy": "round-robin",
        "check": [{"type": "tcp"}],
    },
]


def listed(path: Path) -> Any:
    done = subprocess.run(
        [sys.executable, ROLE / "rspdns_inventory.py", "--list"],
        env={"RSPDNS_INVENTORY": str(path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return json.loads(done.stdout)


def render(name: str, **variables: Any) -> str:
    """A template as Ansible renders it: with its blanks, and its filter to_json."""
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, autoescape=False)  # noqa: S701 - no HTML
    environment.filters["to_json"] = json.dumps
    source = ROLE / "roles" / "rspdns" / "templates" / name
    return environment.from_string(source.read_text()).render(**variables)


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "inventory.toml"
    path.write_text(INVENTORY)
    return path


def test_the_hosts_are_those_of_the_inventory(inventory: Path) -> None:
    found = listed(inventory)
    assert found["rspdns_registrars"]["hosts"] == ["10.0.0.1", "10.0.0.3"]
    assert found["rspdns_sidecars"]["hosts"] == ["10.0.0.3", "10.30.0.1"], "a network is no host"
    assert found["rspdns_name_servers"]["hosts"] == ["10.0.0.21"]
    hosts = found["_meta"]["hostvars"]
    assert hosts["10.0.0.1"]["rspdns_registrar_entries"] == ["r1", "r2"]
    assert hosts["10.0.0.3"] == {
        "ansible_host": "10.0.0.3",
        "rspdns_registrar_entries": ["r3"],
        "rspdns_agent_entries": ["servers"],
    }


def test_the_role_loads_the_packet_filter_unless_the_inventory_has_it_elsewhere(inventory: Path) -> None:
    assert listed(inventory)["all"]["vars"]["rspdns_filter"] == "nftables"
    inventory.write_text(f'filter = "elsewhere"\n{INVENTORY}')
    assert listed(inventory)["all"]["vars"]["rspdns_filter"] == "elsewhere"


@pytest.mark.parametrize("outside", ["192.0.2.9", "192.0.2.9:7000", "2001:db8::9", "[2001:db8::9]:7000"])
def test_registrar_in_a_tunnel_is_set_up_at_its_outside_address(inventory: Path, outside: str) -> None:
    inventory.write_text(INVENTORY.replace('"10.0.0.3"\nasap', f'"10.0.0.3"\noutside = "{outside}"\nasap'))
    of_host = listed(inventory)["_meta"]["hostvars"]["10.0.0.3"]
    assert of_host["ansible_host"] == outside.removesuffix(":7000").strip("[]")


def test_the_registrars_have_the_ports_that_they_are_started_with(inventory: Path) -> None:
    variables = listed(inventory)["all"]["vars"]
    asap, enrp = [], []
    for settings in load_inventory(inventory).registrars.values():
        asap.append((str(settings.asap.address), settings.asap.port))
        enrp.append((str(settings.enrp.address), settings.enrp.port))
    assert (asap, enrp) == (
        [("10.0.0.1", 3863), ("10.0.0.1", 3864), ("10.0.0.3", 3900)],
        [("10.0.0.1", 9901), ("10.0.0.1", 9950), ("10.0.0.3", 9901)],
    )
    assert variables["rspdns_registrars_of_sidecars"] == ["10.0.0.1", "10.0.0.1:3864", "10.0.0.3:3900"]
    assert variables["rspdns_registrars_of_name_servers"] == [
        "10.0.0.1",
        "10.0.0.1:3864/9950",
        "10.0.0.3:3900",
    ]


def test_the_templates_give_files_that_the_programs_take(
    inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (configuration, consistency):
        monkeypatch.setattr(module, "address_towards", lambda *_: "10.30.0.1")
    variables = listed(inventory)["all"]["vars"]
    text = render(
        "agent.toml.j2",
        **variables,
        rspdns_servers=SERVERS,
        rspdns_keyed=["web"],
        rspdns_sidecar_extra='[metrics]\nlisten = "127.0.0.1:9155"',
    )
    assert text.count('key = "/etc/ppe-agent/servers.key"\n') == 1, "of the keyed pool"
    text = text.replace("/etc/ppe-agent/servers.key", str(tmp_path / "servers.key"))
    (tmp_path / "servers.key").write_text(
        server_key_line(new_pool_key().server_key(Protocol.TCP, ip_address("10.30.0.1"), 8080))
    )
    (tmp_path / "servers.key").chmod(0o640)
    (tmp_path / "agent.toml").write_text(text)
    agent = load_agent(tmp_path / "agent.toml")
    assert [(server.name, len(server.check)) for server in agent.servers] == [("one", 2), ("two", 1)]
    assert agent.servers[0].load is not None
    assert agent.servers[0].damping.falls == 0
    assert agent.metrics is not None
    extra = '[admin]\nlisten = "127.0.0.1:8054"'
    text = render("rspdns.toml.j2", **variables, rspdns_zones_dir="zones.d", rspdns_name_server_extra=extra)
    (tmp_path / "rspdns.toml").write_text(text)
    (tmp_path / "zones.d").mkdir()
    assert load_configuration(tmp_path / "rspdns.toml").admin.listen == "127.0.0.1:8054"


def test_routes_of_the_role_are_those_of_the_example_for_the_unit() -> None:
    defaults = yaml.safe_load((ROLE / "roles/rspdns/defaults/main.yml").read_text())
    networks = jinja2.Environment(autoescape=False)  # noqa: S701 - no HTML
    clients = networks.compile_expression(defaults["rspdns_relay_clients"].strip("{} "))
    assert clients(rspdns_sidecar_extra='[metrics]\nlisten = "127.0.0.1:9155"') == []
    written = render("relay.conf.j2", rspdns_relay_clients=clients(rspdns_sidecar_extra="[relay]"))
    example = (REPOSITORY / "ppe-agent/systemd/ppe-agent-relay.conf").read_text()
    assert written.partition("[Service]")[2] == example.partition("[Service]")[2]


def test_routes_of_the_unit_go_with_the_section_that_needs_them() -> None:
    tasks = yaml.safe_load((ROLE / "roles/rspdns/tasks/sidecar.yml").read_text())
    steps = {
        (step.get("ansible.builtin.template") or {}).get("dest")
        or (step.get("ansible.builtin.file") or {}).get("state"): (outer["when"], step)
        for outer in tasks
        for step in outer.get("block", [outer])
        if "when" in outer
    }
    made, removed = (steps[key] for key in (f"{DROP_IN}/relay.conf", "absent"))
    assert removed[1]["ansible.builtin.file"]["path"] == f"{DROP_IN}/relay.conf"
    conditions = jinja2.Environment(autoescape=False)  # noqa: S701 - no HTML
    for clients in ([], ["198.18.0.0/15"]):
        is_made, is_removed = (
            conditions.compile_expression(when)(rspdns_relay_clients=clients)
            for when in (made[0], removed[0])
        )
        assert (is_made, is_removed) == (bool(clients), not clients)


def test_each_file_of_the_role_is_yaml_and_each_handler_that_is_notified_is_there() -> None:
    files = {path: yaml.safe_load(path.read_text()) for path in ROLE.rglob("*.yml")}
    assert len(files) >= 8
    handlers = {handler["name"] for handler in files[ROLE / "roles/rspdns/handlers/main.yml"]}
    notified = {
        task["notify"]
        for path, tasks in files.items()
        if path.parent.name == "tasks"
        for outer in tasks
        for task in (outer, *outer.get("block", ()))
        if "notify" in task
    }
    assert notified == handlers
