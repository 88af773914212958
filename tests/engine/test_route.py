"""The route's books, asked without any task around them."""

import itertools
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmesh_trio.engine.final_infos import lane_final_info, read_success
from rlmesh_trio.engine.route import LaneSlot, RecordBook, Route, episode_info
from rlmesh_trio.engine.seeds import episode_seed
from rlmesh_trio.messages import EpisodeInfo, EpisodeRecord, Metadata
from rlmesh_trio.spec import ENV_RESET_OPTIONS_KEY, AutoresetMode, SessionSpec
from rlmesh_trio.testing.scripted import contract, lane_spec, one, vector_spec
from tests.engine.peer import peer

KEYS = ("is_success", "success", "task_success")


@attrs.define
class Clock:
    now_ns: int = 1_000

    def __call__(self) -> int:
        return self.now_ns


def books(spec: SessionSpec, clock: Clock | None = None) -> Route:
    numbers = itertools.count(1)
    return Route(spec, new_id=lambda: f"id-{next(numbers)}", unix_ns=clock or Clock())


def started(route: Route, *starts: tuple[str, int | None], seeds: tuple[int | None, ...] = ()) -> list[LaneSlot]:
    lanes = [LaneSlot(index) for index in range(len(starts))]
    for lane, (episode_id, slot) in zip(lanes, starts, strict=True):
        route.start(lane, episode_id, slot, seeds[lane.env_index] if seeds else None, None)
    return lanes


@peer(76)
def test_two_lanes_started() -> None:
    lanes = started(books(vector_spec(2, 2)), ("a", 0), ("b", 1))
    assert [(lane.episode_id, lane.record_id) for lane in lanes] == [("a", "ep-000001"), ("b", "ep-000002")]
    assert [lane.episode_index for lane in lanes] == [1, 2]


@peer(77)
def test_request_ids() -> None:
    route = books(one(env_id="test-env"))
    assert [route.request_id(phase) for phase in ("reset", "step")] == ["test-env:reset:000001", "test-env:step:000002"]


@peer(78)
def test_a_predict_names_each_lane_s_episode_and_seed() -> None:
    lanes = started(books(vector_spec(2, 2)), ("a", 0), ("b", 1), seeds=(7, None))
    assert episode_info(lanes) == (EpisodeInfo("a", 7), EpisodeInfo("b", None))


@peer(79)
def test_a_seed_is_known_until_the_lane_moves_on() -> None:
    route = books(vector_spec(1, 2))
    [lane] = started(route, ("a", 0), seeds=(7,))
    route.complete(lane, EpisodeRecord("a"))
    assert episode_info([lane]) == (EpisodeInfo("a", 7),)
    route.start(lane, "b", 1, None, None)
    assert episode_info([lane]) == (EpisodeInfo("b", None),)


@peer(80)
def test_trial_claims() -> None:
    route = books(one(None, trial_index_base=100))
    assert [route.trials_of(route.claim(count)) for count in (2, 1, 2)] == [(100, 101), (102,), (103, 104)]


def test_a_trial_ordinal_saturates() -> None:
    route = books(one(None, trial_index_base=2**64 - 2))
    assert route.trials_of((0, 1, 2, 3)) == (2**64 - 2, 2**64 - 1, 2**64 - 1, 2**64 - 1)


def test_records_without_slots() -> None:
    records = RecordBook()
    assert [records.register(id_) for id_ in "ab"] == [("ep-000001", 1, True), ("ep-000002", 2, True)]
    assert [records.register(id_) for id_ in "ac"] == [("ep-000001", 1, False), ("ep-000003", 3, True)]


def test_a_record_is_named_by_its_slot_and_every_new_id_counts() -> None:
    records = RecordBook()
    assert records.register("a", 41) == ("ep-000042", 42, True)
    assert records.register("a", 9) == ("ep-000042", 42, False)
    assert records.register("b") == ("ep-000002", 2, True)
    assert records.register("") == ("", 0, False)
    assert records.register("c") == ("ep-000003", 3, True)


