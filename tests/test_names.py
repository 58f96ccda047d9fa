"""`setup/names.py`, a part of `make lint`: `one` as a name, and names that mean two things."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.namespaces import REPOSITORY

FIRST = "class Member:\n    pass\n\n\nAddress = str | bytes\n"


def listed(folder: Path, *texts: str) -> tuple[int, list[str]]:
    names = [f"{letter}.py" for letter, _ in zip("abc", texts, strict=False)]
    for name, text in zip(names, texts, strict=True):
        (folder / name).write_text(text)
    command = [sys.executable, str(REPOSITORY / "setup" / "names.py"), *names]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("for one in (1, 2):\n    pass\n", "one"),
        ("names = [one for one in 'ab']\n", "one"),
        ("def tell(next_one: int) -> None:\n    pass\n", "next_one"),
        ("async def first_one() -> None:\n    pass\n", "first_one"),
        ("def _told() -> str:\n    return ''\n", "_told"),
        ("def keep(self) -> None:\n    self.old_ones = ()\n", "old_ones"),
        ("match 1:\n    case one:\n        pass\n", "one"),
        ("match 1:\n    case [*one]:\n        pass\n", "one"),
        ("match 1:\n    case {**ones}:\n        pass\n", "ones"),
        ("import json as one\n", "one"),
        ("heard = lambda: ''\n", "heard"),
        ("try:\n    pass\nexcept OSError as one:\n    pass\n", "one"),
    ],
)
def test_a_stand_in_for_a_noun_is_listed_with_its_line(tmp_path: Path, text: str, name: str) -> None:
    line = next(number for number, row in enumerate(text.splitlines(), 1) if name in row)
    assert listed(tmp_path, text) == (1, [f"a.py:{line}: {name}: name the noun"])


@pytest.mark.parametrize(
    "second",
    [
        "class Member:\n    pass\n",
        "Member = int\n",
        "Address = int\n",
        'Address = TypeVar("Address")\n',
        "Address: TypeAlias = int\n",
    ],
)
def test_a_name_of_two_things_is_listed(tmp_path: Path, second: str) -> None:
    status, (line,) = listed(tmp_path, FIRST, second)
    assert status == 1
    assert line.startswith("b.py:1: ")
    assert "is another thing at a.py:" in line


def test_other_names_pass(tmp_path: Path) -> None:
    """The number, what a library calls so, and a type that is defined in the same words elsewhere."""
    numbers = "one_to_one = 1\none_line = strategies.one_of(1)\nFIRST, SECOND = 1, 2\n"
    assert listed(tmp_path, FIRST, "Address = str | bytes\nFIRST = 3\n", numbers) == (0, [])
