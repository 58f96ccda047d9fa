"""DNS names as configuration and answers use them: text in lower case without the final dot."""

from __future__ import annotations

import re

import dns.exception
import dns.name

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?")
_PLAIN = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_MOST_PLAIN = 253
"""Characters of the longest name of 255 bytes, without escapes and the final dot."""
_HOST_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def normal(text: str) -> str:
    """`text` as an absolute name in the form used here; "" for the root.

    Raises ValueError, with words for a person, for what is no name of letters, digits, hyphens and
    underscores, for a label above 63 and a name above 255 bytes.
    """
    if len(text) <= _MOST_PLAIN and _PLAIN.fullmatch(text):
        return text  # ten times faster: thousands of pools have as many
    try:
        name = to_text(dns.name.from_text(text))
    except dns.name.LabelTooLong:
        raise ValueError("a label of the name is longer than 63 bytes") from None
    except dns.name.NameTooLong:
        raise ValueError("the name is longer than 255 bytes") from None
    except dns.name.EmptyLabel:
        raise ValueError("the name has an empty label (two dots in a row, or one at the start)") from None
    except (dns.exception.DNSException, UnicodeError) as error:
        raise ValueError(f"no DNS name: {error}") from None
    for label in name.split(".") if name else ():
        if not _LABEL.fullmatch(label):
            raise ValueError(f"the label {label!r} may hold only a-z, 0-9, _ and inner hyphens")
    return name


def to_text(name: dns.name.Name) -> str:
    """A dnspython name in the form used here."""
    return name.to_text(omit_final_dot=True).lower() if name != dns.name.root else ""


def is_label(text: str) -> bool:
    """Whether `text` is one label that a host name may hold (RFC 1123): lower case, digits, inner hyphens."""
    return _HOST_LABEL.fullmatch(text) is not None


def join(*parts: str) -> str:
    """Names put one before the other; "@" and "" stand for nothing."""
    return ".".join(part for part in parts if part not in ("", "@"))


def is_below(name: str, ancestor: str) -> bool:
    """Whether `name` lies below `ancestor`; a name does not lie below itself."""
    return name.endswith("." + ancestor)


def is_at_or_below(name: str, ancestor: str) -> bool:
    """Whether `name` is `ancestor` or lies below it."""
    return name == ancestor or is_below(name, ancestor)


def ancestors(name: str, zone: str) -> list[str]:
    """The names between `name` and the zone's apex, both left out, the nearest first."""
    above = []
    while is_below(name := name.partition(".")[2], zone):
        above.append(name)
    return above