class TestClaims:
    def test_a_bounded_claim_is_all_or_nothing(self) -> None:
        route = books(one(3))
        assert route.claim(2) == (0, 1)
        assert route.claim(2) == ()
        assert route.claim(1) == (2,)
        assert route.claim(1) == ()

    def test_an_up_to_claim_takes_what_is_left(self) -> None:
        route = books(one(3))
        assert route.claim_up_to(2) == (0, 1)
        assert route.claim_up_to(2) == (2,)
        assert route.claim_up_to(2) == ()

    def test_without_a_budget_both_always_succeed(self) -> None:
        route = books(one(None))
        assert route.claim(2) + route.claim_up_to(3) + route.claim(1) == (0, 1, 2, 3, 4, 5)

    @given(
        budget=st.none() | st.integers(1, 30),
        claims=st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=15),
    )
    def test_slots_are_consecutive_and_within_the_budget(
        self, budget: int | None, claims: list[tuple[bool, int]]
    ) -> None:
        route = books(one(budget))
        taken: list[int] = []
        for bounded, count in claims:
            left = None if budget is None else budget - len(taken)
            got = route.claim(count) if bounded else route.claim_up_to(count)
            if left is None or count <= left:
                assert len(got) == count
            else:
                assert len(got) == (0 if bounded else left)
            taken.extend(got)
        assert taken == list(range(len(taken)))


class TestResetPlans:
    def plan(self, route: Route, width: int = 1, generation: int = 0, *, lane: int | None = None) -> Any:
        lanes = [LaneSlot(index) for index in range(width)] if lane is None else [LaneSlot(lane)]
        return route.plan_reset(lanes, generation, single_lane_group=lane is not None)

    def test_no_slot_no_plan_and_nothing_is_consumed(self) -> None:
        route = books(one(1))
        assert self.plan(route).slots == (0,)
        assert self.plan(route, generation=1) is None
        assert route.new_id() == "id-2"
        assert route.trials_of((None,)) == (1,)

    def test_ids_are_minted_for_all_lanes_and_those_without_a_slot_are_surplus(self) -> None:
        plan = self.plan(books(vector_spec(3, 2)), 3)
        assert plan.slots == (0, 1, None)
        assert plan.episode_ids == ("id-1", "id-2", "id-3")
        assert plan.trials == ()

    def test_explicit_seeds_go_by_slot(self) -> None:
        route = books(lane_spec(2, 9, [10, 11, 12]))
        assert [self.plan(route, lane=lane).seeds for lane in (1, 0, 1)] == [(10,), (11,), (12,)]
        beyond = self.plan(route, lane=0)
        assert (beyond.seeds, beyond.partly_covered) == ((), False)

    def test_explicit_seeds_win_over_a_base_seed_even_where_they_end(self) -> None:
        route = books(one(2, episode_seeds=(5,), base_seed=1))
        assert [self.plan(route, generation=n).seeds for n in (0, 1)] == [(5,), ()]

    def test_a_batch_that_the_list_covers_in_part_is_unseeded(self) -> None:
        route = books(attrs.evolve(vector_spec(3, 9), episode_seeds=(5, 6)))
        plan = self.plan(route, 3)
        assert (plan.seeds, plan.partly_covered) == ((), True)

    def test_a_lane_s_derived_seed_depends_on_the_slot_alone(self) -> None:
        route = books(lane_spec(4, 9, base_seed=1234))
        assert [self.plan(route, generation=lane, lane=lane).seeds for lane in (3, 1, 2)] == [
            (episode_seed(1234, "session-vec", slot, 0),) for slot in (0, 1, 2)
        ]

    def test_a_vector_s_derived_seeds_depend_on_generation_and_lane(self) -> None:
        route = books(vector_spec(3, None, base_seed=1234))
        assert self.plan(route, 3, generation=7).seeds == tuple(
            episode_seed(1234, "session-vec", 7, lane) for lane in range(3)
        )

    def test_several_trials_are_sent_as_a_list_in_lane_order(self) -> None:
        declared = contract(AutoresetMode.DISABLED, 3, metadata={ENV_RESET_OPTIONS_KEY: "trial_index"})
        plan = self.plan(books(vector_spec(3, None, env_contract=declared, trial_index_base=7)), 3)
        assert plan.options == {"trial_index": [7, 8, 9]}


