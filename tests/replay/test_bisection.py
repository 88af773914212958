"""The search for what spoils an episode, by itself: it finds the smallest set, and ends where it may not go on."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.replay.bisection import smallest_cause


class Spoiled:
    """Spoiled by all of *needed* together, or by one of *either*; counts the tries, of which there may be *most*."""

    def __init__(self, needed: Sequence[int] = (), either: Sequence[int] = (), most: int = 1000) -> None:
        self.needed = set(needed)
        self.either = set(either)
        self.most = most
        self.tries = 0

    async def __call__(self, episodes: Sequence[int]) -> bool:
        assert list(episodes) == sorted(episodes), "in the order they were played"
        self.tries += 1
        return self.needed <= set(episodes) and (not self.either or bool(self.either & set(episodes)))

    def may_go_on(self) -> bool:
        return self.tries < self.most


@pytest.mark.parametrize(("needed", "most"), [((5,), 12), ((1,), 12), ((64,), 12), ((3, 60), 60), ((7, 8, 40), 90)])
async def test_few_among_many_are_found_in_few_tries(needed: tuple[int, ...], most: int) -> None:
    spoils = Spoiled(needed)
    assert await smallest_cause(range(1, 65), spoils, spoils.may_go_on) == (needed, True)
    assert spoils.tries <= most


@given(st.data())
async def test_each_episode_of_what_is_found_is_needed(data: st.DataObject) -> None:
    candidates = sorted(data.draw(st.sets(st.integers(1, 40), min_size=1, max_size=14)))
    needed = data.draw(st.sets(st.sampled_from(candidates), max_size=4))
    either = data.draw(st.sets(st.sampled_from(candidates), min_size=not needed, max_size=3))
    spoils = Spoiled(sorted(needed), sorted(either))
    found, is_smallest = await smallest_cause(candidates, spoils, spoils.may_go_on)
    assert is_smallest
    assert await spoils(found)
    for each in found:
        assert len(found) == 1 or not await spoils([other for other in found if other != each])


@pytest.mark.parametrize("most", [0, 1, 3])
async def test_it_ends_where_it_may_not_go_on(most: int) -> None:
    spoils = Spoiled((9,), most=most)
    found, is_smallest = await smallest_cause(range(1, 33), spoils, spoils.may_go_on)
    assert not is_smallest
    assert spoils.tries == most
    assert 9 in found
    assert (len(found) < 32) == (most > 0)


async def test_one_candidate_needs_no_try() -> None:
    spoils = Spoiled((4,))
    assert await smallest_cause([4], spoils, spoils.may_go_on) == ((4,), True)
    assert spoils.tries == 0
