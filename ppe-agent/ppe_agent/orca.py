"""The load that a gRPC server reports out of band: ORCA (xds/service/orca/v3/orca.proto, gRFC A51)."""

import math
from typing import Final

from ppe_agent.protocol_buffers import double, field, fields

METHOD: Final = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics"
_NUMBERS: Final = {
    "cpu_utilization": 1,
    "mem_utilization": 2,
    "rps_fractional": 6,
    "eps": 7,
    "application_utilization": 9,
}
_MAPS: Final = {"utilization": 5, "named_metrics": 8}
_KEY, _VALUE = 1, 2
_INTERVAL, _SECONDS = 1, 1


def request() -> bytes:
    """Return the request for a report each second; a server sends the first one at once."""
    return field(_INTERVAL, field(_SECONDS, 1))


def reported(message: bytes, name: str | None) -> float | None:
    """Return a number of a load report, None if it is not in there.

    `name`: a field of the report, or NAME of a map: `named_metrics.NAME`. None: what gRPC itself balances by,
    application_utilization, or else cpu_utilization; 1 at most. Raises ValueError when it is no report.
    """
    content = list(fields(message))
    if name is None:
        found = (_number(content, which) for which in ("application_utilization", "cpu_utilization"))
        utilization = next((number for number in found if number), None)
        return None if utilization is None else min(1.0, utilization)
    if name in _NUMBERS:
        number = _number(content, name)
        return min(1.0, number) if name.endswith("_utilization") else number
    kind, _, key = name.partition(".")
    for number_of_field, value in content:
        if number_of_field == _MAPS[kind] and isinstance(value, bytes):
            entry = dict(fields(value))
            if entry.get(_KEY) == key.encode():
                return double(entry[_VALUE]) if _VALUE in entry else 0.0
    return None


def _number(content: list[tuple[int, int | bytes]], name: str) -> float:
    """Return a field that is not in a map: a zero is not sent."""
    values = [value for number, value in content if number == _NUMBERS[name]]
    number = double(values[-1]) if values else 0.0
    if math.isnan(number):
        raise ValueError(f"{name} is no number")
    return number
