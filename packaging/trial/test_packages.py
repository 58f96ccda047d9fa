"""The Debian packages in a fresh root under systemd: installed by an apt line, upgraded, removed, purged.

`make test-packages` builds them and runs this, `make test-release` runs it on the repository of a release; it
needs root and debootstrap, and is no part of `make test`.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ppe_agent.servers import TCP_SERVER
from tests.support.live_systemd import (
    AGENT,
    BACKEND,
    CLIENT_AGENT,
    NAME,
    NETWORK,
    POOL,
    REGISTRAR_UNITS,
    SERVER,
    LiveSystemd,
    inventory,
    live_systemd,
)
from tests.support.namespaces import REPOSITORY

pytestmark = pytest.mark.timeout(1800)
PACKAGES = REPOSITORY / "build" / "packages"
PREVIOUS = REPOSITORY / "build" / "previous"
SUITES = tuple(os.environ.get("SUITES", "").split()) or ("bookworm", "trixie")
"""Those that `make test-packages SUITES=...` built."""
ALL = (
    *("rspdns-common", "rspdns", "ppe-agent", "ppu-agent"),
    *("rspdns-registrar", "rspdns-fastpath", "sctp-userland"),
)
LAB = ("rspdns-lab",)
ARCHITECTURE = subprocess.run(
    ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
).stdout.strip()
FASTPATH = "/run/rspdns-fastpath/fastpath.sock"
PATIENCE_S = 2.0
"""The time that PowerDNS waits for its backend. Then it answers SERVFAIL, as the page about upgrades says."""
CONNECT = "import socket; socket.create_connection(('10.9.9.9', 8080), 3)"
UNITS = ["rspdns", "ppe-agent", *REGISTRAR_UNITS]


def root_for_tests(suite: str) -> Path:
    done = subprocess.run(
        [REPOSITORY / "packaging" / "roots.sh", suite, "TEST"], capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip())


def version_of(package: Path) -> str:
    command = ["dpkg-deb", "-f", package, "Version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def put(package: Path, folder: Path, before: str) -> None:
    """Put a package into a folder; under a later version, if `before` is this one's."""
    if version_of(package) != before:
        shutil.copy(package, folder)
        return
    content = folder / "content"
    subprocess.run(["dpkg-deb", "-R", package, content], check=True)
    control = content / "DEBIAN" / "control"
    control.write_text(re.sub(r"(\d\S*?\+deb\d+u)1", r"\g<1>2", control.read_text()))
    subprocess.run(["dpkg-deb", "-Zgzip", "-z1", "-b", content, folder], check=True, capture_output=True)
    shutil.rmtree(content)


def make_repository(folder: Path, packages: Path, key: Path) -> None:
    environment = {**os.environ, "APT_KEY": str(key), "PACKAGES": str(packages)}
    subprocess.run([REPOSITORY / "packaging" / "apt.sh", folder], env=environment, check=True)


@pytest.fixture(scope="module", params=SUITES)
def machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveSystemd]:
    """A fresh Debian under systemd, without a network, with two apt repositories at hand.

    `new` has these packages and `old` those of before (packaging/previous.sh). If there are none, `old` has
    these packages. `new` has later versions in any case.
    """
    suite = request.param
    made, files = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("files")
    (files / "srv").mkdir()
    key = Path(os.environ.get("APT_KEY") or made / "key").resolve()
    old = PREVIOUS / suite if (PREVIOUS / suite).exists() else PACKAGES / suite
    for name in ("old", "new"):
        (made / name / suite).mkdir(parents=True)
    for name in (*ALL, *LAB):
        (before,) = old.glob(f"{name}_*_{ARCHITECTURE}.deb")
        (package,) = (PACKAGES / suite).glob(f"{name}_*_{ARCHITECTURE}.deb")
        shutil.copy(before, made / "old" / suite)
        put(package, made / "new" / suite, version_of(before))
    if (PREVIOUS / "apt").exists():
        shutil.copytree(PREVIOUS / "apt", files / "srv" / "old")
    else:
        make_repository(files / "srv" / "old", made / "old", key)
    time.sleep(1)  # apt takes no list that is older than the present one
    make_repository(files / "srv" / "new", made / "new", key)
    shutil.rmtree(made)
    source = files / "etc/apt/sources.list.d/rspdns.list"
    source.parent.mkdir(parents=True)
    source.write_text(f"deb [signed-by=/srv/old/rspdns.asc] file:/srv/apt {suite} main\n")
    with live_systemd(tmp_path_factory.mktemp("live"), files, NETWORK, root_for_tests(suite)) as live:
        yield live


