"""The tutorial "A first zone and a first server", followed word by word under systemd.

Its five hosts are two here: the three registrars and the name server are one, the application server is the
other. Debian packages are there already; the rest is done by the commands of the page.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.how_to import PREPARE, blocks
from tests.support.live_systemd import LiveSystemd, live_systemd
from tests.support.pages import Block
from tests.support.quickstart import SAMPLE
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(1200)  # the installation counts to the test

PAGE = "tutorial/first-zone.md"


def of_section(number: int) -> list[Block]:
    """The blocks of a section of the page."""
    return [
        block
        for block in blocks(PAGE)
        if any(heading.startswith(f"{number}. ") for heading in block.headings)
    ]


def commands(number: int) -> list[str]:
    """The lines of a section that are to be typed, without those that only the making of the hosts needs."""
    typed = [block.commands() for block in of_section(number) if block.language == "indented"]
    return [line.partition("   #")[0].strip() for text in typed for line in text.splitlines()]


def configuration(number: int) -> str:
    """The file that the section shows."""
    (text,) = (block.text for block in of_section(number) if block.language == "toml")
    return text


def connect(core: LiveSystemd, other: LiveSystemd) -> None:
    """A cable between both, as their eth0, with the addresses of the page."""
    ends = [("eth0", "netns", str(machine.pid)) for machine in (core, other)]
    subprocess.run(["ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1]], check=True)
    for machine, addresses, networks in (
        (core, ["10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24", "192.0.2.1/24"], ["10.20.0.0/16"]),
        (other, ["10.20.0.5/16"], ["10.0.0.0/24", "192.0.2.0/24"]),
    ):
        machine.run("ip", "link", "set", "eth0", "up")
        for address in addresses:
            machine.run("ip", "address", "add", address, "dev", "eth0", "nodad")
        for network in networks:
            machine.run("ip", "route", "add", network, "dev", "eth0")


@pytest.fixture
def hosts(installed: Path, tmp_path: Path) -> Iterator[tuple[LiveSystemd, LiveSystemd]]:
    """The host of registrars and name server, and that of the application server."""
    for name in ("core", "server"):
        (tmp_path / name).mkdir()
    with (
        live_systemd(tmp_path / "core", installed, PREPARE) as core,
        live_systemd(tmp_path / "server", installed, PREPARE) as server,
    ):
        connect(core, server)
        yield core, server


def shell(machine: LiveSystemd, command: str) -> str:
    return machine.run("bash", "-c", f"cd /root && ({command}) 2>&1")


def test_the_first_zone_and_server_come_up_and_go_as_the_tutorial_says(
    hosts: tuple[LiveSystemd, LiveSystemd],
) -> None:
    core, server = hosts
    core.write("/root/inventory.toml", configuration(2))
    for command in commands(2):
        if "@r1" not in command:
            shell(core, command)
            continue
        for name in ("r1", "r2", "r3"):
            for kind in ("env", "gate"):
                core.run("cp", f"/root/rendered/{name}/registrar-{name}.{kind}", "/etc/rspdns/")
            if command.startswith("systemctl"):
                shell(core, command.replace("r1", name))
    (ready,) = (command for command in commands(2) if "sentinel_registered" in command)
    core.until(lambda: bool(core.try_run("bash", "-c", ready).stdout))

    name_server = commands(3)
    for command in name_server:
        said = shell(core, command)
        if command == "rspdns check":
            assert "`sctp-run rspdns check`" in said
            said = shell(core, "sctp-run rspdns check")
            assert "warning: " in said, said
            assert "sip-as-udp" in said, "nobody registers the handle yet"
        if command.startswith("dig"):
            assert "ims.example.net" in said

    server.write("/etc/kamailio/kamailio.cfg", SAMPLE.read_text())
    server.run("systemctl", "start", "kamailio")
    server.write("/etc/ppe-agent/agent.toml", configuration(4))
    for command in commands(4):
        shell(server, command)
    server.until(lambda: re.search(r"sip-1\b.*\bin\b", server.run("ppe-agent", "status")))

    (console,) = (block.text for block in of_section(5) if block.language == "console")
    dig, expected = console.removeprefix("$ ").splitlines()
    shape = re.sub(r"[0-9a-f]{8}", "[0-9a-f]{8}", re.escape(expected))
    shape = shape.replace("0\\ 1000", r"\d \d+", 1)  # as loaded as this machine is

    def shown() -> bool:
        return re.fullmatch(shape, core.try_run(*dig.split()).stdout.strip()) is not None

    until(shown, told=lambda: core.try_run(*dig.split()).stdout + core.run("rspdns", "status"))

    server.run("systemctl", "stop", "kamailio")
    core.until(lambda: "empty" in core.run("rspdns", "status"))
    assert shown(), "last-good goes on naming it"
    zone = core.root / "etc/rspdns/zones.d/ims.example.net.toml"
    text = zone.read_text()
    zone.write_text(text.replace("[[pool]]", '[[pool]]\nwhen_empty = "nodata"', 1))
    core.run("rspdns", "reload")
    core.until(lambda: core.try_run(*dig.split()).stdout == "")
    server.run("systemctl", "start", "kamailio")
    until(shown, told=lambda: core.try_run(*dig.split()).stdout + core.run("rspdns", "status"))
