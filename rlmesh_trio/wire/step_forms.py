"""Step replies read at one stroke, by the :mod:`~rlmesh_trio.wire.forms` of the replies before.

A reply that fits one is read as field by field, but for the timings: they stay as they came.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

from rlmesh_trio.messages import EnvReply
from rlmesh_trio.wire.forms import ABSENT, HEAD, NUMBER, SMALL, Forms, message, optional, value
from rlmesh_trio.wire.hot_env import EnvAnswer, EnvArm, decode_env_join
from rlmesh_trio.wire.metadata import LazyMetadata
from rlmesh_trio.wire.timings import ENV_TIMINGS

__all__ = ("EnvReader",)

_TIMINGS = b"(" + b"".join([optional(tag, NUMBER) for tag in ENV_TIMINGS]) + b")"

# What says nothing is shared, as nobody changes it.
_INFOS: dict[bytes | None, LazyMetadata | None] = {None: None, b"": LazyMetadata()}
_Unpack = Callable[[bytes], tuple[float, ...]]


class EnvReader:
    """Reads the replies of one env stream, as :func:`~rlmesh_trio.wire.hot_env.decode_env_join` does, but sooner."""

    def __init__(self) -> None:
        self._forms: Forms[_Unpack] = Forms()
        self._form = self._forms.known.get

    def decode(self, data: bytes) -> tuple[str, EnvArm, EnvAnswer]:
        """The request id, the arm, and what the arm holds; timings may lie undecoded in ``timings``.

        Raises :exc:`~rlmesh_trio.errors.ProtocolError`, and nothing else, for bytes that are not a join response.
        """
        form = self._form(data[:HEAD])
        if form is None or (found := form[0](data)) is None:
            return self._learn(data)
        leaves: list[Any]
        *leaves, rewards, terminated, truncated, infos, lanes, request_id, timings = found.groups()
        reply = EnvReply(
            leaves,
            LazyMetadata(infos) if infos else _INFOS[infos],
            form[1](rewards),
            terminated,
            truncated,
            (),
            lanes or (),
            response_bytes=len(data),
            timings=timings,
        )
        return request_id.decode(), "step", reply

    def _learn(self, data: bytes) -> tuple[str, EnvArm, EnvAnswer]:
        answer = decode_env_join(data)
        request_id, _, reply = answer
        if isinstance(reply, EnvReply) and reply.rewards and not reply.completed:
            self._forms.learn(data, lambda: _form(request_id, reply))
        return answer


def _form(request_id: str, reply: EnvReply) -> tuple[bytes, _Unpack]:
    infos, lanes = reply.infos, len(reply.env_indices)
    step = message(
        0x12,
        message(0x0A, *[value(0x0A, len(leaf)) for leaf in reply.observation or ()]),
        value(0x12, 8 * len(reply.rewards)),
        value(0x1A, len(reply.terminated_mask)),
        value(0x22, len(reply.truncated_mask)),
        value(0x2A, len(infos.encoded)) if isinstance(infos, LazyMetadata) else ABSENT,
        value(0x3A, lanes, SMALL) if lanes else ABSENT,
    )
    named = value(0x2A, len(request_id), SMALL)
    return step.pattern + named.pattern + _TIMINGS, Struct(f"<{len(reply.rewards)}d").unpack
