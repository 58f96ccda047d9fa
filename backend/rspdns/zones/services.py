"""SRV services (`_sip._udp`), their transport protocol, and their names in NAPTR records."""

from __future__ import annotations

import re

from rserpool import Protocol

_SERVICE = re.compile(r"_[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?\._(udp|tcp|sctp)")
_NAPTR = re.compile(r"[A-Za-z0-9:.+-]{1,64}")
_PROTOCOLS = {"_udp": Protocol.UDP, "_tcp": Protocol.TCP, "_sctp": Protocol.SCTP}
_SIP = {
    "_sip._udp": "SIP+D2U",
    "_sip._tcp": "SIP+D2T",
    "_sip._sctp": "SIP+D2S",
    "_sips._tcp": "SIPS+D2T",
    "_sips._sctp": "SIPS+D2S",
}
"""RFC 3263 section 4.1 and RFC 4168 section 6."""


def check(service: str) -> str:
    """Return `service`. Raises ValueError when it is none that RSerPool's transport protocols can carry."""
    if not _SERVICE.fullmatch(service):
        raise ValueError('must be like "_sip._udp", ending in _udp, _tcp or _sctp')
    return service


def check_naptr(name: str) -> str:
    """Return `name`, a NAPTR services field (RFC 3403). Raises ValueError when it is none."""
    if not _NAPTR.fullmatch(name):
        raise ValueError('must be like "SIP+D2U"')
    return name


def protocol(service: str) -> Protocol:
    """The transport protocol of a service that `check()` accepts."""
    return _PROTOCOLS[service.rpartition(".")[2]]


def naptr_service(service: str) -> str | None:
    """What NAPTR records call the service; None when no RFC gives it a name."""
    return _SIP.get(service)
