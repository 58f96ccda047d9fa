"""The Debian packages' lists of files. packaging/trial installs the packages."""

from fnmatch import fnmatch
from itertools import permutations

from tests.support.namespaces import REPOSITORY


def test_no_path_is_in_two_packages() -> None:
    """dpkg refuses to unpack the second one."""
    lists = {
        file.stem: [line.split()[0] for line in file.read_text().splitlines()]
        for file in (REPOSITORY / "packaging/debian").glob("*.install")
    }
    assert len(lists) > 5
    for (first, patterns), (second, paths) in permutations(lists.items(), 2):
        shared = [
            path
            for path in paths
            for pattern in patterns
            if fnmatch(path, pattern) or fnmatch(path, f"{pattern}/*")
        ]
        assert not shared, f"{first} and {second}"
