import math
from typing import Any

import attrs
import numpy as np
import pytest
import trio
from trio.testing import MockClock

from rlmesh_trio.conformance.player import MARGIN, EpisodeIds, improvise, play
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.scripts import Op, Reset, Script, Step, Wait
from rlmesh_trio.conformance.traces import Answer, Trace
from rlmesh_trio.contract import AutoresetMode
from rlmesh_trio.errors import EndpointError, ProtocolError
from rlmesh_trio.messages import EnvReply, EpisodeRecord, ResetRequest, StepTarget
from rlmesh_trio.wire.metadata import LazyMetadata
from tests.conformance.labs import lab_on
from tests.conformance.scripted_env import Counting, Reply, ScriptedEnv, contract_of, ok

ACTION = (np.int64(2).tobytes(),)
RESET = Reset((7,))
STEP = Step((ACTION,))


def facts_for(env: ScriptedEnv, **more: Any) -> Facts:
    return Facts("here", env.contract, env.subset_step, frozenset(), factory=False, local=True, **more)


async def played(env: ScriptedEnv, *ops: Op, lanes: int = 1, **facts: Any) -> Trace:
    return await play(env, Script(lanes, ops), facts_for(env, **facts), ids=EpisodeIds(), step_timeout=5.0)


def answering(*replies: EnvReply | Exception) -> Reply:
    waiting = list(replies)

    async def reply(_: ResetRequest | StepTarget) -> EnvReply:
        answer = waiting.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return reply


async def test_an_env_of_this_process_answers_in_bits() -> None:
    async with lab_on(Counting) as lab:
        script = Script(1, (RESET, STEP, STEP))
        trace = await lab.play(script)
    assert trace.script is script
    assert trace.lost is None
    assert [answer.op for answer in trace.answers] == [0, 1, 2]
    assert [np.frombuffer(answer.observation[0][0], np.float32).tolist() for answer in trace.answers] == [
        [0, 7],
        [1, 7],
        [2, 7],
    ]
    assert [answer.rewards for answer in trace.answers] == [(), (2.0,), (2.0,)]
    assert trace.answers[2].terminated == (False,)
    assert trace.answers[2].raw_leaves == trace.answers[2].observation[0]


async def test_lanes_are_cut_into_rows_and_may_be_named() -> None:
    async with lab_on(Counting, lanes=3) as lab:
        ops = (Reset((1, 2, 3)), Step((ACTION, ACTION), lanes=(2, 0)))
        trace = await lab.play(Script(3, ops))
    rows = [np.frombuffer(row[0], np.float32).tolist() for row in trace.answers[1].observation]
    assert trace.answers[1].lanes == (2, 0)
    assert rows == [[1, 3], [1, 1]]


async def test_episode_ids_are_fresh_and_follow_from_how_many_there_were() -> None:
    env = ScriptedEnv(answering(ok(steps=False), ok(), ok(steps=False), ok()))
    trace = await played(env, RESET, STEP, RESET, STEP)
    ids = [answer.episode_ids for answer in trace.answers]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert ids[0] == (EpisodeIds().fresh(),)
    assert [asked.episode_ids for asked in env.asked] == ids


@pytest.mark.parametrize(
    ("mode", "renewed"),
    [(AutoresetMode.NEXT_STEP, True), (AutoresetMode.SAME_STEP, True), (AutoresetMode.DISABLED, False)],
)
async def test_a_lane_that_restarts_itself_gets_a_new_id_with_the_next_step(mode: AutoresetMode, renewed: bool) -> None:
    env = ScriptedEnv(answering(ok(steps=False), ok(ended=True), ok(), ok()), contract_of(mode=mode))
    ids = [answer.episode_ids for answer in (await played(env, RESET, STEP, STEP, STEP)).answers]
    assert ids[0] == ids[1]
    assert (ids[1] != ids[2]) is renewed
    assert ids[2] == ids[3]


async def test_a_step_before_any_reset_names_no_episode() -> None:
    env = ScriptedEnv(answering(ok()))
    assert (await played(env, STEP)).answers[0].episode_ids == ()


async def test_the_users_options_go_with_every_reset_and_the_scripts_own_win() -> None:
    env = ScriptedEnv(answering(ok(steps=False), ok(steps=False)))
    await played(env, RESET, Reset(options={"a": 3}), options=(("a", 1), ("b", 2)))
    assert [asked.options for asked in env.asked if isinstance(asked, ResetRequest)] == [
        {"a": 1, "b": 2},
        {"a": 3, "b": 2},
    ]


