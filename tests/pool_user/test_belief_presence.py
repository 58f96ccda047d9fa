"""Rule 1: a registrar that does not list its own sentinel is believed for presence, never for absence."""

from tests.pool_user.belief_support import POOL, R1, R2, R3, Play, pe


def test_a_starting_registrar_brings_members_in() -> None:
    play = Play()
    play.up(0)
    play.answer(0, pe(1, R1))
    assert play.members() == [1]
    assert play.view().known
    assert play.view().stale_since_s is not None


def test_a_starting_registrar_brings_members_in_that_the_others_do_not_list_yet() -> None:
    play = Play()
    play.settle(1, 2)
    play.answer(1)
    play.answer(2)
    play.up(0)
    play.answer(0, pe(1, 0xA7))
    assert play.members() == [1]


def test_a_starting_registrar_does_not_bring_in_who_is_known_dead_by_its_settled_home() -> None:
    play = Play()
    play.settle(1)
    play.answer(1, pe(1, R2))
    play.up(0)
    play.answer(0, pe(1, R2))
    play.answer(1)
    assert play.members() == []
    play.answer(0, pe(1, R2))
    assert play.members() == []


def test_news_of_a_starting_registrar_about_anothers_member_wait_for_the_homes_word() -> None:
    play = Play()
    play.settle(1)
    play.answer(1)
    play.up(0)
    play.answer(0, pe(1, R2))
    assert play.members() == [], "it may be reading old updates"
    assert play.asked() == {(1, POOL)}
    play.answer(0)
    assert play.members() == []
    play.answer(0, pe(1, R2))
    play.answer(1, pe(1, R2))
    assert play.members() == [1]


def test_news_of_a_starting_registrar_count_once_it_is_settled() -> None:
    play = Play()
    play.settle(1)
    play.answer(1)
    play.up(0)
    play.answer(0, pe(1, R2))
    assert "not confirmed" in play.out()[1]
    play.sentinel(0, (0x51, R1))
    play.down(1)
    assert play.members() == [1]


def test_news_of_a_starting_registrar_do_not_put_out_a_member_that_is_in() -> None:
    play = Play()
    play.settle(0, 2)
    play.answer(2)
    play.answer(0, pe(1, R1))
    play.down(0)
    play.up(0)
    play.answer(0, pe(1, R3))
    assert play.members() == [1], "it has moved to a registrar that was asked before"
    assert play.asked() == {(2, POOL)}
    play.answer(2, pe(1, R3))
    assert play.members() == [1]


def test_an_answer_given_under_a_former_identifier_does_not_count() -> None:
    play = Play()
    play.settle(0, 1)
    play.answer(1, pe(1, 0xA9))
    play.answer(0)
    play.sentinel(0, (0x77, 0xA9))
    assert play.members() == [1]
    assert play.asked() == {(0, POOL)}
    play.answer(0)
    assert play.members() == []


def test_not_found_from_a_starting_registrar_removes_nobody() -> None:
    play = Play()
    play.up(0)
    play.answer(0, pe(1, R1))
    play.wait(5)
    play.answer(0)
    assert play.members() == [1]


def test_not_found_from_a_starting_registrar_makes_nothing_known() -> None:
    play = Play()
    play.up(0, 1, 2)
    for index in (0, 1, 2):
        play.answer(index)
    assert not play.view().known


def test_not_found_from_a_settled_one_does() -> None:
    play = Play()
    play.settle(0)
    play.answer(0)
    assert play.view().known
    assert play.view().stale_since_s is None


def test_an_answer_from_before_a_registrar_was_settled_does_not_count_afterwards() -> None:
    play = Play()
    play.settle(1)
    play.answer(1, pe(1, R1))
    play.up(0)
    play.wait(1)
    play.answer(0)
    play.sentinel(0, (0x51, R1))
    assert play.members() == [1]
    assert play.asked() == {(0, POOL)}
    play.answer(0)
    assert play.members() == []


def test_a_restarted_registrar_that_lists_its_former_sentinel_removes_nobody() -> None:
    play = Play()
    play.settle(0, 1)
    play.answer(0, pe(1, R1))
    play.answer(1, pe(1, R1))
    play.down(0)
    play.wait(1)
    play.up(0)
    play.sentinel(0, (0x51, R1))
    play.answer(0)
    assert play.members() == [1]
    play.sentinel(0)
    play.answer(0)
    assert play.members() == [1]


def test_a_restarted_registrar_whose_sentinel_a_peer_took_over_removes_nobody() -> None:
    play = Play()
    play.settle(0, 1)
    play.answer(1, pe(1, R2))
    play.down(0)
    play.up(0)
    play.sentinel(0, (0x51, R2))
    play.answer(0)
    assert play.members() == [1]
    play.answer(1)
    assert play.members() == [], "the peer itself still speaks for its members"


def test_all_registrars_restarted_at_once_lose_nobody() -> None:
    play = Play()
    play.settle(0, 1, 2)
    members = [pe(1, R1), pe(2, R2)]
    for index in (0, 1, 2):
        play.answer(index, *members)
    play.down(0, 1, 2)
    play.wait(1)
    play.up(0, 1, 2)
    for index in (0, 1, 2):
        play.sentinel(index)
        play.answer(index)
    assert play.members() == [1, 2]
    assert all(member.stale for member in play.view().members)
    play.answer(0, pe(1, 0xA9))
    assert [member.stale for member in play.view().members] == [False, True]
    play.sentinel(1, (0x91, 0xB9))
    assert play.members() == [1, 2]
    play.answer(1, pe(1, 0xA9))
    assert play.members() == [1], "one that is settled again was asked, and nobody lists the other"
