"""A registrar names 128 PEs at most: who is missing from a full answer may have been cut off."""

from tests.pool_user.belief_support import R1, R2, Play, pe

FIRST = [pe(identifier, R1) for identifier in range(1, 129)]


def test_a_full_answer_of_its_home_denies_nobody() -> None:
    play = Play(1)
    play.settle(0)
    play.answer(0, *FIRST)
    play.answer(0, *FIRST[1:], pe(129, R1))
    play.wait(2)
    play.answer(0, *FIRST[1:], pe(129, R1))
    assert play.members() == list(range(1, 130))
    assert play.asked() == set(), "asking again at once would not help"


def test_a_full_answer_does_not_speak_for_a_silent_home() -> None:
    play = Play(2)
    play.settle(0, 1)
    play.answer(0, *FIRST)
    play.answer(1, pe(200, R2))
    play.down(1)
    play.wait(2)
    play.answer(0, *FIRST)
    assert 200 in play.members()


def test_a_shorter_answer_denies_again() -> None:
    play = Play(1)
    play.settle(0)
    play.answer(0, *FIRST)
    play.answer(0, *FIRST[1:], pe(129, R1))
    play.answer(0, *FIRST[2:])
    play.wait(2)
    play.answer(0, *FIRST[2:])
    assert play.members() == list(range(3, 129))


def test_a_home_whose_answers_are_full_is_not_asked_again_and_again() -> None:
    play = Play(2)
    play.settle(0, 1)
    play.answer(0, *FIRST)
    play.answer(1, pe(200, R1))
    play.answer(0, *FIRST)
    assert 200 in play.members()
    assert play.asked() == set()
