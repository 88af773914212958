"""What is compared, by name: ``obs.qvel``, ``action``, ``reward``, ``info.x``. A name covers all that is below it."""

from collections.abc import Iterable, Sequence

from rlmesh_trio.contract import ValueSpace
from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.recording import Header
from rlmesh_trio.spaces.leaf_values import covers, leaf_name

__all__ = ("check_names", "full_name", "leaf_names")

_ROLES = ("obs", "action", "reward", "info")


def full_name(text: str) -> str:
    """*text* as a name; a ``$``-rooted path is one of the observation. Raises :exc:`InvalidSpec` for no name."""
    name = leaf_name("obs", text) if text.startswith("$") else text
    if not any(covers(role, name) for role in _ROLES):
        raise InvalidSpec(f"{text!r} names nothing that is compared: a name begins with {', '.join(_ROLES)} or $")
    return name


def leaf_names(role: str, space: ValueSpace | None) -> list[str]:
    """The names of a space's leaves, in the order of the wire; none for a space that is not declared."""
    return [] if space is None else [leaf_name(role, leaf.path) for leaf in space.leaves]


def check_names(names: Iterable[str], header: Header) -> None:
    """Raise :exc:`InvalidSpec` for a name of an observation or action in which the recorded spaces have no leaf."""
    contract = header.contract
    for role, space in (("obs", contract.observation_space), ("action", contract.action_space)):
        known = leaf_names(role, space)
        for name in names:
            if covers(role, name) and known and not any(covers(name, path) for path in known):
                raise InvalidSpec(f"there is no leaf {name}; there are {_listed(known)}")


def _listed(names: Sequence[str]) -> str:
    few = names[:8]
    return ", ".join(few) + (f" and {len(names) - len(few)} more" if len(names) > len(few) else "")
