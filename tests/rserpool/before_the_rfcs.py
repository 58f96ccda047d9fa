"""Renumbers messages captured before the RFCs (rsplib's published demo capture is of January 2007).

The drafts of that time had no DCCP and UDP-Lite transports, so every later parameter had a smaller number;
and Server Information had four more bytes of flags. All else is as in the RFCs.
"""

import struct

from rserpool import asap, enrp

NUMBERS = {1: 1, 2: 2, 3: 4, 4: 5, 5: 6, 6: 8, 7: 9, 8: 10, 9: 11, 10: 12, 11: 13, 12: 14, 13: 15}
SERVER_INFORMATION = 9
# Bytes of fixed fields in front of the parameters inside: transports, pool element, server information.
FIXED_IN_PARAMETER = {3: 4, 4: 4, 5: 4, 8: 12, SERVER_INFORMATION: 8}
FIXED_IN_MESSAGE = {
    asap.PPID: {7: 4, 10: 4},
    enrp.PPID: {1: 8, 2: 8, 3: 8, 4: 12, 5: 8, 6: 8, 7: 12, 8: 12, 9: 12, 10: 8},
}


def renumber(ppid: int, data: bytes) -> bytes:
    """Return the message as the RFCs would write it."""
    body = _parameters(data[4:], FIXED_IN_MESSAGE[ppid].get(data[0], 0))
    return data[:2] + struct.pack(">H", len(body) + 4) + body


def _parameters(data: bytes, start: int) -> bytes:
    parts, position = [data[:start]], start
    while position < len(data):
        number, length = struct.unpack_from(">HH", data, position)
        value = data[position + 4 : position + length]
        if number in FIXED_IN_PARAMETER:
            value = _parameters(value, FIXED_IN_PARAMETER[number])
        if number == SERVER_INFORMATION:
            value = value[:4] + value[8:]
        number = NUMBERS.get(number, number)
        parts.append(struct.pack(">HH", number, len(value) + 4) + value + bytes(-len(value) % 4))
        position += length + -length % 4
    return b"".join(parts)
