"""The commands of the project, as they are installed: all come with the one package.

Nothing is imported before a command runs, so that it can say which library is missing.
"""

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from daemon_kit.entry import run

COMMANDS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "rspdns": ("rspdns.cli", "backend"),
        "ppe-agent": ("ppe_agent.cli", "agent"),
        "ppu-agent": ("ppu_agent.cli", "client"),
        "rspdns-registrar": ("registrar_config.cli", "registrar"),
        "rspdns-lab": ("rspdns_lab.cli", "labs"),
    }
)
"""The module that has each command's `main`, and the extra that brings its libraries."""


def start(command: str) -> None:
    """Run a command, or say what is not installed."""
    run(command, *COMMANDS[command])


def rspdns() -> None:
    """Run `rspdns`."""
    start("rspdns")


def ppe_agent() -> None:
    """Run `ppe-agent`."""
    start("ppe-agent")


def ppu_agent() -> None:
    """Run `ppu-agent`."""
    start("ppu-agent")


def registrar() -> None:
    """Run `rspdns-registrar`."""
    start("rspdns-registrar")


def lab() -> None:
    """Run `rspdns-lab`."""
    start("rspdns-lab")


if __name__ == "__main__":  # python -m rspdns.entry COMMAND ARGUMENT...
    sys.argv = sys.argv[1:]
    start(sys.argv[0])
