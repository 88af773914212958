"""Step replies read at one stroke: a server writes the same form again and again, and only the values differ.

A *form* is what a reply's bytes are apart from its values: its tags and lengths, in the order in which servers write
them. It is made from a reply that was read field by field, as a regular expression, so that the next of its kind takes
one match. Whatever fits no known form is read field by field, and what fits one is read as it would be then, but for
the timings, which stay as they came.
"""

import re
from collections.abc import Callable
from struct import Struct
from typing import Any

from rlmesh_trio.messages import EnvReply
from rlmesh_trio.wire.fields import encode_varint
from rlmesh_trio.wire.hot_env import EnvAnswer, EnvArm, decode_env_join
from rlmesh_trio.wire.metadata import LazyMetadata
from rlmesh_trio.wire.timings import ENV_TIMINGS

__all__ = ("EnvReader",)

# Copying the leaves is what takes the time in a longer reply.
_LONGEST = 4096
# Making a form takes as long as reading some hundred replies: a server whose replies are all different gets no more.
_MOST_FORMS = 64
# So much of a reply tells which form it may have: the step's tag and length.
_HEAD = 3

_Match = Callable[[bytes], re.Match[bytes] | None]
_Unpack = Callable[[bytes], tuple[float, ...]]


class EnvReader:
    """Reads the replies of one env stream, as :func:`~rlmesh_trio.wire.hot_env.decode_env_join` does, but sooner."""

    def __init__(self) -> None:
        self._forms: dict[bytes, tuple[_Match, _Unpack]] = {}
        self._left = _MOST_FORMS

    def decode(self, data: bytes) -> tuple[str, EnvArm, EnvAnswer]:
        """The request id, the arm, and what the arm holds; timings may lie undecoded in ``timings``.

        Raises :exc:`~rlmesh_trio.errors.ProtocolError`, and nothing else, for bytes that are not a join response.
        """
        form = self._forms.get(data[:_HEAD])
        found = form and form[0](data)
        if not (form and found):
            return self._learn(data)
        leaves: list[Any]
        *leaves, rewards, terminated, truncated, infos, lanes, request_id, timings = found.groups()
        reply = EnvReply(
            leaves,
            None if infos is None else LazyMetadata(infos),
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
        usual = isinstance(reply, EnvReply) and reply.rewards and not reply.completed
        if usual and self._left and len(data) <= _LONGEST:
            self._left -= 1
            match = re.compile(_form(request_id, reply), re.DOTALL).fullmatch
            if match(data) is not None:
                self._forms[data[:_HEAD]] = match, Struct(f"<{len(reply.rewards)}d").unpack
        return answer


def _form(request_id: str, reply: EnvReply) -> bytes:
    """What replies like *reply* look like, with a group for each value and an idle one for each that is not there."""
    leaves, observed = _joined([_field(0x0A, len(leaf), b".") for leaf in reply.observation or ()])
    infos = reply.infos
    step, size = _joined(
        [
            (_literal(0x0A, observed) + leaves, observed + len(_length(observed)) + 1),
            _field(0x12, 8 * len(reply.rewards), b"."),
            _field(0x1A, len(reply.terminated_mask), b"."),
            _field(0x22, len(reply.truncated_mask), b"."),
            _field(0x2A, len(infos.encoded), b".") if isinstance(infos, LazyMetadata) else (_ABSENT, 0),
            _field(0x3A, len(reply.env_indices), rb"[\x00-\x7f]") if reply.env_indices else (_ABSENT, 0),
        ]
    )
    named, _ = _field(0x2A, len(request_id.encode()), rb"[\x00-\x7f]")
    return _literal(0x12, size) + step + named + _TIMINGS


_ABSENT = rb"(\x00(?!))?"
_VARINT = rb"[\x80-\xff]{0,8}[\x00-\x7f]"
_TIMINGS = b"(" + b"".join([b"(?:" + re.escape(bytes((tag,))) + _VARINT + b")?" for tag in ENV_TIMINGS]) + b")"


def _length(size: int) -> bytes:
    return encode_varint(size)


def _literal(tag: int, size: int) -> bytes:
    return re.escape(bytes((tag,)) + _length(size))


def _field(tag: int, size: int, each: bytes) -> tuple[bytes, int]:
    """The pattern of a field with *size* bytes like *each*, and how many bytes it matches."""
    return _literal(tag, size) + b"(" + each + b"{%d})" % size, size + len(_length(size)) + 1


def _joined(fields: list[tuple[bytes, int]]) -> tuple[bytes, int]:
    return b"".join([pattern for pattern, _ in fields]), sum(size for _, size in fields)
