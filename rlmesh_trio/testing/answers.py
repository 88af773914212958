"""The usual wrong answers of an endpoint, each made of an honest one: for ``Wrong(...)`` in a fault plan."""

from collections.abc import Sequence

import attrs

from rlmesh_trio.messages import EnvReply, EpisodeRecord, Leaves, PredictReply

__all__ = (
    "another_request",
    "misshapen_actions",
    "misshapen_observation",
    "no_actions",
    "no_observation",
    "short_rewards",
    "stale_completion",
    "too_few_results",
)


def misshapen_observation(reply: EnvReply) -> EnvReply:
    """Every leaf of the observation lacks its last byte."""
    return attrs.evolve(reply, observation=_cut(reply.observation or ()))


def no_observation(reply: EnvReply) -> EnvReply:
    """The observation is missing."""
    return attrs.evolve(reply, observation=None)


def short_rewards(reply: EnvReply) -> EnvReply:
    """The last lane has no reward."""
    return attrs.evolve(reply, rewards=reply.rewards[:-1])


def stale_completion(reply: EnvReply) -> EnvReply:
    """An episode that no lane plays is reported as completed, ahead of those that are."""
    stale = EpisodeRecord("an episode long over", step_count=1, terminated=True)
    return attrs.evolve(reply, completed=(stale, *reply.completed))


def another_request(reply: PredictReply) -> PredictReply:
    """The answer names a request that was not made."""
    return attrs.evolve(reply, request_id="another request")


def no_actions(reply: PredictReply) -> PredictReply:
    """There is not one frame of actions."""
    return attrs.evolve(reply, actions=())


def misshapen_actions(reply: PredictReply) -> PredictReply:
    """Every leaf of every frame lacks its last byte."""
    return attrs.evolve(reply, actions=[_cut(frame) for frame in reply.actions])


def too_few_results(results: Sequence[PredictReply | Exception]) -> Sequence[PredictReply | Exception]:
    """The last request of a group is not answered."""
    return results[:-1]


def _cut(leaves: Leaves) -> Leaves:
    return [leaf[:-1] for leaf in leaves]
