"""Reads the certificates of the authorities that a check trusts."""

import errno
import ssl
from pathlib import Path

from daemon_kit.files import open_regular


def trusting(path: Path) -> ssl.SSLContext:
    """Return what trusts the certificates in `path` (PEM). Raises OSError, in words."""
    open_regular(path).close()  # OpenSSL would wait at a pipe, and the whole agent with it
    try:
        return ssl.create_default_context(cafile=str(path))
    except ssl.SSLError:
        raise OSError(errno.EINVAL, "it holds no certificates (PEM)", str(path)) from None
