"""Minari loads what was exported, and its values are those of the recording."""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from rlmesh_trio.export import ExportError, export_minari
from rlmesh_trio.export.infos import info_columns
from rlmesh_trio.recording import Header, open_recording
from rlmesh_trio.spaces import contract_from_gymnasium
from tests.export.foreign import minari
from tests.export.recordings import begun, member, members, of_each_end, restarted, seen, stepped, steps_of
from tests.recording.plays import BOX, contract_of, episodes, recorded, space_of


def loaded(out: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(out.parent))
    return minari.load_dataset(out.name)


def flat(value: Any) -> list[Any]:
    """The leaves of a nested value."""
    if isinstance(value, Mapping):
        named = cast("Mapping[str, Any]", value)
        return [leaf for key in sorted(named) for leaf in flat(named[key])]
    if isinstance(value, tuple):
        return [leaf for part in cast("tuple[Any, ...]", value) for leaf in flat(part)]
    return [value]


def test_the_values_are_the_recorded_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = seen(tmp_path / "a.mcap"), tmp_path / "toy-random-v0"
    exported = export_minari(path, out)
    assert (exported.episodes, exported.steps) == (3, 12)
    dataset = loaded(out, monkeypatch)
    assert (dataset.total_episodes, dataset.total_steps, dataset.spec.dataset_id) == (3, 12, "toy-random-v0")
    with open_recording(path) as recording:
        contract = recording.header.contract
        assert dataset.observation_space == space_of(contract).space
        assert dataset.action_space == spaces.Discrete(3)
        sampled = {episode.id: episode for episode in dataset.sample_episodes(3)}
        told = list(dataset.storage.get_episode_metadata(range(3)))
        for ordinal in recording.entries:
            episode = sampled[ordinal - 1]
            first, steps = steps_of(recording, ordinal)
            for row, expected in enumerate(members(recording, [first, *steps])):
                for column, value in zip(flat(episode.observations), flat(expected), strict=True):
                    np.testing.assert_array_equal(column[row], value)
            assert contract.action_space is not None
            assert episode.actions.tolist() == [member(contract.action_space, row.action) for row in steps]
            assert episode.rewards.tolist() == [row.reward for row in steps]
            assert episode.terminations.tolist() == [False] * 4
            assert episode.truncations.tolist() == [False, False, False, True]
            assert (told[ordinal - 1]["seed"], told[ordinal - 1]["ordinal"]) == (ordinal + 40, ordinal)


def test_how_each_episode_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "ends-v3"
    exported = export_minari(of_each_end(tmp_path / "a.mcap"), out, everything=True)
    assert (exported.episodes, exported.steps) == (5, 6)
    assert exported.remarks == (
        "left out: episode 5 without a step",
        "told as truncated: 2 episodes (4, 6) that an interruption or an error cut off",
    )
    dataset = loaded(out, monkeypatch)
    ends = [episode["end"] for episode in dataset.storage.get_episode_metadata(range(5))]
    assert ends == ["terminated", "truncated", "capped", "error", "interrupted"]
    assert [episode.terminations[-1] for episode in dataset] == [True, False, False, False, False]
    assert [episode.truncations[-1] for episode in dataset] == [False, True, True, True, True]
    assert dataset[3].observations.tolist() == [[4, 0], [4, 1], [4, 2]]
    assert dataset[3].actions.tolist() == [1, 2]


def test_a_last_observation_nobody_told_is_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "restarted-v0"
    exported = export_minari(restarted(tmp_path / "a.mcap"), out)
    assert exported.remarks == ("episodes whose last observation is not known, the one before in its place: 1",)
    dataset = loaded(out, monkeypatch)
    assert dataset[0].observations.tolist() == [[1, 0], [1, 1], [1, 1]]
    assert dataset[1].observations.tolist() == [[2, 0], [2, 1]]
    told = list(dataset.storage.get_episode_metadata(range(2)))
    assert [bool(episode["final_observation_known"]) for episode in told] == [False, True]
    assert [episode.get("seed") for episode in told] == [41, None]


def test_a_recording_without_steps_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "a.mcap", [begun(1), begun(2)], Header(contract=contract_of(1)), "full")
    with pytest.raises(ExportError, match="no episode to export; left out: 2 episodes \\(1, 2\\) without a step"):
        export_minari(tmp_path / "a.mcap", tmp_path / "a-v0")
    assert not (tmp_path / "a-v0").exists()