async def test_a_recoverable_refusal_is_an_answer_and_play_goes_on() -> None:
    env = ScriptedEnv(answering(ok(steps=False), EndpointError("INVALID_ACTION", "no", True), ok()))
    trace = await played(env, RESET, STEP, STEP)
    refusal = trace.answers[1].refusal
    assert refusal is not None
    assert (refusal.code, refusal.message, refusal.recoverable) == ("INVALID_ACTION", "no", True)
    assert trace.answers[1].observation == ()
    assert trace.lost is None
    assert len(trace.answers) == 3


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (EndpointError("CONNECTION", "gone"), "CONNECTION"),
        (EndpointError("INTERNAL", "step failed"), "INTERNAL"),
        (ProtocolError("nonsense"), "PROTOCOL"),
        (RuntimeError("what"), "INTERNAL"),
    ],
)
async def test_what_ends_the_session_ends_the_play(failure: Exception, code: str) -> None:
    env = ScriptedEnv(answering(ok(steps=False), failure))
    trace = await played(env, RESET, STEP, STEP, STEP)
    assert trace.lost is not None
    assert trace.lost.code == code
    assert trace.answers[-1].refusal == trace.lost
    assert len(trace.answers) == 2


async def test_an_answer_that_does_not_come_is_not_waited_for(autojump_clock: MockClock) -> None:
    async def never(_: object) -> EnvReply:
        await trio.sleep(math.inf)
        raise AssertionError

    trace = await played(ScriptedEnv(never), RESET, STEP)
    assert trace.lost is not None
    assert (trace.lost.code, trace.lost.message) == ("TIMEOUT", "no answer within 6s")
    assert trace.answers[0].seconds == pytest.approx(5.0 + MARGIN)


async def test_the_server_is_told_the_limit() -> None:
    env = ScriptedEnv(answering(ok(steps=False), ok()))
    await played(env, RESET, STEP)
    assert [asked.timeout_ms for asked in env.asked] == [5000, 5000]


async def test_a_wait_is_no_request(autojump_clock: MockClock) -> None:
    env = ScriptedEnv(answering(ok(steps=False), ok()))
    before = trio.current_time()
    trace = await played(env, RESET, Wait(3.0), STEP)
    assert trio.current_time() - before == pytest.approx(3.0)
    assert [answer.op for answer in trace.answers] == [0, 2]


async def test_sizes_that_are_wrong_are_kept_as_they_came() -> None:
    short = EnvReply([b"\0" * 7], {}, (1.0, 2.0, 3.0), b"\1", b"")
    extra = EnvReply([b"\0" * 8, b"x"], None)
    env = ScriptedEnv(answering(extra, short))
    trace = await played(env, RESET, STEP)
    assert trace.lost is None
    assert trace.answers[0].raw_leaves == (b"\0" * 8, b"x")
    assert trace.answers[0].infos is None
    answer = trace.answers[1]
    assert (answer.observation, answer.raw_leaves) == ((), (b"\0" * 7,))
    assert (answer.rewards, answer.terminated, answer.truncated) == ((1.0, 2.0, 3.0), (True,), ())


async def test_infos_are_decoded_while_playing() -> None:
    record = EpisodeRecord(final_info=LazyMetadata(b""))
    reply = attrs.evolve(ok(), infos={"array": np.arange(2), 3: "x"}, completed=(record,))
    env = ScriptedEnv(answering(ok(steps=False), reply, attrs.evolve(ok(), infos=LazyMetadata(b"\xff"))))
    trace = await played(env, RESET, STEP, STEP)
    assert trace.answers[1].infos == {"array": [0, 1], "3": "x"}
    assert trace.answers[1].completed[0].final_info == {}
    assert trace.lost is not None
    assert trace.lost.code == "PROTOCOL"


async def test_a_script_of_another_width_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="2 lanes cannot be played on 1"):
        await played(ScriptedEnv(answering()), RESET, lanes=2)


async def test_ops_can_be_chosen_as_they_are_due() -> None:
    env = ScriptedEnv(answering(ok(steps=False), ok(), ok(ended=True)))
    seen: list[Answer | None] = []

    def choose(answer: Answer | None) -> Op | None:
        seen.append(answer)
        if answer is None:
            return RESET
        return None if any(answer.terminated) else STEP

    asked: list[int] = []
    trace = await improvise(
        env, choose, facts_for(env), ids=EpisodeIds(), step_timeout=5.0, on_ask=lambda: asked.append(len(asked))
    )
    assert trace.script == Script(1, (RESET, STEP, STEP))
    assert [None, *trace.answers] == seen
    assert asked == [0, 1, 2]
