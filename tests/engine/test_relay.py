from collections.abc import Sequence

import attrs
import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.engine.relay import (
    Convert,
    Forward,
    Leg,
    PayloadFacts,
    Refuse,
    RefuseExcess,
    Relay,
    Verdict,
    exceeds,
)
from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.messages import Leaves
from rlmesh_trio.report import Advisory
from rlmesh_trio.spec import MAX_MESSAGE_BYTES, WIRE_DTYPES, EnvContract, LeafSpec, PeerCeiling, ValueSpace


def space_of(*dtypes: str) -> ValueSpace:
    leaves = tuple(LeafSpec(f"$.{number}", "box", dtype, (1,)) for number, dtype in enumerate(dtypes))
    return ValueSpace(gymnasium.spaces.Discrete(2), leaves, b"")


def ceiling_without(*dtypes: str, size: int = MAX_MESSAGE_BYTES) -> PeerCeiling:
    return PeerCeiling("2026.06", dtypes=frozenset(WIRE_DTYPES) - set(dtypes), max_message_size=size)


FULL = ceiling_without()
FLOAT32, FLOAT64, INT32, INT64 = (space_of(dtype) for dtype in ("float32", "float64", "int32", "int64"))


class Scripted:
    """A policy that gives the verdicts it is told to, and keeps what it was asked."""

    def __init__(self, *verdicts: Verdict) -> None:
        self.verdicts = list(verdicts)
        self.asked: list[tuple[Leg, PeerCeiling, PayloadFacts]] = []

    def judge(self, leg: Leg, ceiling: PeerCeiling, facts: PayloadFacts) -> Verdict:
        self.asked.append((leg, ceiling, facts))
        return self.verdicts.pop(0)


class TestExceeds:
    def test_a_space_within_the_ceiling_passes(self) -> None:
        assert exceeds(PayloadFacts(FLOAT32, 4), ceiling_without("float64")) is None

    def test_the_first_leaf_outside_is_named(self) -> None:
        facts = PayloadFacts(space_of("uint8", "int64", "float64"), 17)
        assert exceeds(facts, ceiling_without("float64", "int64")) == "dtype int64 is outside its ceiling"

    def test_several_spaces_are_walked_in_order(self) -> None:
        facts = PayloadFacts((FLOAT32, INT64, FLOAT64), 0)
        assert exceeds(facts, ceiling_without("float64", "int64")) == "dtype int64 is outside its ceiling"

    @pytest.mark.parametrize(("byte_len", "reason"), [(100, None), (101, "101 bytes exceeds its 100-byte message cap")])
    def test_the_cap_itself_is_allowed(self, byte_len: int, reason: str | None) -> None:
        assert exceeds(PayloadFacts(FLOAT32, byte_len), ceiling_without(size=100)) == reason

    def test_the_default_size_is_256_mebibytes(self) -> None:
        assert exceeds(PayloadFacts(FLOAT32, 268_435_456), FULL) is None
        assert exceeds(PayloadFacts(FLOAT32, 268_435_457), FULL) is not None

    def test_a_dtype_outside_comes_before_the_size(self) -> None:
        reason = exceeds(PayloadFacts(FLOAT64, 101), ceiling_without("float64", size=100))
        assert reason == "dtype float64 is outside its ceiling"

    def test_a_dtype_nobody_can_name_is_not_reported(self) -> None:
        assert exceeds(PayloadFacts(space_of("unspecified"), 1), FULL) is None

    def test_no_leaves_hold_no_dtype(self) -> None:
        assert exceeds(PayloadFacts(space_of(), 0), ceiling_without(*WIRE_DTYPES)) is None


def test_the_default_policy_refuses_what_exceeds_and_forwards_the_rest() -> None:
    policy, ceiling = RefuseExcess(), ceiling_without("float64")
    assert policy.judge("env_to_model", ceiling, PayloadFacts(FLOAT32, 4)) == Forward()
    assert policy.judge("env_to_model", ceiling, PayloadFacts(FLOAT64, 8)) == Refuse(
        "dtype float64 is outside its ceiling"
    )