def test_an_env_of_ones_own_has_no_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unspeakable(_: object) -> str:
        raise ValueError("callables have no JSON")

    spec = EnvSpec("Toy-v0", entry_point="toy:Toy")
    monkeypatch.setitem(gymnasium.registry, "Toy-v0", spec)
    monkeypatch.setattr(EnvSpec, "to_json", unspeakable)
    export_minari(seen(tmp_path / "a.mcap"), tmp_path / "own-v0")
    assert loaded(tmp_path / "own-v0", monkeypatch).env_spec is None


def test_a_registered_env_has_its_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: Any = {"metadata": {}, "num_envs": 1, "autoreset_mode": 3, "render_mode": ""}
    contract = contract_from_gymnasium(BOX, spaces.Discrete(3), env_id="CartPole-v1", **kinds)
    recorded(tmp_path / "a.mcap", [begun(1), stepped(1, 1)], Header(contract=contract), "full")
    export_minari(tmp_path / "a.mcap", tmp_path / "pole-v0")
    assert loaded(tmp_path / "pole-v0", monkeypatch).env_spec == gymnasium.spec("CartPole-v1")


def test_images_are_kept_without_loss(tmp_path: Path) -> None:
    export_minari(seen(tmp_path / "a.mcap", count=1), tmp_path / "seen-v0")
    with open_recording(tmp_path / "a.mcap") as recording:
        first, _ = steps_of(recording, 1)
        expected = member(space_of(recording.header.contract), first.observation)["camera"]
    episode = minari.MinariDataset(tmp_path / "seen-v0" / "data")[0]
    np.testing.assert_array_equal(episode.observations["camera"][0], expected)


def test_infos_that_are_plain_are_there(tmp_path: Path) -> None:
    exported = export_minari(seen(tmp_path / "a.mcap", count=1), tmp_path / "seen-v0")
    assert exported.remarks == ()
    infos = minari.MinariDataset(tmp_path / "seen-v0" / "data")[0].infos
    np.testing.assert_array_equal(infos["step"], [np.nan, 1, np.nan, 3, np.nan])
    np.testing.assert_array_equal(infos["a"][:, 0], [1, np.nan, np.nan, np.nan, np.nan])


def test_only_plain_infos_become_columns() -> None:
    rows: list[Any] = [
        {
            "count": 1,
            "ok": True,
            "name": "x",
            "in": {"deep": 1.5, "raw": b"x"},
            "mixed": 1,
            "ragged": [1],
            "a/b": 1,
            "": 1,
        },
        {
            "count": 2,
            "ok": False,
            "name": None,
            "in": {},
            "mixed": "one",
            "ragged": [1, 2],
            "none": None,
            "nul": "a\0b",
        },
    ]
    columns, left_out = info_columns(rows)
    assert columns["count"].tolist() == [1, 2]
    assert columns["ok"].dtype == np.bool_
    assert columns["name"] == ["x", ""]
    np.testing.assert_array_equal(columns["in"]["deep"], [1.5, np.nan])
    assert columns.keys() == {"count", "ok", "name", "in"}
    assert left_out == ["", "a/b", "in.raw", "mixed", "none", "nul", "ragged"]


@pytest.mark.parametrize("level", ["digest", "ring=2"])
def test_a_recording_without_observations_is_refused(level: str, tmp_path: Path) -> None:
    path = seen(tmp_path / "a.mcap", level)
    with pytest.raises(ExportError, match=r"its level is \w+, and a Minari data set needs .*--record-level full"):
        export_minari(path, tmp_path / "a-v0")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("name", "proposed"), [("toy", "toy-v0"), ("a b", "a-b-v0"), ("toy-v", "toy-v-v0")])
def test_a_folder_is_named_as_the_data_set(name: str, proposed: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=f"named as its id, as in {proposed}$"):
        export_minari(seen(tmp_path / "a.mcap"), tmp_path / name)


@pytest.mark.parametrize("key", ["a/b", "", ".", "a\0b"])
def test_a_key_that_has_no_place_is_refused(key: str, tmp_path: Path) -> None:
    inner = cast("spaces.Space[Any]", spaces.Dict({key: BOX}))
    space = spaces.Dict({"in": inner})
    recorded(tmp_path / "a.mcap", episodes(1, 1, 1, observation=space), Header(contract=contract_of(1, space)), "full")
    with pytest.raises(ExportError, match=re.escape(f"no place for a key like {key!r};")):
        export_minari(tmp_path / "a.mcap", tmp_path / "a-v0")


def test_nothing_is_said_by_warnings(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        export_minari(seen(tmp_path / "a.mcap"), tmp_path / "a-v0")
