"""What can go wrong: one family of exceptions, so that a caller can catch `RSerPoolError` and be done."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rserpool.causes import Cause


class RSerPoolError(Exception):
    """Any failure of this package."""


class DecodeError(RSerPoolError):
    """The bytes are no message this package understands. Decoding raises nothing else, whatever the bytes.

    `cause` is what RFC 5354 asks to report to the sender, None where the message is to be dropped silently.
    """

    def __init__(self, problem: str, cause: "Cause | None" = None) -> None:
        super().__init__(problem)
        self.cause = cause


class EncodeError(RSerPoolError, ValueError):
    """A value does not fit its field on the wire (a port above 65535, a load above 1, 64 KiB in all)."""


class UnsafeMessageError(RSerPoolError, ValueError):
    """The message is well-formed, but rspregistrar would abort on it. It must not be sent."""


class RegistrarUnreachable(RSerPoolError):  # noqa: N818 - reads as a state, and is one
    """There is no association with the registrar."""


class ResolutionTimeout(RSerPoolError):  # noqa: N818
    """The registrar did not answer a handle resolution in time."""


class RegistrationRejected(RSerPoolError):  # noqa: N818
    """The registrar refused a registration; `causes` says why (may be empty: a registrar need not say)."""

    def __init__(self, causes: "Sequence[Cause]") -> None:
        super().__init__("; ".join(cause.explain() for cause in causes) or "the registrar gave no reason")
        self.causes = tuple(causes)
