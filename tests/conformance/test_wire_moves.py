"""Moves as texts, and the bytes they come to: good ones are requests, spoilt ones are none to anybody."""

import attrs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rlmesh_trio.conformance.moves import (
    LEAF_FLAWS,
    MESSAGE_FLAWS,
    MOST_MOVES,
    TEXT_FLAWS,
    Move,
    flaws,
    good_moves,
    leavings,
    move_lists,
    unsupported_moves,
    wrong_moves,
)
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.requests import request_bytes
from rlmesh_trio.contract import EnvContract
from rlmesh_trio.errors import SpaceError
from rlmesh_trio.spaces import codec_for, space_from_gymnasium
from rlmesh_trio.transport.handshake import NAMED_RESETS
from tests.spaces.strategies import any_spaces
from tests.wire.oracle import google_parses

JOIN_REQUEST = "rlmesh.env.v1.JoinRequest"

contracts = st.builds(
    EnvContract,
    observation_space=any_spaces.map(space_from_gymnasium),
    action_space=any_spaces.map(space_from_gymnasium),
    num_envs=st.integers(1, 4),
)


@st.composite
def all_facts(draw: st.DrawFn) -> Facts:
    named = draw(st.booleans())
    capabilities = frozenset(["subset_step"]) if named else frozenset[str]()
    return Facts("target", draw(contracts), named, capabilities, factory=False, local=False)


def encoded(move: Move, facts: Facts) -> bytes:
    return request_bytes(move, facts.contract, {"level": 3}, "r1", ("e1",))


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_move_is_read_back_as_it_was_written(data: st.DataObject) -> None:
    facts = data.draw(all_facts())
    some = [good_moves(facts, ahead=True), good_moves(facts, timeouts=True), wrong_moves(facts), leavings()]
    for move in data.draw(move_lists(st.one_of(some))):
        assert str(Move.parse(move)) == move


@given(st.builds(Move, st.just("step"), lanes=st.lists(st.integers(0, 9)).map(tuple), ahead=st.booleans()), st.data())
def test_so_is_every_word_of_it(move: Move, data: st.DataObject) -> None:
    numbers = st.integers(0, 500)
    words = {name: data.draw(numbers) for name in ("timeout_ms", "action", "padding")}
    move = attrs.evolve(
        move, **words, same_id=data.draw(st.booleans()), edition=data.draw(st.sampled_from(("", "x.1")))
    )
    assert Move.parse(str(move)) == move


@pytest.mark.parametrize("text", ["jump", "leave", "leave now", "step soon", "step !bent:1", "reset speed=3"])
def test_what_is_no_move_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no move"):
        Move.parse(text)


@given(move_lists(st.just(Move("step")), last=leavings()))
def test_lists_have_a_last_move_and_an_end(case: tuple[str, ...]) -> None:
    assert len(case) <= MOST_MOVES
    assert case[-1].startswith("leave ")


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_good_move_is_a_request_with_members_of_the_space(data: st.DataObject) -> None:
    facts = data.draw(all_facts())
    move = data.draw(good_moves(facts, ahead=True, timeouts=data.draw(st.booleans())))
    request = google_parses(JOIN_REQUEST, encoded(move, facts))
    assert request is not None
    assert (request.WhichOneof("kind"), request.request_id) == (move.what, "r1")
    if move.what == "step":
        assert (tuple(request.step.env_indices), request.step.timeout_ms) == (move.lanes, move.timeout_ms)
        space = facts.contract.action_space
        assert space is not None
        codec_for(space).check_members(request.step.action.leaves, len(move.lanes) or facts.contract.num_envs)


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_a_spoilt_action_cannot_be_read_by_its_space(data: st.DataObject) -> None:
    facts = data.draw(all_facts())
    space = facts.contract.action_space
    assert space is not None
    assume(space.leaves)
    move = data.draw(flaws(facts, (*LEAF_FLAWS, *TEXT_FLAWS)))
    request = google_parses(JOIN_REQUEST, encoded(move, facts))
    assert request is not None
    with pytest.raises(SpaceError):
        codec_for(space).check_layout(request.step.action.leaves, facts.contract.num_envs)


@given(st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_spoilt_message_is_none(data: st.DataObject) -> None:
    facts = data.draw(all_facts())
    move = data.draw(flaws(facts, MESSAGE_FLAWS))
    assert google_parses(JOIN_REQUEST, encoded(move, facts)) is None


def test_padding_is_a_field_to_be_skipped() -> None:
    facts = Facts("target", EnvContract(), False, frozenset(), factory=False, local=False)
    data = encoded(Move("step", padding=2), facts)
    assert len(data) > 2 << 20
    request = google_parses(JOIN_REQUEST, data)
    assert request.WhichOneof("kind") == "step"


def test_what_is_not_offered_depends_on_the_contract() -> None:
    facts = Facts("target", EnvContract(num_envs=1), True, frozenset(["subset_step"]), factory=False, local=False)
    assert list(map(str, unsupported_moves(facts))) == ["empty", "unknown"]
    wide = attrs.evolve(facts, contract=EnvContract(num_envs=2), subset_step=False)
    assert set(map(str, unsupported_moves(wide))) == {"empty", "unknown", "step @0", "reset @0", "render @0,1"}
    able = attrs.evolve(wide, capabilities=frozenset({NAMED_RESETS}))
    assert set(map(str, unsupported_moves(wide))) - set(map(str, unsupported_moves(able))) == {"reset @0"}
