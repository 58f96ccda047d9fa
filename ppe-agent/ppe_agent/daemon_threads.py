"""Threads that the end of the program doesn't wait for.

Python joins the threads of a ThreadPoolExecutor before it ends, also those that a name server or a disk holds
up for a minute.
"""

import functools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class DaemonThreads(ThreadPoolExecutor):
    """Does what it is given in at most `most` threads, in the order in which it was given.

    A ThreadPoolExecutor in name only, since asyncio takes no other kind of executor as a loop's default one.
    """

    def __init__(self, most: int, name: str) -> None:
        super().__init__(max_workers=most)  # begins no thread
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._running = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have it done as soon as a thread is free."""
        future: Future[Any] = Future()
        with self._lock:
            self._waiting.append((future, functools.partial(fn, *args, **kwargs)))
            if self._running < self._most:
                self._running += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Forget what has not begun; wait for nothing."""
        del wait, cancel_futures
        with self._lock:
            for future, _ in self._waiting:
                future.cancel()
            self._waiting.clear()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                future, do = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = do()
            except BaseException as problem:
                future.set_exception(problem)
            else:
                future.set_result(result)
