"""Pages of docs/how-to, pasted without a pause under systemd: every service then says that all is well.

`make test-how-to` runs this; it is no part of `make test`. The pages are in `tests/support/how_to_pages.py`.
"""

from pathlib import Path

import pytest

from tests.support.how_to import HOSTS, site
from tests.support.how_to_pages import JOURNEYS

pytestmark = pytest.mark.timeout(1800)  # the installation counts to the first test


@pytest.mark.parametrize("journey", JOURNEYS)
def test_pages_work_as_they_stand(journey: str, installed: Path, tmp_path: Path) -> None:
    walks = JOURNEYS[journey]
    needed = set().union(*(walk.every_host() for walk in walks))
    with site(tmp_path, installed, [name for name in HOSTS if name in needed]) as hosts:
        for walk in walks:
            hosts.walk(walk)
