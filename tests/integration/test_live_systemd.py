"""The chain as an operator runs it: a live systemd, its units in their sandboxes, ordinary users."""

import functools
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ppe_agent.servers import TCP_SERVER
from tests.support.fast_path import needs_bpf
from tests.support.live_systemd import (
    AGENT,
    BACKEND,
    CLIENT_AGENT,
    POOL,
    REGISTRAR_UNITS,
    SERVER,
    LiveSystemd,
    inventory,
    live_systemd,
    make_install,
)
from tests.support.namespaces import REPOSITORY
from tests.support.pages import blocks

pytestmark = pytest.mark.timeout(1200)  # the installation counts to the first test

ADDRESS = "10.99.0.1"
INTERVAL_S = 40
UNDAMPED = f"{AGENT}[as.damping]\nfalls = 0\n"
ZONE = f'zone = "example.net"\nstatic = "example.net.zone"\n{POOL}'
RECORDS = "@ 3600 SOA ns1 hostmaster 1 7200 900 1209600 1\n@ 3600 NS ns1\nns1 3600 A 127.0.0.1\n"
WATCHED = UNDAMPED.replace(
    'type = "tcp-hold"',
    f'type = "systemd"\nunit = "server.service"\ninterval_ms = {INTERVAL_S * 1000}\ntimeout_ms = 10000',
)
PACING = f"{CLIENT_AGENT}pace = true\n"
FROM_THE_KERNEL = f'{BACKEND}[fastpath]\nsocket = "/run/rspdns-fastpath/fastpath.sock"\n'
FAST_OPTIONS = 'FASTPATH_OPTIONS="--interface lo --address 127.0.0.1"\n'
CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF = 12, 13, 39
FILTERED = "2"
"""Seccomp of a process whose system calls are filtered."""
UNITS = "/etc/systemd/system"
HUNG_REGISTRAR = REGISTRAR_UNITS[2]
COMMANDS = ["rspdns", "ppe-agent", "ppu-agent", "rspdns-registrar"]
PATH = {"PATH": "/usr/bin:/bin"}
OURS = ["ppe-agent", "rspdns", *REGISTRAR_UNITS]
CLIENT = """
import socket
for client_family, address in ((socket.AF_INET, "10.99.0.1"), (socket.AF_INET6, "::1")):
    with socket.socket(client_family, socket.SOCK_STREAM, 132) as waiting:
        waiting.bind((address, 0))
        waiting.listen(1)
        with socket.socket(client_family, socket.SOCK_STREAM, 132) as client:
            client.settimeout(30)
            client.connect(waiting.getsockname())
            server, _ = waiting.accept()
            client.send(b"through both")
            print(server.recv(100).decode())
"""


@pytest.fixture(scope="module")
def machine(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystemd]:
    """Everything installed and started as docs/how-to/install.md says."""
    with live_systemd(tmp_path_factory.mktemp("live"), installed) as machine:
        example = "/usr/local/share/doc/rspdns/examples/pdns.conf"
        machine.run("install", "--group=pdns", "--mode=640", example, "/etc/powerdns/pdns.conf")
        for path, text in (
            (f"{UNITS}/server.service", SERVER),
            (f"{UNITS}/rspdns-registrar@.service.d/soon.conf", "[Service]\nWatchdogSec=5s\n"),
            ("/opt/server.py", TCP_SERVER),
            ("/root/inventory.toml", f"expected_elements = 100\n{inventory('10.99.0.0/24')}"),
            ("/etc/ppe-agent/agent.toml", UNDAMPED),
            ("/etc/ppu-agent/ppu-agent.toml", PACING),
            ("/etc/rspdns/rspdns.toml", BACKEND),
            ("/etc/rspdns/zones.d/example.net.toml", ZONE),
            ("/etc/rspdns/zones.d/example.net.zone", RECORDS),
        ):
            machine.write(path, text)
        machine.run("rspdns-registrar", "render", "/root/inventory.toml", "--output", "/root/rendered")
        for name in ("r1", "r2", "r3"):
            for kind in ("env", "gate"):
                machine.run("cp", f"/root/rendered/{name}/registrar-{name}.{kind}", "/etc/rspdns/")
        machine.run("cp", "/root/rendered/r1/rspdns.nft", "/etc/rspdns/")
        machine.install("ppu-agent/systemd/ppu-agent-pace.conf", f"{UNITS}/ppu-agent.service.d/pace.conf")
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "start", "server", *OURS, "ppu-agent")
        machine.run("systemctl", "start", "pdns")
        machine.until(lambda: states(machine) == {"one": "in"})
        machine.until(lambda: len(members(machine) or ()) == 1)
        yield machine


