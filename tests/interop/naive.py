"""Episodes played from chunks with no server, no task and no queue: what a driven session has to come to."""

from typing import Any

import attrs
import gymnasium

from tests.interop.driving import Episode
from tests.interop.peers.policies import Decide

__all__ = ("Ask", "play_chunks")


@attrs.frozen
class Ask:
    """One predict: the step whose observation it is about, and the earlier ones that go with it as rows."""

    own: int
    rows: tuple[int, ...] = ()


def play_chunks(
    env: gymnasium.Env[Any, Any], decide: Decide, seed: int | None, *, frames: int, lead: int = 0, history: bool = False
) -> tuple[Episode, list[Ask]]:
    """The episode of a policy that answers with so many *frames*, and what it was asked.

    The next chunk is asked for when *lead* frames are left, and is played when none are. With *history* no observation
    is sent twice, and those that no predict was about go with the next one.
    """
    episode = Episode(seed=seed)
    asks: list[Ask] = []
    observation, _ = env.reset(seed=seed)
    episode.observations.append(observation)
    plan: list[Any] = []
    following: list[Any] = []
    sent_up_to, now = -1, 0

    def ask() -> list[Any]:
        nonlocal sent_up_to
        asks.append(Ask(now, tuple(range(sent_up_to + 1, now)) if history else ()))
        sent_up_to = now
        return [decide(observation, ahead) for ahead in range(frames)]

    while not (episode.terminated or episode.truncated):
        if not plan:
            plan, following = following or ask(), []
        action = plan.pop(0)
        if lead and not following and len(plan) <= lead and not (history and sent_up_to == now):
            following = ask()
        observation, reward, episode.terminated, episode.truncated, _ = env.step(action)
        now += 1
        episode.observations.append(observation)
        episode.actions.append(action)
        episode.rewards.append(float(reward))
    return episode, asks
