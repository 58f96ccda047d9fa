"""Takes synthetic VoIP at one host; writes a line a packet: stream, call, sequence, sent ns, received ns."""

import socket
import sys
import time

import click

from rspdns_lab.compare.voip import read_packet

_FLUSH_INTERVAL_NS = 50_000_000
_BUFFER_BYTES = 1 << 20


@click.command()
@click.argument("port", type=click.IntRange(1, 65535))
def main(port: int) -> None:
    """Listen on every address, also on one that comes later; until killed."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    listener.bind(("", port))
    listener.settimeout(0.05)
    flushed_ns = 0
    while True:
        try:
            found = read_packet(listener.recv(2048), time.monotonic_ns())
        except TimeoutError:
            found = None
        if found is not None:
            sys.stdout.write(f"{found.stream} {found.call} {found.sequence} {found.sent_ns} {found.at_ns}\n")
        if time.monotonic_ns() - flushed_ns > _FLUSH_INTERVAL_NS:
            sys.stdout.flush()
            flushed_ns = time.monotonic_ns()


if __name__ == "__main__":
    main()
