"""The whole backend; when it knows MEMBERS members of every pool, the file KNOWN gets the monotonic time.

    python -m rspdns_lab.bench.scale_backend RSPDNS.TOML KNOWN MEMBERS

Asking its control socket instead would cost it memory and time for as many members.
"""

import asyncio
import sys
import time
from pathlib import Path

import uvloop
from pool_user import BeliefChange
from rspdns.configuration import load_configuration
from rspdns.service import Backend


class _Backend(Backend):
    def watch(self, known: Path, members: int) -> None:
        """Write the time when every member is known."""
        publish = self.publisher.publish

        def published(change: BeliefChange) -> None:
            publish(change)
            views = change.views.values()
            if not known.exists() and all(len(view.members) == members for view in views):
                known.with_suffix(".new").write_text(str(time.monotonic()))
                known.with_suffix(".new").rename(known)

        self.publisher.publish = published  # type: ignore[method-assign]  # to listen in


async def _serve(configuration: Path, known: Path, members: int) -> None:
    backend = _Backend(load_configuration(configuration))
    backend.watch(known, members)
    await backend.run(asyncio.Event())


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
