"""How PowerDNS is run: its configuration. This is the package's door: everything that others may import."""

from pdns_config.cli import pdns_conf
from pdns_config.distributor import DistributorSettings, distributor_conf, render_named_conf
from pdns_config.render import (
    BESIDE,
    OtherBackend,
    PdnsSettings,
    lacks_remote_backend,
    render_pdns_conf,
    write_script,
)

__all__ = [
    "BESIDE",
    "DistributorSettings",
    "OtherBackend",
    "PdnsSettings",
    "distributor_conf",
    "lacks_remote_backend",
    "pdns_conf",
    "render_named_conf",
    "render_pdns_conf",
    "write_script",
]
