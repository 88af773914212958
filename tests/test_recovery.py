from typing import Any

import pytest

from rlmesh_trio.errors import InvalidSpec
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.testing.scripted import one


@pytest.mark.parametrize(
    ("text", "recovery"),
    [
        ("fail", Recovery()),
        ("retry", Recovery("retry", 3)),
        ("retry:1", Recovery("retry", 1)),
        ("retry:25", Recovery("retry", 25)),
        ("quarantine", Recovery("quarantine", 3)),
    ],
)
def test_a_policy_has_a_text(text: str, recovery: Recovery) -> None:
    assert Recovery.parse(text) == recovery
    assert Recovery.parse(str(recovery)) == recovery


@pytest.mark.parametrize(
    "text", ["", "Retry", "retry:", "retry:0", "retry:-1", "retry:x", "retry:1:2", "fail:2", "quarantine:2", "retry:²"]
)
def test_another_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        Recovery.parse(text)
    assert str(caught.value) == (
        f"invalid runtime session spec: a recovery is fail, retry, retry:N (N from 1 on) or quarantine, not {text!r}"
    )


@pytest.mark.parametrize("fields", [("again",), ("retry", 0), ("retry", True), ("retry", 1.5)])
def test_a_policy_that_makes_no_sense_is_refused(fields: Any) -> None:
    with pytest.raises(InvalidSpec):
        Recovery(*fields)


@pytest.mark.parametrize("field", ["on_env_error", "on_timeout"])
def test_a_spec_takes_nothing_but_a_policy(field: str) -> None:
    wrong: Any = "retry"
    with pytest.raises(InvalidSpec, match=f"{field} must be a Recovery"):
        one(**{field: wrong}).validate()
