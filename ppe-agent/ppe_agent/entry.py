"""The command `ppe-agent`, as it is installed."""

from daemon_kit.entry import run


def main() -> None:
    """Run it, or say what is not installed."""
    run("ppe-agent", "ppe_agent.cli", "agent")
