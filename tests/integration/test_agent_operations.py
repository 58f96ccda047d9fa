"""What an operator does to a running sidecar, and what can be wrong with it.

One host with three real registrars serves all of these tests; `settle()` restores what each begins with.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ppe_agent.policy_names import POLICY_KINDS, keys_of

from tests.support.agent_host import ADDRESS, PATIENCE_S, Host
from tests.support.namespaces import Namespace
from tests.support.operated_host import Operated
from tests.support.registrars import PoolWatch


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    namespace = Namespace(f"rspdns-test-{os.getpid()}-operated")
    try:
        host = Operated(namespace, tmp_path_factory.mktemp("operated"))
        host.until_in()
        yield host
    finally:
        namespace.close()


@pytest.fixture
def host(running: Operated) -> Operated:
    running.settle()
    return running


def without(changes: list[dict[str, Any]], identifier: str) -> list[dict[str, Any]]:
    """Return the views of a registrar that lack this element; None is a registrar that did not answer."""
    return [
        change
        for change in changes
        if change["elements"] is not None and identifier not in change["elements"]
    ]


def test_the_drain_file(host: Operated) -> None:
    identifier = host.until_in()
    (host.directory / "drain").touch()
    host.until_out()
    one = host.until_state("drained")
    assert one["reason"] == f"drained by the file {host.directory}/drain; remove it to let it in again"
    assert one["drained"]
    said = host.command("undrain")
    assert said == f"one: drained ({one['reason']})\n"
    assert host.server.poll() is None
    (host.directory / "drain").unlink()
    assert host.until_in() == identifier


def test_a_reload_that_changes_checks_and_load_leaves_it_in_its_pool(host: Operated) -> None:
    identifier = host.until_in()
    before = len(host.watch.changes())
    text = host.toml.replace(
        'type = "process"\npid_file = ', 'type = "exec"\ncommand = ["/bin/cat", "pid"] # '
    )
    text = text.replace('"pid"', f'"{host.directory}/pid"')
    slow = 'source = "exec"\ncommand = ["/bin/sh", "-c", "sleep 0.5; echo 0.74995"]'
    host.reload(text.replace('source = "none"', slow))
    host.until_status(lambda one: one["check"][1]["type"] == "exec" and one["check"][1]["last_s"] is not None)
    host.until_changed(before, lambda changes: sum("load=0.7499" in str(one) for one in changes) >= 3)
    again = len(host.watch.changes())
    host.reload(text.replace('source = "none"', slow.replace("0.74995", "0.25")))
    host.until_changed(again, lambda changes: sum("load=0.25" in str(one) for one in changes) >= 3)
    assert not without(host.changes_since(before), identifier)
    assert host.until_state("in")["check"][1]["last"] == f"cat succeeded: {host.server.pid}"
    host.reload(text)  # source "none" means 0
    host.until_changed(again, lambda changes: sum("load=0.0)" in str(one) for one in changes) >= 3)


def test_a_reload_with_errors_changes_nothing_and_says_so(host: Operated) -> None:
    identifier = host.until_in()
    before = len(host.watch.changes())
    wrong = host.toml.replace("port = 5060", "port = 5070").replace('"tcp-hold"', '"tcp-held"')
    line = wrong[: wrong.index("tcp-held")].count("\n") + 1
    unknown = "'tcp-held' is unknown; did you mean 'tcp-hold'?"
    host.reload(wrong, f"{host.config}:{line}: as[0].check[0].type: {unknown}")
    assert host.metrics()["ppe_agent_reload_refused"] == 1
    assert "The configuration file was not taken at the last reload:" in host.command("status")
    host.reload(
        host.toml.replace("control.sock", "other.sock"),
        "control can't change while the agent runs: restart it for that",
    )
    assert host.until_state("in")["port"] == 5060
    assert not without(host.changes_since(before), identifier)
    host.config.write_text(host.toml)  # for the commands above all


def test_a_reload_adds_changes_and_removes_servers(host: Operated) -> None:
    identifier = host.until_in()
    before = len(host.watch.changes())
    first = host.toml[host.toml.index("[[as]]") :]
    second = first.replace('"one"', '"two"').replace("port = 5060", "port = 5070", 1)
    servers = [host.start_tcp_server(port) for port in (5070, 5080)]
    try:
        host.reload(host.toml + second)
        two = host.until_status(lambda one: one["state"] == "in", "two")["identifier"]
        view = host.watch.until(lambda view: all(len(view[each] or {}) == 2 for each in host.addresses))
        assert set(view[host.addresses[0]] or {}) == {identifier, two}
        host.reload(host.toml + second.replace("port = 5070", "port = 5080"))
        changed = host.until_status(lambda one: one["state"] == "in" and one["port"] == 5080, "two")
        assert changed["identifier"] == two
        host.reload(host.toml)
        host.until_in()
        assert [one["name"] for one in host.status()["as"]] == ["one"]
        assert not without(host.changes_since(before), identifier)
    finally:
        for server in servers:
            os.killpg(server.pid, signal.SIGKILL)


def test_every_policy_is_taken_by_the_registrars(host: Operated) -> None:
    values = {"weight": 7, "priority": 3, "degradation": 0.1, "penalty_factor": 0.2, "distance_ms": 20}
    text = host.toml
    for number, name in enumerate(POLICY_KINDS):
        keys = {"policy": name, **{key: values[key] for key in keys_of(name)}}
        text += f'[[as]]\nname = "{name}"\nhandle = "policy-{number}"\ntransport = "tcp"\nport = 5060\n'
        text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        text += '[[as.check]]\ntype = "tcp-hold"\n'
    host.reload(text)
    for name in POLICY_KINDS:
        one = host.until_status(lambda one: one["state"] == "in" and len(one["listed_by"]) == 3, name)
        assert (one["policy"], one["rejected_count"]) == (name, 0)


def test_a_server_that_flaps_is_held_back_and_the_reason_shown(host: Operated) -> None:
    well = host.directory / "well"
    text = host.toml.replace("falls = 0", "falls = 2\nwell_for_s = 600")
    command = f'type = "exec"\ncommand = ["/bin/cat", "{well}"]\ninterval_ms = 100\nfall = 1\nrise = 1\n'
    well.touch()
    host.reload(re.sub(r'type = "process"\npid_file = .*\n', command, text))
    for _ in range(2):
        host.until_status(lambda one: one["check"][1]["state"] == "up")
        well.unlink()
        host.until_state("down")
        well.touch()
    held = r"fell 2 times within 60 s: must stay well for 600 s, \d+ min \d+ s to go"
    assert re.fullmatch(held, host.until_state("held")["reason"])
    host.reload(re.sub(r'type = "process"\npid_file = .*\n', command.replace("100", "150"), text))
    one = host.status()["as"][0]
    assert (one["state"], one["fall_count"]) == ("held", 2)
    assert re.fullmatch(held, one["reason"])


def test_a_reload_moves_it_off_a_registrar_without_a_gap(host: Operated) -> None:
    identifier = host.until_in()
    before = len(host.watch.changes())
    home = host.until_state("in")["registrar"]
    others = [each for each in host.addresses if each != home]
    host.reload(host.toml.replace(json.dumps(host.addresses), json.dumps(others)))
    host.until_status(lambda one: one["state"] == "in" and one["registrar"] in others)
    assert [one["address"] for one in host.status()["registrars"]] == others
    time.sleep(2)  # the old association is closed after 1 s
    assert not without(host.changes_since(before), identifier)


def test_the_service_manager_hears_of_it(host: Operated) -> None:
    host.notifications.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while host.notifications.recv(1000):
            pass  # of the tests before: the queue is short, and what finds it full is lost
    host.notifications.settimeout(PATIENCE_S)
    heard: set[str] = set()
    host.agent.send_signal(signal.SIGHUP)
    while not {"WATCHDOG=1", "READY=1", "RELOADING=1"} <= heard:
        heard |= {line for line in host.notifications.recv(1000).decode().split("\n") if "USEC" not in line}


def test_metrics(host: Operated) -> None:
    metrics = host.metrics()
    server = "as=one handle=agent-test"
    assert metrics[f"ppe_agent_as_state {server} state=in"] == 1
    assert metrics[f"ppe_agent_as_state {server} state=down"] == 0
    assert metrics[f"ppe_agent_check_up {server} of=port 5060 type=tcp-hold"] == 1
    assert metrics[f"ppe_agent_as_falls_total {server}"] >= 0
    assert {metrics[f"ppe_agent_registrar_up registrar={each}"] for each in host.addresses} == {1}
    assert 0 < metrics["process_resident_memory_bytes"] < 60e6, "beside a server it has to be small"
    assert "ppe_agent_loop_lag_seconds" in metrics


def test_watching_the_status(host: Operated) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "ppe_agent.cli", "status", "--watch", "--json", "-c", str(host.config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # it may be ignored where we run
    ) as watching:
        try:
            assert watching.stdout is not None
            lines = [json.loads(watching.stdout.readline()) for _ in range(2)]
        finally:
            watching.send_signal(signal.SIGINT)
            _, errors = watching.communicate(timeout=PATIENCE_S)
    assert [line["as"][0]["state"] for line in lines] == ["in", "in"]
    assert (watching.returncode, errors) == (0, "")


def test_the_control_socket_is_for_owner_and_group(host: Operated) -> None:
    assert (host.directory / "control.sock").stat().st_mode & 0o777 == 0o660


@contextlib.contextmanager
def second_agent(host: Operated, text: str, port: int, *, with_state: bool = False) -> Iterator[Host]:
    """Run another server and its agent in a directory of its own; `with_state`: a copy of the first one's."""
    directory = Path(tempfile.mkdtemp(prefix="other-", dir=host.directory))
    if with_state:
        shutil.copytree(host.directory / "state", directory / "state")
    other = Host.__new__(Host)
    other.namespace, other.directory, other.config = host.namespace, directory, directory / "agent.toml"
    text = text.replace(f"{host.directory}/", f"{directory}/").replace(":9155", ":9156")
    other.config.write_text(text.replace("port = 5060", f"port = {port}"))
    (directory / "pid").write_text(str(os.getpid()))
    other.address = host.address
    server, agent = other.start_tcp_server(port), other.start_agent()
    try:
        yield other
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait(PATIENCE_S)
        os.killpg(server.pid, signal.SIGKILL)


