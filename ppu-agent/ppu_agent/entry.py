"""The command `ppu-agent`, as it is installed."""

from daemon_kit.entry import run


def main() -> None:
    """Run it, or say what is not installed."""
    run("ppu-agent", "ppu_agent.cli", "client")
