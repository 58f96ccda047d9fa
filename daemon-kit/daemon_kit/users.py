"""Users of the system: a check that is run by root tries as the user of the service."""

from __future__ import annotations

import os
import pwd


def become(user: str) -> bool:
    """Become `user` with all his groups, for good. False: this is not root, or there is no such user."""
    if os.geteuid() != 0:
        return False
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return False
    os.initgroups(user, entry.pw_gid)
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    return True
