"""SIP health checks whose answer is certain: one call, in place of a request and a response on their way.

A server that runs answers every OPTIONS alike (`sockets`). The check is folded while its process is
responsive and the way to it is sound; in every other case the sidecar's own code asks. States, rise and fall,
and the time between attempts are the sidecar's own always.
"""

from typing import Final

from daemon_kit.sip import Response
from ppe_agent.checks.sip import UdpAsker

from rspdns_lab.simulate.sockets import SimulatedServer, SimulatedSocket

_OK: Final = Response(200, "OK", "", 1, "OPTIONS", "")


class FoldingAsker(UdpAsker):
    """Asks over UDP, folded where that tells the same."""

    async def ask(self, timeout_ms: int) -> Response:
        """Return the final response to one OPTIONS; raises OSError."""
        if not self._is_certain:
            return await super().ask(timeout_ms)
        running = SimulatedSocket.network.kernel.running
        if running is not None:
            running.datagrams += 1
        return _OK

    @property
    def _is_certain(self) -> bool:
        """Whether the server answers at once."""
        network = SimulatedSocket.network
        target = network.by_address.get(self._to[0])
        server = None if target is None else target.listeners.get(("udp", self._to[1]))
        if not isinstance(server, SimulatedServer) or not server.process.is_responsive:
            return False
        return network.is_sound(network.here, server.host)
