"""Documents lead where they say."""

import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    path
    for path in sorted(TOP.rglob("*.md"))
    if not any(part.startswith((".", "build")) for part in path.relative_to(TOP).parts)
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(TOP)))
def test_links_to_files_lead_to_files(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert missing == []
