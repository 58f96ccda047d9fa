"""The states of a pool element's registration, and every transition between them."""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from rserpool import asap


class State(Enum):
    """Where a registration stands."""

    IDLE = "idle"
    """Not started."""
    CONNECTING = "connecting"
    """An association with a registrar is being set up."""
    REGISTERING = "registering"
    """The registration was sent, its answer is awaited; no registrar has confirmed this one yet."""
    REGISTERED = "registered"
    """The registrar confirmed."""
    RENEWING = "renewing"
    """Registered, and a renewal was sent, its answer is awaited."""
    WAITING = "waiting"
    """No registrar took the registration; another attempt follows (often at once)."""
    DEREGISTERING = "deregistering"
    """The deregistration was sent, its answer is awaited."""
    STOPPED = "stopped"
    """Over."""


class Input(Enum):
    """What moves a registration from one state to another."""

    START = "start"
    ASSOCIATED = "associated"
    """The association with the chosen registrar is up."""
    LOST = "lost"
    """The association in use is gone, or could not be set up."""
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    TIMEOUT = "timeout"
    """The registrar did not answer in time."""
    RENEW = "renew"
    """The re-registration interval is over, the policy changed, or somebody asked for it."""
    TAKEN_OVER = "taken over"
    """Another registrar declared itself home."""
    RETRY = "retry"
    DEREGISTER = "deregister"
    DEREGISTERED = "deregistered"
    STOP = "stop"


TRANSITIONS: Mapping[State, Mapping[Input, State]] = {
    State.IDLE: {
        Input.START: State.CONNECTING,
        Input.DEREGISTER: State.STOPPED,
        Input.STOP: State.STOPPED,
    },
    State.CONNECTING: {
        Input.ASSOCIATED: State.REGISTERING,
        Input.LOST: State.WAITING,
        Input.TIMEOUT: State.WAITING,
        Input.TAKEN_OVER: State.RENEWING,
        Input.DEREGISTER: State.DEREGISTERING,
        Input.STOP: State.STOPPED,
    },
    State.REGISTERING: {
        Input.ACCEPTED: State.REGISTERED,
        Input.REJECTED: State.WAITING,
        Input.LOST: State.WAITING,
        Input.TIMEOUT: State.WAITING,
        Input.TAKEN_OVER: State.RENEWING,
        Input.DEREGISTER: State.DEREGISTERING,
        Input.STOP: State.STOPPED,
    },
    State.REGISTERED: {
        Input.RENEW: State.RENEWING,
        Input.LOST: State.WAITING,
        Input.TAKEN_OVER: State.RENEWING,
        Input.DEREGISTER: State.DEREGISTERING,
        Input.STOP: State.STOPPED,
    },
    State.RENEWING: {
        Input.ACCEPTED: State.REGISTERED,
        Input.REJECTED: State.WAITING,
        Input.LOST: State.WAITING,
        Input.TIMEOUT: State.WAITING,
        Input.TAKEN_OVER: State.RENEWING,
        Input.DEREGISTER: State.DEREGISTERING,
        Input.STOP: State.STOPPED,
    },
    State.WAITING: {
        Input.RETRY: State.CONNECTING,
        Input.TAKEN_OVER: State.RENEWING,
        Input.DEREGISTER: State.DEREGISTERING,
        Input.STOP: State.STOPPED,
    },
    State.DEREGISTERING: {
        Input.DEREGISTERED: State.STOPPED,
        Input.LOST: State.STOPPED,
        Input.TIMEOUT: State.STOPPED,
        Input.STOP: State.STOPPED,
    },
    State.STOPPED: {},
}
"""What is not in here changes nothing."""

IS_REGISTERED: Final = frozenset({State.REGISTERED, State.RENEWING})
DEAF: Final = frozenset({State.IDLE, State.DEREGISTERING, State.STOPPED})
"""What registrars ask is not answered there."""
AWAITED_IN: Final[Mapping[type[asap.AsapMessage], frozenset[State]]] = {
    asap.RegistrationResponse: frozenset({State.REGISTERING, State.RENEWING}),
    asap.AsapError: frozenset({State.REGISTERING, State.RENEWING}),
    asap.DeregistrationResponse: frozenset({State.DEREGISTERING}),
}
"""In which states an answer of this kind is one."""
