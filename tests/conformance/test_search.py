import math
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import hypothesis
import pytest
import trio
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase
from hypothesis.errors import HypothesisException, Unsatisfiable
from hypothesis.strategies import SearchStrategy

from rlmesh_trio.conformance.cases import ops_in, scripts_in
from rlmesh_trio.conformance.scripts import Reset, Script, Step, Wait
from rlmesh_trio.conformance.search import Search, tries_for
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.verdicts import Evidence

BAD = Evidence(("bad",), "bad")
LISTS = st.lists(st.integers(0, 9), max_size=30).map(tuple)

Judge = Callable[[Any], Awaitable[Evidence | None]]


def silent(case: Any, evidence: Evidence, shrinking: bool) -> None:
    pass


async def search_of(
    judge: Judge,
    cases: SearchStrategy[Any] = LISTS,
    *,
    examples: int = 200,
    deadline: float = math.inf,
    shrink_limit: float = 60.0,
    end: float = math.inf,
    climbed: Callable[[], dict[str, float]] = dict[str, float],
    on_broken: Callable[[Any, Evidence, bool], None] = silent,
    name: str = "mine.check",
    **settings: Any,
) -> Search:
    search = Search(name, attrs.evolve(Settings(seed=0), **settings), judge, climbed, on_broken)
    await search.run(cases, examples=examples, deadline=deadline, shrink_limit=shrink_limit, end=end)
    return search


def breaking(holds: Callable[[Any], bool]) -> Judge:
    async def judge(case: Any) -> Evidence | None:
        await trio.lowlevel.checkpoint()
        return None if holds(case) else BAD

    return judge


@pytest.mark.parametrize(
    ("rate", "tries"), [(1.0, 2), (0.95, 2), (0.5, 7), (0.3, 13), (0.2, 20), (0.01, 20), (0.0, 20)]
)
def test_a_flickering_case_gets_more_tries(rate: float, tries: int) -> None:
    assert tries_for(rate) == tries


async def test_what_holds_is_tried_as_often_as_asked() -> None:
    search = await search_of(breaking(lambda _: True), examples=50)
    assert search.best is None
    assert search.examples == 50


async def test_what_breaks_is_made_small() -> None:
    told: list[tuple[Any, bool]] = []
    search = await search_of(
        breaking(lambda case: 7 not in case or len(case) < 3),
        on_broken=lambda case, _, shrinking: told.append((case, shrinking)),
    )
    assert search.best is not None
    assert search.best.evidence is BAD
    assert len(search.best.case) == 3
    assert sorted(search.best.case) == [0, 0, 7]
    assert search.best.shrunk_from == len(told[0][0]) > 3
    assert [shrinking for _, shrinking in told] == [False] + [True] * (len(told) - 1)


async def test_a_fault_that_flickers_is_found_and_made_small() -> None:
    luck = random.Random(3)

    async def judge(case: Any) -> Evidence | None:
        await trio.lowlevel.checkpoint()
        return BAD if 7 in case and len(case) >= 3 and luck.random() < 0.3 else None

    search = await search_of(judge)
    assert search.best is not None
    assert 7 in search.best.case
    assert search.best.ops <= 5


async def test_what_was_found_of_a_case_stands() -> None:
    asked: list[Any] = []

    async def judge(case: Any) -> Evidence | None:
        asked.append(case)
        await trio.lowlevel.checkpoint()
        return None

    # Hypothesis tells these apart, the judge need not be asked again.
    await search_of(judge, st.tuples(st.booleans(), st.integers(0, 50)).map(lambda drawn: drawn[0]), examples=50)
    assert sorted(asked) == [False, True]


async def test_the_seed_decides_the_cases() -> None:
    async def cases_of(seed: int, name: str) -> list[Any]:
        asked: list[Any] = []

        async def judge(case: Any) -> Evidence | None:
            asked.append(case)
            await trio.lowlevel.checkpoint()
            return BAD if sum(case) > 40 else None

        await search_of(judge, seed=seed, name=name, examples=30)
        return asked

    first = await cases_of(1, "a.a")
    assert await cases_of(1, "a.a") == first
    assert await cases_of(2, "a.a") != first
    assert await cases_of(1, "a.b") != first


async def test_without_shrinking_the_first_is_kept() -> None:
    search = await search_of(breaking(lambda case: len(case) < 5), shrink=False)
    assert search.best is not None
    assert search.best.shrunk_from == search.best.ops


