"""The states of following one registrar, and every transition between them."""

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    """How far one registrar is followed."""

    IDLE = "idle"
    """Not followed: nobody asked for it yet, or it failed. Nothing is said first: a registrar that is just
    starting would take whoever speaks to it for its mentor and never get the handlespace."""
    WAITING = "waiting"
    """To be followed, as soon as the pause after a failure is over."""
    CONNECTING = "connecting"
    """An association is being set up."""
    JOINING = "joining"
    """Presence was sent, and the handle table asked for."""
    FOLLOWING = "following"
    """The table is here, and every change is pushed."""
    LEAVING = "leaving"
    """No presence is sent any more, takeovers are acknowledged until the registrar has forgotten us."""
    LEFT = "left"
    """Over."""


class Input(Enum):
    """What moves it from one state to another."""

    FOLLOW = "follow"
    """The owner knows that the registrar has the handlespace."""
    CONNECT = "connect"
    """The pause after a failure is over."""
    ASSOCIATED = "associated"
    TABLE = "table"
    """The whole handle table has arrived."""
    FAILED = "failed"
    """The association is gone or was not set up; the registrar is silent, refuses, gives an empty table."""
    LEAVE = "leave"
    FORGOTTEN = "forgotten"
    """The registrar has taken us off its list of peers, or is gone."""
    CLOSE = "close"


TRANSITIONS: Mapping[State, Mapping[Input, State]] = {
    State.IDLE: {Input.FOLLOW: State.WAITING, Input.LEAVE: State.LEFT, Input.CLOSE: State.LEFT},
    State.WAITING: {
        Input.CONNECT: State.CONNECTING,
        Input.LEAVE: State.LEFT,
        Input.CLOSE: State.LEFT,
    },
    State.CONNECTING: {
        Input.ASSOCIATED: State.JOINING,
        Input.FAILED: State.IDLE,
        Input.LEAVE: State.LEFT,
        Input.CLOSE: State.LEFT,
    },
    State.JOINING: {
        Input.TABLE: State.FOLLOWING,
        Input.FAILED: State.IDLE,
        Input.LEAVE: State.LEAVING,
        Input.CLOSE: State.LEFT,
    },
    State.FOLLOWING: {
        Input.FAILED: State.IDLE,
        Input.LEAVE: State.LEAVING,
        Input.CLOSE: State.LEFT,
    },
    State.LEAVING: {
        Input.FAILED: State.LEFT,
        Input.FORGOTTEN: State.LEFT,
        Input.CLOSE: State.LEFT,
    },
    State.LEFT: {},
}
"""What is not in here changes nothing."""
