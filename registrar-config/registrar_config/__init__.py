"""How rspregistrar is run: its options, its supervision, and the sentinel that tells a settled registrar.

This is the package's door: everything that others may import. `RegistrarSettings` become a command line by
`arguments`. `embedded_commands` are those of three registrars on one machine. An `Inventory` describes the
hosts of a site; `render_files` makes their files, `size` says how many servers its registrars bear.
"""

from registrar_config.embedded import (
    check_embedded,
    embedded_commands,
    embedded_registrars,
    embedded_rules,
    embedded_settings,
)
from registrar_config.gate import check_rules, gate_is_built
from registrar_config.inventory import Inventory, load_inventory
from registrar_config.kernel_timers import KERNEL_TIMERS_MS, SCTPD_OPTIONS
from registrar_config.options import KEEP_ALIVE, TIMERS_MS, RegistrarSettings, SctpEndpoint, arguments
from registrar_config.preflight import check_scope, own_address, sctp_wrapper
from registrar_config.render import check_inventory, render_files, render_inventory
from registrar_config.sizing import size
from registrar_config.wireguard import render_wireguard

__all__ = [
    "KEEP_ALIVE",
    "KERNEL_TIMERS_MS",
    "SCTPD_OPTIONS",
    "TIMERS_MS",
    "Inventory",
    "RegistrarSettings",
    "SctpEndpoint",
    "arguments",
    "check_embedded",
    "check_inventory",
    "check_rules",
    "check_scope",
    "embedded_commands",
    "embedded_registrars",
    "embedded_rules",
    "embedded_settings",
    "gate_is_built",
    "load_inventory",
    "own_address",
    "render_files",
    "render_inventory",
    "render_wireguard",
    "sctp_wrapper",
    "size",
]