class TestWithoutCeilings:
    def test_nothing_is_checked_and_the_policy_is_not_asked(self) -> None:
        policy = Scripted()
        relay = Relay(model_ceiling=None, env_ceiling=None, policy=policy)
        assert relay.to_model.check_contract(EnvContract(observation_space=FLOAT64, action_space=INT64)) is None
        assert relay.to_model.relay(FLOAT64, [bytes(8)]) is None
        assert relay.to_env.relay(INT64, [bytes(8)]) is None
        assert not policy.asked
        assert not relay.to_model.is_checked
        assert not relay.to_env.is_checked

    def test_each_leg_has_the_ceiling_of_the_peer_it_leads_to(self) -> None:
        relay = Relay(model_ceiling=None, env_ceiling=ceiling_without("float64"))
        assert (relay.to_model.is_checked, relay.to_env.is_checked) == (False, True)
        assert relay.to_model.relay(FLOAT64, [bytes(8)]) is None
        with pytest.raises(ProtocolError):
            relay.to_env.relay(FLOAT64, [bytes(8)])


class TestDefaultPolicy:
    def test_what_fits_passes_unchanged_without_advisory(self) -> None:
        relay = Relay(model_ceiling=FULL, env_ceiling=FULL)
        assert relay.to_model.check_contract(EnvContract(observation_space=FLOAT32, action_space=INT64)) is None
        for _ in range(2):
            assert relay.to_model.relay(FLOAT32, [bytes(4)]) is None
            assert relay.to_env.relay(INT64, [bytes(8)]) is None
        assert relay.advisories == ()

    @pytest.mark.parametrize(
        "contract",
        [
            EnvContract(observation_space=FLOAT64, action_space=INT64),
            EnvContract(observation_space=INT64, action_space=FLOAT64),
        ],
    )
    def test_a_contract_outside_is_refused_by_either_space(self, contract: EnvContract) -> None:
        relay = Relay(model_ceiling=ceiling_without("float64"), env_ceiling=None)
        with pytest.raises(ProtocolError) as caught:
            relay.to_model.check_contract(contract)
        assert str(caught.value) == (
            "protocol error: the runtime cannot relay this contract to the model: dtype float64 is outside its ceiling"
        )

    def test_a_contract_longer_than_a_message_is_refused(self) -> None:
        relay = Relay(model_ceiling=ceiling_without(size=10), env_ceiling=None)
        contract = EnvContract(observation_space=FLOAT32, action_space=INT64, encoded_size=11)
        with pytest.raises(ProtocolError, match="11 bytes exceeds its 10-byte message cap"):
            relay.to_model.check_contract(contract)

    def test_an_action_outside_is_refused(self) -> None:
        relay = Relay(model_ceiling=None, env_ceiling=ceiling_without("int64"))
        with pytest.raises(ProtocolError) as caught:
            relay.to_env.relay(INT64, [bytes(8)])
        assert str(caught.value) == (
            "protocol error: the runtime cannot relay this payload to the env: dtype int64 is outside its ceiling"
        )

    def test_the_size_is_that_of_this_payload_not_of_an_earlier_one(self) -> None:
        relay = Relay(model_ceiling=ceiling_without(size=10), env_ceiling=None)
        assert relay.to_model.relay(FLOAT32, [bytes(6), bytes(4)]) is None
        with pytest.raises(ProtocolError, match="to the model: 11 bytes exceeds its 10-byte message cap"):
            relay.to_model.relay(FLOAT32, [bytes(6), bytes(5)])

    def test_the_dtypes_are_those_of_this_space_not_of_an_earlier_one(self) -> None:
        leg = Relay(model_ceiling=ceiling_without("float64"), env_ceiling=None).to_model
        assert leg.relay(FLOAT32, [bytes(4)]) is None
        with pytest.raises(ProtocolError):
            leg.relay(FLOAT64, [bytes(8)])
        assert leg.relay(FLOAT32, [bytes(4)]) is None

    def test_a_view_of_wider_items_counts_its_bytes(self) -> None:
        relay = Relay(model_ceiling=ceiling_without(size=31), env_ceiling=None)
        with pytest.raises(ProtocolError, match="32 bytes"):
            relay.to_model.relay(FLOAT64, [np.zeros((2, 2)).data])

    def test_an_absent_payload_is_not_checked(self) -> None:
        relay = Relay(model_ceiling=ceiling_without("float64"), env_ceiling=None)
        assert relay.to_model.relay(FLOAT64, None) is None

    @given(
        spaces=st.lists(st.lists(st.sampled_from(WIRE_DTYPES), max_size=3).map(tuple), min_size=1, max_size=3),
        missing=st.sets(st.sampled_from(WIRE_DTYPES), max_size=3),
        order=st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 6), max_size=3)), max_size=6),
    )
    def test_its_short_cut_decides_as_the_policy_itself(
        self, spaces: list[tuple[str, ...]], missing: set[str], order: list[tuple[int, list[int]]]
    ) -> None:
        class Asked(RefuseExcess):
            """The same policy, not recognised as the default."""

        known = [space_of(*dtypes) for dtypes in spaces]
        ceiling = ceiling_without(*missing, size=8)
        short = Relay(model_ceiling=ceiling, env_ceiling=None).to_model
        asked = Relay(model_ceiling=ceiling, env_ceiling=None, policy=Asked()).to_model
        for which, lengths in order:
            payload = [bytes(length) for length in lengths]
            verdicts = [_verdict(leg.relay, known[which % len(known)], payload) for leg in (short, asked)]
            assert verdicts[0] == verdicts[1]


