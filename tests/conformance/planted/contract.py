"""Servers with one fault each of the family ``contract``."""

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from gymnasium import spaces

from rlmesh_trio.spaces import contract_to_wire
from rlmesh_trio.transport.handshake import GENERATION
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.pb.rlmesh.spaces import v1 as spaces_pb
from rlmesh_trio.wire.strict import decode, encode, present, relay_field
from tests.conformance.broken_server import ScriptedServer
from tests.conformance.planted.space import Slide
from tests.transport.fake_server import FakeStream

EDITION = "2026.06"

HANDSHAKES = {
    "incompatible with itself": ("contract.handshake", "the server's own generation is called incompatible"),
    "no contract": ("contract.handshake", "there is no env_contract"),
    "busy": ("contract.handshake", "the handshake is not answered"),
    "the same edition twice": ("contract.handshake", "an edition is offered twice"),
    "an edition without a name": ("contract.handshake", "an edition without a name is offered"),
    "welcomes all": ("contract.refuses-foreign", "another generation is called compatible"),
    "gives no reason": ("contract.refuses-foreign", "the refusal gives no reason"),
    "refuses by status": ("contract.refuses-foreign", "another generation is not answered"),
    "takes offence": ("contract.refuses-foreign", "the handshake after it fails"),
    "grows": ("contract.stable", "metadata changes"),
    "closes up": ("contract.stable", "no contract"),
}
"""What a server does wrong in handshakes, the one check that it fails, and by which signature."""

Spec = spaces_pb.SpaceSpec


def box(low: float, high: float) -> Spec:
    """A Box of two elements with these bounds, whatever they are."""
    bounds = spaces_pb.UniformBounds(low=np.float32(low).tobytes(), high=np.float32(high).tobytes())
    return Spec(shape=[2], dtype=spaces_pb.DataType.FLOAT32, box=spaces_pb.BoxSpec(uniform=bounds))


def nested(spec: Spec) -> Spec:
    """*spec* as the second member of a tuple that is in a dict."""
    pair = Spec(tuple=spaces_pb.TupleSpec(spaces=[box(0, 1), spec]))
    return Spec(dict=spaces_pb.DictSpec(keys=["pair"], spaces=[pair]))


SPACES: dict[str, tuple[Spec, str]] = {
    "crossed bounds": (nested(box(1, -1)), "$.pair[1]"),
    "a NaN for a bound": (nested(box(float("nan"), 1)), "$.pair[1]"),
    "no values": (Spec(dtype=spaces_pb.DataType.INT64, discrete=spaces_pb.DiscreteSpec(n=0)), "$"),
    "no count": (
        Spec(shape=[2], dtype=spaces_pb.DataType.INT64, multi_discrete=spaces_pb.MultiDiscreteSpec(nvec=[2, 0])),
        "$",
    ),
    "too few counts": (
        Spec(shape=[2], dtype=spaces_pb.DataType.INT64, multi_discrete=spaces_pb.MultiDiscreteSpec(nvec=[2])),
        "$",
    ),
    "no dtype": (Spec(shape=[2], box=spaces_pb.BoxSpec(unbounded=True)), "$"),
    "a key too many": (Spec(dict=spaces_pb.DictSpec(keys=["a", "b"], spaces=[box(0, 1)])), "$"),
    "no kind": (Spec(shape=[2], dtype=spaces_pb.DataType.FLOAT32), "$"),
}
"""Spaces that are none, and where it shows."""


@attrs.define(eq=False)
class Handshaker(ScriptedServer):
    """A good server but for its handshakes, where it does what *manners*, one of ``HANDSHAKES``, says.

    *change* is made to its contract.
    """

    manners: str = ""
    change: Callable[[core.EnvContract], Any] | None = None
    _offended: bool = attrs.field(default=False, init=False)

    async def _handshake(self, stream: FakeStream) -> None:
        data = await stream.receive()
        assert data is not None
        foreign = decode(pb.HandshakeRequest, data, what="handshake").base.protocol_generation != GENERATION
        offended, self._offended = self._offended, foreign and self.manners == "takes offence"
        if offended:
            await stream.refuse(14, "you again")
        elif self.manners == "busy" and self._occupant is not None:
            await stream.refuse(9, "busy")
        elif foreign and self.manners == "refuses by status":
            await stream.refuse(3, "another generation")
        else:
            refused = self.manners == "incompatible with itself" if not foreign else self.manners != "welcomes all"
            await stream.send(self._answer(refused))
            await stream.end()

    def _answer(self, refused: bool) -> bytes:
        editions = {"the same edition twice": [EDITION] * 2, "an edition without a name": [EDITION, ""]}
        base = core.HandshakeResponse(
            compatible=not refused,
            supported_workflow_editions=editions.get(self.manners, [EDITION]),
            preferred_workflow_edition=EDITION,
        )
        if refused and self.manners != "gives no reason":
            base.error_message = "another generation"
        reply = pb.HandshakeResponse(base=present(base))
        withheld = refused or self.manners == "no contract" or (self.manners == "closes up" and any(self._clocks))
        return bytes(reply) if withheld else bytes(relay_field(reply, "env_contract", self._declared()))

    def _declared(self) -> bytes:
        contract = decode(core.EnvContract, contract_to_wire(self.contract), what="contract")
        if self.change is not None:
            self.change(contract)
        if self.manners == "grows":
            steps = spaces_pb.MetaValue(integer=sum(self._clocks))
            contract.spec.metadata = present(spaces_pb.MetaMap(entries={"steps": steps}))
        return encode(contract)


class Rankless(Slide):
    """Observes a number without an axis."""

    observation_space = spaces.Box(-4, 4, (), np.float32)

    def observe(self) -> Any:
        return np.float32(self.place)