def answer(machine: LiveSystemd) -> list[str]:
    """The ports in the SRV answer; what dig says, when there is none."""
    said = machine.try_run("dig", "@127.0.0.1", "+tries=1", "+time=5", NAME, "SRV").stdout
    return re.findall(r"\sSRV\s+\d+ \d+ (\d+) ", said) or [said]


def zone_serial(machine: LiveSystemd) -> int:
    return int(machine.run("dig", "@127.0.0.1", "+short", "example.net", "SOA").split()[2])


def apt(machine: LiveSystemd, *arguments: str) -> str:
    options = ["--yes", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confdef"]
    return machine.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *options, *arguments)


def version(machine: LiveSystemd, package: str) -> str:
    return machine.run("dpkg-query", "-f", "${Version}", "-W", package)


def ask_backend(machine: LiveSystemd, ended: threading.Event, windows_s: list[float]) -> None:
    """Ask at the backend's socket as PowerDNS does, question after question; note how long each waits."""
    question = {"method": "lookup", "parameters": {"qname": f"{NAME}.", "qtype": "SRV", "zone-id": -1}}
    path = str(machine.root / "run/rspdns/remote.sock")
    asked_s = time.monotonic()
    while not ended.is_set():
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(path)
            stream = client.makefile("rwb")
            while not ended.is_set():
                stream.write(json.dumps(question).encode() + b"\n")
                stream.flush()
                if b"8080" not in stream.readline():
                    break
                windows_s.append(time.monotonic() - asked_s)
                asked_s = time.monotonic()
                time.sleep(0.005)
        time.sleep(0.005)


def away_s(machine: LiveSystemd, unit: str) -> float:
    """The longest time between a unit's beginning to stop and its being ready again, by systemd's log."""
    said = machine.run("journalctl", "--no-pager", "-o", "json", f"UNIT={unit}.service")
    stopping_us: int | None = None
    longest_us = 0
    for line in said.splitlines():
        entry = json.loads(line)
        if entry["MESSAGE"].startswith("Stopping"):
            stopping_us = int(entry["__MONOTONIC_TIMESTAMP"])
        elif stopping_us is not None and entry["MESSAGE"].startswith("Started"):
            longest_us = max(longest_us, int(entry["__MONOTONIC_TIMESTAMP"]) - stopping_us)
            stopping_us = None
    return longest_us / 1e6


def serve(machine: LiveSystemd, repository: str) -> None:
    """Let the host's apt line lead to the `old` or the `new` repository."""
    machine.run("ln", "-sfn", f"/srv/{repository}", "/srv/apt")
    ours_alone = {  # there is no network but lo
        "Dir::Etc::sourcelist": "/etc/apt/sources.list.d/rspdns.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Get::List-Cleanup": "false",
    }
    options = [word for key, value in ours_alone.items() for word in ("-o", f"{key}={value}")]
    machine.run("apt-get", "--error-on=any", *options, "update")


def test_installed_without_a_network_and_nothing_is_started(machine: LiveSystemd) -> None:
    machine.run("systemctl", "mask", "rsplib-registrar")  # as docs/how-to/install.md says
    serve(machine, "old")
    apt(machine, "install", *ALL)
    for unit in ("rspdns.service", "rspdns.socket", "ppe-agent.service", "ppu-agent.service"):
        assert machine.try_run("systemctl", "is-active", unit).stdout == "inactive\n"
        assert machine.try_run("systemctl", "is-enabled", unit).stdout == "disabled\n"
    for command in ("rspdns", "ppe-agent", "ppu-agent", "rspdns-registrar"):
        assert "version" in machine.run(command, "--version")
        assert (machine.root / f"usr/share/man/man1/{command}.1.gz").exists()
        assert (machine.root / f"usr/share/bash-completion/completions/{command}").exists()
    for user in ("rspdns", "ppe-agent", "sctpd"):
        assert machine.run("id", "-u", user)
    assert list((machine.root / "usr/lib/rspdns").rglob("*.pyc")), "compiled when they were installed"


