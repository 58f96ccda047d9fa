"""`setup/prose.py`, a part of `make lint`: sentences that open with a stand-in for a noun."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.namespaces import REPOSITORY

WRONG = {
    "page.md": "# What it is\n\nAll is well. Nobody\nknows:\n\n- One that left\n\n| What | Where |\n",
    "code.py": 'LIMIT = 3\n"""So many at a time."""\n# The first.\n# Whose end\n# is near. Where it is.\n',
    "code.c": "/* The port. Of IPv4.\n * Whatever comes */\nint port; // Who asks\n",
    "help.py": 'option("--all", help="Of each fault.")\nlog(f"{place}: all. Nobody knows {place}.")\n',
    "notes.conf": "[section] # Whoever reads this\n",
    "events.toml": 'left = "It left. What is left, stays."\n',
    "tabs.md": '=== "A"\n\n    Nobody knows.\n\n        What a command\n\nWho asks is known.\n',
}
EXPECTED = {
    "page.md": [(3, "Nobody knows:"), (6, "One that left")],
    "code.py": [(2, "So many at a time."), (4, "Whose end is near."), (5, "Where it is.")],
    "code.c": [(1, "Of IPv4."), (2, "Whatever comes"), (3, "Who asks")],
    "help.py": [(1, "Of each fault."), (2, "Nobody knows X.")],
    "notes.conf": [(1, "Whoever reads this")],
    "events.toml": [(1, "What is left, stays.")],
    "tabs.md": [(3, "Nobody knows."), (7, "Who asks is known.")],
}
RIGHT = {
    "page.md": "The page. What is left?\n\n```\nWhat a program prints\n```\n",
    "code.py": 'WHAT = "What it says"  # the word; who asks\n"""If one is left, it ends: of all."""\n',
    "code.c": "/* The port: where it is. */\n",
    "data.bin": "\0",
}


def listed(folder: Path, texts: dict[str, str]) -> tuple[int, list[str]]:
    for name, text in texts.items():
        (folder / name).write_text(text)
    command = [sys.executable, str(REPOSITORY / "setup" / "prose.py"), *sorted(texts)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_each_stand_in_is_listed_with_its_line(tmp_path: Path) -> None:
    status, lines = listed(tmp_path, WRONG)
    found = [f"{name}:{line}: {words}" for name in sorted(WRONG) for line, words in EXPECTED[name]]
    assert (status, sorted(lines[:-1])) == (1, sorted(found))


@pytest.mark.parametrize("name", RIGHT)
def test_other_sentences_and_code_pass(tmp_path: Path, name: str) -> None:
    assert listed(tmp_path, {name: RIGHT[name]}) == (0, [])
