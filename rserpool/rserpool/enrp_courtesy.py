"""What a passive ENRP peer owes to whoever speaks to it, followed or not. Pure.

A registrar that lists us among its peers waits for our word before it takes over a dead one, and for a
second or two after we left it still does. So every takeover is acknowledged, in the name by which we were
addressed. Who looks for a mentor is refused: an empty list or an empty table would be taken for the truth.
"""

from rserpool.enrp import (
    EnrpMessage,
    HandleTableRequest,
    HandleTableResponse,
    InitTakeover,
    InitTakeoverAck,
    ListRequest,
    ListResponse,
)


def reply_to(message: EnrpMessage, identifier: int) -> EnrpMessage | None:
    """Return what to answer, None where nothing is owed. `identifier` is our own."""
    ours = getattr(message, "receiver", 0) or identifier
    match message:
        case InitTakeover(sender=sender, target=target) if target not in (ours, identifier):
            return InitTakeoverAck(ours, sender, target)
        case HandleTableRequest(sender=sender):
            return HandleTableResponse(ours, sender, rejected=True)
        case ListRequest(sender=sender):
            return ListResponse(ours, sender, rejected=True)
    return None
