"""An sctpd that answers anything, at its name in this network namespace. Argument: a seed."""

import os
import random
import socket
import struct
import sys
import threading


def hostile(control: socket.socket, chance: random.Random) -> None:
    """Answer each request with lengths, results, addresses and descriptors that may or may not be true."""
    while request := control.recv(1 << 20):
        operation = struct.unpack_from("=H", request, 2)[0]
        data = chance.randbytes(chance.choice((0, 0, 4, 16, 28, 60, 200, 4096, 300_000)))
        address = chance.choice((b"", struct.pack("=HH", 2, 5000) + bytes(12), chance.randbytes(30)))
        lengths = [len(address), len(data)]
        if chance.random() < 0.6:
            lengths[chance.randrange(2)] = chance.choice((0, 1, 27, 3000, 1 << 20, 0xFFFFFFFF, 0xFFFFFFF0))
        error = chance.choice((0, 0, 0, 0, 11, 115, -5, 1 << 30))
        result = chance.choice((0, 1, 1000, -1, 1 << 30))
        answer = struct.pack("=iiII", result, error, *lengths) + address + data
        with socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)[0] as other:
            descriptors = [other.fileno()] if chance.random() < 0.3 else []
            if operation in (1, 5, 14, 16) and chance.random() < 0.8:
                descriptors = [made_descriptor(operation, chance)]
            socket.send_fds(control, [answer[: chance.choice((len(answer), len(answer), 10))]], descriptors)
            if descriptors and descriptors != [other.fileno()]:
                os.close(descriptors[0])


HELD: list[socket.socket] = []


def made_descriptor(operation: int, chance: random.Random) -> int:
    """Make what the library takes for a socket, with messages in it, or for the memory of all states."""
    if operation == 16:
        memory = os.memfd_create("states", os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, chance.choice((0, 4096, 4 * 65536)))
        return memory
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.bind(f"\0sctp-userland/{chance.randrange(70000):x}/{chance.getrandbits(64):x}")
    for _ in range(4):
        header = struct.pack("=HHHHHH", chance.randrange(8), *(chance.getrandbits(16) for _ in range(5)))
        ours.send(header + chance.randbytes(chance.choice((0, 20, 48, 500))))
    HELD.append(ours)
    del HELD[:-50]
    return theirs.detach()


def serve(control: socket.socket, chance: random.Random) -> None:
    with control:
        try:
            hostile(control, chance)
        except OSError:
            return


def main(seed: int) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("\0sctp-userland")
    listener.listen(50)
    print("listening", flush=True)
    while True:
        control, _ = listener.accept()
        seed += 1
        threading.Thread(target=serve, args=(control, random.Random(seed)), daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]))
