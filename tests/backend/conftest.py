"""The common start of several tests of the backend."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.backend.admin_paper import WRITER, Admin, tokens


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    one = Admin(tmp_path, write_tokens=tokens(tmp_path, "write", WRITER))
    await one.server.start()
    yield one
    await one.client.close()
    await one.server.close()
