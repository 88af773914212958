"""Handshakes of a judge's own: what came of one, and what is wrong with the answer."""

from collections.abc import Iterator

import attrs

from rlmesh_trio.conformance.raw_stream import RawStream
from rlmesh_trio.errors import ConnectError, HandshakeError, ProtocolError
from rlmesh_trio.transport.handshake import GENERATION
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import encode

__all__ = ("Shake", "flaw_of", "shaken")


@attrs.frozen(eq=False)
class Shake:
    """One handshake: the *generation* that was claimed, and the reply; or what came of it instead."""

    generation: str
    reply: pb.HandshakeResponse | None
    failure: str = ""

    @property
    def contract(self) -> core.EnvContract | None:
        """The contract that came, if one did."""
        reply = self.reply
        return reply.env_contract if reply is not None and reply.is_set("env_contract") else None

    def lines(self, title: str) -> Iterator[str]:
        """The answer, field by field, for people."""
        if self.reply is None:
            yield f"{title}: {self.failure}"
            return
        base = self.reply.base
        told = [f"compatible={str(bool(base.compatible)).lower()}"]
        if base.error_message:
            told.append(f"error_message={base.error_message!r}")
        told.append(f"supported_workflow_editions={list(base.supported_workflow_editions)}")
        told.append("no env_contract" if self.contract is None else f"env_contract of {len(encode(self.contract))} B")
        yield f"{title}: {', '.join(told)}"


async def shaken(stream: RawStream, generation: str = GENERATION) -> Shake:
    """What comes of a handshake on *stream* as a peer of *generation*."""
    try:
        return Shake(generation, await stream.handshake(generation))
    except (ConnectError, HandshakeError, ProtocolError) as failure:
        return Shake(generation, None, str(failure))


def flaw_of(shake: Shake) -> str | None:
    """What is wrong with the answer to a peer of the server's own generation; ``None`` for a good one."""
    reply = shake.reply
    if reply is None:
        return "the handshake is not answered"
    editions = list(reply.base.supported_workflow_editions)
    if not reply.base.compatible:
        return "the server's own generation is called incompatible"
    if not all(editions) or not editions:
        return "no workflow edition is offered" if not any(editions) else "an edition without a name is offered"
    if len(set(editions)) < len(editions):
        return "an edition is offered twice"
    return "there is no env_contract" if shake.contract is None else None
