"""A kernel that is out of memory for a moment costs no message that was acknowledged."""

import subprocess
import sys
from pathlib import Path

import pytest
from daemon import SCTPD, serves

from tests.support.namespaces import Namespace
from tests.support.waiting import until

pytestmark = pytest.mark.integration

OUT_OF_MEMORY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Every 50th message into a client's descriptor, and the two tries after it. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    static ssize_t (*next)(int, const struct msghdr *, int);
    static unsigned int calls;
    struct sockaddr_un name = { 0 };
    socklen_t length = sizeof(name);

    if (next == NULL)
        next = (ssize_t (*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    if (getsockname(fd, (struct sockaddr *)&name, &length) == 0 && name.sun_family == AF_UNIX &&
        strncmp(name.sun_path + 1, "sctp-userland/", 14) == 0 && calls++ % 50 >= 47) {
        errno = ENOBUFS;
        return -1;
    }
    return next(fd, message, flags);
}
"""
TALK = """
import socket, threading
a = socket.socket(2, 1, 132); a.bind(('127.0.0.1', 0)); a.listen(1)
b = socket.socket(2, 1, 132); b.connect(a.getsockname()); c = a.accept()[0]
def send():
    for number in range(300):
        b.send(b'%d' % number)
    b.close()
thread = threading.Thread(target=send)
thread.start()
c.settimeout(20)
got = []
while data := c.recv(100):
    got.append(int(data))
thread.join()
print(got == list(range(300)), len(got))
"""


def test_a_message_that_finds_no_memory_is_tried_again(namespace: Namespace, tmp_path: Path) -> None:
    library = tmp_path / "out_of_memory.so"
    source = tmp_path / "out_of_memory.c"
    source.write_text(OUT_OF_MEMORY)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    namespace.start("env", f"LD_PRELOAD={library}", str(SCTPD))
    until(lambda: serves(namespace))
    run = namespace.run(sys.executable, "-c", TALK, sctp=True, timeout_s=60)
    assert run.stdout == "True 300\n", run.stdout + run.stderr
