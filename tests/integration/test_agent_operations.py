"""Actions of an operator on a running sidecar, and the faults that it can have.

One host with three real registrars serves all of these tests; `settle()` restores what each begins with.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ppe_agent.config_types import keys_of
from prometheus_client.parser import text_string_to_metric_families

from rserpool import POLICY_KINDS
from tests.support.backend import ADDRESS, HANDLE
from tests.support.certificates import NAME, authority, certificate_of
from tests.support.chain import Chain
from tests.support.namespaces import Namespace, kill, own_namespace
from tests.support.registrars import PoolWatch
from tests.support.sidecar import PATIENCE_S, Sidecar
from tests.support.waiting import until

SERVER = """\
[[as]]
name = "one"
handle = "{handle}"
transport = "tcp"
port = 5060
drain_file = "{folder}/drain"
[[as.check]]
type = "tcp-hold"
[[as.check]]
type = "process"
pid_file = "{folder}/pid"
[as.damping]
falls = 0
[as.load]
source = "none"
"""


class Operated(Chain):
    """A server with a pid file, and a sidecar that tells a service manager how it is."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        super().__init__(namespace, folder, registrars="alone")
        self.notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notifications.bind(str(folder / "notify.sock"))
        self.notifications.settimeout(PATIENCE_S)
        metrics = f'[metrics]\nlisten = "{ADDRESS}:9155"\n'
        self.sidecar.configure(metrics, SERVER.format(handle=HANDLE, folder=folder))
        self.toml = self.sidecar.config.read_text()
        self.server = self.start_tcp()
        (folder / "pid").write_text(str(self.server.pid))
        self.agent = self.sidecar.start(
            {"NOTIFY_SOCKET": str(folder / "notify.sock"), "WATCHDOG_USEC": "2000000"}
        )

    def settle(self) -> str:
        """Bring the configuration of the beginning back; return the identifier that all registrars list."""
        (self.folder / "drain").unlink(missing_ok=True)
        self.reload(self.toml)
        self.sidecar.until_state("in")
        return self.until_in()

    def reload(self, text: str, problem: str = "") -> None:
        """Have the sidecar read this configuration; wait until it did, or refused it."""
        self.sidecar.config.write_text(text)
        log = self.sidecar.log
        before = log.read_text().count('"reload')
        self.agent.send_signal(signal.SIGHUP)
        until(lambda: log.read_text().count('"reload') > before, told=log)
        assert (self.sidecar.status()["reload_problem"] or "") == problem

    def metrics(self) -> dict[str, float]:
        """Return every sample that /metrics shows."""
        done = self.namespace.run(
            sys.executable,
            "-c",
            f"import urllib.request as r; print(r.urlopen('http://{ADDRESS}:9155/metrics').read().decode())",
        )
        assert done.returncode == 0, done.stderr
        return {
            sample.name
            + "".join(f" {key}={value}" for key, value in sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(done.stdout)
            for sample in family.samples
        }

    def changes_since(self, before: int) -> list[dict[str, Any]]:
        return self.watch.changes()[before:]

    def until_changed(self, before: int, condition: Callable[[list[dict[str, Any]]], bool]) -> None:
        self.watch.until(lambda _: condition(self.changes_since(before)), PATIENCE_S)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    with own_namespace() as namespace:
        chain = Operated(namespace, tmp_path_factory.mktemp("operated"))
        chain.until_in()
        yield chain


@pytest.fixture
def chain(running: Operated) -> Operated:
    running.settle()
    return running


def without(changes: list[dict[str, Any]], identifier: str) -> list[dict[str, Any]]:
    """Return the views of a registrar that lack this element; None is a registrar that did not answer."""
    return [
        change
        for change in changes
        if change["elements"] is not None and identifier not in change["elements"]
    ]


def test_a_drain_file_takes_the_server_out_until_it_is_removed(chain: Operated) -> None:
    identifier = chain.until_in()
    (chain.folder / "drain").touch()
    chain.until_out()
    status = chain.sidecar.until_state("drained")
    assert status["reason"] == f"drained by the file {chain.folder}/drain; remove it to let it in again"
    assert status["drained"]
    said = chain.sidecar.command("undrain")
    assert said == f"one: drained ({status['reason']})\n"
    assert chain.server.poll() is None
    (chain.folder / "drain").unlink()
    assert chain.until_in() == identifier


def test_a_reload_that_changes_checks_and_load_leaves_it_in_its_pool(chain: Operated) -> None:
    identifier = chain.until_in()
    before = len(chain.watch.changes())
    text = chain.toml.replace(
        'type = "process"\npid_file = ', 'type = "exec"\ncommand = ["/bin/cat", "pid"] # '
    )
    text = text.replace('"pid"', f'"{chain.folder}/pid"')
    slow = 'source = "exec"\ncommand = ["/bin/sh", "-c", "sleep 0.5; echo 0.74995"]'
    chain.reload(text.replace('source = "none"', slow))
    chain.sidecar.until_status(
        lambda status: status["check"][1]["type"] == "exec" and status["check"][1]["last_s"] is not None
    )
    chain.until_changed(before, lambda changes: sum("load=0.7499" in str(change) for change in changes) >= 3)
    again = len(chain.watch.changes())
    chain.reload(text.replace('source = "none"', slow.replace("0.74995", "0.25")))
    chain.until_changed(again, lambda changes: sum("load=0.25" in str(change) for change in changes) >= 3)
    assert not without(chain.changes_since(before), identifier)
    assert chain.sidecar.until_state("in")["check"][1]["last"] == f"cat succeeded: {chain.server.pid}"
    chain.reload(text)  # source "none" means 0
    chain.until_changed(again, lambda changes: sum("load=0.0)" in str(change) for change in changes) >= 3)


def test_a_reload_with_errors_changes_nothing_and_says_so(chain: Operated) -> None:
    identifier = chain.until_in()
    before = len(chain.watch.changes())
    wrong = chain.toml.replace("port = 5060", "port = 5070").replace('"tcp-hold"', '"tcp-held"')
    line = wrong[: wrong.index("tcp-held")].count("\n") + 1
    unknown = "'tcp-held' is unknown; did you mean 'tcp-hold'?"
    chain.reload(wrong, f"{chain.sidecar.config}:{line}: as[0].check[0].type: {unknown}")
    assert chain.metrics()["ppe_agent_reload_refused"] == 1
    assert "The configuration file was not taken at the last reload:" in chain.sidecar.command("status")
    chain.reload(
        chain.toml.replace("agent.sock", "other.sock"),
        "control can't change while the agent runs: restart it for that",
    )
    assert chain.sidecar.until_state("in")["port"] == 5060
    assert not without(chain.changes_since(before), identifier)
    chain.sidecar.config.write_text(chain.toml)  # for the commands above all


def test_a_reload_adds_changes_and_removes_servers(chain: Operated) -> None:
    identifier = chain.until_in()
    before = len(chain.watch.changes())
    first = chain.toml[chain.toml.index("[[as]]") :]
    second = first.replace('"one"', '"two"').replace("port = 5060", "port = 5070", 1)
    servers = [chain.start_tcp(port) for port in (5070, 5080)]
    try:
        chain.reload(chain.toml + second)
        two = chain.sidecar.until_status(lambda status: status["state"] == "in", "two")["identifier"]
        view = chain.watch.until(
            lambda view: all(len(view[each] or {}) == 2 for each in chain.registrars.addresses)
        )
        assert set(view[chain.registrars.addresses[0]] or {}) == {identifier, two}
        chain.reload(chain.toml + second.replace("port = 5070", "port = 5080"))
        changed = chain.sidecar.until_status(
            lambda status: status["state"] == "in" and status["port"] == 5080, "two"
        )
        assert changed["identifier"] == two
        chain.reload(chain.toml)
        chain.until_in()
        assert [status["name"] for status in chain.sidecar.status()["as"]] == ["one"]
        assert not without(chain.changes_since(before), identifier)
    finally:
        for server in servers:
            kill(server)


def test_every_policy_is_taken_by_the_registrars(chain: Operated) -> None:
    values = {"weight": 7, "priority": 3, "degradation": 0.1, "penalty_factor": 0.2, "distance_ms": 20}
    text = chain.toml
    for number, name in enumerate(POLICY_KINDS):
        keys = {"policy": name, **{key: values[key] for key in keys_of(name)}}
        text += f'[[as]]\nname = "{name}"\nhandle = "policy-{number}"\ntransport = "tcp"\nport = 5060\n'
        text += "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        text += '[[as.check]]\ntype = "tcp-hold"\n'
    chain.reload(text)
    for name in POLICY_KINDS:
        status = chain.sidecar.until_status(
            lambda now: now["state"] == "in" and len(now["listed_by"]) == 3, name
        )
        assert (status["policy"], status["rejected_count"]) == (name, 0)


def test_a_server_that_flaps_is_held_back_and_the_reason_shown(chain: Operated) -> None:
    well = chain.folder / "well"
    text = chain.toml.replace("falls = 0", "falls = 2\nwell_for_s = 600")
    command = f'type = "exec"\ncommand = ["/bin/cat", "{well}"]\ninterval_ms = 100\nfall = 1\nrise = 1\n'
    well.touch()
    chain.reload(re.sub(r'type = "process"\npid_file = .*\n', command, text))
    for _ in range(2):
        chain.sidecar.until_status(lambda status: status["check"][1]["state"] == "up")
        well.unlink()
        chain.sidecar.until_state("down")
        well.touch()
    held = r"fell 2 times within 60 s: must stay well for 600 s, \d+ min \d+ s to go"
    assert re.fullmatch(held, chain.sidecar.until_state("held")["reason"])
    chain.reload(re.sub(r'type = "process"\npid_file = .*\n', command.replace("100", "150"), text))
    status = chain.sidecar.status()["as"][0]
    assert (status["state"], status["fall_count"]) == ("held", 2)
    assert chain.metrics()[f"ppe_agent_as_falls_total as=one handle={HANDLE}"] == 2
    assert re.fullmatch(held, status["reason"])


def test_certificate_warns_while_it_lasts_and_takes_the_server_out_when_it_has_expired(
    chain: Operated, tmp_path: Path
) -> None:
    issuer = authority(tmp_path, "ca")
    good, expired = (certificate_of(tmp_path, issuer, days) for days in (5, -1))

    @contextlib.contextmanager
    def serving(files: dict[str, Path]) -> Iterator[None]:
        named = ("-cert", str(files["crt"]), "-key", str(files["key"]), "-quiet")
        where = ("-accept", f"{ADDRESS}:5061")
        server = chain.namespace.start("openssl", "s_server", *where, *named, log=tmp_path / "log")
        try:
            yield
        finally:
            kill(server)

    check = f'type = "tls"\nport = 5061\nhost = "{NAME}"\nca_file = "{issuer}"\n'
    with serving(good):
        chain.reload(re.sub(r'type = "process"\npid_file = .*\n', check, chain.toml))
        warns = "TLSv1.3 handshake, but its certificate expires in 4 days"
        status = chain.sidecar.until_status(
            lambda now: now["state"] == "in" and now["check"][1]["last"] == warns
        )
        assert status["reason"] == "all checks pass"
    with serving(expired):
        refused = "tls: its certificate is refused: certificate has expired"
        status = chain.sidecar.until_status(lambda now: now["reason"] == refused)
        assert status["check"][1]["state"] == "down"
    warnings = [line for line in chain.sidecar.log.read_text().splitlines() if '"check_warns"' in line]
    assert {json.loads(line)["level"] for line in warnings} == {"warning"}


def test_a_reload_moves_it_off_a_registrar_without_a_gap(chain: Operated) -> None:
    identifier = chain.until_in()
    before = len(chain.watch.changes())
    home = chain.sidecar.until_state("in")["registrar"]
    others = [each for each in chain.registrars.addresses if each != home]
    chain.reload(chain.toml.replace(json.dumps(chain.registrars.addresses), json.dumps(others)))
    chain.sidecar.until_status(lambda status: status["state"] == "in" and status["registrar"] in others)
    assert [registrar["address"] for registrar in chain.sidecar.status()["registrars"]] == others
    time.sleep(2)  # the old association is closed after 1 s
    assert not without(chain.changes_since(before), identifier)


def test_the_service_manager_hears_of_it(chain: Operated) -> None:
    chain.notifications.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while chain.notifications.recv(1000):
            pass  # of the tests before: the queue is short, and what finds it full is lost
    chain.notifications.settimeout(PATIENCE_S)
    heard: set[str] = set()
    chain.agent.send_signal(signal.SIGHUP)
    while not {"WATCHDOG=1", "READY=1", "RELOADING=1"} <= heard:
        heard |= {line for line in chain.notifications.recv(1000).decode().split("\n") if "USEC" not in line}


def test_metrics_tell_states_checks_and_registrars(chain: Operated) -> None:
    metrics = chain.metrics()
    server = f"as=one handle={HANDLE}"
    assert metrics[f"ppe_agent_as_state {server} state=in"] == 1
    assert metrics[f"ppe_agent_as_state {server} state=down"] == 0
    assert metrics[f"ppe_agent_check_up {server} of=port 5060 type=tcp-hold"] == 1
    assert {metrics[f"ppe_agent_registrar_up registrar={each}"] for each in chain.registrars.addresses} == {1}
    assert 0 < metrics["process_resident_memory_bytes"] < 60e6, "beside a server it has to be small"
    assert "ppe_agent_loop_lag_seconds" in metrics


def test_watching_the_status_prints_a_line_of_json_each_time(chain: Operated) -> None:
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ppe_agent.cli",
            "status",
            "--watch",
            "--json",
            "-c",
            str(chain.sidecar.config),
        ],
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


