"""The command `rspdns-lab`, as it is installed."""

from daemon_kit.entry import run


def main() -> None:
    """Run it, or say what is not installed."""
    run("rspdns-lab", "rspdns_lab.cli", "labs")


if __name__ == "__main__":
    main()
