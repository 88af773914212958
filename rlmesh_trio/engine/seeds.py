"""Reset seeds: given by slot, or derived by a stable 63-bit hash that any implementation of the protocol agrees on."""

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.spec import SessionSpec

__all__ = ("check_finished_seeds", "episode_seed", "slot_seed")

_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_U64 = 0xFFFFFFFFFFFFFFFF
_I63 = 0x7FFFFFFFFFFFFFFF


def episode_seed(base_seed: int, session_id: str, generation: int, lane: int, *, route_id: str | None = None) -> int:
    """The seed of one reset: 64-bit FNV-1a over its coordinates, with the top bit cleared.

    *base_seed* is a signed, *generation* (or episode slot) and *lane* are unsigned 64-bit integers; beyond that
    raises :exc:`OverflowError`. A *route_id*, also an empty one, gives the seeds of recordings that mixed one in.
    """
    session = session_id.encode()
    if route_id is not None:
        session += b"\xfe" + route_id.encode()
    coordinates = b"\xff%b\xfd%b\xfc%b" % (session, generation.to_bytes(8, "little"), lane.to_bytes(8, "little"))
    digest = _FNV_OFFSET
    for byte in base_seed.to_bytes(8, "little", signed=True) + coordinates:
        digest = (digest ^ byte) * _FNV_PRIME & _U64
    return digest & _I63


def slot_seed(spec: SessionSpec, slot: int) -> int | None:
    """The seed *spec* gives the episode of *slot*, listed or derived; ``None`` leaves it to the env.

    In a lockstep vector only listed seeds go by slot.
    """
    if spec.episode_seeds:
        return spec.episode_seeds[slot] if slot < len(spec.episode_seeds) else None
    if spec.base_seed is None:
        return None
    return episode_seed(spec.base_seed, spec.session_id, slot, 0, route_id=spec.seed_route_id)


def check_finished_seeds(spec: SessionSpec) -> None:
    """Raise :exc:`InvalidSpec` for a finished episode that was played with another seed than *spec* gives its slot.

    An unseeded episode of a lockstep vector passes: there a whole batch goes without seeds where the list ends.
    """
    may_be_unseeded = bool(spec.episode_seeds) and spec.resets_ended_lanes
    for episode in spec.finished:
        seed = slot_seed(spec, episode.episode_index - 1)
        if episode.seed != seed and not (episode.seed is None and may_be_unseeded):
            raise InvalidSpec(
                f"finished episode {episode.episode_index} was played with {_told(episode.seed)}, this spec gives it "
                f"{_told(seed)}: resume with the seeds the run began with"
            )


def _told(seed: int | None) -> str:
    return "no seed" if seed is None else f"the seed {seed}"
