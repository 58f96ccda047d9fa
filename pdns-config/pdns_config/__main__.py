"""`python -m pdns_config` is `rspdns pdns-conf`."""

from pdns_config.cli import pdns_conf

pdns_conf()
