"""A remote model against scripted servers, and how a real one is asked by several lanes."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import attrs
import numpy as np
import pytest
import trio
from trio.testing import MockClock

from rlmesh_trio.endpoints.remote_env import connect_env
from rlmesh_trio.endpoints.remote_model import RemoteModel, connect_model
from rlmesh_trio.errors import EndpointError, HandshakeError, InvalidSpec, OperationTimeout, ProtocolError
from rlmesh_trio.messages import EpisodeInfo, PredictReply, PredictRequest, ReleaseAdapterRequest, ResetAdapterRequest
from rlmesh_trio.spec import EnvContract, Limits, SessionSpec
from rlmesh_trio.wire.pb.rlmesh.model import v1 as pb
from rlmesh_trio.wire.strict import present
from tests.endpoints.fake_peers import CONTRACT, FakeModel, pair, value
from tests.peers import start_env_peer, start_model_peer
from tests.transport.fake_server import FakeStream, fake_server

HISTORY = {"rlmesh.model.observation_history.v1": "true"}
QUICK = Limits(model_connect_timeout=0.5, configure_route_timeout=0.3, service_close_timeout=0.3)


def one_lane(contract: EnvContract = CONTRACT, limits: Limits = QUICK) -> SessionSpec:
    return SessionSpec(env_contract=contract, session_id="session", env_id="route", limits=limits)


def lanes(count: int) -> SessionSpec:
    return attrs.evolve(one_lane(), num_envs=count, subset_step=True)


def asking(name: str, *values: float, step: int = 0) -> PredictRequest:
    rows = len(values) // 2
    infos = tuple(EpisodeInfo(f"{name}{row}", 40 + row) for row in range(rows))
    return PredictRequest("session", "route", f"route:ask:{name}{step}", [pair(*values)], infos, (step,) * rows)


def action(*values: int) -> bytes:
    return np.array(values, np.int64).tobytes()


def choices(reply: PredictReply | Exception) -> list[list[int]]:
    assert isinstance(reply, PredictReply), reply
    return [np.frombuffer(frame[0], np.int64).tolist() for frame in reply.actions]


def predicted(request: pb.PredictRequest, frames: int = 1) -> pb.PredictResponse:
    """One action per row, the observation's first number plus the frame's."""
    rows = np.frombuffer(request.observation.leaves[0], np.float32).reshape(-1, 2)[:, 0].astype(np.int64)
    return pb.PredictResponse(
        context=request.context, actions=[value(action(*(rows + frame))) for frame in range(frames)]
    )


async def sensible(request: pb.JoinRequest, stream: FakeStream) -> pb.JoinResponse:
    """A model that answers every request, chunks of one, and tells nothing of itself."""
    if request.is_set("resolve_adapter"):
        return pb.JoinResponse(resolve_adapter=present(pb.ResolveAdapterResponse()))
    if request.is_set("predict"):
        return pb.JoinResponse(predict=predicted(request.predict))
    if request.is_set("grouped_predict"):
        results = [pb.GroupedPredictResult(response=predicted(group)) for group in request.grouped_predict.groups]
        return pb.JoinResponse(grouped_predict=pb.GroupedPredictResponse(results=results))
    if request.is_set("reset_adapter"):
        return pb.JoinResponse(reset_adapter=present(pb.ResetAdapterResponse()))
    return pb.JoinResponse(release_adapter=present(pb.ReleaseAdapterResponse()))


def opened(
    address: str, *, edition: str | None = None, merge_rows: bool = False
) -> AbstractAsyncContextManager[RemoteModel]:
    return connect_model(address, edition=edition, limits=QUICK, merge_rows=merge_rows)


async def test_what_a_session_says(loopback_clock: MockClock) -> None:
    fake = FakeModel(answer=sensible, capabilities=HISTORY)
    async with fake_server(fake.serve) as address, opened(address) as model:
        assert (model.address, model.edition, model.supported_editions) == (address, "2026.06", ("2026.06",))
        assert model.peer_info.component == "fake"
        await model.resolve(one_lane(), execution_horizon=3)
        reply = await model.predict(asking("a", 1, 0))
        (grouped,) = await model.predict_group([asking("b", 2, 0)])
        await model.reset_adapter(ResetAdapterRequest("session", "route", "route:reset", ("a0",)))
        await model.release_adapter(ReleaseAdapterRequest("session", "route", "route:release", "done"))
    assert choices(reply) == [[1]]
    assert (reply.session_id, reply.env_id, reply.request_id) == ("session", "route", "route:ask:a0")
    assert reply.request_bytes > 0
    assert choices(grouped) == [[2]]
    requests = [pb.JoinRequest().parse(data) for data in fake.requests]
    resolve = requests[0].resolve_adapter
    assert (resolve.context.session_id, resolve.context.env_id) == ("session", "route")
    assert (resolve.selected_workflow_edition, resolve.execution_horizon, resolve.delivers_history) == (
        "2026.06",
        3,
        True,
    )
    assert fake.relayed_spec() == CONTRACT.encoded_spec
    assert len({request.request_id for request in requests}) == len(requests)
    assert requests[3].reset_adapter.episode_ids == ["a0"]
    assert requests[4].release_adapter.reason == "done"
    assert fake.heard is not None
    assert fake.heard.peer_info.component == "rlmesh-model"


async def test_the_env_spec_is_relayed_byte_for_byte(loopback_clock: MockClock) -> None:
    """Also what no schema of ours knows: an unknown field, and a field order nobody writes."""
    spec = b"\x22\x00" + b"\xfa\x3f\x03new" + b"\x0a\x03env"
    fake = FakeModel(answer=sensible)
    async with fake_server(fake.serve) as address, opened(address) as model:
        await model.resolve(one_lane(attrs.evolve(CONTRACT, encoded_spec=spec)))
    assert fake.relayed_spec() == spec
    assert pb.JoinRequest().parse(fake.requests[0]).resolve_adapter.delivers_history is False


async def test_what_the_model_wants_and_makes(loopback_clock: MockClock) -> None:
    async def answer(request: pb.JoinRequest, stream: FakeStream) -> pb.JoinResponse:
        needs = pb.ObservationHistoryNeeds(keys=["frames"])
        return pb.JoinResponse(resolve_adapter=pb.ResolveAdapterResponse(native_chunk=8, history=needs))

    async with fake_server(FakeModel(answer=answer, capabilities=HISTORY).serve) as address, opened(address) as model:
        assert not model.wants_history()
        await model.resolve(one_lane(), execution_horizon=4)
        assert model.wants_history()
        assert model.native_chunk == 8


@pytest.mark.parametrize("horizon", [0, 1025])
async def test_a_horizon_that_cannot_be(horizon: int, loopback_clock: MockClock) -> None:
    async with fake_server(FakeModel(answer=sensible).serve) as address, opened(address) as model:
        with pytest.raises(InvalidSpec, match=f"from 1 to 1024, not {horizon}"):
            await model.resolve(one_lane(), execution_horizon=horizon)


async def test_an_edition_the_model_does_not_know(loopback_clock: MockClock) -> None:
    fake = FakeModel(editions=["2026.06", "2027.01"], preferred="2027.01")
    async with fake_server(fake.serve) as address, opened(address) as model:
        with pytest.raises(HandshakeError, match=r"edition 2028.01; it offers 2026.06, 2027.01"):
            await model.resolve(attrs.evolve(one_lane(), workflow_edition="2028.01"))


async def test_a_model_that_refuses_the_route(loopback_clock: MockClock) -> None:
    async def answer(request: pb.JoinRequest, stream: FakeStream) -> pb.JoinResponse:
        return pb.JoinResponse(error=pb.ModelError(pb.ModelErrorCode(10), "lower the horizon"))

    async with fake_server(FakeModel(answer=answer).serve) as address, opened(address) as model:
        with pytest.raises(EndpointError, match="lower the horizon") as caught:
            await model.resolve(one_lane())
    assert caught.value.code == "INTERNAL"


async def test_a_model_that_never_answers_resolve(loopback_clock: MockClock) -> None:
    async with fake_server(FakeModel().serve) as address, opened(address) as model:
        with (
            trio.fail_after(5),
            pytest.raises(OperationTimeout, match=r"model.resolve_adapter timed out"),
        ):
            await model.resolve(one_lane())


async def test_an_env_server_is_not_a_model(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.refuse(12, reset=True)

    async with fake_server(serve) as address:
        with pytest.raises(HandshakeError, match=r"does not offer rlmesh.model.v1.ModelService"):
            async with opened(address):
                pass


async def test_an_answer_to_another_question(loopback_clock: MockClock) -> None:
    async def answer(request: pb.JoinRequest, stream: FakeStream) -> pb.JoinResponse:
        return pb.JoinResponse(close=present(pb.CloseParticipantResponse()))

    async with fake_server(FakeModel(answer=answer).serve) as address, opened(address) as model:
        with pytest.raises(ProtocolError, match="answered a resolve with close"):
            await model.resolve(one_lane())
        with pytest.raises(ProtocolError, match="answered a predict with close"):
            await model.predict(asking("a", 1, 0))
        with pytest.raises(ProtocolError, match="answered a grouped predict with close"):
            await model.predict_group([asking("a", 1, 0), asking("b", 1, 0)])
        with pytest.raises(ProtocolError, match="answered a reset with close"):
            await model.reset_adapter(ResetAdapterRequest("session", "route", "x", ()))
        with pytest.raises(ProtocolError, match="answered a release with close"):
            await model.release_adapter(ReleaseAdapterRequest("session", "route", "x", "done"))


async def test_a_model_without_chunks_is_told_of_once(
    caplog: pytest.LogCaptureFixture, loopback_clock: MockClock
) -> None:
    async with fake_server(FakeModel(answer=sensible).serve) as address, opened(address) as model:
        await model.resolve(one_lane(), execution_horizon=5)
        for number in range(3):
            await model.predict(asking("a", 1, 0, step=number))
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [
        f"the model at {address} answers with one action although execution_horizon is 5"
    ]


async def test_one_bad_group_does_not_sink_the_others(loopback_clock: MockClock) -> None:
    async def answer(request: pb.JoinRequest, stream: FakeStream) -> pb.JoinResponse:
        if not request.is_set("grouped_predict"):
            return await sensible(request, stream)
        good, _ = request.grouped_predict.groups
        results = [
            pb.GroupedPredictResult(response=predicted(good)),
            pb.GroupedPredictResult(error=pb.ModelError(pb.ModelErrorCode(10), "what is this?")),
        ]
        return pb.JoinResponse(grouped_predict=pb.GroupedPredictResponse(results=results))

    async with fake_server(FakeModel(answer=answer).serve) as address, opened(address) as model:
        await model.resolve(lanes(2))
        good, bad = await model.predict_group([asking("a", 1, 0), asking("b", 2, 0)])
    assert choices(good) == [[1]]
    assert isinstance(bad, EndpointError)
    assert (bad.code, bad.message) == ("INTERNAL", "what is this?")


async def ask_lanes(model: RemoteModel, step: int, count: int = 3) -> Sequence[PredictReply | Exception]:
    return await model.predict_group([asking(f"lane{lane}.", lane, 0, step=step) for lane in range(count)])


def arms(fake: FakeModel) -> list[str]:
    names = ("resolve_adapter", "predict", "grouped_predict", "reset_adapter", "release_adapter")
    requests = [pb.JoinRequest().parse(data) for data in fake.requests]
    return [next(name for name in names if request.is_set(name)) for request in requests]


async def test_rows_are_merged_where_the_caller_says_so(loopback_clock: MockClock) -> None:
    fake = FakeModel(answer=sensible)
    async with fake_server(fake.serve) as address, opened(address, merge_rows=True) as model:
        await model.resolve(lanes(3))
        assert model.fuses_predicts()
        for step in range(2):
            replies = await ask_lanes(model, step)
            assert [choices(reply) for reply in replies] == [[[0]], [[1]], [[2]]]
            for lane, reply in enumerate(replies):
                assert isinstance(reply, PredictReply)
                assert (reply.session_id, reply.env_id) == ("session", "route")
                assert reply.request_id == f"route:ask:lane{lane}.{step}"
    assert arms(fake) == ["resolve_adapter", "predict", "predict"]
    merged = pb.JoinRequest().parse(fake.requests[1]).predict
    assert [info.episode_id for info in merged.episode_info] == [f"lane{lane}.0" for lane in range(3)]


async def test_rows_are_not_merged_by_default(loopback_clock: MockClock) -> None:
    fake = FakeModel(answer=sensible)
    async with fake_server(fake.serve) as address, opened(address) as model:
        await model.resolve(lanes(3))
        assert not model.fuses_predicts()
        await ask_lanes(model, 0)
    assert arms(fake) == ["resolve_adapter", "grouped_predict"]


async def test_rows_of_one_episode_are_not_merged(loopback_clock: MockClock) -> None:
    fake = FakeModel(answer=sensible)
    async with fake_server(fake.serve) as address, opened(address, merge_rows=True) as model:
        await model.resolve(lanes(3))
        await model.predict_group([asking("a", 0, 0), asking("a", 1, 0)])
    assert arms(fake)[1:] == ["grouped_predict"]


async def test_merged_rows_that_are_not_all_answered_fail_every_lane(loopback_clock: MockClock) -> None:
    async def answer(request: pb.JoinRequest, stream: FakeStream) -> pb.JoinResponse:
        if not request.is_set("predict"):
            return await sensible(request, stream)
        reply = predicted(request.predict)
        reply.actions = [value(action(0))]
        return pb.JoinResponse(predict=reply)

    async with fake_server(FakeModel(answer=answer).serve) as address, opened(address, merge_rows=True) as model:
        await model.resolve(lanes(3))
        replies = await ask_lanes(model, 0)
    assert all(isinstance(reply, EndpointError) and "3 merged rows" in str(reply) for reply in replies)


async def test_merged_rows_have_no_chunks(loopback_clock: MockClock) -> None:
    async with fake_server(FakeModel(answer=sensible).serve) as address, opened(address, merge_rows=True) as model:
        with pytest.raises(InvalidSpec, match="merge_rows cannot be combined with execution_horizon=2"):
            await model.resolve(lanes(3), execution_horizon=2)


async def test_a_longer_horizon_is_asked_for_lane_by_lane(loopback_clock: MockClock) -> None:
    async with fake_server(FakeModel(answer=sensible).serve) as address, opened(address) as model:
        await model.resolve(lanes(3), execution_horizon=2)
        assert not model.fuses_predicts()


async def test_an_env_with_tags_is_asked_for_in_groups(loopback_clock: MockClock) -> None:
    fake = FakeModel(answer=sensible)
    tagged = attrs.evolve(CONTRACT, metadata={"rlmesh.adapters.v1.env_tags": {}})
    async with fake_server(fake.serve) as address, opened(address) as model:
        await model.resolve(attrs.evolve(lanes(3), env_contract=tagged), execution_horizon=2)
        assert model.fuses_predicts()
        await ask_lanes(model, 0)
        await ask_lanes(model, 1)
    assert arms(fake)[1:] == ["grouped_predict", "grouped_predict"]


REAL_LANES = 3


async def drive_real(
    kind: str, *, horizon: int, rounds: int, merge_rows: bool = False
) -> tuple[list[dict[str, object]], bool, list[list[int]]]:
    """Ask a real model about three counting lanes: its forwards, whether it fuses, and each reply's first action."""
    said: list[list[int]] = []
    with start_env_peer("--kind", "lanes") as env_peer, start_model_peer("--kind", kind) as model_peer:
        async with connect_env(env_peer.address) as env, opened(model_peer.address, merge_rows=merge_rows) as model:
            spec = SessionSpec.for_env(env, env_id="route", session_id="session")
            await model.resolve(spec, execution_horizon=horizon)
            for step in range(rounds):
                requests = [
                    PredictRequest(
                        *("session", "route", f"{lane}.{step}"),
                        [np.array([step, 7, 0], np.float32).tobytes()],
                        (EpisodeInfo(f"episode {lane}", 7),),
                        (step,),
                    )
                    for lane in range(REAL_LANES)
                ]
                if model.fuses_predicts():
                    replies = await model.predict_group(requests)
                else:
                    replies = [reply for request in requests for reply in await model.predict_group([request])]
                said.append([choices(reply)[0][0] for reply in replies])
            fuses = model.fuses_predicts()
        return model_peer.events("forward"), fuses, said