def states(machine: LiveSystemd) -> dict[str, str]:
    """Each AS and its state, as the agent tells root."""
    said = machine.ask("/run/ppe-agent/control.sock", "status")
    return {server["name"]: server["state"] for server in said["as"]} if said else {}


def process(machine: LiveSystemd, unit: str) -> dict[str, str]:
    """The kernel's status of a unit's process (/proc/PID/status)."""
    status = (machine.root / f"proc/{machine.main_pid(unit)}/status").read_text()
    return dict(re.findall(r"^(\w+):\s+(\S+)", status, re.M))


def members(machine: LiveSystemd) -> list[str] | None:
    """The members of the pool by the backend's status; None without a status."""
    said = machine.ask("/run/rspdns/admin.sock", "status")
    return [member["identifier"] for member in said["zones"][0]["pools"][0]["members"]] if said else None


def restarted(machine: LiveSystemd, unit: str, *kill: str) -> float:
    """Have a unit's main process killed and wait until it is up again; return when systemd started it anew,
    in seconds after its end."""
    before, count = machine.main_pid(unit), int(machine.show(unit, "NRestarts")[0])
    machine.run("systemctl", "kill", "--kill-who=main", *kill, unit)

    def is_new() -> bool:
        state, pid, restarts = machine.show(unit, "ActiveState", "MainPID", "NRestarts")
        return state == "active" and int(pid) not in (0, before) and int(restarts) > count

    machine.until(is_new)
    said = machine.run("journalctl", "--no-pager", "-o", "short-monotonic", "--unit", unit)
    ended_s, started_s = (
        float(re.findall(rf"^\[\s*([0-9.]+)\].*{words}", said, re.M)[-1])
        for words in ("Main process exited", "Scheduled restart job")
    )
    return started_s - ended_s


@pytest.mark.parametrize("command", COMMANDS)
def test_installed_commands_start_with_manual_and_completion(machine: LiveSystemd, command: str) -> None:
    assert "version" in machine.run(command, "--version")
    assert machine.run("readlink", "-f", f"/usr/local/bin/{command}") == f"/opt/rspdns/bin/{command}\n"
    page = (machine.root / f"usr/local/share/man/man1/{command}.1").read_text()
    assert f".SH NAME\n{command}" in page.replace("\\-", "-")
    script = f"""
        . /usr/local/share/bash-completion/completions/{command}
        COMP_WORDS=({command} '') COMP_CWORD=1
        _{command.replace("-", "_")}_completion {command}
        echo "${{COMPREPLY[@]}}"
    """
    offered = machine.run("bash", "-c", script).split()
    assert {"check", "status"} <= {*offered} or {"render", "sentinel"} <= {*offered}


def test_powerdns_asks_the_backend_at_its_first_start(machine: LiveSystemd) -> None:
    """The socket is PowerDNS's to open, and it starts after the backend whenever that is enabled."""
    assert machine.run("stat", "-c", "%U %G", "/run/rspdns/remote.sock") == "rspdns pdns\n"
    said = machine.run("dig", "@127.0.0.1", "+short", "_http._tcp.web.example.net", "SRV")
    assert said.split()[2:3] == ["8080"], said
    machine.run("systemctl", "enable", "rspdns")
    wanted, after = machine.show("pdns", "Wants", "After")
    assert "rspdns.service" in wanted
    assert "rspdns.service" in after
    assert "rspdns.service" not in machine.show("pdns", "Requires")[0]


def test_what_powerdns_runs_is_roots(machine: LiveSystemd) -> None:
    setting = machine.run("grep", "^lua-prequery-script=", "/etc/powerdns/pdns.conf")
    script = setting.strip().partition("=")[2]
    assert machine.run("stat", "--format=%U %a", script).split() == ["root", "644"]
    for path in (script, str(Path(script).parent)):
        written = machine.try_run(
            "setpriv", "--reuid=rspdns", "--regid=rspdns", "--init-groups", "test", "-w", path
        )
        assert written.returncode == 1, written.stderr
    assert machine.try_run("find", "/run/rspdns", "-name", "*.lua").stdout == ""
    assert "status: NXDOMAIN" in machine.run("dig", "@127.0.0.1", "a.b.c.example.net", "A")