def test_configured_as_install_md_says_it_answers(machine: LiveSystemd) -> None:
    for path, text in (
        ("/etc/systemd/system/server.service", SERVER),
        ("/opt/server.py", TCP_SERVER),
        ("/root/inventory.toml", inventory("10.99.0.0/24")),
        ("/etc/ppe-agent/agent.toml", AGENT),
        ("/etc/rspdns/rspdns.toml", BACKEND),
    ):
        machine.write(path, text)
    machine.run("rspdns-registrar", "render", "/root/inventory.toml", "--output", "/root/rendered")
    for name in ("r1", "r2", "r3"):
        for kind in ("env", "gate"):
            machine.run("cp", f"/root/rendered/{name}/registrar-{name}.{kind}", "/etc/rspdns/")
    machine.run("cp", "/root/rendered/r1/rspdns.nft", "/etc/rspdns/")
    machine.run(
        "rspdns",
        "zone",
        "add",
        "example.net",
        "--ns",
        "ns1=127.0.0.1",
        "--handle",
        "web-tcp",
        "--accept",
        "10.99.0.0/24",
    )
    pool = machine.root / "etc/rspdns/zones.d/example.net.toml"
    pool.write_text(pool.read_text().split("[[pool]]")[0] + f"\n{POOL}")
    machine.run("rspdns", "check", "--offline")
    machine.run("cp", "/usr/share/doc/rspdns/examples/pdns.conf", "/etc/powerdns/pdns.conf")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "server")
    machine.run("systemctl", "enable", "--now", *UNITS)
    machine.run("systemctl", "restart", "pdns")
    machine.until(lambda: answer(machine) == ["8080"])
    machine.run("rspdns-registrar", "check", "/root/inventory.toml")  # packet filter and gate
    machine.until(lambda: machine.try_run("rspdns", "status", "--nagios").returncode == 0)


def test_an_upgrade_keeps_configuration_and_state_and_loses_no_answer(machine: LiveSystemd) -> None:
    machine.until(lambda: answer(machine) == ["8080"])
    machine.run("rspdns", "override", "10.99.0.1:8080", "up", "--reason", "kept by the upgrade")
    serial = zone_serial(machine)
    before = {unit: machine.main_pid(unit) for unit in UNITS}
    before_it = version(machine, "rspdns")
    wrong: list[tuple[int, list[str], float]] = []
    waits_s: list[float] = []
    windows_s: list[float] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            began_s = time.monotonic()
            ports = answer(machine)
            waits_s.append(time.monotonic() - began_s)
            if ports != ["8080"]:
                wrong.append((len(waits_s), ports, time.monotonic()))

    asking = threading.Thread(target=ask)
    asking.start()
    at_the_backend = threading.Thread(target=ask_backend, args=(machine, ended, windows_s))
    at_the_backend.start()
    try:
        serve(machine, "new")
        apt(machine, "upgrade")
        time.sleep(3)
    finally:
        ended.set()
        asking.join()
        at_the_backend.join()
    print(f"{len(waits_s)} questions were asked during the upgrade; the longest took {max(waits_s):.2f} s")
    print("\n".join(f"{unit}: {away_s(machine, unit):.2f} s without it" for unit in ("rspdns", "ppe-agent")))
    print(f"the backend itself, without caches: {max(windows_s):.2f} s without an answer at most")
    assert len(waits_s) > 20
    if max(windows_s) < PATIENCE_S:
        assert not wrong, f"of {len(waits_s)}: {wrong}\n{machine.journal()}"
    assert all("SERVFAIL" in said for _, (said,), _ in wrong), "a busy machine never makes a wrong answer"
    assert version(machine, "rspdns") != before_it
    for unit, pid in before.items():
        assert machine.main_pid(unit) not in (0, pid), f"{unit} was restarted"
    for path, text in (("etc/rspdns/rspdns.toml", BACKEND), ("etc/ppe-agent/agent.toml", AGENT)):
        assert (machine.root / path).read_text() == text
    machine.until(lambda: answer(machine) == ["8080"])
    assert zone_serial(machine) >= serial
    assert "kept by the upgrade" in machine.run("rspdns", "override", "list")
    machine.run("rspdns", "override", "clear", "--all")
    machine.until(lambda: machine.try_run("rspdns", "status", "--nagios").returncode == 0)


