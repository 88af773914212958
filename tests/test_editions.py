import itertools

import attrs
import pytest

from rlmesh_trio.editions import (
    CURRENT_EDITION,
    RETAINED_EDITIONS,
    edition_rank,
    find_edition,
    select_edition,
)
from tests.engine.peer import peer


@peer(75)
def test_the_row_of_2026_06() -> None:
    row = attrs.asdict(CURRENT_EDITION)
    assert row == {
        "name": "2026.06",
        "default_step_cap": 100_000,
        "trial_index_option": "trial_index",
        "driver_owned_modes": (3, 0),
        "success_keys": ("is_success", "success", "task_success"),
        "conformance_warning_key": "rlmesh.conformance.warning",
    }
    assert RETAINED_EDITIONS == (CURRENT_EDITION,)


def test_names_rank_by_date_then_suffix_above_bare_then_suffix() -> None:
    ascending = ["2025.12-z", "2026.06", "2026.06-a", "2026.06-a-b", "2026.06-b", "2026.07", "2026.1", "2099.01"]
    for shuffled in itertools.islice(itertools.permutations(ascending), 0, 40320, 997):
        assert sorted(shuffled, key=edition_rank) == ascending


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("2026.06", True),
        ("2026.06-rc9", True),
        ("2026.06-a-b", True),
        ("2099.01", False),
        ("2026.0", False),
        ("2026.061", False),
        (" 2026.06", False),
        ("", False),
    ],
)
def test_a_cohort_is_its_base(name: str, found: bool) -> None:
    assert (find_edition(name) is CURRENT_EDITION) is found
    assert (find_edition(name) is None) is not found


OFFER = ["2026.01", "2026.06", "2026.06-a", "2026.06-b", "2026.09"]


@pytest.mark.parametrize(
    ("offers", "wants", "selected"),
    [
        # The highest name in every offer.
        ([["2099.01", "2026.06"], ["2026.06"]], [], "2026.06"),
        ([["2099.01"], ["2026.06"]], [], None),
        ([OFFER, OFFER, OFFER], [], "2026.09"),
        ([OFFER, ["2026.01", "2026.06"]], [], "2026.06"),
        ([OFFER, []], [], None),
        ([OFFER], [], "2026.09"),
        # Membership is exact spelling.
        ([["2026.06-a"], ["2026.06"]], [], None),
        # Not above any want; an empty want bounds nothing.
        ([OFFER, OFFER], ["2026.01", ""], "2026.01"),
        ([OFFER, OFFER], ["", ""], "2026.09"),
        ([OFFER, OFFER], ["2026.09", "2026.05"], "2026.01"),
        ([OFFER, OFFER], ["2025.01"], None),
        # A bare want admits every suffix of its base, a suffixed one only those up to its own.
        ([OFFER, OFFER], ["2026.06"], "2026.06-b"),
        ([OFFER, OFFER], ["2026.06-a"], "2026.06-a"),
        ([OFFER, OFFER], ["2026.06", "2026.06-a"], "2026.06-a"),
        ([OFFER, OFFER], ["2026.06-0"], "2026.06"),
        # A want need not be on offer.
        ([OFFER, OFFER], ["2026.08"], "2026.06-b"),
    ],
)
def test_selecting_one(offers: list[list[str]], wants: list[str], selected: str | None) -> None:
    assert select_edition(offers, wants) == selected
    assert select_edition(offers[::-1], wants[::-1]) == selected
