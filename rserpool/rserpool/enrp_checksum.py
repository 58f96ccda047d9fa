"""Who owns which pool elements, and the checksum over them that presences carry (RFC 5353, section 2.1).

The checksum is the Internet checksum (RFC 1071) over pool handle and PE identifier of each element that a
registrar owns. It finds elements that are there too much or too little, not changed loads.
"""

from collections.abc import Set

Key = tuple[bytes, int]
"""A pool handle and a PE identifier in it."""

MAX_ELEMENTS = 200_000
"""Pool elements remembered; above it, further ones are left out and the checksums do not fit any more."""


def element_sum(handle: bytes, identifier: int) -> int:
    """Return what one pool element adds to the sum: its 16-bit words."""
    padded = handle + bytes(len(handle) % 2)
    words = sum(int.from_bytes(padded[at : at + 2], "big") for at in range(0, len(padded), 2))
    return words + (identifier >> 16) + (identifier & 0xFFFF)


def finish(total: int) -> int:
    """Return the checksum (0..65535) of a sum; 0xffff is that of no element at all."""
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


NO_ELEMENTS = finish(0)


class Ownership:
    """The home registrar, by its identifier, of every pool element that is known."""

    def __init__(self) -> None:
        self._homes: dict[Key, int] = {}
        self._sums: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._homes)

    def add(self, handle: bytes, identifier: int, home: int) -> None:
        """Take note of an element, or of its new home."""
        key = (handle, identifier)
        before = self._homes.get(key)
        if before == home or (before is None and len(self._homes) >= MAX_ELEMENTS):
            return
        self.remove(handle, identifier)
        self._homes[key] = home
        self._sums[home] = self._sums.get(home, 0) + element_sum(handle, identifier)

    def remove(self, handle: bytes, identifier: int) -> None:
        """Forget an element."""
        home = self._homes.pop((handle, identifier), None)
        if home is not None:
            self._sums[home] -= element_sum(handle, identifier)
            if not self._sums[home]:
                del self._sums[home]

    def replace(self, home: int, owned: Set[Key], but: Set[Key] = frozenset()) -> None:
        """`home` owns these and no others; of the elements in `but` more is known already."""
        before = {key for key, one in self._homes.items() if one == home}
        for handle, identifier in before - owned - but:
            self.remove(handle, identifier)
        for handle, identifier in owned - before - but:
            self.add(handle, identifier, home)

    def take_over(self, target: int, home: int) -> None:
        """What `target` owned is `home`'s now."""
        for handle, identifier in [key for key, one in self._homes.items() if one == target]:
            self.add(handle, identifier, home)

    def checksum(self, home: int) -> int:
        """Return the checksum over what a registrar owns."""
        return finish(self._sums.get(home, 0))
