"""Hears ASAP announcements at a host, or forges them: `hear GROUP`, `forge GROUP`, until it is killed.

The command `hear` prints the address of each new sender, as a line. Both at the interface eth0, port 3863.
"""

import socket
import struct
import sys
import time
from ipaddress import IPv4Address, IPv6Address, ip_address

PORT = 3863
ANNOUNCE = bytes.fromhex("0a00000822222222")


def open_socket(group: IPv4Address | IPv6Address, index: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET if group.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    if group.version == 4:
        member = group.packed + bytes(4) + struct.pack("@i", index)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, member)
    else:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    return opened


def hear(group: IPv4Address | IPv6Address, index: int) -> None:
    with open_socket(group, index) as hearing:
        hearing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hearing.bind((str(group), PORT))
        if group.version == 4:
            member = group.packed + bytes(4) + struct.pack("@i", index)
            hearing.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        else:
            member = group.packed + struct.pack("@I", index)
            hearing.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
        heard = set()
        while True:
            source = hearing.recvfrom(1500)[1][0]
            if source not in heard:
                heard.add(source)
                print(source, flush=True)


def forge(group: IPv4Address | IPv6Address, index: int) -> None:
    with open_socket(group, index) as sending:
        while True:
            sending.sendto(ANNOUNCE, (str(group), PORT))
            time.sleep(0.05)


if __name__ == "__main__":
    {"hear": hear, "forge": forge}[sys.argv[1]](ip_address(sys.argv[2]), socket.if_nametoindex("eth0"))
