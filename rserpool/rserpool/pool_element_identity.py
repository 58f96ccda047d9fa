"""Who a pool element is: which messages concern it, and what it says of itself."""

from dataclasses import dataclass

from rserpool import asap


@dataclass(frozen=True, slots=True)
class Identity:
    """A pool handle, and a PE identifier (unique within the pool only)."""

    handle: bytes
    identifier: int

    def is_asked_by(self, message: asap.EndpointKeepAlive) -> bool:
        """True for a keep-alive meant for this element; only rsplib's registrar names the identifier."""
        return message.handle == self.handle and message.identifier in (None, self.identifier)

    def is_answered_by(self, message: asap.AsapMessage) -> bool:
        """True for a response about this element; an error names nobody."""
        if isinstance(message, asap.RegistrationResponse | asap.DeregistrationResponse):
            return (message.handle, message.identifier) == (self.handle, self.identifier)
        return isinstance(message, asap.AsapError)

    def acknowledgement(self) -> asap.EndpointKeepAliveAck:
        """Return the answer to a keep-alive."""
        return asap.EndpointKeepAliveAck(self.handle, self.identifier)

    def deregistration(self) -> asap.Deregistration:
        """Return the farewell."""
        return asap.Deregistration(self.handle, self.identifier)