class TestAccounting:
    def test_a_group_step_counts_once_for_the_route_and_once_for_every_lane(self) -> None:
        route = books(vector_spec(3, 3))
        lanes = started(route, ("a", 0), ("b", 1), ("c", 2))
        route.account_step(lanes, [1.0, 2.5], 300, 40)
        route.account_step(lanes, [1.0, 2.5, 4.0], 0, 60)
        assert route.total_steps == 2
        assert [(lane.step, lane.reset, lane.cumulative_reward) for lane in lanes] == [
            (2, False, 2.0),
            (2, False, 5.0),
            (2, False, 4.0),
        ]
        assert [(lane.predict_ns, lane.step_ns) for lane in lanes] == [(300, 100)] * 3

    def test_a_start_forgets_the_old_episode_whole(self) -> None:
        clock = Clock()
        route = books(one(None, trial_index_base=3), clock)
        lane = LaneSlot(4)
        route.start(lane, "a", 0, 11, 3)
        route.account_step([lane], [1.0], 5, 6)
        lane.predicted = lane.ended = lane.completed = True
        lane.pending_id = "b"
        clock.now_ns = 2_000
        route.start(lane, "b", None, None, None)
        fresh = LaneSlot(4, episode_id="b", record_id="ep-000002", episode_index=2, started_at_ns=2_000)
        assert attrs.asdict(lane) == attrs.asdict(fresh)
        assert lane.surplus
        assert route.records.register("a") == ("ep-000003", 3, True)

    def test_means_are_per_step_and_absent_before_the_first(self) -> None:
        lane = LaneSlot(0)
        assert lane.mean_ms(5_000_000) is None
        lane.step = 4
        assert lane.mean_ms(5_000_000) == 1.25

    def test_a_summary(self) -> None:
        route = books(one(5))
        lane = LaneSlot(2)
        route.start(lane, "a", 4, 11, 3)
        route.account_step([lane], [1.0], 2_000_000, 4_000_000)
        summary = route.complete(
            lane,
            EpisodeRecord(
                "a",
                step_count=7,
                cumulative_reward=2.5,
                truncated=True,
                start_timestamp_ns=1_000_000,
                end_timestamp_ns=4_999_999,
                final_info={"task_success": 1},
            ),
        )
        assert route.summaries == [summary]
        assert attrs.asdict(summary) == {
            "episode_index": 5,
            "env_index": 2,
            "seed": 11,
            "trial_index": 3,
            "step_count": 7,
            "cumulative_reward": 2.5,
            "terminated": False,
            "truncated": True,
            "duration_ms": 3,
            "success": True,
            "predict_ms": 2.0,
            "step_ms": 4.0,
        }

    def test_a_duration_is_never_negative(self) -> None:
        route = books(one())
        [lane] = started(route, ("a", 0))
        assert route.complete(lane, EpisodeRecord("a", start_timestamp_ns=5_000_000)).duration_ms == 0

    def test_without_a_budget_no_summary_is_kept(self) -> None:
        route = books(one(None))
        [lane] = started(route, ("a", 0))
        route.complete(lane, EpisodeRecord("a"))
        assert route.total_episodes == 1
        assert route.summaries == []
        assert not route.budget_spent


