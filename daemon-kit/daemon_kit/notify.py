"""Tells systemd how this service is (sd_notify(3)); does nothing when systemd did not start it."""

import os
import socket


def sd_notify(state: str) -> bool:
    """Send `state`, e.g. "READY=1", to the service manager; return whether there is one that took it."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), address)
    except OSError:
        return False  # the service goes on without its manager
    return True


def ready() -> bool:
    """Say that the service is up."""
    return sd_notify("READY=1")


def stopping() -> bool:
    """Say that the service is on its way down."""
    return sd_notify("STOPPING=1")
