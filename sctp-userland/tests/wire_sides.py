"""The sides of the tests on the wire: sctpd in a namespace, a kernel in a guest, two links between them."""

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from registrar_config import SCTPD_OPTIONS

from tests.support.guest import guest_command
from tests.support.namespaces import Namespace

WORKER = Path(__file__).parent / "kernel" / "worker.py"
ANSWER = "answer "
READY_TIMEOUT_S = 250  # a machine under load


class Side(ABC):
    """A worker that runs code on one side. `addresses`: where it is reached, one for each link."""

    def __init__(self, name: str, wire: "Wire", addresses: tuple[str, str], address_ipv6: str) -> None:
        self.name = name
        self.addresses = addresses
        self.address_ipv6 = address_ipv6
        self._namespace = wire.namespace
        self._folder = wire.folder / name
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._said: list[str] = []
        self._number = 0

    def __repr__(self) -> str:
        return self.name

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line that starts the worker in its namespace."""

    @abstractmethod
    def programs(self) -> frozenset[str]:
        """Return the names of the processes that die with this side."""

    def make_ready(self) -> None:
        """Start it when it doesn't run, and wait until it does."""
        if self._process is not None and self._process.poll() is None:
            return
        self._lines = queue.Queue()
        self._said = []
        self._number = 0
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        self._process = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "SCTPD_OPTIONS": SCTPD_OPTIONS},
        )
        threading.Thread(target=self._read, args=(self._process, self._lines), daemon=True).start()
        assert self.result(READY_TIMEOUT_S) == "ready"

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: "queue.Queue[str | None]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line.rstrip())
        lines.put(None)

    def start(self, code: str) -> None:
        """Have it run this code; `result()` waits for the end."""
        self._number += 1
        unfinished = self._folder / "unfinished"
        unfinished.write_text(code)
        unfinished.rename(self._folder / str(self._number))

    def result(self, timeout_s: float = 60) -> Any:
        """Return what the code left in `result`; fail with its traceback, or with what was said instead."""
        while True:
            try:
                line = self._lines.get(timeout=timeout_s)
            except queue.Empty:
                raise AssertionError(f"{self.name}: no answer in {timeout_s} s; {self._said}") from None
            if line is None:
                raise AssertionError(f"{self.name} ended; {self._said}")
            answer = json.loads(line[len(ANSWER) :]) if line.startswith(ANSWER) else {}
            if answer.get("number") != self._number:  # the kernel's own words, or too late
                self._said.append(line)
                continue
            assert "error" not in answer, f"{self.name}: {answer['error']}"
            return answer["result"]

    def run(self, code: str, timeout_s: float = 60) -> Any:
        """Run code to its end and return what it left in `result`."""
        self.start(code)
        return self.result(timeout_s)

    def kill(self) -> None:
        """Kill the whole side, stack and all, as a power cut does: nothing is told to anybody."""
        if self._process is None:
            return
        pids = subprocess.run(
            ["ip", "netns", "pids", self._namespace.name], capture_output=True, text=True, check=True
        )
        for pid in pids.stdout.split():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() in self.programs():
                    os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class SctpdSide(Side):
    """The worker under sctp-run, in the namespace itself."""

    def command(self) -> list[str]:
        """Return the command line."""
        return self._namespace.command(sys.executable, str(WORKER), str(self._folder), sctp=True)

    def programs(self) -> frozenset[str]:
        """Return sctpd: without it the worker's sockets are gone too."""
        return frozenset({"sctpd"})


class KernelSide(Side):
    """The worker in a guest whose two interfaces are the far ends of the namespace's links."""

    def command(self) -> list[str]:
        """Return the command line."""
        # Raw sockets on veth, not taps: needs no /dev/net/tun, which chroots and containers often lack.
        links = [f"vec{link}:transport=raw,ifname=guest{link},depth=128" for link in (0, 1)]
        return self._namespace.command(*guest_command(WORKER, memory_mb=512, worker=self._folder), *links)

    def programs(self) -> frozenset[str]:
        """Return the guest's kernel, which carries all its processes."""
        return frozenset({"linux.uml"})


class Wire:
    """Both sides and the links between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.namespace = Namespace(f"rspdns-wire-{os.getpid()}")
        try:
            for link in (0, 1):
                self._make_link(link)
            self.sctpd = SctpdSide("sctpd", self, ("10.5.0.1", "10.6.0.1"), "fd05::1")
            self.kernel = KernelSide("kernel", self, ("10.5.0.2", "10.6.0.2"), "fd05::2")
        except BaseException:
            self.namespace.close()
            raise

    def _make_link(self, link: int) -> None:
        ours, guests = f"link{link}", f"guest{link}"
        ip = self.namespace.ip
        ip("link", "add", ours, "type", "veth", "peer", "name", guests)
        ip("addr", "add", f"10.{5 + link}.0.1/24", "dev", ours)
        ip("addr", "add", f"fd0{5 + link}::1/64", "dev", ours, "nodad")
        ip("link", "set", ours, "up")
        ip("link", "set", guests, "up")

    def make_ready(self) -> None:
        """Start what doesn't run (the guest first: it takes longest), restore the links."""
        for link in (0, 1):
            self.restore(link)
        self.kernel.make_ready()
        self.sctpd.make_ready()

    def cut(self, link: int) -> None:
        """Take one link down."""
        self.namespace.ip("link", "set", f"link{link}", "down")

    def restore(self, link: int) -> None:
        """Bring it up again."""
        self.namespace.ip("link", "set", f"link{link}", "up")

    def close(self) -> None:
        """End everything."""
        self.kernel.kill()
        self.sctpd.kill()
        self.namespace.close()
