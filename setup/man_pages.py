"""Writes man pages (default: of every command): python setup/man_pages.py FOLDER [COMMAND...]"""

import sys
from collections.abc import Collection
from importlib import import_module, metadata
from pathlib import Path

from daemon_kit.manual import man_page
from rspdns.entry import COMMANDS

EXIT_STATUS = (
    ("0", "All is well."),
    ("1", "It could not be done; the last lines say why."),
    ("2", "Wrong usage."),
)
FILES = {
    "rspdns": (
        ("/etc/rspdns/rspdns.toml", "The backend's configuration."),
        (
            "/etc/rspdns/zones.d/",
            "The zones: <zone>.toml names the pools, <zone>.zone holds the fixed records.",
        ),
        ("/etc/rspdns/gateway.toml", "The configuration of a cell's gateway."),
        ("/var/lib/rspdns/", "The state that outlives a restart."),
        ("/run/rspdns/", "Sockets."),
    ),
    "ppe-agent": (
        ("/etc/ppe-agent/agent.toml", "The sidecar's configuration."),
        ("/var/lib/ppe-agent/", "The state that outlives a restart."),
    ),
    "ppu-agent": (
        ("/etc/ppu-agent/ppu-agent.toml", "The configuration of the client's sidecar."),
        ("/var/lib/ppu-agent/", "The state that outlives a restart."),
    ),
}


def pages(commands: Collection[str] = ()) -> dict[str, str]:
    """The pages of `commands` (none given: of all) by file name."""
    distribution = metadata.distribution("rspdns")
    texts = {}
    for name, (module, _) in COMMANDS.items():
        if commands and name not in commands:
            continue
        group = import_module(module).main
        more = {"EXIT STATUS": EXIT_STATUS, "FILES": FILES.get(name, ())}
        sections = {title: terms for title, terms in more.items() if terms}
        texts[f"{name}.1"] = man_page(name, group, f"rspdns {distribution.version}", sections)
    return texts


def main(folder: Path, commands: Collection[str] = ()) -> None:
    """Write them into `folder`/man1."""
    (folder / "man1").mkdir(parents=True, exist_ok=True)
    for name, text in sorted(pages(commands).items()):
        (folder / "man1" / name).write_text(text)
        print(folder / "man1" / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
