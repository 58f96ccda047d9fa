"""The pool elements that the model of a registrar knows: their homes, timers, and the answers about them."""

import asyncio
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

from rserpool import (
    MOST_RESOLVED,
    CauseCode,
    ErrorCause,
    HandleResolutionResponse,
    Ownership,
    PoolElement,
    PoolEntry,
    asap,
)

KnownKey = tuple[bytes, int]
"""A pool handle and a PE identifier in it."""


@dataclass(slots=True)
class KnownElement:
    """A pool element. `association` is the one on which its home keeps it alive."""

    element: PoolElement
    association: int | None = None
    timer: asyncio.TimerHandle | None = None
    is_acquainted: bool = False
    """Whether it answered a keep-alive on this association. While all is sound it is asked no more: it would
    answer, since an element does in every state but those in which it has deregistered."""

    def cancel(self) -> None:
        """Stop its timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class KnownElements:
    """All pool elements that one registrar knows."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.elements: dict[KnownKey, KnownElement] = {}
        self.ownership = Ownership()
        self._loop = loop
        self._answers: dict[bytes, bytes] = {}
        """The answers to handle resolutions that were given since their pools changed, by handle."""

    def listed(self, handle: bytes) -> list[PoolElement]:
        """The elements of a pool."""
        return [known.element for (where, _), known in self.elements.items() if where == handle]

    def has_at(self, address: str, home: int) -> bool:
        """Whether an element at this address has this home."""
        return any(
            known.element.home_registrar == home
            and ip_address(address) in known.element.user_transport.addresses
            for known in self.elements.values()
        )

    def answer(self, handle: bytes) -> bytes:
        """The answer to a handle resolution."""
        answer = self._answers.get(handle)
        if answer is None:
            elements = tuple(self.listed(handle)[:MOST_RESOLVED])
            error = () if elements else (ErrorCause(CauseCode.UNKNOWN_POOL_HANDLE, handle),)
            policy = elements[0].policy if elements else None
            message = HandleResolutionResponse(handle, policy, elements, error)
            answer = self._answers[handle] = asap.encode(message)
        return answer

    def put(self, key: KnownKey, element: PoolElement) -> KnownElement:
        """Take note of an element; one that changed its home has no association here any more."""
        known = self.elements.get(key)
        if known is None or known.element != element:
            self._answers.pop(key[0], None)
        if known is None:
            known = self.elements[key] = KnownElement(element)
        elif known.element.home_registrar != element.home_registrar:
            known.cancel()
            known.association = None
        known.element = element
        self.ownership.add(*key, element.home_registrar)
        return known

    def remove(self, key: KnownKey) -> PoolElement:
        """Forget an element; return it."""
        known = self.elements.pop(key)
        self._answers.pop(key[0], None)
        self.ownership.remove(*key)
        known.cancel()
        return known.element

    def set_timer(
        self, known: KnownElement, delay_s: float, work: Callable[[KnownKey], object], key: KnownKey
    ) -> None:
        """Do this after that time, and nothing else before."""
        known.cancel()
        known.timer = self._loop.call_later(delay_s, work, key)

    def take_over(self, target: int, home: int) -> list[KnownKey]:
        """The elements of `target` are those of `home` now; return which."""
        self._answers.clear()
        self.ownership.take_over(target, home)
        keys = [key for key, known in self.elements.items() if known.element.home_registrar == target]
        for key in keys:
            known = self.elements[key]
            known.element = dataclasses.replace(known.element, home_registrar=home)
        return keys

    def table(self, home: int | None) -> tuple[PoolEntry, ...]:
        """A handle table: of the elements of one registrar, None: of all."""
        pools: dict[bytes, list[PoolElement]] = {}
        for (handle, _), known in self.elements.items():
            if home is None or known.element.home_registrar == home:
                pools.setdefault(handle, []).append(known.element)
        return tuple(PoolEntry(handle, tuple(elements)) for handle, elements in pools.items())