async def test_the_deadline_ends_a_try_in_the_middle() -> None:
    async def judge(case: Any) -> Evidence | None:
        await trio.sleep_forever()

    with trio.fail_after(5):
        search = await search_of(judge, deadline=trio.current_time() + 0.1)
    assert search.best is None
    assert search.examples == 0


async def test_shrinking_ends_in_time_and_the_best_is_kept() -> None:
    async def judge(case: Any) -> Evidence | None:
        if sum(case) > 20 and not broken:
            broken.append(case)
            return BAD
        if broken:
            await trio.sleep_forever()
        return None

    broken: list[Any] = []
    with trio.fail_after(5):
        search = await search_of(judge, shrink_limit=0.1)
    assert search.best is not None
    assert search.best.case == broken[0]


async def test_a_cancellation_ends_it_at_once_and_the_best_is_kept() -> None:
    broken: list[Any] = []

    def stop(case: Any, evidence: Evidence, shrinking: bool) -> None:
        broken.append(case)
        scope.cancel()

    search = Search("mine.check", Settings(seed=0), breaking(lambda case: len(case) < 5), dict[str, float], stop)
    with trio.CancelScope() as scope:
        await search.run(LISTS, examples=1000, deadline=math.inf, shrink_limit=60, end=math.inf)
    assert scope.cancelled_caught
    assert len(broken) == 1
    assert search.best is not None
    assert search.best.case == broken[0]


async def test_what_the_judge_raises_comes_out() -> None:
    async def judge(case: Any) -> Evidence | None:
        await trio.lowlevel.checkpoint()
        raise LookupError("a fault of the judge's")

    with pytest.raises(LookupError, match="a fault of the judge's"):
        await search_of(judge)


async def test_a_strategy_without_cases_is_a_fault() -> None:
    with pytest.raises(HypothesisException) as fault:
        await search_of(breaking(lambda _: True), st.integers().filter(lambda _: False))
    assert isinstance(fault.value, Unsatisfiable)


async def test_what_was_told_to_climb_leads_the_search() -> None:
    height = [0.0]

    async def judge(case: Any) -> Evidence | None:
        await trio.lowlevel.checkpoint()
        height[0] = float(case)
        return BAD if case > 999_000 else None

    search = await search_of(
        judge, st.integers(0, 1_000_000), climbed=lambda: {"height": height[0], "depth": math.nan}, examples=200
    )
    assert search.best is not None
    assert search.best.case == 999_001


async def test_found_cases_are_tried_first_the_next_time(tmp_path: Path) -> None:
    async def first_asked(check: str) -> Any:
        asked: list[Any] = []

        async def judge(case: Any) -> Evidence | None:
            asked.append(case)
            await trio.lowlevel.checkpoint()
            return BAD if len(case) >= 4 else None

        await search_of(judge, database=str(tmp_path), name=check)
        return asked[0]

    assert await first_asked("a.a") == ()
    assert await first_asked("a.a") == (0, 0, 0, 0)
    assert await first_asked("a.b") == (), "another check has cases of its own"


@pytest.mark.parametrize("drawn", [True, False])
async def test_hypothesis_profile_holds_the_cases_unless_the_seed_was_given(drawn: bool) -> None:
    database: Any = InMemoryExampleDatabase()
    before = hypothesis.settings.get_current_profile_name()
    hypothesis.settings.register_profile("kept", database=database)
    hypothesis.settings.load_profile("kept")
    try:
        await search_of(breaking(lambda case: len(case) < 4), seed=0, seed_drawn=drawn)
    finally:
        hypothesis.settings.load_profile(before)
    assert bool(database.data) is drawn


SCRIPT = Script(1, (Reset(), Step(()), Wait(1.0)))


@pytest.mark.parametrize(
    ("case", "ops", "scripts"),
    [
        (None, 0, ()),
        (SCRIPT, 3, (SCRIPT,)),
        ((SCRIPT, 7, {"b": [SCRIPT]}), 6, (SCRIPT, SCRIPT)),
        (("reset", "step ahead"), 2, ()),
        (Evidence(("a", "b"), "c", first=(1, 2)), 7, ()),
    ],
)
def test_what_a_case_is_made_of(case: Any, ops: int, scripts: tuple[Script, ...]) -> None:
    assert ops_in(case) == ops
    assert scripts_in(case) == scripts
