"""Run by `rspdns up` where SCTP works: whether its registrars could have their ports at an address."""

from __future__ import annotations

import sys

from daemon_kit.errors import FatalError
from registrar_config.options import embedded_settings
from registrar_config.preflight import check_ports


def main(address: str) -> int:
    """Say on standard error what is in the way; return the exit code."""
    for settings in embedded_settings(address):
        try:
            check_ports(settings)
        except FatalError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