def test_backend_purges_and_can_not_read_pdns_conf(machine: LiveSystemd) -> None:
    as_backend = "setpriv", "--reuid=rspdns", "--regid=rspdns", "--groups=" + ",".join(groups_of(machine))
    assert machine.run(
        *as_backend, "pdns_control", "--config-dir=/nowhere", "--socket-dir=/run/pdns", "purge", "x$"
    )
    refused = machine.try_run(*as_backend, "cat", "/etc/powerdns/pdns.conf")
    assert "Permission denied" in refused.stderr


def groups_of(machine: LiveSystemd) -> list[str]:
    """The groups of the running backend."""
    pid = machine.main_pid("rspdns")
    (line,) = machine.run("grep", "^Groups:", f"/proc/{pid}/status").splitlines()
    return line.split()[1:]


def test_uninstall_leaves_only_what_an_administrator_wrote(installed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(installed, copy, symlinks=True, copy_function=os.link)
    (copy / "etc/rspdns/rspdns.toml").write_text("mine")
    done = make_install(copy, target="uninstall")
    assert done.returncode == 0, done.stderr
    assert [str(path.relative_to(copy)) for path in copy.rglob("*") if not path.is_dir()] == [
        "etc/rspdns/rspdns.toml"
    ]
    assert f"kept: {copy}/etc/rspdns" in done.stdout
    again = make_install(copy, target="uninstall")
    assert again.returncode != 0
    assert "nothing is installed there" in again.stderr


def test_no_installed_file_names_the_folder_it_was_made_in(installed: Path) -> None:
    found = subprocess.run(
        ["grep", "-rl", str(installed), str(installed)], capture_output=True, text=True, check=False
    )
    assert found.stdout == ""


def test_install_says_what_it_lacks(tmp_path: Path) -> None:
    for variables, words in (
        (["PYTHON=/nowhere/python3"], "/nowhere/python3 is no Python 3.11 or later with venv"),
        (["PREFIX=relative"], "a path begins with /"),
    ):
        done = make_install(tmp_path / "root", *variables)
        assert done.returncode != 0
        assert words in done.stderr
    user = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
    command = [*user, str(REPOSITORY / "setup/install.sh"), "install"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 1
    assert "run it as root (sudo make install), or set DESTDIR" in done.stderr
    assert not (tmp_path / "root").exists()


def drops_strangers(machine: LiveSystemd) -> bool:
    return "sctp counter" in machine.try_run("nft", "list", "table", "inet", "rspdns").stdout


def test_units_load_the_packet_filter_and_check_refuses_a_registrar_without_it(machine: LiveSystemd) -> None:
    check = ("rspdns-registrar", "check", "/root/inventory.toml")
    assert machine.show("rspdns-filter", "ActiveState") == ["active"], "the registrars want it"
    assert drops_strangers(machine)
    assert "r1, r2, r3 on this host: behind a packet filter and the gate" in machine.run(*check)
    for command in ("start", "reload", "restart"):  # nftables takes everybody's tables away, each time
        machine.run("systemctl", command, "nftables")
        assert drops_strangers(machine), command

    machine.run("nft", "flush", "ruleset")
    refused = machine.try_run(*check)
    assert refused.returncode == 1
    assert "no packet filter protects r1, r2, r3 on this host" in refused.stderr
    assert "systemctl restart rspdns-filter" in refused.stderr
    assert machine.try_run(*check, "--offline").returncode == 0
    machine.run("sed", 's/^expected/filter = "elsewhere"\\n&/', "-i", "/root/inventory.toml")
    assert '(filter = "elsewhere") and the gate' in machine.run(*check)
    machine.run("sed", "/^filter/d", "-i", "/root/inventory.toml")
    machine.run("systemctl", "restart", "rspdns-filter")
    assert drops_strangers(machine)

    for file in ("registrar-r2.gate", "registrar-r2.env"):
        machine.run("mv", f"/etc/rspdns/{file}", "/root/")
        refused = machine.try_run(*check)
        assert refused.returncode == 1
        assert (
            f"no gate stands before registrar r2 of this host: /etc/rspdns/{file} is missing"
            in refused.stderr
        )
        machine.run("mv", f"/root/{file}", "/etc/rspdns/")
    machine.until(lambda: machine.try_run(*check).returncode == 0)  # the gate looks at its file now and then


def test_every_unit_runs_confined_and_as_nobody_special(machine: LiveSystemd) -> None:
    users = {}
    for unit in OURS:
        found = process(machine, unit)
        assert int(found["Uid"]) != 0, unit
        assert (found["NoNewPrivs"], int(found["CapEff"], 16), int(found["CapBnd"], 16)) == ("1", 0, 0), unit
        assert found["Seccomp"] == FILTERED, unit
        assert "ptrace" not in machine.show(unit, "SystemCallFilter")[0], unit
        users[unit] = machine.show(unit, "User")[0]
    assert (users["ppe-agent"], users["rspdns"]) == ("ppe-agent", "rspdns")
    for path in ("run/ppe-agent/control.sock", "var/lib/ppe-agent"):
        assert (machine.root / path).stat().st_mode & 0o007 == 0, "others have no business there"


def test_the_client_agent_has_two_rights_and_paces_in_its_sandbox(machine: LiveSystemd) -> None:
    found = process(machine, "ppu-agent")
    assert int(found["Uid"]) != 0
    assert found["NoNewPrivs"] == "1"
    assert int(found["CapEff"], 16) == int(found["CapBnd"], 16) == 1 << CAP_NET_ADMIN | 1 << CAP_BPF

    def paced() -> list[str]:
        said = machine.ask("/run/ppu-agent/control.sock", "status")
        return [endpoint["endpoint"] for endpoint in said["pace"]] if said else []

    machine.until(lambda: paced() == [f"{ADDRESS}:8080"])
    said = machine.run("ppu-agent", "explain", f"{ADDRESS}:8080")
    assert said.startswith("passes: an address of this host is never touched")


@pytest.fixture
def gateway(machine: LiveSystemd) -> Iterator[LiveSystemd]:
    """ppu-agent with `[gateway]` and the unit's drop-in for that, as docs/how-to/clients/gateway.md says."""
    needs_bpf()
    machine.run("ip", "link", "add", "guarded", "type", "veth", "peer", "name", "clients")
    machine.run("ip", "link", "set", "guarded", "up")
    machine.write("/etc/ppu-agent/ppu-agent.toml", PACING + '[gateway]\ninterfaces = ["guarded"]\n')
    drop_in = f"{UNITS}/ppu-agent.service.d/gateway.conf"
    machine.install("ppu-agent/systemd/ppu-agent-gateway.conf", drop_in)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "ppu-agent")
    try:
        yield machine
    finally:
        machine.run("rm", drop_in)
        machine.write("/etc/ppu-agent/ppu-agent.toml", PACING)
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "restart", "ppu-agent")
        machine.run("ip", "link", "del", "guarded")


