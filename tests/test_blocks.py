"""`setup/blocks.py`, a part of `make lint`: blocks of pages that a reader can't copy or place."""

import subprocess
import sys
from pathlib import Path

from tests.support.namespaces import REPOSITORY
from tests.support.pages import blocks

WRONG = """\
```toml
[[pool]]
```

    $ rspdns status

=== "A"

    ```
    no language
    ```

    ```text
    # /etc/hosts
    ```

1. A step:

        [[pool]]
        handle = "web"
"""
RIGHT = """\
    rspdns status

```console
$ rspdns status
all is well
```

=== "A"

    ```toml title="/etc/rspdns/rspdns.toml"
    # /etc is the folder
    [admin]
    ```

```text
$ output of a program
```
"""


def listed(page: Path, text: str) -> tuple[int, list[str]]:
    page.write_text(text)
    command = [sys.executable, str(REPOSITORY / "setup" / "blocks.py"), page.name]
    done = subprocess.run(command, cwd=page.parent, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def test_each_block_without_title_or_language_is_listed_with_its_line(tmp_path: Path) -> None:
    status, lines = listed(tmp_path / "page.md", WRONG)
    assert status == 1
    assert [line.split(":")[1] for line in lines] == ["1", "5", "9", "14", "19"]


def test_commands_consoles_outputs_and_files_with_names_pass(tmp_path: Path) -> None:
    assert listed(tmp_path / "page.md", RIGHT) == (0, [])


def test_blocks_of_a_page_are_found_in_tabs_without_their_indentation() -> None:
    assert blocks(RIGHT, "toml") == ["# /etc is the folder\n[admin]\n"]