def test_the_control_socket_is_for_owner_and_group(chain: Operated) -> None:
    assert chain.sidecar.control.stat().st_mode & 0o777 == 0o660


@contextlib.contextmanager
def second_sidecar(chain: Operated, text: str, port: int, *, with_state: bool = False) -> Iterator[Sidecar]:
    """Run another server and its sidecar in a folder of its own; `with_state`: a copy of the first one's."""
    folder = Path(tempfile.mkdtemp(prefix="other-", dir=chain.folder))
    if with_state:
        shutil.copytree(chain.sidecar.state, folder / chain.sidecar.state.name)
    other = Sidecar(chain.namespace, folder, chain.registrars.addresses)
    text = text.replace(f"{chain.folder}/", f"{folder}/").replace(":9155", ":9156")
    other.config.write_text(text.replace("port = 5060", f"port = {port}"))
    (folder / "pid").write_text(str(os.getpid()))
    server, sidecar = chain.start_tcp(port), other.start()
    try:
        yield other
    finally:
        sidecar.send_signal(signal.SIGTERM)
        sidecar.wait(PATIENCE_S)
        kill(server)


def test_a_copied_state_directory_is_found_out(chain: Operated) -> None:
    with second_sidecar(chain, chain.toml, 5070, with_state=True) as other:
        view = chain.watch.until(
            lambda view: all(len(view[each] or {}) == 2 for each in chain.registrars.addresses)
        )
        listed = set(view[chain.registrars.addresses[0]] or {})
        sidecars = (chain.sidecar, other)
        both = [sidecar.until_status(lambda status: status["identifier"] in listed) for sidecar in sidecars]
        assert {status["identifier"] for status in both} == listed
        assert sum(status["collision_count"] for status in both) >= 1
        kept = json.loads((other.state / "one.json").read_text())
        assert f"{kept['identifier']:08x}" in listed
        logs = [sidecar.log.read_text() for sidecar in sidecars]
        assert any('"event": "identifier_collision"' in log and "taken_instead" in log for log in logs)