def test_the_client_agent_guards_a_gateway_in_its_sandbox(gateway: LiveSystemd) -> None:
    def status() -> dict[str, Any]:
        said = gateway.ask("/run/ppu-agent/control.sock", "status")
        found: dict[str, Any] = (said or {}).get("gateway") or {}
        return found

    def filters() -> str:
        return "".join(
            gateway.run("tc", "filter", "show", "dev", "guarded", way) for way in ("ingress", "egress")
        )

    gateway.until(lambda: status().get("interfaces") == [{"name": "guarded", "problem": None}])
    assert "guard_in" in filters()
    found = process(gateway, "ppu-agent")
    assert int(found["Uid"]) != 0
    rights = sum(1 << number for number in (CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF))
    assert int(found["CapEff"], 16) == int(found["CapBnd"], 16) == rights
    gateway.until(
        lambda: (
            "tcp: set-up through guarded is guarded" in gateway.run("ppu-agent", "explain", f"{ADDRESS}:8080")
        ),
    )
    gateway.run("systemctl", "stop", "ppu-agent")
    assert "guard_in" not in filters()
    assert gateway.show("ppu-agent", "ActiveState", "Result") == ["inactive", "success"]


@pytest.fixture
def answered_by_kernel(machine: LiveSystemd) -> Iterator[Callable[[], int]]:
    """rspdns-fastpath, started; tells how many questions the kernel answered, with one more."""
    needs_bpf()
    machine.write("/etc/rspdns/fastpath.env", FAST_OPTIONS)
    machine.write("/etc/rspdns/rspdns.toml", FROM_THE_KERNEL)
    machine.run("systemctl", "start", "rspdns-fastpath")
    machine.run("systemctl", "restart", "rspdns")

    def answered() -> int:
        said = machine.run("dig", "@127.0.0.1", "+tries=1", "+nocookie", "_http._tcp.web.example.net", "SRV")
        assert " 8080 " in said
        status = machine.ask("/run/rspdns/admin.sock", "status")
        return int(status["fastpath"]["decisions"].get("answered", 0)) if status else 0

    try:
        machine.until(lambda: len(members(machine) or ()) == 1)
        yield answered
    finally:
        machine.write("/etc/rspdns/rspdns.toml", BACKEND)
        machine.run("systemctl", "stop", "rspdns-fastpath")
        machine.run("systemctl", "restart", "rspdns")
        machine.until(lambda: len(members(machine) or ()) == 1)


