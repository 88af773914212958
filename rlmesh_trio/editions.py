"""Workflow editions: which ones this engine drives, what each one fixes, and how one is chosen for a route."""

from collections.abc import Iterable, Sequence

import attrs

__all__ = ("CURRENT_EDITION", "RETAINED_EDITIONS", "Edition", "edition_rank", "find_edition", "select_edition")


@attrs.frozen
class Edition:
    """Everything an edition governs, in one row."""

    name: str
    default_step_cap: int
    trial_index_option: str
    driver_owned_modes: tuple[int, ...]
    success_keys: tuple[str, ...]
    conformance_warning_key: str


CURRENT_EDITION = Edition(
    name="2026.06",
    default_step_cap=100_000,
    trial_index_option="trial_index",
    driver_owned_modes=(3, 0),
    success_keys=("is_success", "success", "task_success"),
    conformance_warning_key="rlmesh.conformance.warning",
)

RETAINED_EDITIONS: tuple[Edition, ...] = (CURRENT_EDITION,)


def edition_rank(name: str) -> tuple[str, bool, str]:
    """Order editions by date, then a suffixed name above the bare one, then the suffix, each compared as text."""
    base, _, suffix = name.partition("-")
    return base, bool(suffix), suffix


def find_edition(name: str) -> Edition | None:
    """The retained edition that *name* spells, a cohort suffix being accepted as its base."""
    base = edition_rank(name)[0]
    return next((edition for edition in RETAINED_EDITIONS if name == edition.name or base == edition.name), None)


def select_edition(offers: Sequence[Iterable[str]], wants: Iterable[str]) -> str | None:
    """The highest name present in every offer and not above any participant's want; ``None`` when there is none.

    A want without suffix admits every suffix of its base; an empty want means "my highest" and bounds nothing.
    """
    bounds = [(want, edition_rank(want)) for want in wants if want]

    def admitted(name: str) -> bool:
        rank = edition_rank(name)
        return all(rank <= bound or ("-" not in want and rank[0] == bound[0]) for want, bound in bounds)

    first, *others = (set(offer) for offer in offers)
    common = [name for name in first if admitted(name) and all(name in other for other in others)]
    return max(common, key=edition_rank, default=None)