def _verdict(relay: object, space: ValueSpace, payload: Sequence[bytes]) -> str | None:
    assert callable(relay)
    try:
        assert relay(space, payload) is None
    except ProtocolError as refused:
        return str(refused)
    return None


class TestAnotherPolicy:
    def test_it_is_told_leg_ceiling_and_facts(self) -> None:
        policy = Scripted(Forward(), Forward(), Forward())
        to_model, to_env = ceiling_without("float64"), ceiling_without("int64")
        relay = Relay(model_ceiling=to_model, env_ceiling=to_env, policy=policy)
        observation: Leaves = [bytes(3), memoryview(bytes(5))]
        action: Leaves = [bytes(8)]
        relay.to_model.check_contract(EnvContract(observation_space=FLOAT64, action_space=INT64, encoded_size=77))
        assert relay.to_model.relay(FLOAT64, observation) is None
        assert relay.to_env.relay(INT64, action) is None
        told = [(leg, ceiling, facts.space, facts.byte_len, facts.leaves) for leg, ceiling, facts in policy.asked]
        assert told == [
            ("env_to_model", to_model, (FLOAT64, INT64), 77, ()),
            ("env_to_model", to_model, FLOAT64, 8, observation),
            ("model_to_env", to_env, INT64, 8, action),
        ]

    def test_its_refusal_fails_the_session_with_its_reason(self) -> None:
        relay = Relay(model_ceiling=FULL, env_ceiling=None, policy=Scripted(Refuse("not today")))
        with pytest.raises(ProtocolError, match="cannot relay this payload to the model: not today"):
            relay.to_model.relay(FLOAT32, [bytes(4)])

    def test_a_conversion_replaces_leaves_and_space(self) -> None:
        caution = Advisory("caution", "int64 actions are sent as int32")
        policy = Scripted(Convert([b"\x07"], caution, space=INT32))
        relay = Relay(model_ceiling=None, env_ceiling=ceiling_without("int64"), policy=policy)
        converted = relay.to_env.relay(INT64, [bytes(8)])
        assert converted is not None
        assert converted.leaves == [b"\x07"]
        assert converted.space is INT32
        assert converted.advisory == caution
        assert relay.advisories == (caution,)

    def test_a_conversion_may_keep_the_space(self) -> None:
        policy = Scripted(Convert([b"\x07"], Advisory("info", "clipped")))
        relay = Relay(model_ceiling=None, env_ceiling=FULL, policy=policy)
        converted = relay.to_env.relay(INT64, [bytes(8)])
        assert converted is not None
        assert converted.space is INT64

    def test_converting_a_contract_only_records_the_advisory(self) -> None:
        info = Advisory("info", "float64 will be narrowed")
        relay = Relay(model_ceiling=FULL, env_ceiling=None, policy=Scripted(Convert((), info)))
        contract = EnvContract(observation_space=FLOAT64, action_space=INT64)
        assert relay.to_model.check_contract(contract) == info
        assert relay.advisories == (info,)

    def test_equal_advisories_are_raised_once_in_first_raised_order_across_legs(self) -> None:
        first, second = Advisory("info", "b"), Advisory("info", "a")
        third = Advisory("caution", "b")
        raised = [first, second, attrs.evolve(first), third, attrs.evolve(second)]
        policy = Scripted(*(Convert((), advisory) for advisory in raised))
        relay = Relay(model_ceiling=FULL, env_ceiling=FULL, policy=policy)
        legs = [relay.to_model, relay.to_env, relay.to_env, relay.to_model, relay.to_model]
        converted = [leg.relay(FLOAT32, [bytes(4)]) for leg in legs]
        assert [c.advisory if c else "unchanged" for c in converted] == [first, second, None, third, None]
        assert relay.advisories == (first, second, third)
