"""A bad pointer is EFAULT, as with a kernel: never the program's end, and never a wait."""

import ctypes
import errno
import mmap
import socket
from collections.abc import Callable

from sctp_api import SCTP_RTOINFO, SOL_SCTP, connected, libc, listener, one_to_one

BAD = ctypes.c_void_p(-1 & ((1 << 64) - 1))
UNMAPPED = ctypes.c_void_p(8)
LENGTH = ctypes.c_uint32(16)


class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Message(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.c_void_p),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


def assert_fault(call: Callable[..., int], *arguments: object) -> None:
    ctypes.set_errno(0)
    assert call(*arguments) == -1
    assert ctypes.get_errno() == errno.EFAULT, errno.errorcode.get(ctypes.get_errno())


def case_addresses() -> None:
    with one_to_one() as sock:
        for pointer in (BAD, UNMAPPED):
            assert_fault(libc.bind, sock.fileno(), pointer, 16)
            assert_fault(libc.connect, sock.fileno(), pointer, 16)
            assert_fault(libc.getsockname, sock.fileno(), pointer, ctypes.byref(LENGTH))
        name = ctypes.create_string_buffer(16)
        assert_fault(libc.getsockname, sock.fileno(), name, BAD)


def case_accept() -> None:
    with listener() as waiting, one_to_one() as client:
        client.connect(waiting.getsockname())
        assert_fault(libc.accept, waiting.fileno(), BAD, ctypes.byref(LENGTH))


def case_options() -> None:
    value = ctypes.create_string_buffer(16)
    with one_to_one() as sock:
        for level, option in ((SOL_SCTP, SCTP_RTOINFO), (socket.SOL_SOCKET, socket.SO_SNDBUF)):
            assert_fault(libc.setsockopt, sock.fileno(), level, option, BAD, 16)
            assert_fault(libc.getsockopt, sock.fileno(), level, option, BAD, ctypes.byref(LENGTH))
            assert_fault(libc.getsockopt, sock.fileno(), level, option, value, BAD)


def case_sends() -> None:
    vector = Vector(BAD, 10)
    with connected() as (client, server):
        assert_fault(libc.send, client.fileno(), BAD, 10, 0)
        assert_fault(libc.sendto, client.fileno(), b"x", 1, 0, BAD, 16)
        assert_fault(libc.sendmsg, client.fileno(), BAD, 0)
        assert_fault(libc.sendmsg, client.fileno(), ctypes.byref(Message(vectors=BAD, vector_count=1)), 0)
        message = Message(vectors=ctypes.addressof(vector), vector_count=1)
        assert_fault(libc.sendmsg, client.fileno(), ctypes.byref(message), 0)
        message = Message(control=BAD, control_length=100)
        assert_fault(libc.sendmsg, client.fileno(), ctypes.byref(message), 0)
        client.send(b"none of that")
        assert server.recv(100) == b"none of that"


def case_memory_that_can_only_be_read() -> None:
    """recvmsg() fills in its header; a kernel notices that after it has taken the message."""
    room = ctypes.create_string_buffer(10)
    vector = Vector(ctypes.addressof(room), 10)
    message = Message(vectors=ctypes.addressof(vector), vector_count=1)
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    page.write(bytes(message))
    at = ctypes.addressof(ctypes.c_char.from_buffer(page))
    assert libc.mprotect(ctypes.c_void_p(at), mmap.PAGESIZE, mmap.PROT_READ) == 0
    with connected() as (client, server):
        client.send(b"hi")
        server.recv(10, socket.MSG_PEEK)
        assert_fault(libc.recvmsg, server.fileno(), ctypes.c_void_p(at), 0)
        assert libc.mprotect(ctypes.c_void_p(at), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
        client.send(b"ho")
        assert server.recv(10) in {b"hi", b"ho"}


def case_address_that_is_half_there() -> None:
    two = mmap.mmap(-1, 2 * mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(two))
    second = ctypes.c_void_p(at + mmap.PAGESIZE)
    assert libc.mprotect(second, mmap.PAGESIZE, 0) == 0
    with one_to_one() as sock:
        assert_fault(libc.connect, sock.fileno(), ctypes.c_void_p(at + mmap.PAGESIZE - 6), 16)
    assert libc.mprotect(second, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE) == 0


def case_receives_wait_for_nothing() -> None:
    """Nothing is there; a kernel says so at once."""
    vector = Vector(BAD, 10)
    with connected() as (client, server):
        assert_fault(libc.recvmsg, client.fileno(), BAD, 0)
        assert_fault(libc.recvmsg, client.fileno(), ctypes.byref(Message(vectors=BAD, vector_count=1)), 0)
        message = Message(vectors=ctypes.addressof(vector), vector_count=1)
        assert_fault(libc.recvmsg, client.fileno(), ctypes.byref(message), 0)
        server.send(b"what comes after it")
        assert client.recv(100) == b"what comes after it"
