"""The check ``render.frame``: each planted fault fails it, and what is merely odd passes."""

from collections.abc import Callable

import pytest

from rlmesh_trio.conformance.registry import CHECKS
from rlmesh_trio.conformance.targets import WireTarget
from rlmesh_trio.conformance.verdicts import Evidence
from rlmesh_trio.serve import serve_env
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from tests.conformance.broken_server import scripted_server
from tests.conformance.complaints import complaints, lab_of
from tests.conformance.labs import lab_on
from tests.conformance.planted import render as planted
from tests.conformance.wire_labs import search_at

FRAME = CHECKS["render.frame"]
FAMILIES = ("contract", "space", "value", "render")


async def frames_of(env: type[planted.Pictured], *, lanes: int = 1) -> dict[str, Evidence]:
    async with serve_env(env, lanes=lanes) as server:
        return await complaints(WireTarget(server.address), families=FAMILIES)


@pytest.mark.parametrize(
    ("env", "relation", "lines"),
    [
        (planted.Unpictured, "no frame", ("render after a step: no frame",)),
        (planted.DrawsFloats, "no frame", ("render after the reset: no frame",)),
        (
            planted.CannotDraw,
            "no frame",
            ("render after the reset: INTERNAL: render failed: RuntimeError: no pencil",),
        ),
        (
            planted.Grows,
            "the size of frames changes",
            ("render after the reset: a PNG of 6x4", "render after a step: a PNG of 6x5"),
        ),
    ],
)
async def test_a_fault_fails_the_check_alone(
    env: type[planted.Pictured], relation: str, lines: tuple[str, ...]
) -> None:
    findings = await frames_of(env)
    assert {id: (evidence.signature, evidence.lines) for id, evidence in findings.items()} == {
        "render.frame": (relation, lines)
    }
    assert findings["render.frame"].blame == "env"


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("env", [planted.Pictured, planted.Unasked, planted.ForPeople, planted.Gray])
async def test_what_is_odd_is_no_fault(env: type[planted.Pictured], lanes: int) -> None:
    assert await frames_of(env, lanes=lanes) == {}


@pytest.mark.parametrize(
    ("frame", "change", "relation"),
    [
        (planted.JPEG, planted.rgb, "no PNG"),
        (planted.EMPTY, planted.rgb, "no PNG"),
        (b"\x89", planted.rgb, "no PNG"),
        (planted.PNG, None, "a frame without a render mode"),
    ],
)
async def test_a_server_that_sends_something_else(
    frame: bytes, change: Callable[[core.EnvContract], None] | None, relation: str
) -> None:
    async with scripted_server(planted.Painter(frame=frame, change=change)) as address:
        findings = await complaints(WireTarget(address), families=FAMILIES)
    assert {id: evidence.signature for id, evidence in findings.items()} == {"render.frame": relation}
    assert findings["render.frame"].blame == "server"


async def test_a_server_that_sends_a_picture() -> None:
    async with scripted_server(planted.Painter(frame=planted.PNG, change=planted.rgb)) as address:
        assert await complaints(WireTarget(address), families=FAMILIES) == {}


async def test_a_picture_that_grows_is_found_by_a_reset_a_step_and_two_renders() -> None:
    async with serve_env(planted.Grows) as server, lab_of(WireTarget(server.address)) as lab:
        broken = await search_at(lab, "render.frame", examples=30)
    assert broken is not None
    assert sorted(broken.case) == ["render", "render", "reset", "step"]


async def test_an_env_of_this_process_has_nobody_to_make_pictures() -> None:
    async with lab_on(planted.Pictured) as lab:
        skip = FRAME.applies(lab.facts)
    assert skip == "needs a server: it is the server that makes pictures of frames"
