"""How a tolerance is written, and exactly how far it reaches."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.replay.tolerance import EXACT, Allowance, Tolerance, parse_tolerance

ALLOWED = st.builds(Allowance, st.integers(1, 9)) | st.builds(
    Allowance, absolute=st.floats(0, 9), relative=st.floats(0, 1)
)
NAMES = st.sampled_from(["obs", "obs.qvel", 'obs["a key; odd"]', "action[0]", "reward", "info.x=y"])


def admits(allowed: Allowance, a: float, b: float, dtype: type[np.generic] = np.float32) -> bool:
    return bool(allowed.admits(np.array(a, dtype), np.array(b, dtype)))


@pytest.mark.parametrize(
    ("texts", "default", "leaves"),
    [
        ([], EXACT, {}),
        ([""], EXACT, {}),
        (["exact"], EXACT, {}),
        (["ulp=4"], Allowance(4), {}),
        (["abs=1e-6,rel=1e-5"], Allowance(0, 1e-6, 1e-5), {}),
        (["rel=0.5"], Allowance(0, 0.0, 0.5), {}),
        (["ulp=4", "leaf:$.qvel=exact"], Allowance(4), {"obs.qvel": EXACT}),
        (["ulp=4 leaf:obs.a=abs=2; leaf:reward=exact"], Allowance(4), {"obs.a": Allowance(0, 2.0), "reward": EXACT}),
        (['leaf:obs["a key"]=ulp=2'], EXACT, {'obs["a key"]': Allowance(2)}),
        (["leaf:info.x=y=rel=1"], EXACT, {"info.x=y": Allowance(0, 0.0, 1.0)}),
    ],
)
def test_it_is_read(texts: list[str], default: Allowance, leaves: dict[str, Allowance]) -> None:
    assert parse_tolerance(texts) == Tolerance(default, leaves)


@pytest.mark.parametrize(
    "text",
    [
        "ulp",
        "ulp=-1",
        "ulp=1.5",
        "abs=x",
        "abs=-1",
        "abs=nan",
        "rel=inf",
        "abs=1,abs=2",
        "ulp=1,abs=1",
        "close",
        "leaf:qvel=ulp=1",
        "leaf:obs.a",
        "leaf:=exact",
        "ulp=1 ulp=2",
        "leaf:obs.a=exact leaf:$.a=ulp=1",
        'leaf:obs["a=ulp=1',
    ],
)
def test_what_is_none_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_tolerance([text])
    assert "\n" not in str(refused.value)


@given(ALLOWED, st.dictionaries(NAMES, ALLOWED | st.just(EXACT), max_size=3))
def test_its_text_is_read_back(default: Allowance, leaves: dict[str, Allowance]) -> None:
    tolerance = Tolerance(default, leaves)
    assert parse_tolerance([str(tolerance)]) == tolerance


@given(st.floats(-(2.0**99), 2.0**99, width=32), st.integers(1, 40))
def test_ulps_reach_so_many_floats_and_not_one_more(start: float, ulps: int) -> None:
    a = b = np.float32(start)
    for _ in range(ulps):
        b = np.nextafter(b, np.float32(np.inf))
    assume(start and not a < 0 <= b)  # Zero has two forms, which are one float apart.
    assert admits(Allowance(ulps), a.item(), b.item())
    assert not admits(Allowance(ulps - 1), a.item(), b.item())


def test_absolute_and_relative_reach_to_their_bound_and_the_larger_counts() -> None:
    assert admits(Allowance(0, 0.5), 1.0, 1.5)
    assert not admits(Allowance(0, 0.5), 1.0, float(np.nextafter(np.float32(1.5), np.float32(2))))
    assert admits(Allowance(0, 0.0, 0.5), 1.0, 2.0)
    assert admits(Allowance(0, 0.0, 0.5), 2.0, 1.0)
    assert not admits(Allowance(0, 0.0, 0.49), 1.0, 2.0)
    assert admits(Allowance(0, 1e-3, 0.5), 1.0, 2.0)
    assert admits(Allowance(0, 1.0), 3, 4, np.uint8)
    assert not admits(Allowance(0, 1.0), 2**62, 2**62 + 2, np.int64)


@pytest.mark.parametrize("allowed", [Allowance(99), Allowance(0, 1e30, 1e30), EXACT])
def test_what_is_not_finite_is_near_nothing(allowed: Allowance) -> None:
    largest = float(np.finfo(np.float32).max)
    for a, b in ((math.nan, 1.0), (math.inf, largest), (math.inf, -math.inf), (math.nan, math.nan)):
        assert not admits(allowed, a, b)


def test_the_longer_of_two_names_counts_and_whole_numbers_only_where_they_are_named() -> None:
    tolerance = parse_tolerance(["ulp=1 leaf:obs.a=ulp=2 leaf:obs.a.b=ulp=3"])
    assert tolerance.of("obs.a.b[0]") == Allowance(3)
    assert tolerance.of("obs.a.c") == Allowance(2)
    assert tolerance.of("obs.ab") == tolerance.of("reward") == Allowance(1)
    assert tolerance.of("obs.ab", whole=True) == EXACT
    assert tolerance.of("obs.a.c", whole=True) == Allowance(2)
    assert not tolerance.is_exact
    assert parse_tolerance(["exact leaf:obs=exact"]).is_exact
