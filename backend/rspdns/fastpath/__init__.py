"""Answers that rspdns-fastpath gives from the kernel: made of each snapshot, before they are asked for.

`ready` makes them, `messages` writes them for the socket, `connection` holds that and the lease, `link` keeps
the daemon up to date. The daemon and its BPF program are in the folder fastpath/.
"""

from rspdns.fastpath.check import ask_daemon, problems
from rspdns.fastpath.configuration import FastPathConfig, LimitConfig
from rspdns.fastpath.link import FastPath
from rspdns.fastpath.status import DaemonStatus

__all__ = ["DaemonStatus", "FastPath", "FastPathConfig", "LimitConfig", "ask_daemon", "problems"]
