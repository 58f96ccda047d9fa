"""A host that speaks SCTP as a test wants it: deaf to some chunks, and telling what came (needs root).

It is played by this process behind a link of its own: whichever stack runs here talks to it as to any host.
"""

import contextlib
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from raw_sctp import chunk, packet

OURS, PLAYED = "10.97.0.1", "10.97.0.2"
PORT = 5000
DATA, INIT, INIT_ACK, SACK, HEARTBEAT, HEARTBEAT_ACK, ABORT, SHUTDOWN, SHUTDOWN_ACK = range(9)
COOKIE_ECHO, COOKIE_ACK = 10, 11
WHOLE_MESSAGE = 3
ETHERTYPE_IPV4, ETHERNET_HEADER, IPV4_HEADER, COMMON_HEADER = 0x0800, 14, 20, 12
OUR_MAC, PLAYED_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
TAG, FIRST_TSN, WINDOW = 0x01020304, 1000, 100_000
LINK = f"""link add played0 address {OUR_MAC} type veth peer name played1
link set played0 addrgenmode none
link set played1 addrgenmode none
addr add {OURS}/24 dev played0
link set played0 up
link set played1 up
neigh add {PLAYED} lladdr {PLAYED_MAC} dev played0 nud permanent
"""


class Seen(NamedTuple):
    """A chunk that came."""

    at_s: float
    port: int
    """The port of the sender."""
    kind: int
    value: bytes


class Peer:
    """10.97.0.2, port 5000. It answers everything but the kinds of chunks that `ignores` names for a port."""

    def __init__(self, link: socket.socket) -> None:
        self.seen: list[Seen] = []
        self.ignores: dict[int, set[int]] = {}
        self._link = link
        self._tags: dict[int, int] = {}
        self._next_tsn: dict[int, int] = {}

    def play(self, until: Callable[[], object] = lambda: False, timeout_s: float = 20) -> None:
        """Answer what comes until the condition is met or the time is over."""
        end_s = time.monotonic() + timeout_s
        while not until() and time.monotonic() < end_s:
            self._link.settimeout(0.02)
            with contextlib.suppress(TimeoutError):
                self._take(self._link.recv(65535)[ETHERNET_HEADER:])

    def play_until(self, port: int, kind: int, count: int) -> None:
        """Answer what comes until this number of chunks of this kind came from a port, at most 20 s."""
        self.play(lambda: len(self.of(port, kind)) >= count)
        assert len(self.of(port, kind)) >= count

    def of(self, port: int, kind: int) -> list[Seen]:
        """Return what came from a port, of one kind."""
        return [seen for seen in self.seen if (seen.port, seen.kind) == (port, kind)]

    def send(self, port: int, chunks: bytes) -> None:
        """Send to the association of this port."""
        self.send_from(PORT, port, self._tags[port], chunks)

    def send_from(self, own_port: int, port: int, tag: int, chunks: bytes) -> None:
        """Send from any port of its own, with any tag."""
        sctp = packet(own_port, port, tag, chunks)
        addresses = socket.inet_aton(PLAYED) + socket.inet_aton(OURS)
        fields = (0x45, 0, IPV4_HEADER + len(sctp), 0, 0, 64, socket.IPPROTO_SCTP)
        words = struct.unpack(">10H", struct.pack(">BBHHHBBH", *fields, 0) + addresses)
        folded = sum(words) % 0xFFFF  # RFC 1071: the sum is never 0 here
        header = struct.pack(">BBHHHBBH", *fields, 0xFFFF - folded) + addresses
        ethernet = bytes.fromhex((OUR_MAC + PLAYED_MAC).replace(":", "")) + struct.pack(">H", ETHERTYPE_IPV4)
        self._link.send(ethernet + header + sctp)

    def send_message(self, port: int, data: bytes) -> None:
        """Send a message on stream 0."""
        tsn = self._next_tsn[port]
        self._next_tsn[port] += 1
        sent = struct.pack(">IHHI", tsn, 0, tsn - FIRST_TSN, 0)
        self.send(port, chunk(DATA, WHOLE_MESSAGE, sent + data))

    def end(self) -> None:
        """Abort what is left: nothing of it may come to the next one."""
        for port in self._tags:
            self.send(port, chunk(ABORT, 0, b""))

    def _take(self, datagram: bytes) -> None:
        if datagram[9] != socket.IPPROTO_SCTP or datagram[16:20] != socket.inet_aton(PLAYED):
            return
        sctp = datagram[IPV4_HEADER : int.from_bytes(datagram[2:4])]
        port = int.from_bytes(sctp[:2])
        chunks = sctp[COMMON_HEADER:]
        while len(chunks) >= 4:
            length = int.from_bytes(chunks[2:4])
            self.seen.append(Seen(time.monotonic(), port, chunks[0], chunks[4:length]))
            known = chunks[0] == INIT or port in self._tags
            if known and chunks[0] not in self.ignores.get(port, ()):
                self._answer(self.seen[-1])
            chunks = chunks[length + 3 & ~3 :]

    def _answer(self, seen: Seen) -> None:
        if seen.kind == INIT:
            self._tags[seen.port], self._next_tsn[seen.port] = int.from_bytes(seen.value[:4]), FIRST_TSN
            cookie = struct.pack(">HH4s", 7, 8, b"cook")
            fixed = struct.pack(">IIHHI", TAG, WINDOW, 10, 10, FIRST_TSN)
            self.send(seen.port, chunk(INIT_ACK, 0, fixed + cookie))
        elif seen.kind == COOKIE_ECHO:
            self.send(seen.port, chunk(COOKIE_ACK, 0, b""))
        elif seen.kind == DATA:
            self.send(seen.port, chunk(SACK, 0, seen.value[:4] + struct.pack(">IHH", WINDOW, 0, 0)))
        elif seen.kind == HEARTBEAT:
            self.send(seen.port, chunk(HEARTBEAT_ACK, 0, seen.value))
        elif seen.kind == SHUTDOWN:
            self.send(seen.port, chunk(SHUTDOWN_ACK, 0, b""))


@contextlib.contextmanager
def played() -> Iterator[Peer]:
    """Yield the host; its link is gone afterwards."""
    subprocess.run(["ip", "-batch", "-"], input=LINK, text=True, check=True)
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_IPV4)) as link:
            link.bind(("played1", ETHERTYPE_IPV4))
            peer = Peer(link)
            yield peer
            peer.end()
    finally:
        subprocess.run(["ip", "link", "del", "played0"], check=True)
