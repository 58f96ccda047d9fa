"""The tables [[hook]] of `rspdns.toml`, and the secrets that they name."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from daemon_kit.addresses import is_loopback_host, web_url
from daemon_kit.config_file import StrictModel, duplicates, find
from daemon_kit.files import PathText, read_secret
from pydantic import AfterValidator, Field

MOST_HOOKS = 16
_PREFIX = "whsec_"
_LEAST_BYTES, _MOST_BYTES = 24, 64


class HookConfig(StrictModel):
    """A web service that is told of each change of the members."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
    """The name of the hook in status, metrics and log. Under it the backend keeps how far it was told."""
    url: Annotated[str, AfterValidator(web_url)]
    """The address that each message is posted to, https or http. Redirects are not followed."""
    secret: PathText | None = None
    """Whole path of the file with the key that messages are signed with: `whsec_` and base64."""
    pools: tuple[str, ...] = ()
    """The pools it is told of, by the names of their SRV records or by handles; all if not given."""
    format: Literal["standard", "text"] = "standard"
    """standard: the events as JSON (Standard Webhooks). text: `{"text": "..."}`, for chats."""

    @property
    def target(self) -> str:
        """Scheme and host of the URL: its path may be a secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def is_readable_on_the_way(self) -> bool:
        """Whether messages go to another host without TLS."""
        parts = urlsplit(self.url)
        return parts.scheme == "http" and not is_loopback_host(parts.hostname)


def problems(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The problems between the keys of all [[hook]] in the unchecked `document`."""
    yield from duplicates(document, ("hook", "*", "name"))
    hooks = [(location, hook) for location, hook in find(document, ("hook", "*")) if isinstance(hook, dict)]
    for location, hook in hooks:
        if hook.get("format", "standard") == "standard" and "secret" not in hook:
            words = (
                "needs secret: by its signature the receiver knows that a message is from this name server"
            )
            yield location, words
    if len(hooks) > MOST_HOOKS:
        yield ("hook",), f"{len(hooks)} hooks; {MOST_HOOKS} at most"


def read_key(path: str) -> bytes:
    """Read the key of signatures. Raises ValueError, in words, never with the key."""
    text = read_secret(path).strip()
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not text.startswith(_PREFIX) or not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        raise ValueError(
            f"{path}: holds no key: it is {_PREFIX} and the base64 of {_LEAST_BYTES} to {_MOST_BYTES} bytes: "
            f'echo "{_PREFIX}$(openssl rand -base64 32)"'
        )
    return key