def test_the_kernel_answers_while_its_unit_runs_and_no_longer(
    machine: LiveSystemd, answered_by_kernel: Callable[[], int]
) -> None:
    machine.until(lambda: answered_by_kernel() > 0)
    found = process(machine, "rspdns-fastpath")
    assert int(found["Uid"]) != 0
    assert (found["NoNewPrivs"], int(found["CapEff"], 16)) == ("1", 1 << CAP_NET_ADMIN | 1 << CAP_BPF)
    assert found["Seccomp"] == FILTERED
    assert "ptrace" not in machine.show("rspdns-fastpath", "SystemCallFilter")[0]
    socket = "/run/rspdns-fastpath/fastpath.sock"
    assert machine.run("stat", "-c", "%U %G %a", socket) == "rspdns-fastpath rspdns 660\n"
    assert '"attached": true' in machine.run("/usr/local/sbin/rspdns-fastpath", "status")
    assert "fastpath" not in machine.run("rspdns", "check", "--offline")
    restarted(machine, "rspdns-fastpath", "--signal=SIGKILL")
    machine.until(lambda: answered_by_kernel() > 0)
    machine.run("systemctl", "stop", "rspdns-fastpath")
    assert "bpf" not in machine.run("tc", "filter", "show", "dev", "lo", "ingress")
    assert machine.show("rspdns-fastpath", "ActiveState", "Result") == ["inactive", "success"]
    answered_by_kernel()  # PowerDNS does
    assert "no rspdns-fastpath" in machine.run("rspdns", "status")


def test_a_reload_is_taken_whole_or_not_at_all(machine: LiveSystemd) -> None:
    machine.write("/etc/ppe-agent/agent.toml", UNDAMPED.replace('name = "one"', 'name = "two"'))
    machine.run("systemctl", "reload", "ppe-agent")
    machine.until(lambda: states(machine) == {"two": "in"})
    machine.write("/etc/ppe-agent/agent.toml", UNDAMPED.replace("tcp-hold", "tcp-held"))
    machine.run("systemctl", "reload", "ppe-agent")
    machine.until(lambda: "was not taken at the last reload" in machine.run("ppe-agent", "status"))
    assert states(machine) == {"two": "in"}
    machine.write("/etc/ppe-agent/agent.toml", UNDAMPED)
    machine.run("systemctl", "reload", "ppe-agent")
    machine.until(lambda: states(machine) == {"one": "in"})
    assert machine.show("ppe-agent", "NRestarts") == ["0"]
    machine.run("systemctl", "reload", "rspdns")
    machine.until(lambda: len(members(machine) or ()) == 1)


def client(machine: LiveSystemd, group: str) -> str:
    """The output of an ordinary user's program, with this group alone, that connects sockets to each
    other."""
    user = ("setpriv", "--reuid=12345", f"--regid={group}", "--clear-groups", "--bounding-set=-all")
    program = ("/usr/local/bin/sctp-run", "/usr/bin/python3", "-c", CLIENT)
    done = machine.try_run(*user, *program)
    return done.stdout + (done.stderr.splitlines() or [""])[-1]


