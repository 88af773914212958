"""Predict replies read at one stroke, by the :mod:`~rlmesh_trio.wire.forms` of the replies before.

A reply that fits one is read exactly as field by field. A grouped predict, where one call is many answers, has no form.
"""

from collections.abc import Sequence
from itertools import accumulate

from rlmesh_trio.messages import Phases, PredictReply
from rlmesh_trio.wire.fields import read_varint
from rlmesh_trio.wire.forms import HEAD, NUMBER, Forms, message, optional, value
from rlmesh_trio.wire.hot_model import ModelAnswer, ModelArm, decode_model_join

__all__ = ("ModelReader",)

# In the order in which they travel: total, decode, user, encode, queue, in flight, adapter, held episodes, their bytes.
_TIMINGS = b"".join([optional(tag, b"(" + NUMBER + b")") for tag in (0x30, *range(0x58, 0x91, 8))])

# Where the leaves of each frame lie among all leaves.
_Frames = Sequence[slice]


class ModelReader:
    """Reads the replies of one model stream, as :func:`~rlmesh_trio.wire.hot_model.decode_model_join` but sooner."""

    def __init__(self) -> None:
        self._forms: Forms[_Frames] = Forms()
        self._form = self._forms.known.get

    def decode(self, data: bytes) -> tuple[str, ModelArm, ModelAnswer]:
        """The request id, the arm, and what the arm holds.

        Raises :exc:`~rlmesh_trio.errors.ProtocolError`, and nothing else, for bytes that are not a join response.
        """
        form = self._form(data[:HEAD])
        if form is None or (found := form[0](data)) is None:
            return self._learn(data)
        values = found.groups()
        session, env, asked, *leaves, named, total, decode, user, encode, queue, busy, adapter, episodes, held = values
        phases = None
        if decode or user or encode or queue or busy or adapter or episodes or held:
            phases = Phases(
                _number(decode),
                _number(user),
                _number(encode),
                _number(queue),
                _number(adapter),
                _number(busy) & 0xFFFF_FFFF,
                None,
                _number(episodes) & 0xFFFF_FFFF if episodes else None,
                _number(held) if held else None,
            )
        total_ns = _number(total) if total else None
        actions = [leaves[frame] for frame in form[1]]
        size = len(data)
        try:
            reply = PredictReply(
                session.decode(), env.decode(), asked.decode(), actions, total_ns, phases, None, 0, size
            )
            return named.decode(), "predict", reply
        except UnicodeDecodeError:
            return self._learn(data)

    def _learn(self, data: bytes) -> tuple[str, ModelArm, ModelAnswer]:
        answer = decode_model_join(data)
        request_id, _, reply = answer
        if isinstance(reply, PredictReply) and reply.actions:
            self._forms.learn(data, lambda: _form(request_id, reply))
        return answer


def _form(request_id: str, reply: PredictReply) -> tuple[bytes, _Frames]:
    ends = accumulate(len(frame) for frame in reply.actions)
    frames = [slice(end - len(frame), end) for end, frame in zip(ends, reply.actions, strict=True)]
    predict = message(
        0x12,
        message(
            0x0A,
            value(0x0A, len(reply.session_id.encode())),
            value(0x12, len(reply.env_id.encode())),
            value(0x1A, len(reply.request_id.encode())),
        ),
        *[message(0x12, *[value(0x0A, len(leaf)) for leaf in frame]) for frame in reply.actions],
    )
    named = value(0x2A, len(request_id.encode()))
    return predict.pattern + named.pattern + _TIMINGS, frames


def _number(varint: bytes | None) -> int:
    """The number that *varint* is, 0 for none."""
    return 0 if varint is None else read_varint(varint, 0)[0]