def test_upgrade_whose_version_refuses_the_configuration_ends_nothing(machine: LiveSystemd) -> None:
    """The script that dpkg runs at the end of an upgrade says why, and leaves what runs as it is."""
    for package, path, right in (
        ("rspdns", "/etc/rspdns/rspdns.toml", BACKEND),
        ("ppe-agent", "/etc/ppe-agent/agent.toml", AGENT),
    ):
        before = machine.main_pid(package)
        machine.write(path, f"{right}\n[unknown]\nkey = 1\n")
        done = machine.try_run(f"/var/lib/dpkg/info/{package}.postinst", "configure", "0.0.1")
        assert done.returncode == 0, done.stderr
        assert "not restarted" in done.stderr
        assert "unknown" in done.stderr
        assert machine.main_pid(package) == before
        machine.write(path, right)
    assert answer(machine) == ["8080"]


def test_sidecar_of_a_client_runs_as_its_unit_says_and_steers(machine: LiveSystemd) -> None:
    def connects() -> bool:
        return machine.try_run("python3", "-c", CONNECT).returncode == 0

    machine.write("/etc/ppu-agent/ppu-agent.toml", f'{CLIENT_AGENT}steer = "10.9.9.9:8080"\n')
    machine.run("ip", "route", "add", "10.9.9.9", "dev", "eth0")
    assert not connects()
    machine.run("systemctl", "enable", "--now", "ppu-agent")
    machine.until(connects)
    machine.run("systemctl", "disable", "--now", "ppu-agent")
    assert not connects(), "its rules are gone with it"


def test_fast_path_runs_as_its_unit_says_and_the_backend_feeds_it(machine: LiveSystemd) -> None:
    machine.write("/etc/rspdns/fastpath.env", 'FASTPATH_OPTIONS="--interface eth0 --address 10.99.0.1"\n')
    machine.write("/etc/rspdns/rspdns.toml", f'{BACKEND}[fastpath]\nsocket = "{FASTPATH}"\n')
    machine.run("systemctl", "enable", "--now", "rspdns-fastpath")
    machine.run("systemctl", "restart", "rspdns")
    machine.until(
        lambda: "answers" in machine.try_run("rspdns-fastpath", "status", "--socket", FASTPATH).stdout,
    )
    machine.until(lambda: answer(machine) == ["8080"])
    machine.write("/etc/rspdns/rspdns.toml", BACKEND)
    machine.run("systemctl", "restart", "rspdns")
    machine.run("systemctl", "disable", "--now", "rspdns-fastpath")


def test_lab_plays_an_installation(machine: LiveSystemd) -> None:
    apt(machine, "install", *LAB)
    assert "version" in machine.run("rspdns-lab", "--version")
    said = machine.run("rspdns-lab", "demo")
    assert "killed" in said


def test_removed_it_leaves_what_an_administrator_wrote(machine: LiveSystemd) -> None:
    apt(machine, "remove", *ALL, *LAB)
    for command in ("rspdns", "ppe-agent", "rspdns-registrar", "sctpd"):
        assert not (machine.root / f"usr/bin/{command}").exists()
    for unit in UNITS:
        assert machine.try_run("systemctl", "is-active", unit).stdout != "active\n"
    assert not list((machine.root / "usr/lib").glob("rspdns/**/*"))
    for kept in (
        "etc/rspdns/rspdns.toml",
        "etc/rspdns/zones.d/example.net.toml",
        "etc/rspdns/registrar-r1.env",
        "var/lib/rspdns",
    ):
        assert (machine.root / kept).exists(), kept


def test_purged_it_leaves_nothing(machine: LiveSystemd) -> None:
    apt(machine, "purge", *ALL)
    state = [f"var/lib/{name}" for name in ("rspdns", "ppe-agent", "ppu-agent")]
    for gone in ("etc/rspdns", "etc/ppe-agent", *state, "usr/lib/rspdns"):
        assert not (machine.root / gone).exists(), gone
    links = [
        path
        for path in (machine.root / "etc/systemd/system").rglob("*")
        if re.search("rspdns|ppe-agent|sctpd", path.name)
    ]
    assert links == []
