"""What a sidecar takes: processor time and memory beside one Kamailio, with real registrars. Needs root.

python -m tests.support.sidecar_cost [SECONDS]
"""

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.integration.test_agent_quickstart import KAMAILIO, configure, page
from tests.support.agent_host import ADDRESS, Host
from tests.support.namespaces import Namespace

TEN_LINES = """\
registrars = {registrars}
[state]
path = "{directory}/state"
[control]
path = "{directory}/control.sock"
[[as]]
name = "sip-1"
handle = "agent-test"
transport = "udp"
port = 5060
[[as.check]]
type = "tcp-hold"
[[as.check]]
type = "sip-options"
"""
METRICS = '[metrics]\nlisten = "127.0.0.1:9155"\n'
SETTLING_S = 2.0


def measure(host: Host, what: str, time_s: float) -> None:
    """Run the sidecar with the configuration that was written, and print what it took."""
    agent = host.start_agent()
    host.until_in()
    time.sleep(SETTLING_S)
    process = psutil.Process(agent.pid)
    began_s, used_s = time.monotonic(), sum(process.cpu_times()[:2])
    time.sleep(time_s)
    share = (sum(process.cpu_times()[:2]) - used_s) / (time.monotonic() - began_s)
    print(f"{what}: {share:.2%} of a core, {process.memory_info().rss / 1e6:.0f} MB", flush=True)
    agent.send_signal(signal.SIGTERM)
    agent.wait()
    host.until_out()


def main(time_s: float) -> None:
    """Measure the ten lines of the README, those with metrics, and the quick start's Kamailio."""
    namespace = Namespace(f"rspdns-cost-{os.getpid()}")
    try:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            host = Host(namespace, directory)
            (directory / "kamailio.cfg").write_text(KAMAILIO)
            listen = (f"udp:{ADDRESS}:5060", f"tcp:{ADDRESS}:5060", "tcp:127.0.0.1:9090")
            namespace.start(
                *("kamailio", "-f", str(directory / "kamailio.cfg"), "-DD", "-E", "-m", "32", "-M", "4"),
                *(part for each in listen for part in ("-l", each)),
                *("-Y", str(directory), "-P", str(directory / "kamailio.pid")),
                log=directory / "kamailio.log",
            )
            text = TEN_LINES.format(registrars=json.dumps(host.addresses), directory=directory)
            host.config.write_text(text)
            measure(host, "the ten lines", time_s)
            host.config.write_text(text.replace("[[as]]", f"{METRICS}[[as]]", 1))
            measure(host, "with metrics", time_s)
            configure(host, page("kamailio"))
            measure(host, "the quick start's Kamailio, its load from Prometheus", time_s)
    finally:
        namespace.close()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 25.0)
