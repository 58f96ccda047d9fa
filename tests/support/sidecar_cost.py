"""The cost of a sidecar: processor time and memory beside one Kamailio, with real registrars. Needs root.

python -m tests.support.sidecar_cost [SECONDS]
"""

import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.support.backend import ADDRESS
from tests.support.chain import Chain
from tests.support.namespaces import REPOSITORY, Namespace
from tests.support.quickstart import configure, page, start_kamailio
from tests.support.stalls import share_of_a_core

README = REPOSITORY / "ppe-agent" / "README.md"
METRICS = '[metrics]\nlisten = "127.0.0.1:9155"\n'
SETTLING_S = 2.0


def ten_lines() -> str:
    """Return the configuration that the sidecar's README begins with."""
    found = re.search(r"## Ten lines\n+```toml[^\n]*\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def measure(chain: Chain, what: str, time_s: float) -> None:
    """Run the sidecar with the configuration that was written, and print what it took."""
    agent = chain.sidecar.start()
    chain.until_in()
    time.sleep(SETTLING_S)
    share = share_of_a_core(agent.pid, time_s)
    memory = psutil.Process(agent.pid).memory_info().rss
    print(f"{what}: {share:.2%} of a core, {memory / 1e6:.0f} MB", flush=True)
    agent.send_signal(signal.SIGTERM)
    agent.wait()
    chain.until_out()


def main(time_s: float) -> None:
    """Measure the ten lines of the README, those with metrics, and the quick start's Kamailio."""
    namespace = Namespace(f"rspdns-cost-{os.getpid()}")
    try:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            chain = Chain(namespace, directory, registrars="alone")
            start_kamailio(namespace, directory, ADDRESS)
            configure(chain, ten_lines())
            measure(chain, "the ten lines", time_s)
            configure(chain, ten_lines().replace("[[as]]", f"{METRICS}[[as]]", 1))
            measure(chain, "with metrics", time_s)
            configure(chain, page("kamailio"))
            measure(chain, "the quick start's Kamailio, its load from Prometheus", time_s)
    finally:
        namespace.close()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 25.0)
