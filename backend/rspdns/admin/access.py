"""Rights to use the admin API: tokens out of files, and the certificate; read with the configuration."""

from __future__ import annotations

import hmac
import re
import ssl
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from hashlib import sha256
from pathlib import Path

from daemon_kit.config_file import ConfigurationError
from daemon_kit.files import open_regular

MIN_TOKEN = 20
"""Characters of a token, at least."""
_MAX_FILE_BYTES = 64 * 1024
_MOST_NAME = 80
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


class Right(IntEnum):
    """The rights of a token; each includes those before it."""

    NOTHING = 0
    READ = 1
    WRITE = 2


@dataclass(frozen=True, slots=True)
class Access:
    """The names of the tokens by their digests, and the files of the certificate and its key."""

    read: Mapping[bytes, str] = field(default_factory=dict, repr=False)
    write: Mapping[bytes, str] = field(default_factory=dict, repr=False)
    reading_needs_token: bool = False
    certificate: Path | None = None
    key: Path | None = None

    def holds_token(self, authorization: str | None) -> bool:
        """Whether the header Authorization has one of these tokens."""
        return replace(self, reading_needs_token=True).right_of(authorization) is not Right.NOTHING

    def right_of(self, authorization: str | None) -> Right:
        """The right that the header Authorization (RFC 6750) gives; every token takes the same time."""
        scheme = (authorization or "").partition(" ")[0]
        given = _digest(authorization)
        may_write = sum(hmac.compare_digest(given, digest) for digest in self.write)
        may_read = sum(hmac.compare_digest(given, digest) for digest in self.read)
        if scheme.lower() != "bearer":
            may_write = may_read = 0
        if may_write:
            return Right.WRITE
        return Right.READ if may_read or not self.reading_needs_token else Right.NOTHING

    def name_of(self, authorization: str | None) -> str:
        """The name of the token in the header Authorization: that behind it in its file, or its line."""
        digest = _digest(authorization)
        return {**self.read, **self.write}.get(digest, "no token")

    def tls(self) -> ssl.SSLContext | None:
        """A context with the certificate; None without one. Raises OSError (ssl.SSLError is one)."""
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.load_certificate(context)
        return context

    def load_certificate(self, context: ssl.SSLContext) -> None:
        """Let `context` use the certificate as its file is now. Raises OSError."""
        if self.certificate is not None:
            for path in (self.certificate, self.key):
                if path is not None:  # OpenSSL would wait at a pipe, and names no file
                    open_regular(path).close()
            context.load_cert_chain(self.certificate, self.key)


def read_access(
    folder: Path,
    read_tokens: str | None,
    write_tokens: str | None,
    certificate: str | None,
    key: str | None,
) -> tuple[Access, list[ConfigurationError]]:
    """Read what the paths, relative to `folder`, lead to; and every error in there."""
    errors: list[ConfigurationError] = []
    read = _tokens(folder / read_tokens, errors) if read_tokens else {}
    write = _tokens(folder / write_tokens, errors) if write_tokens else {}
    access = Access(
        read,
        write,
        read_tokens is not None,
        folder / certificate if certificate else None,
        folder / key if key else None,
    )
    try:
        access.tls()
    except OSError as error:
        problem = f"this certificate and the key {access.key} can't be used: {error.strerror or error}"
        if error.filename is not None:
            problem = f"can't be read: {error.strerror or error}"
        errors.append(ConfigurationError(str(error.filename or access.certificate), 0, "", problem))
    return access, errors


def _digest(authorization: str | None) -> bytes:
    token = (authorization or "").partition(" ")[2]
    # Bytes that are no UTF-8 come as surrogates.
    return sha256(token.strip().encode(errors="surrogateescape")).digest()


def _tokens(path: Path, errors: list[ConfigurationError]) -> dict[bytes, str]:
    try:
        with open_regular(path) as file:
            if stat.S_IMODE(path.stat().st_mode) & stat.S_IRWXO:
                problem = "everybody may read these tokens: chmod o= the file"
                errors.append(ConfigurationError(str(path), 0, "", problem))
            text = file.read(_MAX_FILE_BYTES).decode("ascii", "replace")
    except OSError as error:
        problem = f"can't be read: {error.strerror or error}"
        errors.append(ConfigurationError(str(path), 0, "", problem))
        return {}
    digests = {}
    for line, token, name in _lines(text):
        if len(token) < MIN_TOKEN or not _TOKEN.fullmatch(token):
            problem = f"a token has {MIN_TOKEN} or more of A-Z a-z 0-9 . _ ~ + / = -, one on a line"
            errors.append(ConfigurationError(str(path), line, "", problem))
        digests[sha256(token.encode()).digest()] = name or f"token of line {line} of {path.name}"
    if not digests:
        errors.append(ConfigurationError(str(path), 0, "", "holds no token"))
    return digests


def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        token, _, name = line.partition("#")
        if token.strip():
            yield number, token.strip(), name.strip()[:_MOST_NAME]
