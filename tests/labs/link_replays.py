"""The emulated link on a clock of its own: the program of `link_replay.c`."""

from pathlib import Path

from rspdns_lab.link import SOURCE
from rspdns_lab.net.preconditions import compile_c


def build_replay(made: Path, *options: str) -> Path:
    """Compile it; it is the link, too."""
    source = Path(__file__).with_name("link_replay.c")
    return compile_c(source, made, "-std=gnu11", f"-I{SOURCE.parent}", *options, libraries=["-lm"])
