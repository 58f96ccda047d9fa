"""A time of day of its own for the programs of one host: a small library shows it to them (LD_PRELOAD)."""

import struct
from pathlib import Path
from typing import Final

from rspdns_lab.net.preconditions import compile_c

SOURCE: Final = Path(__file__).with_name("wall_clock.c")


def build_wall_clock(folder: Path) -> Path:
    """Compile the library into `folder` and return where it is. Raises LabError."""
    return compile_c(SOURCE, folder / "wall_clock.so", "-shared", "-fPIC")


class WallClock:
    """The time of day on one host: the machine's, plus an offset that is kept in a file."""

    def __init__(self, library: Path, file: Path) -> None:
        self._library = library
        self._file = file
        self._file.write_bytes(struct.pack("=q", 0))

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which programs are shown this time."""
        return {"LD_PRELOAD": str(self._library), "RSPDNS_LAB_CLOCK": str(self._file)}

    def step(self, seconds: int) -> None:
        """Set it forward by so much (negative: back), from one moment to the next."""
        with self._file.open("r+b") as file:
            [offset_s] = struct.unpack("=q", file.read(8))
            file.seek(0)
            file.write(struct.pack("=q", offset_s + seconds))
