from rlmesh_trio.engine.recoveries import Again, Final, Recoveries, TakenOut
from rlmesh_trio.errors import EnvRpcError, OperationTimeout, ProtocolError
from rlmesh_trio.recovery import Recovery

BROKEN = EnvRpcError("env.step", 3, "broken")
LATE = OperationTimeout("env", "env-1", "env.step", 3, 1.0)


def test_each_failure_has_its_policy() -> None:
    recoveries = Recoveries(Recovery("retry"), Recovery("quarantine"))
    assert recoveries.policy(BROKEN) == recoveries.policy(ProtocolError("nonsense")) == Recovery("retry")
    assert recoveries.policy(LATE) == Recovery("quarantine")


def test_an_episode_is_started_again_so_often_and_no_more() -> None:
    recoveries = Recoveries(Recovery("retry", 2), Recovery())
    first, second, third = (recoveries.decide(BROKEN, [4], reconnected=False, others=0) for _ in range(3))
    assert (first, second) == (Again(0.1), Again(0.2))
    assert third == Final("its episode was started again 2 time(s), as often as the policy allows")
    assert recoveries.attempt(4) == 2
    assert recoveries.decide(BROKEN, [5], reconnected=False, others=0) == Again(0.1)


def test_a_vector_s_episodes_are_counted_each() -> None:
    recoveries = Recoveries(Recovery("retry", 2), Recovery())
    recoveries.decide(BROKEN, [0, 1], reconnected=False, others=0)
    recoveries.decide(BROKEN, [1, 2], reconnected=False, others=0)
    assert [recoveries.attempt(slot) for slot in range(4)] == [1, 2, 1, 0]
    assert isinstance(recoveries.decide(BROKEN, [1, 3], reconnected=False, others=0), Final)
    assert recoveries.attempt(3) == 0


def test_the_pause_grows_to_five_seconds() -> None:
    recoveries = Recoveries(Recovery("retry", 2000), Recovery())
    pauses = [recoveries.decide(BROKEN, [0], reconnected=False, others=0) for _ in range(2000)]
    assert pauses[:7] == [Again(pause) for pause in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0)]
    assert pauses[-1] == Again(5.0)


def test_quarantine_needs_somebody_else() -> None:
    recoveries = Recoveries(Recovery(), Recovery("quarantine"))
    assert recoveries.decide(LATE, [0], reconnected=False, others=1) == TakenOut()
    assert recoveries.attempt(0) == 1
    last = recoveries.decide(LATE, [0], reconnected=False, others=0)
    assert last == Final("no other lane is left to play its episode, and quarantine needs one")


def test_a_connection_that_stands_again_takes_no_lane_out() -> None:
    recoveries = Recoveries(Recovery("quarantine", 1), Recovery())
    assert recoveries.decide(BROKEN, [0], reconnected=True, others=3) == Again(0.1)
    assert isinstance(recoveries.decide(BROKEN, [0], reconnected=True, others=3), Final)
