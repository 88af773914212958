"""A remote env against servers that do everything but what they should, and a real one that does."""

from collections.abc import Generator

import numpy as np
import pytest
import trio
from trio.testing import MockClock

from rlmesh_trio.endpoints.remote_env import RemoteEnv, connect_env, describe_env
from rlmesh_trio.errors import ConnectError, EndpointError, HandshakeError, ProtocolError, SessionError
from rlmesh_trio.messages import EnvReply, ResetRequest, StepTarget
from rlmesh_trio.spec import Limits, SessionSpec
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import present
from tests.endpoints.fake_peers import CONTRACT, FakeEnv, pair, value
from tests.peers import Peer, start_env_peer
from tests.transport.fake_server import FakeStream, fake_server

ACTION = [np.int64(1).tobytes()]
TARGET = StepTarget(1000, (), ("one",))
QUICK = Limits(env_connect_timeout=0.5, service_close_timeout=0.3)


async def play(request: pb.JoinRequest, stream: FakeStream) -> pb.JoinResponse:
    """Answer resets and steps plausibly."""
    if request.is_set("reset"):
        return pb.JoinResponse(reset=pb.ResetResponse(observation=value(pair(0, 0))))
    if request.is_set("step"):
        return pb.JoinResponse(
            step=pb.StepResponse(
                observation=value(pair(0.5, 1)), rewards=[1.5], terminated_mask=b"\1", truncated_mask=b"\0"
            )
        )
    assert request.is_set("close")
    return pb.JoinResponse(close=present(pb.CloseEnvsResponse()))


async def refusal(fake: FakeEnv, *, edition: str | None = None) -> SessionError:
    """What connecting to *fake* raises."""
    async with fake_server(fake.serve) as address:
        with trio.fail_after(5), pytest.raises(SessionError) as caught:
            async with connect_env(address, edition=edition, limits=QUICK):
                pass
    return caught.value


async def test_what_a_session_says(loopback_clock: MockClock) -> None:
    fake = FakeEnv(answer=play, capabilities={"subset_step": "true", "other": "maybe"})
    async with fake_server(fake.serve) as address, connect_env(address, token="s3cret") as env:
        assert env.address == address
        assert env.contract.env_id == "Fake-v0"
        assert env.contract.encoded_spec == CONTRACT.encoded_spec
        assert env.edition == "2026.06"
        assert env.supported_editions == ("2026.06",)
        assert env.subset_step
        assert env.capabilities == {"subset_step": "true", "other": "maybe"}
        assert env.peer_info.component == "fake"
        assert env.peer_info.extra == {"a": "b"}
        assert env.ceiling is not None
        assert env.ceiling.max_message_size == 256 * 1024 * 1024
        spec = SessionSpec.for_env(env)
        assert (spec.subset_step, spec.env_ceiling) == (True, env.ceiling)
        reset = await env.reset(ResetRequest((7,), None, 1000, (), ("one",)))
        step = await env.step(ACTION, TARGET)
        await env.close()
    assert reset.observation == [pair(0, 0)]
    assert (step.observation, step.rewards, step.terminated_mask) == ([pair(0.5, 1)], (1.5,), b"\1")
    assert reset.request_bytes > 0
    assert step.request_bytes > 0
    kinds = ["configure", "reset", "step", "close"]
    assert [next(kind for kind in kinds if request.is_set(kind)) for request in fake.requests] == kinds
    assert len({request.request_id for request in fake.requests}) == 4
    assert fake.edition == "2026.06"
    assert fake.requests[-1].close.reason == "client close"
    assert fake.tokens == ["s3cret", "s3cret"]
    assert fake.heard is not None
    assert fake.heard.protocol_generation == "rlmesh-wire-v1"
    assert fake.heard.supported_workflow_editions == ["2026.06"]
    assert fake.heard.peer_info.component == "rlmesh-env"


async def test_only_the_text_true_is_a_capability(loopback_clock: MockClock) -> None:
    fake = FakeEnv(capabilities={"subset_step": "yes"})
    async with fake_server(fake.serve) as address, connect_env(address) as env:
        assert not env.subset_step