def test_a_server_of_another_transport_is_refused_with_what_to_do(chain: Operated) -> None:
    identifier = chain.until_in()
    with second_sidecar(chain, chain.toml.replace('"tcp"\nport', '"udp"\nport'), 5071) as other:
        refused = other.until_status(lambda status: "other members have transport" in status["reason"])
        assert re.fullmatch(
            r"registrar \S+ refuses it: .*next attempt in \d+ s. The pool's other members have transport "
            r'"tcp", this one "udp": take a handle of its own for each transport',
            refused["reason"],
        )
        assert refused["rejected_count"] >= 1
    assert chain.until_in() == identifier


def test_a_pool_of_rsplibs_own_servers_is_refused_in_words(chain: Operated) -> None:
    server = chain.namespace.start(
        *("rspserver", "-echo", "-policy=LeastUsed", "-poolhandle=rsplib", f"-local={ADDRESS}:0"),
        f"-registrar={ADDRESS}:3863",
        sctp=True,
        log=chain.folder / "rspserver.log",
    )
    try:
        until_listed(chain, "rsplib")
        second = (
            chain.toml[chain.toml.index("[[as]]") :].replace('"one"', '"two"').replace('"tcp"', '"sctp"', 1)
        )
        second = second.replace(HANDLE, "rsplib").replace('"tcp-hold"', '"tcp-hold"\nport = 5060')
        chain.reload(chain.toml + second.replace("port = 5060\ndrain", "port = 5070\ndrain", 1))
        refused = chain.sidecar.until_status(lambda status: "refuses it" in status["reason"], "two")
        assert re.fullmatch(
            r"registrar \S+ refuses it: the control-channel flag differs .*; next attempt in \d+ s. "
            r"The pool's other members speak ASAP .*, which a sidecar can't: take another handle",
            refused["reason"],
        )
    finally:
        kill(server)
    assert chain.until_in()


def until_listed(chain: Operated, handle: str) -> None:
    """Wait until every registrar lists somebody in the pool `handle`."""
    watch = PoolWatch(
        chain.namespace, handle, chain.registrars.addresses, chain.folder / f"watch-{handle}.log"
    )
    watch.until(lambda view: all(view.get(each) for each in chain.registrars.addresses))
