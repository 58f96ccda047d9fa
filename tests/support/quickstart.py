"""The configurations of the page on connecting a server, made fit for a test."""

import json
import re

from tests.support.backend import HANDLE
from tests.support.chain import Chain
from tests.support.namespaces import REPOSITORY

PAGE = REPOSITORY / "docs" / "how-to" / "servers" / "connect-a-server.md"
KAMAILIO = """\
#!KAMAILIO
log_stderror=yes
debug=0
children=2
tcp_children=2
auto_aliases=no
dns=no
rev_dns=no
tcp_accept_no_cl=yes
loadmodule "sl.so"
loadmodule "tm.so"
loadmodule "rr.so"
loadmodule "pv.so"
loadmodule "maxfwd.so"
loadmodule "dialog.so"
loadmodule "xhttp.so"
loadmodule "xhttp_prom.so"
modparam("xhttp_prom", "xhttp_prom_stats", "all")
request_route {
    if (!mf_process_maxfwd_header("10")) {
        sl_send_reply("483", "Too Many Hops");
        exit;
    }
    sl_send_reply("200", "OK");
}
event_route[xhttp:request] {
    if (prom_check_uri()) {
        prom_dispatch();
        return;
    }
    xhttp_reply("404", "Not Found", "text/html", "no");
}
"""


def page(name: str) -> str:
    """Return the configuration of the page that begins with `# name`."""
    (text,) = re.findall(rf"```toml\n(# {name}\n.*?)```", PAGE.read_text(), re.DOTALL)
    return str(text)


def configure(chain: Chain, text: str) -> None:
    """Use a configuration of the page with the registrars, the pool and the directories of the test."""
    text = re.sub(r"registrars = .*", f"registrars = {json.dumps(chain.registrars.addresses)}", text)
    text = re.sub(r"handle    = .*", f'handle = "{HANDLE}"', text)
    chain.sidecar.config.write_text(text.replace("[[as]]", f"{chain.sidecar.paths}[[as]]", 1))
