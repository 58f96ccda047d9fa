"""The command `rspdns-registrar`, as it is installed."""

from daemon_kit.entry import run


def main() -> None:
    """Run it, or say what is not installed."""
    run("rspdns-registrar", "registrar_config.cli", "registrar")
