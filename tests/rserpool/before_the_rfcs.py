"""Renumbers messages captured before the RFCs (rsplib's published demo capture is of January 2007).

The drafts of that time had no DCCP and UDP-Lite transports, so every later parameter had a smaller number;
and Server Information had four more bytes of flags. All else is as in the RFCs.
"""

import struct
from collections.abc import Callable, Mapping

from rserpool import asap, enrp

NUMBERS = {1: 1, 2: 2, 3: 4, 4: 5, 5: 6, 6: 8, 7: 9, 8: 10, 9: 11, 10: 12, 11: 13, 12: 14, 13: 15}
SERVER_INFORMATION = 9
OLD_NUMBERS = {new: old for old, new in NUMBERS.items()}
# Bytes of fixed fields in front of the parameters inside: transports, pool element, server information.
FIXED_IN_PARAMETER = {3: 4, 4: 4, 5: 4, 8: 12, SERVER_INFORMATION: 8}
FIXED_IN_MESSAGE = {
    asap.PPID: {7: 4, 10: 4},
    enrp.PPID: {1: 8, 2: 8, 3: 8, 4: 12, 5: 8, 6: 8, 7: 12, 8: 12, 9: 12, 10: 8},
}


def renumber(ppid: int, data: bytes) -> tuple[bytes, list[bytes]]:
    """Return the message as the RFCs would write it, and the flags of each Server Information, left out."""
    flags: list[bytes] = []

    def change(number: int, value: bytes) -> tuple[int, bytes]:
        if number == SERVER_INFORMATION:
            flags.append(value[4:8])
            value = value[:4] + value[8:]
        return NUMBERS.get(number, number), value

    return _message(ppid, data, FIXED_IN_PARAMETER, change), flags


def number_back(ppid: int, data: bytes, flags: list[bytes]) -> bytes:
    """Return a message of the RFCs as it was written before them, with these flags: undo `renumber()`."""
    rest = iter(flags)

    def change(number: int, value: bytes) -> tuple[int, bytes]:
        old = OLD_NUMBERS.get(number, number)
        return old, value[:4] + next(rest) + value[4:] if old == SERVER_INFORMATION else value

    fixed = {NUMBERS[old]: size for old, size in FIXED_IN_PARAMETER.items()}
    fixed[NUMBERS[SERVER_INFORMATION]] -= 4
    return _message(ppid, data, fixed, change)


Change = Callable[[int, bytes], tuple[int, bytes]]


def _message(ppid: int, data: bytes, fixed: Mapping[int, int], change: Change) -> bytes:
    body = _parameters(data[4:], FIXED_IN_MESSAGE[ppid].get(data[0], 0), fixed, change)
    return data[:2] + struct.pack(">H", len(body) + 4) + body


def _parameters(data: bytes, start: int, fixed: Mapping[int, int], change: Change) -> bytes:
    parts, position = [data[:start]], start
    while position < len(data):
        number, length = struct.unpack_from(">HH", data, position)
        value = data[position + 4 : position + length]
        if number in fixed:
            value = _parameters(value, fixed[number], fixed, change)
        number, value = change(number, value)
        parts.append(struct.pack(">HH", number, len(value) + 4) + value + bytes(-len(value) % 4))
        position += length + -length % 4
    return b"".join(parts)
