"""Reset seeds derived from a base seed: a stable 63-bit hash that any implementation of the protocol agrees on."""

__all__ = ("episode_seed",)

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