def test_sctpd_in_its_sandbox_serves_its_group_alone(machine: LiveSystemd) -> None:
    """Raw sockets work with CAP_NET_RAW alone, IPv4 and IPv6; the unit is as `make install` left it."""
    assert machine.show("sctpd", "FragmentPath", "ActiveState", "User") == [
        "/usr/local/lib/systemd/system/sctpd.service",
        "active",
        "sctpd",
    ]
    found = process(machine, "sctpd")
    rights = [int(found[name], 16) for name in ("CapEff", "CapBnd")]
    assert (found["NoNewPrivs"], found["Seccomp"], rights) == ("1", "2", [1 << CAP_NET_RAW] * 2)
    assert client(machine, "sctp") == "through both\nthrough both\n"
    assert "through both" not in client(machine, "12345")


NEWS_PAGE = REPOSITORY / "docs/how-to/dns/act-on-a-change.md"
NEWS_AT = "10.99.0.1:8056"
CAP_NET_BIND_SERVICE = 1 << 10
"""DNS Push has the port 853."""


def test_news_are_told_by_their_unit_as_the_page_says(machine: LiveSystemd) -> None:
    page = NEWS_PAGE.read_text()
    make_key = "\n".join(re.findall(r"^    (.*/etc/rspdns/news-ims\.key)$", page, re.M)[:2])
    machine.run("sh", "-euc", make_key)
    (table,) = (text for text in blocks(page, "toml") if "[news]" in text)
    table = table.replace("192.0.2.1:8056", NEWS_AT).replace("ims.example.net", "example.net")
    machine.write("/etc/rspdns/rspdns.toml", f"{BACKEND}{table}")
    machine.run("systemctl", "start", "rspdns-news")
    found = process(machine, "rspdns-news")
    may = int(found["CapEff"], 16)
    assert (found["NoNewPrivs"], may, found["Seccomp"]) == ("1", CAP_NET_BIND_SERVICE, FILTERED)
    assert machine.show("rspdns-news", "User", "ActiveState") == ["rspdns", "active"]
    assert restarted(machine, "rspdns-news", "--signal=SIGKILL") < 3
    machine.run("cp", "/etc/rspdns/news-ims.key", "/root/news.key")
    command = "cat > /root/told; kill $PPID"
    machine.run("rspdns", "watch", "web-tcp", "--from", NEWS_AT, "--key", "/root/news.key", "--exec", command)
    told = json.loads((machine.root / "root/told").read_text())
    assert (told["why"], [member["port"] for member in told["pool"]["members"]]) == ("start", [8080])
    assert "1 pools, 0 news, 0 ports open" in machine.run("systemctl", "status", "rspdns-news")
    machine.run("systemctl", "stop", "rspdns-news")
    machine.write("/etc/rspdns/rspdns.toml", BACKEND)
    assert machine.show("rspdns-news", "Result") == ["success"]


UPPER = "10.99.0.1:3873"
UPPER_INVENTORY = """\
[[registrar]]
name = "above"
address = "10.99.0.1"
asap_port = 3873
enrp_port = 9911
[[agent]]
name = "gateways"
addresses = ["10.99.0.0/24"]
"""
GATEWAY = f"""\
{BACKEND.partition("[pdns]")[0]}
upper_registrars = ["{UPPER}/9911"]
address = "10.99.0.1"
[[pool]]
handle = "web-tcp"
accept = ["10.99.0.0/24"]
"""


def test_gateway_stands_for_its_cell_by_its_unit(machine: LiveSystemd) -> None:
    machine.write("/root/upper.toml", UPPER_INVENTORY)
    machine.run("rspdns-registrar", "render", "/root/upper.toml", "--output", "/root/upper")
    for kind in ("env", "gate"):
        machine.run("cp", f"/root/upper/above/registrar-above.{kind}", "/etc/rspdns/")
    machine.write("/etc/rspdns/gateway.toml", GATEWAY)
    machine.run("systemctl", "start", "rspdns-registrar@above", "rspdns-gateway")
    found = process(machine, "rspdns-gateway")
    assert (found["NoNewPrivs"], int(found["CapEff"], 16), found["Seccomp"]) == ("1", 0, FILTERED)
    assert machine.show("rspdns-gateway", "User", "ActiveState") == ["rspdns", "active"]
    is_above = f"registered at {UPPER}"
    machine.until(lambda: is_above in machine.run("rspdns", "gateway", "status"))
    assert "web-tcp above: 1 servers, capacity 1" in machine.run("rspdns", "gateway", "status")
    assert restarted(machine, "rspdns-gateway", "--signal=SIGKILL") < 3
    machine.until(lambda: is_above in machine.try_run("rspdns", "gateway", "status").stdout)
    machine.run("systemctl", "stop", "rspdns-gateway", "rspdns-registrar@above")
    assert machine.show("rspdns-gateway", "Result", "ExecMainStatus") == ["success", "0"]