@pytest.mark.parametrize(
    ("fake", "said"),
    [
        (FakeEnv(compatible=False, refusal="rlmesh-wire-v2 only"), "'rlmesh-wire-v1': rlmesh-wire-v2 only"),
        (FakeEnv(compatible=False), "it gave no reason"),
        (
            FakeEnv(editions=["2027.01"], preferred=""),
            "offers [2027.01] and wants its highest; this side offers [2026.06]",
        ),
        (FakeEnv(editions=["2026.06"], preferred="2025.01"), "and wants 2025.01; this side offers"),
        (FakeEnv(editions=[]), "offers []"),
        (FakeEnv(contract=None), "declares no env contract"),
        (FakeEnv(contract=b"\xff"), "is not an rlmesh env server of this generation"),
        (FakeEnv(contract=b"\x0a\x08\x12\x06\x10\x09\x5a\x02\x08\x00\x10\x01"), "invalid spaces spec from env: $"),
        (
            FakeEnv(configured=pb.JoinResponse(error=pb.EnvError(pb.EnvErrorCode(2), "no such edition"))),
            "refused the workflow edition 2026.06: no such edition",
        ),
        (FakeEnv(configured=pb.JoinResponse(reset=present(pb.ResetResponse()))), "answered configure with reset"),
    ],
    ids=lambda given: "" if isinstance(given, FakeEnv) else given[:25],
)
async def test_servers_that_cannot_be_driven(fake: FakeEnv, said: str, loopback_clock: MockClock) -> None:
    error = await refusal(fake)
    assert isinstance(error, HandshakeError)
    assert said in str(error)


async def test_an_edition_nobody_has(loopback_clock: MockClock) -> None:
    error = await refusal(FakeEnv(), edition="2025.12")
    assert isinstance(error, HandshakeError)
    assert "offers [2026.06] and wants 2026.06; this side offers [2026.06] and wants 2025.12" in str(error)


async def test_an_edition_by_its_cohort_name(loopback_clock: MockClock) -> None:
    fake = FakeEnv()
    async with fake_server(fake.serve) as address, connect_env(address, edition="2026.06-mine") as env:
        assert env.edition == "2026.06"
    assert fake.edition == "2026.06"


async def test_a_model_server_is_not_an_env(loopback_clock: MockClock) -> None:
    async def serve(stream: FakeStream) -> None:
        await stream.refuse(12, reset=True)

    async with fake_server(serve) as address:
        with pytest.raises(
            HandshakeError, match=r"does not offer rlmesh.env.v1.EnvService: is a model server's address given"
        ):
            async with connect_env(address):
                pass


async def test_a_server_that_does_not_configure(loopback_clock: MockClock) -> None:
    error = await refusal(FakeEnv(configured=None))
    assert isinstance(error, ConnectError)
    assert "sent no answer to configure within 500ms" in str(error)


@pytest.mark.parametrize("asked", ["reset", "step", "close"])
async def test_an_answer_to_another_question(asked: str, loopback_clock: MockClock) -> None:
    async def answer(request: pb.JoinRequest, stream: FakeStream) -> pb.JoinResponse:
        if asked == "reset":
            return pb.JoinResponse(step=present(pb.StepResponse()))
        return pb.JoinResponse(reset=present(pb.ResetResponse()))

    fake = FakeEnv(answer=answer)
    async with fake_server(fake.serve) as address, connect_env(address, limits=QUICK) as env:
        with pytest.raises(ProtocolError, match=f"the env server answered a {asked} with"):
            await do(env, asked)


async def do(env: RemoteEnv, what: str) -> EnvReply | None:
    match what:
        case "reset":
            return await env.reset(ResetRequest())
        case "step":
            return await env.step(ACTION, TARGET)
        case _:
            return await env.close()


async def test_an_error_keeps_its_code_and_flag(loopback_clock: MockClock) -> None:
    async def answer(request: pb.JoinRequest, stream: FakeStream) -> pb.JoinResponse:
        error = pb.EnvError(pb.EnvErrorCode(2), "not an action", is_recoverable=True)
        return pb.JoinResponse(error=error)

    fake = FakeEnv(answer=answer)
    async with fake_server(fake.serve) as address, connect_env(address) as env:
        with pytest.raises(EndpointError, match="not an action") as caught:
            await env.step(ACTION, TARGET)
    assert (caught.value.code, caught.value.recoverable) == ("INVALID_ACTION", True)


async def test_a_close_that_is_not_answered_takes_its_limit(loopback_clock: MockClock) -> None:
    fake = FakeEnv()
    with trio.fail_after(5):
        async with fake_server(fake.serve) as address, connect_env(address, limits=QUICK) as env:
            with pytest.raises(EndpointError, match="did not close within 300ms") as caught:
                await env.close()
            await env.close()
    assert caught.value.code == "TIMEOUT"
    assert len(fake.requests) == 2


