"""Commands of checks that `setsid` leave nothing behind, and the sidecar's other children stay."""

from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.namespaces import Namespace, own_namespace
from tests.support.sidecar import Sidecar, server_text
from tests.support.waiting import until

pytestmark = pytest.mark.integration
# It waits: a leftover that has not left the command's group yet is killed with that.
ENDS = (
    "echo >>{folder}/ended; setsid sleep 1001 & env -i setsid sleep 1006 & "
    "setsid sh -c 'sleep 1002; true' & sleep 0.1; exit 0"
)
STARTS_SCTPD = "ls {folder}/sctpd || {{ cp /bin/sleep {folder}/sctpd; setsid {folder}/sctpd 1005 & }}; exit 0"
IS_KILLED = "echo >>{folder}/killed; setsid sleep 1003 & sleep 1004"
RUNS = 20


def names(namespace: Namespace) -> list[str]:
    """The names of the programs that run: each check starts and ends some."""
    found = []
    for pid in namespace.pids():
        with suppress(OSError):
            found.append(Path(f"/proc/{pid}/comm").read_text().strip())
    return found


def leftovers(namespace: Namespace) -> list[str]:
    """The command lines of what checks started and that still runs, or was not reaped."""
    found = []
    for pid in namespace.pids():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state == "Z" or words[0] in ("sleep", "sh"):
            found.append(" ".join(words) or "zombie")
    return found


def test_commands_that_setsid_leave_nothing_behind(tmp_path: Path) -> None:
    def runs(name: str) -> int:
        return len((tmp_path / name).read_text()) if (tmp_path / name).exists() else 0

    with own_namespace() as namespace:
        namespace.give_address("10.95.0.1")
        sidecar = Sidecar(namespace, tmp_path, ["10.95.0.1"])
        checks = [
            f"""[[as.check]]
type = "exec"
command = ["/bin/sh", "-c", "{script.format(folder=tmp_path)}"]
interval_ms = 100
timeout_ms = {timeout_ms}
"""
            for script, timeout_ms in ((STARTS_SCTPD, 5000), (ENDS, 5000), (IS_KILLED, 100))
        ]
        text = server_text("one", "sip-udp", "udp", 5060, "exec")
        sidecar.configure(text.replace('[[as.check]]\ntype = "exec"\n', "".join(checks)))
        sidecar.start()
        until(lambda: min(runs("ended"), runs("killed")) >= RUNS, told=sidecar.log)
        # Each check runs again at once: a few are under way, but none is of a command that ended.
        until(lambda: len(leftovers(namespace)) <= 6, 10, lambda: str(leftovers(namespace)))
        assert names(namespace).count("sctpd") == 2, "the agent's own, and the one that a command started"
        assert len(sidecar.status()["as"]) == 1