@pytest.mark.parametrize("unit", ["ppe-agent", "rspdns", "rspdns-registrar@r2", "sctpd"])
def test_a_killed_service_is_started_again(machine: LiveSystemd, unit: str) -> None:
    assert 0 <= restarted(machine, unit, "--signal=SIGKILL") < 3, "200 ms, on a machine that is not busy"
    if unit == "sctpd":
        assert client(machine, "sctp") == "through both\nthrough both\n"
    machine.until(lambda: states(machine) == {"one": "in"})
    machine.until(lambda: len(members(machine) or ()) == 1)


@pytest.mark.parametrize("unit", ["ppe-agent", HUNG_REGISTRAR])
def test_a_service_that_hangs_is_ended_by_the_watchdog_and_started_again(
    machine: LiveSystemd, unit: str
) -> None:
    restarted(machine, unit, "--signal=SIGSTOP")
    assert "Watchdog timeout" in machine.run("journalctl", "--no-pager", f"--unit={unit}")
    machine.until(lambda: states(machine) == {"one": "in"})
    machine.until(lambda: len(members(machine) or ()) == 1)


def test_a_unit_that_is_not_active_is_out(machine: LiveSystemd) -> None:
    """An agent that runs as nobody special, in its sandbox, asks systemd; what ends it sees at once."""

    def sees(words: str, count: int) -> bool:
        said = machine.ask("/run/ppe-agent/control.sock", "status")
        found = members(machine)
        return said is not None and words in str(said["as"]) and found is not None and len(found) == count

    machine.write("/etc/ppe-agent/agent.toml", WATCHED)
    machine.run("systemctl", "reload", "ppe-agent")
    machine.until(lambda: sees("server.service is active (running)", 1))
    for ends, words in (
        ("stop server", "server.service is inactive (dead)"),
        ("kill --signal=SIGKILL server", "server.service is failed (failed): signal"),
    ):
        began_s = time.monotonic()
        machine.run("systemctl", *ends.split())
        machine.until(functools.partial(sees, words, 0))
        assert time.monotonic() - began_s < INTERVAL_S / 2, "seen at the next look, not when it ended"
        machine.run("systemctl", "start", "server")
        machine.until(lambda: sees("server.service is active (running)", 1))

    machine.write("/etc/ppe-agent/agent.toml", WATCHED.replace(f"{INTERVAL_S}000", "250"))
    machine.run("systemctl", "stop", "dbus.socket", "dbus.service")
    machine.run("systemctl", "reload", "ppe-agent")
    machine.until(lambda: sees("is dbus installed here", 0))
    machine.run("systemctl", "start", "dbus.socket")
    machine.until(lambda: sees("server.service is active (running)", 1))
    journal = machine.run("journalctl", "--no-pager", "--unit=ppe-agent")
    assert "is dbus installed" in journal
    assert "Got notification message" not in journal, "systemctl told systemd how it failed, for the agent"


def test_a_stop_withdraws_the_server_and_ends_well(machine: LiveSystemd) -> None:
    machine.until(lambda: len(members(machine) or ()) == 1)
    machine.run("systemctl", "stop", "ppe-agent")
    assert machine.show("ppe-agent", "Result", "ExecMainStatus") == ["success", "0"]
    machine.until(lambda: members(machine) == [])
    machine.run("systemctl", "stop", "rspdns", *REGISTRAR_UNITS)
    healthy = [f"--unit={unit}" for unit in REGISTRAR_UNITS if unit != HUNG_REGISTRAR]
    said = machine.run("journalctl", "--no-pager", *healthy)
    assert "Watchdog timeout" not in said, "these told systemd all the time that they are well"
    for unit in ("rspdns", *REGISTRAR_UNITS):
        assert machine.show(unit, "Result")[0] == "success", machine.journal()
