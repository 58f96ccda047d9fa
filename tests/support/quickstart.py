"""The configurations of the page on connecting a server, made fit for a test."""

import json
import re
import subprocess
from pathlib import Path

from tests.support.backend import HANDLE
from tests.support.chain import Chain
from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.pages import blocks

PAGE = REPOSITORY / "docs" / "how-to" / "servers" / "connect-a-server.md"
SAMPLE = Path("/etc/kamailio/kamailio.cfg")
"""The script that Debian's package installs."""
ENDS_SOON = 'modparam("dialog", "default_timeout", 10)\nmodparam("dialog", "noack_timeout", 10)'
"""A dialog whose BYE or ACK a busy machine loses is over after 10 s, not after 12 hours."""


def kamailio_cfg(address: str) -> str:
    """Debian's sample script with the lines of the page, for a host with this address."""
    head, managed, *_ = (block.replace("10.20.0.5", address) for block in blocks(PAGE.read_text(), "text"))
    text = SAMPLE.read_text().replace("request_route {", f"{head}\n{ENDS_SOON}\nrequest_route {{", 1)
    return text.replace("record_route();", f"{managed.strip()}\n\t\trecord_route();", 1)


def start_kamailio(namespace: Namespace, folder: Path, address: str) -> subprocess.Popen[str]:
    """Start Debian's Kamailio with its sample script and the lines of the page; it logs into `folder`."""
    (folder / "kamailio.cfg").write_text(kamailio_cfg(address))
    return namespace.start(
        *("kamailio", "-f", str(folder / "kamailio.cfg"), "-DD", "-E", "-m", "32", "-M", "4"),
        *("-Y", str(folder), "-P", str(folder / "kamailio.pid")),
        log=folder / "kamailio.log",
    )


def page(name: str) -> str:
    """Return the configuration of the page that begins with `# name`."""
    (text,) = (block for block in blocks(PAGE.read_text(), "toml") if block.startswith(f"# {name}\n"))
    return text


def configure(chain: Chain, text: str) -> None:
    """Use a configuration of the page with the registrars, the pool and the directories of the test."""
    text = re.sub(r"registrars = .*", f"registrars = {json.dumps(chain.registrars.addresses)}", text)
    text = re.sub(r"handle    = .*", f'handle = "{HANDLE}"', text)
    chain.sidecar.config.write_text(text.replace("[[as]]", f"{chain.sidecar.paths}[[as]]", 1))