class TestEndedLanes:
    def test_a_reported_completion_counts_under_the_id_the_lane_holds(self) -> None:
        route = books(vector_spec(2, 4))
        lanes = started(route, ("a", 0), ("b", 1))
        reported = [EpisodeRecord("old"), EpisodeRecord("b"), EpisodeRecord("")]
        assert route.ended_lanes(lanes, reported, None) == [(lanes[1], reported[1])]

    def test_a_completion_reported_twice_counts_once(self) -> None:
        route = books(vector_spec(2, 4))
        lanes = started(route, ("a", 0), ("b", 1))
        first, again = EpisodeRecord("a", step_count=1), EpisodeRecord("a", step_count=2)
        assert route.ended_lanes(lanes, [first, again], None) == [(lanes[0], first)]

    def test_a_lane_that_waits_for_its_restart_cannot_end_again(self) -> None:
        route = books(vector_spec(1, 4))
        [lane] = started(route, ("a", 0))
        lane.completed = True
        assert route.ended_lanes([lane], [EpisodeRecord("a")], None) == []

    def test_a_cap_ends_what_the_env_did_not(self) -> None:
        clock = Clock(5_000)
        route = books(lane_spec(1, 4, max_episode_steps=2), clock)
        [lane] = started(route, ("a", 0), seeds=(7,))
        route.account_step([lane], [1.5], 0, 0)
        assert route.ended_lanes([lane], [], None) == []
        route.account_step([lane], [1.5], 0, 0)
        clock.now_ns = 9_000
        [(ended, record)] = route.ended_lanes([lane], [], {"x": 1})
        assert ended is lane
        assert record == EpisodeRecord(
            "a",
            seed=None,
            env_index=0,
            step_count=2,
            cumulative_reward=3.0,
            terminated=False,
            truncated=True,
            start_timestamp_ns=5_000,
            end_timestamp_ns=9_000,
            final_info={"x": 1},
        )

    def test_the_env_s_own_word_comes_before_a_cap(self) -> None:
        route = books(lane_spec(1, 4, max_episode_steps=1))
        [lane] = started(route, ("a", 0))
        route.account_step([lane], [1.0], 0, 0)
        own = EpisodeRecord("a", terminated=True)
        assert route.ended_lanes([lane], [own], None) == [(lane, own)]

    @pytest.mark.parametrize(("elapsed", "ends"), [(1_499_999_999, False), (1_500_000_000, True)])
    def test_the_time_cap(self, elapsed: int, ends: bool) -> None:
        clock = Clock(10)
        route = books(one(max_episode_seconds=1.5), clock)
        [lane] = started(route, ("a", 0))
        route.account_step([lane], [1.0], 0, 0)
        clock.now_ns = 10 + elapsed
        assert bool(route.ended_lanes([lane], [], None)) == ends

    def test_lanes_that_restart_themselves_have_no_built_in_cap(self) -> None:
        route = books(vector_spec(1, 1))
        [lane] = started(route, ("a", 0))
        lane.step = 10**9
        assert route.ended_lanes([lane], [], None) == []


class TestFinalInfo:
    @pytest.mark.parametrize(
        ("infos", "position", "width", "expected"),
        [
            (None, 0, 1, None),
            ({"x": 1}, 0, 1, {"x": 1}),
            ({"x": 1}, 0, 2, None),
            ({"final_info": {"y": 2}}, 0, 1, {"y": 2}),
            ({"final_info": {"y": 2}}, 0, 2, None),
            ({"final_info": {"y": 2}, "_final_info": [True, False]}, 0, 2, {"y": 2}),
            ({"final_info": {"y": 2}, "_final_info": [True, False]}, 1, 2, None),
            ({"final_info": [{"y": 2}, {"y": 3}], "_final_info": [True, True]}, 1, 2, {"y": 3}),
            ({"final_info": [{"y": 2}, 7], "_final_info": [True, True]}, 1, 2, None),
            ({"final_info": [{"y": 2}], "_final_info": [True, True]}, 1, 2, None),
            ({"final_info": {"y": 2}, "_final_info": [True]}, 1, 2, None),
            ({"final_info": {"y": 2}, "_final_info": [False]}, 0, 1, None),
            ({"final_info": 5}, 0, 1, None),
            ({"final_info": "ab", "_final_info": [True, True]}, 1, 2, None),
            ({"final_info": {"y": 2}, "_final_info": "yes"}, 0, 2, None),
            ({"final_info": {"y": 2}, "_final_info": np.array([True, False])}, 0, 2, {"y": 2}),
        ],
    )
    def test_a_lane_s_part(self, infos: Any, position: int, width: int, expected: Metadata | None) -> None:
        assert lane_final_info(infos, position, width) == expected


class TestSuccess:
    @pytest.mark.parametrize(
        ("final_info", "success"),
        [
            (None, None),
            ({}, None),
            ({"is_success": True}, True),
            ({"is_success": False, "success": True}, False),
            ({"success": 0}, False),
            ({"success": 3}, True),
            ({"task_success": 0.5}, True),
            ({"task_success": 0.0}, False),
            ({"is_success": "yes", "success": 0}, False),
            ({"is_success": None, "task_success": 1}, True),
            ({"is_success": [True]}, None),
            ({"success": np.bool(True)}, True),
            ({"success": np.float32(0)}, False),
            ({"terminated": True}, None),
        ],
    )
    def test_the_first_key_that_can_be_read(self, final_info: Any, success: bool | None) -> None:
        assert read_success(final_info, KEYS) is success
