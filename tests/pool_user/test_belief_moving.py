"""Rule 2: who moves between registrars never blinks, and partitions."""

from tests.pool_user.belief_support import POOL, R1, R2, R3, Play, pe, settled


def test_a_move_seen_in_any_order_never_blinks() -> None:
    before, after = pe(1, R1), pe(1, R3)
    for first, second, third in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        play = Play()
        play.settle(0, 1, 2)
        for index in (0, 1, 2):
            play.answer(index, before)
        for index in (first, second, third):
            play.answer(index, after)
            assert play.members() == [1]
        assert play.view().members[0].home_registrar == R3
        assert play.view().members[0].since_s < 100.02, "it came in before it moved"


def test_a_move_while_the_old_home_already_dropped_it() -> None:
    play = settled()
    asked_s = play.now
    play.wait(0.01)
    play.answer(2, pe(1, R3), pe(2, R2))
    play.answer(0, pe(2, R2), asked_s=asked_s)
    assert 1 in play.members()
    play.answer(0, pe(2, R2))
    assert 1 in play.members(), "its home is the third by now"
    play.answer(1, pe(1, R3), pe(2, R2))
    assert play.members() == [1, 2]


def test_a_move_to_a_home_that_was_asked_before() -> None:
    play = Play()
    play.settle(0, 1)
    play.answer(0, pe(1, R1))
    play.answer(1)
    play.answer(0, pe(1, R2))
    assert play.members() == [1]
    assert play.asked() == {(1, POOL)}


def test_moving_there_and_back_never_blinks() -> None:
    play = settled()
    for home in (R3, R1, R3, R1):
        for index in (2, 1, 0):
            play.answer(index, pe(1, home), pe(2, R2))
            assert play.members() == [1, 2]


def test_crossed_views_of_a_move_are_no_death() -> None:
    play = Play()
    play.settle(0, 1)
    play.answer(0, pe(1, R2))
    play.answer(1, pe(1, R1))
    assert play.members() == [1]


def test_who_moved_and_then_died_is_not_kept_by_what_the_old_home_says_of_the_move() -> None:
    play = settled()
    for index in (0, 1, 2):
        play.answer(index, pe(1, R3), pe(2, R2))
    play.answer(2, pe(2, R2))
    assert play.members() == [2]
    play.answer(0, pe(1, R3), pe(2, R2))
    play.answer(1, pe(1, R3), pe(2, R2))
    assert play.members() == [2]


def test_a_registrar_that_lists_an_old_home_follows_what_that_home_says() -> None:
    play = settled()
    for index in (0, 2):
        play.answer(index, pe(1, R3), pe(2, R2))
    play.answer(1, pe(1, R1), pe(2, R2))
    play.answer(2, pe(2, R2))
    assert play.members() == [2], "the second still names the first, which names the third, which dropped it"


def test_a_partition_each_home_speaks_for_its_own() -> None:
    play = settled()
    play.answer(0, pe(1, R1))
    play.answer(2, pe(1, R1))
    play.answer(1, pe(1, R1), pe(2, R2))
    assert play.members() == [1, 2], "the others dropped PE 2, its home has it"
    play.answer(1, pe(1, R1))
    assert play.members() == [1]
