"""What the per-step encoders write, google protobuf reads as the record that was given."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlmesh_trio.errors import ProtocolError, SpaceError
from rlmesh_trio.messages import (
    EpisodeInfo,
    HistoryRow,
    Leaves,
    PredictRequest,
    ReleaseAdapterRequest,
    ResetAdapterRequest,
    ResetRequest,
    StepTarget,
)
from rlmesh_trio.wire.hot_env import encode_reset, encode_step
from rlmesh_trio.wire.hot_model import (
    encode_grouped_predict,
    encode_predict,
    encode_release_adapter,
    encode_reset_adapter,
)
from tests.wire.forms import messages
from tests.wire.oracle import google, plain_google
from tests.wire.test_captures import NAMES, load
from tests.wire.views import metadata_of_google

ENV_REQUEST = "rlmesh.env.v1.JoinRequest"
MODEL_REQUEST = "rlmesh.model.v1.JoinRequest"
HOT_ARMS = {
    ENV_REQUEST: ("reset", "step"),
    MODEL_REQUEST: ("predict", "grouped_predict", "reset_adapter", "release_adapter"),
}
REQUESTS = [
    name
    for name in NAMES
    if (said := load(name)[0])["message"] in HOT_ARMS and set(said["decoded"]) & set(HOT_ARMS[said["message"]])
]


def leaves_of(message: Any, field: str) -> Leaves | None:
    return list(getattr(message, field).leaves) if message.HasField(field) else None


def infos_of(message: Any) -> tuple[EpisodeInfo, ...]:
    return tuple(EpisodeInfo(info.episode_id, info.seed if info.HasField("seed") else None) for info in message)


def predict_of(message: Any) -> PredictRequest:
    context = message.context
    return PredictRequest(
        session_id=context.session_id,
        env_id=context.env_id,
        request_id=context.request_id,
        observation=leaves_of(message, "observation"),
        episode_info=infos_of(message.episode_info),
        history=[
            HistoryRow(leaves_of(row, "observation"), infos_of(row.episode_info), row.step) for row in message.history
        ],
        step=message.step if message.HasField("step") else None,
    )


def rewritten(message: Any) -> bytes:
    """The record *message* stands for, written by the hot codec."""
    arm = message.WhichOneof("kind")
    body = getattr(message, arm)
    if arm == "step":
        target = StepTarget(body.timeout_ms, tuple(body.env_indices), tuple(body.episode_ids))
        return encode_step(message.request_id, list(body.action.leaves), target)
    if arm == "reset":
        options = metadata_of_google(body.options) if body.HasField("options") else None
        lanes, ids = tuple(body.env_indices), tuple(body.episode_ids)
        return encode_reset(message.request_id, ResetRequest(tuple(body.seeds), options, body.timeout_ms, lanes, ids))
    if arm == "predict":
        return encode_predict(message.request_id, predict_of(body))
    if arm == "grouped_predict":
        return encode_grouped_predict(message.request_id, [predict_of(group) for group in body.groups])
    route = (body.context.session_id, body.context.env_id, body.context.request_id)
    if arm == "reset_adapter":
        return encode_reset_adapter(message.request_id, ResetAdapterRequest(*route, tuple(body.episode_ids)))
    return encode_release_adapter(message.request_id, ReleaseAdapterRequest(*route, body.reason))


def with_what_is_always_sent(message: Any) -> Any:
    """*message* with an action in a step and a context in a model request."""
    arm = message.WhichOneof("kind")
    if arm == "step":
        message.step.action.SetInParent()
    elif arm == "grouped_predict":
        for group in message.grouped_predict.groups:
            group.context.SetInParent()
    elif arm != "reset":
        getattr(message, arm).context.SetInParent()
    return message


@pytest.mark.parametrize("capture", REQUESTS)
def test_captured_requests_are_rewritten(capture: str) -> None:
    said, data = load(capture)
    message = google(said["message"]).FromString(data)
    assert google(said["message"]).FromString(rewritten(message)) == message


@pytest.mark.parametrize("name", HOT_ARMS)
@settings(max_examples=150)
@given(data=st.data())
def test_every_request_is_written(name: str, data: st.DataObject) -> None:
    message = data.draw(messages(name, arms=HOT_ARMS[name]).filter(lambda drawn: drawn.WhichOneof("kind")))
    with_what_is_always_sent(message)
    written = rewritten(message)
    assert plain_google(google(name).FromString(written)) == plain_google(message)
    assert len(written) == message.ByteSize()


def test_the_part_of_a_step_that_stays_is_written_once() -> None:
    target = StepTarget(300_000, (2, 300), ("a", ""))
    first = encode_step("r", [b"x"], target)
    assert target.encoded is not None
    target.episode_ids = ("other",)
    assert encode_step("r", [b"x"], target) == first


def test_leaves_may_be_views_of_any_item_size() -> None:
    wide = memoryview(bytes(5000)).cast("q")
    step = google(ENV_REQUEST).FromString(encode_step("r", [wide, b"", memoryview(b"xy")], StepTarget(0, (), ()))).step
    assert list(step.action.leaves) == [bytes(5000), b"", b"xy"]


def test_a_step_without_leaves_still_has_an_action() -> None:
    assert google(ENV_REQUEST).FromString(encode_step("r", [], StepTarget(0, (), ()))).step.HasField("action")


def test_options_keep_none_and_minus_zero() -> None:
    data = encode_reset("r", ResetRequest(options={"nothing": None, "zero": -0.0}))
    entries = google(ENV_REQUEST).FromString(data).reset.options.entries
    assert entries["nothing"].WhichOneof("kind") is None
    assert math.copysign(1, entries["zero"].number) == -1


def test_no_options_and_empty_options_differ() -> None:
    without = google(ENV_REQUEST).FromString(encode_reset("r", ResetRequest(options=None))).reset
    empty = google(ENV_REQUEST).FromString(encode_reset("r", ResetRequest(options={}))).reset
    assert not without.HasField("options")
    assert empty.HasField("options")


def predict(episode_info: tuple[EpisodeInfo, ...] = (), step: int | None = None) -> PredictRequest:
    return PredictRequest("s", "e", "r", None, episode_info, step=step)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda: encode_step("r", [], StepTarget(-1, (), ())), id="negative timeout"),
        pytest.param(lambda: encode_step("r", [], StepTarget(2**64, (), ())), id="timeout beyond 64 bits"),
        pytest.param(lambda: encode_step("r", [], StepTarget(0, (2**32,), ())), id="lane beyond 32 bits"),
        pytest.param(lambda: encode_step("r", [], StepTarget(0, (-1,), ())), id="negative lane"),
        pytest.param(lambda: encode_step("\ud800", [], StepTarget(0, (), ())), id="request id without UTF-8"),
        pytest.param(lambda: encode_reset("r", ResetRequest(seeds=(2**63,))), id="seed beyond int64"),
        pytest.param(lambda: encode_reset("r", ResetRequest(episode_ids=("\udfff",))), id="episode id without UTF-8"),
        pytest.param(lambda: encode_predict("r", predict(step=-(2**63) - 1)), id="step beyond int64"),
        pytest.param(
            lambda: encode_predict("r", predict(episode_info=(EpisodeInfo("a", 2**63),))),
            id="episode seed beyond int64",
        ),
    ],
)
def test_what_has_no_wire_form_is_refused(write: Any) -> None:
    with pytest.raises(ProtocolError, match=r"does not fit|has no UTF-8 form"):
        write()


def test_options_that_metadata_cannot_hold_are_refused_by_path() -> None:
    with pytest.raises(SpaceError, match=r"^\$\.a\[1\]: "):
        encode_reset("r", ResetRequest(options={"a": [1, object()]}))  # pyright: ignore[reportArgumentType]