async def test_leaving_a_step_unanswered_does_not_wait_for_it(loopback_clock: MockClock) -> None:
    fake = FakeEnv()
    async with fake_server(fake.serve) as address:
        with trio.fail_after(5):
            async with connect_env(address, limits=Limits(service_close_timeout=60)) as env:
                with trio.move_on_after(0.05):
                    await env.step(ACTION, TARGET)


@pytest.fixture(scope="module")
def counter() -> Generator[Peer]:
    """A real env: lanes of three, four and five steps that observe the step count, the seed and the last action."""
    with start_env_peer("--kind", "lanes", "--length", "3", "--length-stagger", "1") as peer:
        yield peer


async def test_a_real_server(counter: Peer, loopback_clock: MockClock) -> None:
    async with connect_env(counter.address) as env:
        assert env.subset_step
        assert env.contract.num_envs == 3
        assert env.peer_info.package_version == "0.1.0"

        async def play(lane: int) -> None:
            target = StepTarget(1000, (lane,), (f"episode {lane}",))
            reply = await env.reset(ResetRequest((lane,), None, 1000, (lane,), target.episode_ids))
            for step in range(1, 4 + lane):
                assert not reply.completed
                reply = await env.step(ACTION, target)
                assert list(np.frombuffer(leaf_of(reply), np.float32)) == [step, lane, 1]
                assert list(reply.env_indices) == [lane]
            (episode,) = reply.completed
            assert (episode.episode_id, episode.seed, episode.step_count) == (f"episode {lane}", lane, 3 + lane)

        async with trio.open_nursery() as nursery:
            for lane in range(3):
                nursery.start_soon(play, lane)


def leaf_of(reply: EnvReply) -> bytes | memoryview:
    assert reply.observation is not None
    (leaf,) = reply.observation
    return leaf


async def test_a_real_server_takes_one_client_and_then_the_next(counter: Peer, loopback_clock: MockClock) -> None:
    async with connect_env(counter.address):
        with pytest.raises(HandshakeError, match="only one client may be connected at a time"):
            async with connect_env(counter.address):
                pass
    for _ in range(3):
        async with connect_env(counter.address) as env:
            await env.reset(ResetRequest((), None, 1000, (0,), ("again",)))


async def test_a_real_server_that_was_closed_ends_the_session(counter: Peer, loopback_clock: MockClock) -> None:
    async with connect_env(counter.address) as env:
        await env.close()
        with pytest.raises(EndpointError, match="the env server ended the stream") as caught:
            await env.reset(ResetRequest())
    assert caught.value.code == "CONNECTION"


async def test_a_real_server_that_is_killed(loopback_clock: MockClock) -> None:
    with start_env_peer("--sleep", "5") as peer:
        async with connect_env(peer.address) as env:
            await env.reset(ResetRequest(episode_ids=("one",)))
            async with trio.open_nursery() as nursery:

                async def step() -> None:
                    with trio.fail_after(4), pytest.raises(EndpointError, match="transport error: connection closed"):
                        await env.step(ACTION, TARGET)

                nursery.start_soon(step)
                await trio.sleep(0.05)
                await trio.to_thread.run_sync(peer.kill)


async def test_a_step_given_up_disturbs_no_other(loopback_clock: MockClock) -> None:
    with start_env_peer("--sleep", "0.3") as peer:
        async with connect_env(peer.address) as env:
            await env.reset(ResetRequest((5,), episode_ids=("one",)))
            with trio.move_on_after(0.1) as scope:
                await env.step(ACTION, TARGET)
            assert scope.cancelled_caught
            reply = await env.step([np.int64(2).tobytes()], TARGET)
            assert list(np.frombuffer(leaf_of(reply), np.float32)) == [2, 5, 2]


@pytest.mark.interop
async def test_a_server_at_work_with_another_client_can_be_described(loopback_clock: MockClock) -> None:
    with start_env_peer("--kind", "lanes") as peer:
        async with connect_env(peer.address) as env:
            described = await describe_env(peer.address)
            assert described.contract.encoded_spec == env.contract.encoded_spec
            assert (described.edition, described.subset_step) == (env.edition, True)
            assert (await env.reset(ResetRequest(env_indices=(0,), episode_ids=("a",)))).observation is not None
