import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.engine.seeds import episode_seed


@pytest.mark.parametrize(
    ("base_seed", "session_id", "generation", "lane", "seed"),
    [
        (1234, "session-1", 0, 0, 5827150907976557851),
        (1234, "session-1", 1, 0, 6673286045664998248),
        (0, "session-1", 0, 0, 8758486354986804805),
        (-1, "session-1", 0, 0, 2468915956989003117),
        (1, "session-1", 0, 0, 7816079706090372056),
        (1234, "session-1", 0, 1, 3594835501008968442),
        (1234, "session-1", 0, 2, 1362520094041379033),
        (1234, "session-1", 0, 3, 8353576723928565432),
        (1234, "session-1", 7, 0, 4233485810611329690),
        (1234, "local-4242", 0, 0, 3922891042678863815),
        (1234, "local-4242", 1, 0, 7891503786322599956),
        (-9223372036854775808, "session-1", 0, 0, 3029790429783457733),
        (9223372036854775807, "session-1", 0, 0, 5227058304189595629),
        (42, "sessión-β", 3, 2, 2877932418386359500),
        (42, "", 0, 0, 1573516014111377681),
        (42, "x", 4294967296, 65535, 3753956118139748700),
    ],
)
def test_known_seeds(base_seed: int, session_id: str, generation: int, lane: int, seed: int) -> None:
    assert episode_seed(base_seed, session_id, generation, lane) == seed


@pytest.mark.parametrize(
    ("route_id", "generation", "lane", "seed"),
    [
        ("route-1", 0, 0, 8552392209508998990),
        ("route-1", 1, 0, 7706257071820558593),
        ("route-1", 1, 3, 715200441933372194),
        ("", 0, 0, 3742154472529314733),
    ],
)
def test_known_seeds_with_a_route_id(route_id: str, generation: int, lane: int, seed: int) -> None:
    assert episode_seed(1234, "session-1", generation, lane, route_id=route_id) == seed


i64 = st.integers(-(2**63), 2**63 - 1)
u64 = st.integers(0, 2**64 - 1)


@given(base_seed=i64, session_id=st.text(max_size=8), generation=u64, lane=u64, route_id=st.none() | st.just("r"))
def test_a_seed_fits_what_a_reset_carries(
    base_seed: int, session_id: str, generation: int, lane: int, route_id: str | None
) -> None:
    assert 0 <= episode_seed(base_seed, session_id, generation, lane, route_id=route_id) < 2**63


@pytest.mark.parametrize(
    ("base_seed", "generation", "lane"), [(2**63, 0, 0), (-(2**63) - 1, 0, 0), (0, 2**64, 0), (0, -1, 0), (0, 0, -1)]
)
def test_what_does_not_fit_64_bits_is_refused(base_seed: int, generation: int, lane: int) -> None:
    with pytest.raises(OverflowError):
        episode_seed(base_seed, "session-1", generation, lane)
