"""`python -m registrar_config` is `rspdns-registrar`."""

from registrar_config.cli import main

main()
