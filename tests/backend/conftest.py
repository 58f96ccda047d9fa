"""The common start of several tests of the backend."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.backend.admin_paper import WRITER, Admin, tokens


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    served = Admin(tmp_path, write_tokens=tokens(tmp_path, "write", f"{WRITER}  # alice"))
    await served.server.start()
    yield served
    await served.client.close()
    await served.server.close()