@pytest.mark.interop
@pytest.mark.parametrize("kind", ["batch", "chunkbatch"])
async def test_a_real_model_for_batches_makes_one_forward_for_all_lanes(kind: str, loopback_clock: MockClock) -> None:
    forwards, fuses, said = await drive_real(kind, horizon=1, rounds=6, merge_rows=True)
    assert fuses
    assert said == [[(step + 1) % 3] * REAL_LANES for step in range(6)]
    assert [forward.get("rows") for forward in forwards] == [REAL_LANES] * 6


@pytest.mark.interop
async def test_a_real_model_for_chunks_is_asked_lane_by_lane(loopback_clock: MockClock) -> None:
    forwards, fuses, said = await drive_real("chunk", horizon=1, rounds=4)
    assert not fuses
    assert said == [[(step + 1) % 3] * REAL_LANES for step in range(4)]
    assert len(forwards) == 4 * REAL_LANES


@pytest.mark.interop
@pytest.mark.parametrize("kind", ["chunk", "chunkbatch"])
async def test_a_real_model_makes_chunks_of_the_horizon(kind: str, loopback_clock: MockClock) -> None:
    forwards, fuses, said = await drive_real(kind, horizon=4, rounds=2)
    assert not fuses
    assert said == [[1] * REAL_LANES, [2] * REAL_LANES]
    assert [forward["horizon"] for forward in forwards] == [4] * (2 * REAL_LANES)
