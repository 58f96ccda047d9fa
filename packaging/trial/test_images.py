"""The container images, run: the installation of packaging/compose, in a network namespace of its own.

`make test-images` builds them and runs this; it needs root and podman, and is no part of `make test`. Every
container has a read-only root and an ordinary user, as there.
"""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.namespaces import REPOSITORY, Namespace, own_namespace
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(900)
COMPOSE = REPOSITORY / "packaging" / "compose"
IMAGES = REPOSITORY / "build" / "images"
SERVICES = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
SERVICES.pop("prepare")  # it has ended
CHECKED = [name for name, service in SERVICES.items() if not service.get("healthcheck", {}).get("disable")]
NAME_SERVERS = ("10.89.53.21", "10.89.53.22")
REGISTRARS = "10.89.53.11,10.89.53.12,10.89.53.13"
WEB = ("10.89.53.31", "10.89.53.32")
USER = 10053
NEEDED = ("podman", "runc", "dig", "conmon")
PPU_AGENT = f"""\
registrars = {[*REGISTRARS.split(",")]}
[[pool]]
handle = "web-tcp"
accept = ["10.89.53.0/24"]
"""


class Host:
    """podman in a network namespace, with storage, networks and settings of its own."""

    def __init__(self, namespace: Namespace, folder: Path) -> None:
        missing = [name for name in NEEDED if shutil.which(name) is None]
        if (
            not Path("/usr/lib/cni/bridge").exists()
            and shutil.which("netavark", path="/usr/lib/podman") is None
        ):
            missing.append("containernetworking-plugins")
        assert not missing, f"missing; first: apt-get install --no-install-recommends {' '.join(missing)}"
        self.namespace = namespace
        # Not above what this machine allows; runc knows every arrangement of cgroups.
        limits = [
            f'"{name}={min(4096, limit)}:{min(4096, limit)}"'
            for name, kind in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
            if (limit := resource.getrlimit(kind)[1]) > 0
        ]
        settings = folder / "containers.conf"
        settings.write_text(
            f'[containers]\ndefault_ulimits = [{", ".join(limits)}]\n[engine]\nruntime = "runc"\n'
            '[network]\ncni_plugin_dirs = ["/usr/lib/cni"]\n'
        )
        networks = folder / "networks"
        networks.mkdir()
        podman = folder / "bin" / "podman"
        podman.parent.mkdir()
        driver = os.environ.get("STORAGE_DRIVER", "overlay")
        options = f"--root {IMAGES}/store --runroot {IMAGES}/run --network-config-dir {networks}"
        podman.write_text(
            f'#!/bin/sh\nexec {shutil.which("podman")} {options} --storage-driver {driver} "$@"\n'
        )
        podman.chmod(0o755)
        self._environment = [
            "env",
            f"PATH={podman.parent}:{os.environ['PATH']}",
            f"CONTAINERS_CONF={settings}",
        ]

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return self.namespace.run(*self._environment, *map(str, command), timeout_s=300)

    def podman(self, *arguments: str | Path) -> str:
        done = self.run("podman", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def compose(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).parent / "podman-compose"
        return self.run(program, "--file", COMPOSE / "compose.yaml", "--project-name", "trial", *arguments)

    def is_healthy(self, service: str) -> bool:
        """Run the health check of a container. Nothing runs it by itself where systemd doesn't."""
        return self.run("podman", "healthcheck", "run", container(service)).returncode == 0

    def kill(self, service: str) -> None:
        """Kill what a container runs, as a fault would: whoever stops a container wants it stopped."""
        first = int(self.podman("inspect", "--format", "{{.State.Pid}}", container(service)))
        os.kill(first, 9)

    def answer(self, server: str) -> list[str]:
        """The addresses of the web servers, asked of a name server."""
        options = ("-p", "5300", "+short", "+tries=1", "+time=3", "web.example.net", "A")
        return sorted(self.namespace.run("dig", f"@{server}", *options).stdout.split())


def container(service: str) -> str:
    return f"trial_{service}_1"


@pytest.fixture(scope="module", autouse=True)
def forwarding() -> Iterator[None]:
    """Whether this machine forwards packets stays as it was: podman turns that on."""
    switch = Path("/proc/sys/net/ipv4/ip_forward")
    before = switch.read_text()
    yield
    if switch.read_text() != before:
        switch.write_text(before)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The whole installation, started; it is removed at the end, with its volumes."""
    assert (IMAGES / "images.txt").exists(), "no images; first: make images"
    with own_namespace() as namespace:
        host = Host(namespace, tmp_path_factory.mktemp("podman"))
        try:
            done = host.compose("up", "--detach")
            assert done.returncode == 0, done.stdout + done.stderr
            yield host
        finally:
            host.compose("down", "--volumes", "--timeout", "2")


def all_answer(host: Host, *addresses: str) -> None:
    def is_told_everywhere() -> bool:
        return all(host.answer(server) == [*addresses] for server in NAME_SERVERS)

    until(is_told_everywhere, told=lambda: host.compose("logs").stdout[-8000:])


def test_both_name_servers_answer_with_both_servers(host: Host) -> None:
    all_answer(host, *WEB)


@pytest.mark.parametrize("service", CHECKED)
def test_every_container_is_healthy(host: Host, service: str) -> None:
    until(lambda: host.is_healthy(service), told=lambda: host.podman("logs", container(service)))


@pytest.mark.parametrize("service", SERVICES)
def test_every_container_has_a_read_only_root_and_an_ordinary_user(host: Host, service: str) -> None:
    def inside(*command: str) -> subprocess.CompletedProcess[str]:
        return host.run("podman", "exec", container(service), *command)

    assert inside("id", "-u").stdout == SERVICES[service]["user"].partition(":")[0] + "\n"
    refused = inside("touch", "/etc/x", "/usr/x", "/var/lib/x")
    assert refused.stderr.count("Read-only file system") == 3, refused.stderr
    rights = inside("grep", "-E", "^Cap(Bnd|Eff)", "/proc/1/status").stdout.split()
    bounding = int(rights[rights.index("CapBnd:") + 1], 16)
    assert bounding in (0, 1 << 13), "more than CAP_NET_RAW"


def test_killed_server_leaves_and_is_back_when_it_was_started_again(host: Host) -> None:
    all_answer(host, *WEB)
    host.kill("web1")
    all_answer(host, *WEB)  # it is started again, in the same network, where its sidecar finds it
    host.podman("stop", "--time", "1", container("web2"))
    all_answer(host, WEB[0])
    host.podman("start", container("web2"))
    all_answer(host, *WEB)


@pytest.mark.parametrize("service", ["registrar1", "ns1-backend", "ns1", "web1-sidecar"])
def test_killed_service_is_started_again_and_all_is_well(host: Host, service: str) -> None:
    until(lambda: host.is_healthy(service))
    host.kill(service)
    until(
        lambda: host.is_healthy(service), told=lambda: host.podman("logs", "--tail", "50", container(service))
    )
    all_answer(host, *WEB)


def test_sctpd_in_a_container_serves_another_without_any_right(host: Host) -> None:
    """As in packaging/kubernetes/userland-sctp: one network, one user, and CAP_NET_RAW for sctpd alone."""
    options = ("--rm", "--read-only", "--no-healthcheck", "--cap-drop", "all")
    network = ("--network", "trial_pools", "--ip", "10.89.53.51")
    host.podman(
        "run", "--detach", "--name", "sctpd", *options, "--cap-add", "net_raw", *network, "ppe-agent", "sctpd"
    )
    try:
        until(lambda: host.run("podman", "exec", "sctpd", "sctpd", "--status").returncode == 0)
        command = (
            "sctp-run",
            "rspdns-registrar",
            "status",
            "--address",
            "10.89.53.12",
            "--registrars",
            REGISTRARS,
        )
        beside = ("--network", "container:sctpd", "--security-opt", "no-new-privileges")
        assert "settled" in host.podman("run", *options, *beside, "rspdns-registrar", *command)
        alone = host.run("podman", "run", *options, "--network", "trial_pools", "rspdns-registrar", *command)
        assert "CAP_NET_RAW is missing" in alone.stderr
    finally:
        host.podman("rm", "--force", "--time", "0", "sctpd")


def test_ppu_agent_is_healthy_with_two_capabilities(host: Host, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # its ordinary user reads it
    (tmp_path / "ppu-agent.toml").write_text(PPU_AGENT)
    rights = ("--read-only", "--cap-drop", "all", "--cap-add", "net_admin", "--cap-add", "net_raw")
    where = ("--network", "trial_pools", "--ip", "10.89.53.61", "--volume", f"{tmp_path}:/etc/ppu-agent:ro")
    kept = ("--volume", "ppu-agent-run:/run/ppu-agent", "--volume", "ppu-agent-state:/var/lib/ppu-agent")
    host.podman("run", "--detach", "--name", "ppu-agent", *rights, *kept, *where, "ppu-agent")
    try:
        healthy = ("podman", "healthcheck", "run", "ppu-agent")
        until(lambda: host.run(*healthy).returncode == 0, told=lambda: host.podman("logs", "ppu-agent"))
        said = host.podman("exec", "ppu-agent", "ppu-agent", "status")
        assert all(address in said for address in WEB), said
        assert host.podman("exec", "ppu-agent", "id", "-u") == str(USER)
    finally:
        host.podman("rm", "--force", "--time", "2", "ppu-agent")
        host.podman("volume", "rm", "ppu-agent-run", "ppu-agent-state")
