"""Episodes and summaries are written by hand: what the schema's own code reads and would write."""

import math

from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.recording import Decision, Episode, Kept
from rlmesh_trio.recording.decision_codec import decode_decision, encode_decision
from rlmesh_trio.recording.message_codec import decode_episode, encode_episode
from rlmesh_trio.report import EpisodeSummary
from rlmesh_trio.wire.pb.rlmesh_trio.recording import v1 as pb

COUNTS = st.integers(0, 2**32 - 1)
SEEDS = st.none() | st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.floats(allow_nan=False)
INFOS = st.none() | st.dictionaries(st.text("ab", max_size=2), st.integers(0, 9), max_size=2)
SUMMARIES = st.builds(
    EpisodeSummary,
    COUNTS,
    COUNTS,
    SEEDS,
    st.none() | COUNTS,
    COUNTS,
    NUMBERS,
    st.booleans(),
    st.booleans(),
    COUNTS,
    st.none() | st.booleans(),
    st.none() | NUMBERS,
    st.none() | NUMBERS,
)
EPISODES = st.builds(
    Episode,
    ordinal=COUNTS,
    attempt=COUNTS,
    episode_id=st.text(max_size=5),
    seed=SEEDS,
    options=INFOS,
    lane=COUNTS,
    first_tick=COUNTS,
    last_tick=COUNTS,
    end=st.sampled_from(["terminated", "truncated", "capped", "interrupted", "error"]),
    error_code=st.text(max_size=5),
    steps=COUNTS,
    cumulative_reward=NUMBERS,
    root=st.binary(min_size=16, max_size=16),
    kept=st.lists(
        st.builds(Kept, tick=COUNTS, observation=st.none() | st.just((b"ab", b"")), infos=INFOS), max_size=2
    ).map(tuple),
)


@given(EPISODES)
def test_an_episode_is_read_as_it_was_written_and_as_the_schema_says(episode: Episode) -> None:
    data = encode_episode(episode)
    assert decode_episode(data) == episode
    told = pb.Episode().parse(data)
    assert (told.ordinal, told.seed, told.lane, told.steps) == (
        episode.ordinal,
        episode.seed,
        episode.lane,
        episode.steps,
    )
    assert (told.episode_id, told.error_code, told.root) == (episode.episode_id, episode.error_code, episode.root)
    assert told.cumulative_reward == episode.cumulative_reward


@given(SUMMARIES)
def test_a_summary_is_read_as_it_was_written(summary: EpisodeSummary) -> None:
    read = decode_decision(encode_decision(Decision(3, 4, summary)), 3).what
    assert isinstance(read, EpisodeSummary)
    assert read == summary
    assert math.copysign(1, read.cumulative_reward) == math.copysign(1, summary.cumulative_reward)
    assert (type(read.success), type(read.terminated)) == (type(summary.success), bool)
