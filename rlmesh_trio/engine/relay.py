"""What may pass between env and model: each payload is held against the ceiling of the peer it goes to.

A leg whose peer has no ceiling is never checked. On the others a policy decides: forward, convert, or refuse.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import attrs

from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.messages import Leaves
from rlmesh_trio.report import Advisory
from rlmesh_trio.spec import WIRE_DTYPES, EnvContract, LeafSpec, PeerCeiling, ValueSpace

__all__ = (
    "Convert",
    "Converted",
    "Forward",
    "Leg",
    "PayloadFacts",
    "Refuse",
    "RefuseExcess",
    "Relay",
    "RelayLeg",
    "RelayPolicy",
    "Verdict",
    "exceeds",
)

Leg = Literal["env_to_model", "model_to_env"]

_TARGETS: dict[Leg, str] = {"env_to_model": "model", "model_to_env": "env"}
_NAMED_DTYPES = frozenset(WIRE_DTYPES)


@attrs.frozen(eq=False)
class PayloadFacts:
    """What a policy is told. For the env's contract: both its spaces, its encoded length in bytes, and no leaves."""

    space: ValueSpace | tuple[ValueSpace, ...]
    byte_len: int
    leaves: Leaves = ()


@attrs.frozen
class Forward:
    """Let the payload pass as it is."""


@attrs.frozen(eq=False)
class Convert:
    """Send *leaves* instead, described by *space* when that changes too, and make *advisory* known."""

    leaves: Leaves
    advisory: Advisory
    space: ValueSpace | None = None


@attrs.frozen
class Refuse:
    """Fail the session: the peer cannot take this payload, for *reason*."""

    reason: str


Verdict = Forward | Convert | Refuse


class RelayPolicy(Protocol):
    """Decides what happens to a payload. Asked once for the contract, then for each observation and action."""

    def judge(self, leg: Leg, ceiling: PeerCeiling, facts: PayloadFacts) -> Verdict:
        """The verdict on one payload that goes to a peer with *ceiling*."""
        ...


class RefuseExcess:
    """The default policy: refuse what :func:`exceeds` the ceiling, forward the rest."""

    def judge(self, leg: Leg, ceiling: PeerCeiling, facts: PayloadFacts) -> Verdict:  # noqa: ARG002
        """Refuse with the text of :func:`exceeds`, or forward."""
        reason = exceeds(facts, ceiling)
        return Forward() if reason is None else Refuse(reason)


@attrs.frozen(eq=False)
class Converted:
    """What the peer gets instead. ``advisory`` is set the first time an equal one is raised in the session."""

    leaves: Leaves
    space: ValueSpace
    advisory: Advisory | None


class RelayLeg:
    """One direction of the relay, asked on the step path.

    ``is_checked`` says whether the peer has a ceiling; without one :meth:`relay` changes and refuses nothing.
    """

    __slots__ = ("_advisories", "_ceiling", "_leg", "_outside", "_policy", "_shortcut", "_space", "is_checked")

    def __init__(
        self, leg: Leg, ceiling: PeerCeiling | None, policy: RelayPolicy, advisories: dict[Advisory, None]
    ) -> None:
        self._leg: Leg = leg
        self._ceiling = ceiling
        self.is_checked = ceiling is not None
        self._policy = policy
        self._advisories = advisories
        self._shortcut = type(policy) is RefuseExcess
        self._space: ValueSpace | None = None
        self._outside: str | None = None

    def relay(self, space: ValueSpace, leaves: Leaves | None) -> Converted | None:
        """Let *leaves* of *space* pass: ``None`` when they go on as they are, absent ones always do.

        Raises :exc:`ProtocolError` when the policy refuses them.
        """
        ceiling = self._ceiling
        if ceiling is None or leaves is None:
            return None
        byte_len = 0
        for leaf in leaves:
            byte_len += leaf.nbytes if isinstance(leaf, memoryview) else len(leaf)
        if self._shortcut:
            if space is not self._space:
                self._outside = _dtype_excess(space.leaves, ceiling)
                self._space = space
            if self._outside is None and byte_len <= ceiling.max_message_size:
                return None
            raise self._refusal("payload", self._outside or _too_long(byte_len, ceiling))
        verdict = self._judge("payload", ceiling, PayloadFacts(space, byte_len, leaves))
        if isinstance(verdict, Forward):
            return None
        seen_as = space if verdict.space is None else verdict.space
        return Converted(verdict.leaves, seen_as, self._advise(verdict.advisory))

    def check_contract(self, contract: EnvContract) -> Advisory | None:
        """Hold the env's contract against the ceiling: the advisory to make known, if the policy has a new one.

        Raises :exc:`ProtocolError` when the policy refuses it.
        """
        ceiling = self._ceiling
        if ceiling is None:
            return None
        spaces = (contract.observation_space, contract.action_space)
        facts = PayloadFacts(tuple(space for space in spaces if space is not None), contract.encoded_size)
        verdict = self._judge("contract", ceiling, facts)
        return None if isinstance(verdict, Forward) else self._advise(verdict.advisory)

    def _judge(self, what: str, ceiling: PeerCeiling, facts: PayloadFacts) -> Forward | Convert:
        verdict = self._policy.judge(self._leg, ceiling, facts)
        if isinstance(verdict, Refuse):
            raise self._refusal(what, verdict.reason)
        return verdict

    def _refusal(self, what: str, reason: str) -> ProtocolError:
        return ProtocolError(f"the runtime cannot relay this {what} to the {_TARGETS[self._leg]}: {reason}")

    def _advise(self, advisory: Advisory) -> Advisory | None:
        if advisory in self._advisories:
            return None
        self._advisories[advisory] = None
        return advisory


class Relay:
    """Both legs of one session, and the advisories raised on either."""

    def __init__(
        self,
        *,
        model_ceiling: PeerCeiling | None,
        env_ceiling: PeerCeiling | None,
        policy: RelayPolicy | None = None,
    ) -> None:
        policy = RefuseExcess() if policy is None else policy
        self._advisories: dict[Advisory, None] = {}
        self.to_model = RelayLeg("env_to_model", model_ceiling, policy, self._advisories)
        self.to_env = RelayLeg("model_to_env", env_ceiling, policy, self._advisories)

    @property
    def advisories(self) -> tuple[Advisory, ...]:
        """The distinct advisories, in the order they were first raised."""
        return tuple(self._advisories)


def exceeds(facts: PayloadFacts, ceiling: PeerCeiling) -> str | None:
    """Why the payload is more than the peer takes: its first dtype outside the ceiling, else its length."""
    spaces = facts.space if isinstance(facts.space, tuple) else (facts.space,)
    leaves = [leaf for space in spaces for leaf in space.leaves]
    if (outside := _dtype_excess(leaves, ceiling)) is not None:
        return outside
    return _too_long(facts.byte_len, ceiling) if facts.byte_len > ceiling.max_message_size else None


def _dtype_excess(leaves: Sequence[LeafSpec], ceiling: PeerCeiling) -> str | None:
    for leaf in leaves:
        if leaf.dtype in _NAMED_DTYPES and leaf.dtype not in ceiling.dtypes:
            return f"dtype {leaf.dtype} is outside its ceiling"
    return None


def _too_long(byte_len: int, ceiling: PeerCeiling) -> str:
    return f"{byte_len} bytes exceeds its {ceiling.max_message_size}-byte message cap"
