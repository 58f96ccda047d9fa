"""The places at which the product meets the world, and the models that stand there in a scenario.

Everything above them is the product's own: drivers, machines, belief, checks, probes, publisher, purges.
`determinism.install` was called before this module is imported.
"""

import functools
import logging
from typing import Any

import daemon_kit.files
import pool_user.probe.methods
import ppe_agent.checks.configuration
import ppe_agent.checks.sip
import ppe_agent.checks.tcp
import ppe_agent.configuration
import rserpool.aio.driver
import rspdns.pdns.purge
import structlog

from rspdns_lab.chain import lying_registrar
from rspdns_lab.simulate.associations import SctpNetwork
from rspdns_lab.simulate.disk import OsModule
from rspdns_lab.simulate.folded_checks import FoldingAsker
from rspdns_lab.simulate.network import SimulatedNetwork
from rspdns_lab.simulate.powerdns import ControlExchange
from rspdns_lab.simulate.sctp_socket import SimulatedSctpSocket
from rspdns_lab.simulate.sockets import SimulatedSocket, SocketModule


def _put(module: Any, name: str, model: object) -> None:
    """Let the model stand for what the module has under this name. A name that is gone is an error here."""
    getattr(module, name)
    setattr(module, name, model)


@functools.cache
def install() -> None:
    """Put the models in their places, for good."""
    module = SocketModule()
    _put(daemon_kit.files, "os", OsModule())
    _put(rserpool.aio.driver, "SctpSocket", SimulatedSctpSocket)
    _put(lying_registrar, "SctpSocket", SimulatedSctpSocket)
    _put(pool_user.probe.methods, "socket", module)
    _put(ppe_agent.checks.sip, "socket", module)
    _put(ppe_agent.checks.sip, "OutgoingSocket", SimulatedSocket)
    _put(ppe_agent.checks.sip, "UdpAsker", FoldingAsker)
    _put(ppe_agent.checks.tcp, "OutgoingSocket", SimulatedSocket)
    _put(rspdns.pdns.purge, "_Exchange", ControlExchange)
    _put(ppe_agent.configuration, "is_on_this_host", lambda _address: True)
    lying_registrar.print = lambda *words, **options: None  # type: ignore[attr-defined]
    structlog.configure(
        processors=[_drop],
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        cache_logger_on_first_use=False,
    )


def _drop(*_: object) -> Any:
    raise structlog.DropEvent


def use(network: SimulatedNetwork) -> None:
    """The models are of this scenario from now on."""
    SimulatedSctpSocket.sctp = SctpNetwork(network)
    SimulatedSocket.network = OsModule.network = network
    ControlExchange.network = network
