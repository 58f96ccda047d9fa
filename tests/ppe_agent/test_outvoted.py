"""When a home registrar that alone knows an element is left."""

import pytest
from ppe_agent.registration import HEARD_S, LACKED_CEILING_S, LACKED_S, Outvoted

from rserpool import RegistrarAddress

HOME, SECOND, THIRD = (RegistrarAddress(f"10.0.0.{number}") for number in (1, 2, 3))
STEP_S = 0.5


class Asked:
    """Every registrar is asked at each step; `says` holds what they answer, silent ones are left out."""

    def __init__(self, **says: bool | None) -> None:
        self.outvoted = Outvoted()
        self.says = says
        self.home: RegistrarAddress | None = HOME
        self.now = 100.0

    def left_after(self, at_most_s: float) -> float | None:
        """How long it takes until the home is to be left."""
        began_s = self.now
        while self.now <= began_s + at_most_s:
            for name, listed in self.says.items():
                registrar = {"home": HOME, "second": SECOND, "third": THIRD}[name]
                if self.outvoted.leaves_home(registrar, self.home, listed, self.now):
                    return self.now - began_s
            self.now += STEP_S
        return None


@pytest.mark.parametrize(
    "says",
    [
        {"home": True, "second": False, "third": False},
        {"second": False, "third": False},
        {"home": True, "second": False},
        {"home": True, "second": False, "third": None},
        {"home": False, "second": False, "third": False},
    ],
    ids=["it lists it", "it is not heard", "one other", "one cannot tell", "not even it lists it"],
)
def test_a_home_that_all_others_contradict_for_seconds_is_left(says: dict[str, bool | None]) -> None:
    assert Asked(**says).left_after(60) == LACKED_S


@pytest.mark.parametrize(
    "says",
    [
        {"home": True, "second": False, "third": True},
        {"home": True},
        {"home": False},
        {"home": True, "second": None, "third": None},
    ],
    ids=["one agrees", "alone", "alone and forgetful", "nobody can tell"],
)
def test_a_home_that_some_other_confirms_or_nobody_judges_is_not_left(says: dict[str, bool | None]) -> None:
    assert Asked(**says).left_after(60) is None


def test_a_registrar_that_agrees_in_between_begins_the_vote_anew() -> None:
    asked = Asked(home=True, second=False, third=False)
    assert asked.left_after(LACKED_S - 2 * STEP_S) is None
    asked.says["third"] = True
    assert asked.left_after(0) is None
    asked.says["third"] = False
    assert asked.left_after(60) == LACKED_S


def test_a_registrars_word_of_long_ago_does_not_count() -> None:
    asked = Asked(home=True, second=False, third=True)
    assert asked.left_after(1) is None
    del asked.says["third"]  # silent from now on
    left_s = asked.left_after(60)
    assert left_s is not None
    assert LACKED_S + HEARD_S - STEP_S <= left_s <= LACKED_S + HEARD_S + STEP_S


def test_a_new_home_has_its_own_time_and_without_home_there_is_nothing_to_leave() -> None:
    asked = Asked(home=True, second=False, third=False)
    assert asked.left_after(LACKED_S - STEP_S) is None
    asked.home = None
    assert asked.left_after(60) is None
    asked.home = SECOND
    asked.says = {"home": False, "second": True, "third": False}
    assert asked.left_after(60) == LACKED_S


def test_leaving_in_vain_is_done_ever_more_seldom() -> None:
    asked = Asked(home=True, second=False, third=False)
    pauses = [asked.left_after(1000) for _ in range(9)]
    assert pauses[:3] == [LACKED_S, 2 * LACKED_S, 4 * LACKED_S]
    assert pauses[-1] == LACKED_CEILING_S
    asked.says["second"] = True
    assert asked.left_after(1) is None
    asked.says["second"] = False
    assert asked.left_after(1000) == LACKED_S
