"""`python -m pdns_config > pdns.conf`."""

import sys

from pdns_config.cli import main

if __name__ == "__main__":
    sys.exit(main())