def test_a_copied_state_directory_is_found_out(host: Operated) -> None:
    with second_agent(host, host.toml, 5070, with_state=True) as other:
        view = host.watch.until(lambda view: all(len(view[each] or {}) == 2 for each in host.addresses))
        listed = set(view[host.addresses[0]] or {})
        both = [one.until_status(lambda one: one["identifier"] in listed) for one in (host, other)]
        assert {one["identifier"] for one in both} == listed
        assert sum(one["collision_count"] for one in both) >= 1
        kept = json.loads((other.directory / "state" / "one.json").read_text())
        assert f"{kept['identifier']:08x}" in listed
        logs = [(one.directory / "agent.log").read_text() for one in (host, other)]
        assert any('"event": "identifier_collision"' in log and "taken_instead" in log for log in logs)


def test_another_transport_is_refused_in_words(host: Operated) -> None:
    identifier = host.until_in()
    with second_agent(host, host.toml.replace('"tcp"\nport', '"udp"\nport'), 5071) as other:
        one = other.until_status(lambda one: "other members have transport" in one["reason"])
        assert re.fullmatch(
            r"registrar \S+ refuses it: .*next attempt in \d+ s. The pool's other members have transport "
            r'"tcp", this one "udp": take a handle of its own for each transport',
            one["reason"],
        )
        assert one["rejected_count"] >= 1
    assert host.until_in() == identifier


