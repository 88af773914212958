"""What a server says in the handshake, and to whom it says anything: the token.

Only the protocol's generation decides whether the two can talk, compared as text without the blanks around it.
"""

import hmac

from rlmesh_trio.contract import EnvContract
from rlmesh_trio.editions import CURRENT_EDITION, RETAINED_EDITIONS
from rlmesh_trio.spaces import contract_to_wire
from rlmesh_trio.transport.handshake import GENERATION, introduce
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import decode, encode, present, relay_field

__all__ = ("Introduction", "is_admitted")


class Introduction:
    """Answers handshakes for the env of *contract*, which offers *capabilities*."""

    def __init__(self, contract: EnvContract, capabilities: list[str]) -> None:
        self._contract = contract_to_wire(contract)
        self._capabilities = dict.fromkeys(capabilities, "true")
        self._peer_info = introduce("rlmesh-env", None).peer_info

    def answer(self, data: bytes) -> bytes | None:
        """The reply to the handshake request in *data*; ``None`` when its base is missing.

        Raises :exc:`~rlmesh_trio.errors.ProtocolError` for bytes that are no such request.
        """
        request = decode(pb.HandshakeRequest, data, what="the handshake request")
        if not request.is_set("base"):
            return None
        generation = request.base.protocol_generation
        compatible = generation.strip() == GENERATION
        base = core.HandshakeResponse(
            compatible=compatible,
            peer_info=self._peer_info,
            capabilities=self._capabilities,
            supported_workflow_editions=[edition.name for edition in RETAINED_EDITIONS],
            preferred_workflow_edition=CURRENT_EDITION.name,
        )
        if not compatible:
            base.error_message = f"protocol generation {generation} not compatible with server {GENERATION}"
        reply = pb.HandshakeResponse(base=present(base))
        return encode(relay_field(reply, "env_contract", self._contract) if compatible else reply)


def is_admitted(token: str | None, authorization: str) -> bool:
    """Whether *authorization*, bare or behind ``Bearer``, is the *token*; everybody is where there is none."""
    if token is None:
        return True
    scheme, blank, rest = authorization.partition(" ")
    said = rest.strip() if blank and scheme.lower() == "bearer" else authorization
    return hmac.compare_digest(said.encode(), token.encode())
