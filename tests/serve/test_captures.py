"""What rlmesh 0.1.0's clients were seen to send, sent again: the same bytes get the answers they were sent for."""

import pytest
from gymnasium.vector import AutoresetMode

from rlmesh_trio.serve import serve_env
from rlmesh_trio.wire.pb.rlmesh.env import v1 as pb
from rlmesh_trio.wire.strict import decode
from tests.interop.wire import env_wire
from tests.serve.serving import toy, vector
from tests.serve.test_server import unary
from tests.wire.test_captures import load

ONE_ENV = [f"{kind}_request_client" for kind in ("configure", "reset", "step", "close")]
RUNS = {
    "one env": (toy, ONE_ENV),
    "options": (toy, ["reset_request_options_client", "step_request_client"]),
    "a lane": (lambda: [toy(0), toy(1)], ["reset_request_lane_client", "step_request_lane_client"]),
}


@pytest.mark.parametrize("run", RUNS)
async def test_captured_requests_are_answered(run: str) -> None:
    source, names = RUNS[run]
    async with serve_env(source()) as server, env_wire(server.address) as wire:
        for name in names:
            said, data = load(f"env_{name}")
            request = decode(pb.JoinRequest, data, what=name)
            reply = await wire.say(request.request_id, data)
            (arm,) = set(said["decoded"]) - {"request_id"}
            assert reply.is_set(arm), reply
            assert reply.endpoint_total_ns is not None
            if arm == "close":
                (episode,) = reply.close.final_episodes
                known = "01a22791-81a2-74f2-ad49-0042904d51ad", 5, 1
                assert (episode.episode_id, episode.seed, episode.step_count) == known


async def test_a_captured_step_of_a_vector_is_answered_once_it_was_reset() -> None:
    async with serve_env(vector(AutoresetMode.NEXT_STEP, 2)) as server, env_wire(server.address) as wire:
        await wire.say("", pb.JoinRequest(reset=pb.ResetRequest(seeds=[1])).SerializeToString())
        _, data = load("env_step_request_vector_client")
        reply = await wire.say("grpc-req-3", data)
        assert len(reply.step.rewards) == 2


async def test_the_captured_handshake_gets_what_its_own_server_answers() -> None:
    async with serve_env([toy(0), toy(1), toy(2)]) as server:
        ours = decode(
            pb.HandshakeResponse,
            await unary(server.address, "Handshake", load("env_handshake_request_client")[1]),
            what="answer",
        )
    theirs = decode(pb.HandshakeResponse, load("env_handshake_response_lanes")[1], what="answer")
    assert ours.env_contract.spec.action_space == theirs.env_contract.spec.action_space
    for said in ("compatible", "capabilities", "supported_workflow_editions", "preferred_workflow_edition"):
        assert getattr(ours.base, said) == getattr(theirs.base, said)
    for declared in ("num_envs", "autoreset_mode", "render_mode"):
        assert getattr(ours.env_contract, declared) == getattr(theirs.env_contract, declared)
