"""The books of what is started again: slots given back, and the plans of another attempt."""

from itertools import count

import attrs

from rlmesh_trio.engine.route import LaneSlot, Route
from rlmesh_trio.spec import AutoresetMode, SessionSpec
from rlmesh_trio.testing.scripted import contract, lane_spec, vector_spec


def route_of(spec: SessionSpec) -> Route:
    ids = count(1)
    return Route(spec, new_id=lambda: f"id-{next(ids)}", unix_ns=lambda: 0)


def start(route: Route, lanes: list[LaneSlot]) -> None:
    plan = route.plan_reset(lanes, 0, single_lane_group=len(lanes) == 1)
    assert plan is not None
    route.note_plan(lanes, plan)
    for lane in lanes:
        route.start_planned(lane)


class TestSlotsGivenBack:
    def test_the_lowest_goes_first_then_the_next_new_ones(self) -> None:
        route = route_of(lane_spec(2, 6))
        assert route.claim(4) == (0, 1, 2, 3)
        for slot in (2, 0, 1):
            route.give_back(slot)
        assert route.owes_episodes
        assert route.claim(1) == (0,)
        assert route.claim_up_to(3) == (1, 2, 4)
        assert not route.owes_episodes

    def test_they_count_for_the_budget(self) -> None:
        route = route_of(lane_spec(2, 3))
        assert route.claim(3) == (0, 1, 2)
        assert route.claim(1) == ()
        route.give_back(1)
        assert route.claim(2) == ()
        assert route.claim_up_to(2) == (1,)
        assert route.claim_up_to(1) == ()

    def test_without_a_budget_there_is_always_a_slot(self) -> None:
        route = route_of(lane_spec(2, None))
        assert route.claim(2) == (0, 1)
        route.give_back(0)
        assert route.claim_up_to(3) == (0, 2, 3)

    def test_seed_and_trial_go_with_the_slot(self) -> None:
        route = route_of(lane_spec(2, 9, base_seed=4, trial_index_base=100))
        first, second = LaneSlot(0), LaneSlot(1)
        start(route, [first])
        start(route, [second])
        route.give_back(0)
        lane = LaneSlot(1)
        start(route, [lane])
        assert (lane.slot, lane.seed, lane.trial_index) == (0, first.seed, 100)
        start(route, [lane])
        assert (lane.slot, lane.trial_index) == (2, 102)


class TestAnotherAttempt:
    def test_of_a_reset_that_failed_it_is_the_same_under_fresh_ids(self) -> None:
        spec = lane_spec(2, 9, [5, 6], env_contract=contract(AutoresetMode.DISABLED, 2))
        route = route_of(spec)
        lane = LaneSlot(0)
        plan = route.plan_reset([lane], 0, single_lane_group=True)
        assert plan is not None
        route.note_plan([lane], plan)
        assert lane.newest_id == plan.episode_ids[0]
        again = route.plan_again([lane])
        assert again is not None
        assert again.episode_ids != plan.episode_ids
        assert attrs.evolve(again, episode_ids=plan.episode_ids) == plan

    def test_of_episodes_in_play_it_is_what_the_lanes_hold(self) -> None:
        metadata = {"rlmesh.env.v1.reset_options": "trial_index"}
        route = route_of(lane_spec(2, 9, [5, 6], env_contract=contract(AutoresetMode.DISABLED, 2, metadata=metadata)))
        lane = LaneSlot(1)
        start(route, [lane])
        plan = route.plan_again([lane])
        assert plan is not None
        assert (plan.slots, plan.seeds, plan.trials, plan.options) == ((0,), (5,), (0,), {"trial_index": 0})
        assert plan.episode_ids != (lane.episode_id,)
        assert route.claim(1) == (1,)

    def test_a_finished_lane_of_a_vector_gets_the_next_slot_and_the_batch_no_seed(self) -> None:
        route = route_of(vector_spec(2, 3, base_seed=1))
        lanes = [LaneSlot(0), LaneSlot(1)]
        start(route, lanes)
        seeded = route.plan_again(lanes)
        assert seeded is not None
        assert (seeded.slots, seeded.seeds) == ((0, 1), (lanes[0].seed, lanes[1].seed))
        lanes[0].completed = True
        plan = route.plan_again(lanes)
        assert plan is not None
        assert (plan.slots, plan.seeds, plan.trials, plan.options) == ((2, 1), (), (), None)
        plan = route.plan_again(lanes)
        assert plan is not None
        assert plan.slots == (None, 1)
        lanes[1].completed = True
        assert route.plan_again(lanes) is None

    def test_after_a_partial_reset_that_failed_the_others_begin_anew_beside_what_it_was_to_start(self) -> None:
        declared = contract(AutoresetMode.DISABLED, 2)
        route = route_of(vector_spec(2, 4, base_seed=1, env_contract=declared, partial_reset=True))
        lanes = [LaneSlot(0), LaneSlot(1)]
        start(route, lanes)
        lanes[1].completed = True
        plan = route.plan_reset(lanes[1:], 1, single_lane_group=False, others_play=True)
        assert plan is not None
        route.note_plan(lanes[1:], plan)
        again = route.plan_again(lanes)
        assert again is not None
        assert (again.slots, again.seeds, again.trials) == ((0, 2), (lanes[0].seed, plan.seeds[0]), (0, 2))

    def test_nothing_is_in_play_between_two_resets(self) -> None:
        route = route_of(lane_spec(2, 9))
        lane = LaneSlot(0)
        start(route, [lane])
        lane.completed = True
        assert route.plan_again([lane]) is None
        assert route.claim(1) == (1,)
