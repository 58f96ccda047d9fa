"""`rspdns-lab watch` in a real terminal: keys break servers, and the view says who is out of DNS."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import urllib.request

from tests.support.labs import LAB, as_ordinary_user

GENEROUS_S = 90.0


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def readable(terminal: int, timeout_s: float) -> bool:
    poll = select.poll()  # select() takes descriptors below 1024 only
    poll.register(terminal, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def read_until(terminal: int, pattern: str) -> str:
    text = ""
    end_s = time.monotonic() + GENEROUS_S
    while time.monotonic() < end_s:
        if readable(terminal, 0.5):
            try:
                text += os.read(terminal, 65536).decode(errors="replace")
            except OSError:  # the program has ended
                break
            if re.search(pattern, plain(text)):
                return text
    raise AssertionError(f"{pattern} was not shown; the end: {text[-3000:]}")


def test_keys_break_servers_and_the_view_follows() -> None:
    """Without root, where that can be: a browser outside the lab finds its live page all the same."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    environment = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
    command = [*as_ordinary_user(), *LAB, "watch"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        shown = read_until(ours, r"live page: http://127\.0\.0\.1:\d+/")
        page = re.findall(r"live page: (http://127\.0\.0\.1:\d+/)", plain(shown))[0]
        with urllib.request.urlopen(page, timeout=30) as answer:  # noqa: S310 - ours
            assert "<html" in answer.read().decode()
        assert "q quit" in plain(shown), "80 columns and 24 lines have room for every key"
        read_until(ours, r"as2 +10\.53\.0\.32 +in, 0 \d+ +in, 0 \d+")
        os.write(ours, b"2k")
        read_until(ours, r"as2 +10\.53\.0\.32 +killed +out +out")
        os.write(ours, b"h")
        read_until(ours, r"as2 runs no more, so it can't hang; revive it first")
        os.write(ours, b"r")
        read_until(ours, r"as2 +10\.53\.0\.32 +in, 0 \d+ +in, 0 \d+")
        os.write(ours, b"2o")
        read_until(ours, r"as2 +10\.53\.0\.32 +overloaded +in, 1 \d+ +in, 1 \d+ .*97%")
        os.write(ours, b"3d")
        read_until(ours, r"as3 +10\.53\.0\.33 +drained +out +out")
        os.write(ours, b"r")
        read_until(ours, r"as3 +10\.53\.0\.33 +in, 0 \d+ +in, 0 \d+")
        os.write(ours, b"c")
        read_until(ours, r"as3 +10\.53\.0\.33 +cable out +out +out")
        os.write(ours, b"1h")
        read_until(ours, r"as1 +10\.53\.0\.31 +hung +out +out")
        os.write(ours, b"q")  # with one that hangs and one that is cut off
        while process.poll() is None and readable(ours, GENEROUS_S):
            try:
                os.read(ours, 65536)
            except OSError:
                break
        assert process.wait(30) == 0
    finally:
        os.close(ours)  # the program's terminal hangs up
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def test_without_a_terminal_it_says_so() -> None:
    command = [*LAB, "watch"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: rspdns-lab watch needs a terminal to read keys from\n"
