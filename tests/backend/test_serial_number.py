"""The serial moves and never goes back."""

from pathlib import Path

import pytest
from rspdns.answers.serial_number import FILE_NAMES, RESERVED, SerialNumbers


def used(numbers: SerialNumbers, count: int = 1) -> int:
    for _ in range(count):
        serial = numbers.following
        numbers.use(serial)
    return serial


def test_a_serial_number_begins_at_the_clock_and_moves(tmp_path: Path) -> None:
    numbers = SerialNumbers(tmp_path, 1000.7)
    assert [used(numbers), used(numbers)] == [1001, 1002]


def test_a_serial_that_is_not_used_is_given_again(tmp_path: Path) -> None:
    numbers = SerialNumbers(tmp_path, 1000)
    assert numbers.following == numbers.following == 1001


def test_a_serial_number_never_goes_back_across_restarts(tmp_path: Path) -> None:
    last = used(SerialNumbers(tmp_path, 1000), 2 * RESERVED + 5)
    for wall_s in (1000, 1001, 0):
        again = used(SerialNumbers(tmp_path, wall_s))
        assert again > last
        last = again


def test_a_directory_that_cannot_be_written_is_told_and_harmless(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    numbers = SerialNumbers(tmp_path / "file", 1000)
    assert used(numbers) == 1001
    assert numbers.problem is not None
    assert "file" in numbers.problem


def test_a_damaged_file_is_passed_over(tmp_path: Path) -> None:
    for damage in (b"\xff\x00", b"", b"-5", b"9" * 100):
        for name in FILE_NAMES:
            (tmp_path / name).write_bytes(damage)
        assert used(SerialNumbers(tmp_path, 1000)) >= 1001


@pytest.mark.parametrize("name", FILE_NAMES)
def test_one_torn_or_lost_file_takes_no_serial_back(tmp_path: Path, name: str) -> None:
    last = used(SerialNumbers(tmp_path, 1_000_000), RESERVED // 2)
    whole = (tmp_path / name).read_bytes()
    for length in range(len(whole)):
        (tmp_path / name).write_bytes(whole[:length])
        again = used(SerialNumbers(tmp_path, 1_000_000))
        assert again > last
        last = again
    (tmp_path / name).unlink()
    assert used(SerialNumbers(tmp_path, 1_000_000)) > last