def test_a_pool_of_rsplibs_own_servers_is_refused_in_words(host: Operated) -> None:
    server = host.namespace.start(
        *("rspserver", "-echo", "-policy=LeastUsed", "-poolhandle=rsplib", f"-local={ADDRESS}:0"),
        f"-registrar={ADDRESS}:3863",
        sctp=True,
        log=host.directory / "rspserver.log",
    )
    try:
        until_listed(host, "rsplib")
        second = (
            host.toml[host.toml.index("[[as]]") :].replace('"one"', '"two"').replace('"tcp"', '"sctp"', 1)
        )
        second = second.replace('"agent-test"', '"rsplib"').replace('"tcp-hold"', '"tcp-hold"\nport = 5060')
        host.reload(host.toml + second.replace("port = 5060\ndrain", "port = 5070\ndrain", 1))
        one = host.until_status(lambda one: "refuses it" in one["reason"], "two")
        assert re.fullmatch(
            r"registrar \S+ refuses it: the control-channel flag differs .*; next attempt in \d+ s. "
            r"The pool's other members speak ASAP .*, which a sidecar can't: take another handle",
            one["reason"],
        )
    finally:
        os.killpg(server.pid, signal.SIGKILL)
    assert host.until_in()


def until_listed(host: Operated, handle: str) -> None:
    """Wait until every registrar lists somebody in the pool `handle`."""
    watch = PoolWatch(host.namespace, handle, host.addresses, host.directory / f"watch-{handle}.log")
    watch.until(lambda view: all(view.get(each) for each in host.addresses))
