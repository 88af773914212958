"""Serve one idle env with real rlmesh in a process of its own: ``python -m benchmarks.peer_server PLAN``.

PLAN is a :class:`~benchmarks.jobs.ServerPlan` as JSON. Says its address, then answers each line of stdin with the
pauses taken so far, and stops at the end of input.
"""

import json
import os
import sys
import tempfile
from typing import Any

import rlmesh

from benchmarks.envs import IdleEnv, IdleVectorEnv, Pause
from benchmarks.jobs import ServerPlan, answer_lines


def build(plan: ServerPlan) -> tuple[Any, list[Pause]]:
    if plan.kind == "vector":
        pause = Pause(plan.pause, plan.jitter, seed=0)
        return IdleVectorEnv(plan.lanes, plan.observation, plan.length, pause), [pause]
    pauses = [Pause(plan.pause, plan.jitter, seed=lane) for lane in range(plan.lanes)]
    lanes = [IdleEnv(plan.observation, plan.length, pause) for pause in pauses]
    return (lanes[0] if plan.kind == "single" else lanes), pauses


def main() -> None:
    os.environ.setdefault("RLMESH_WORKFLOW_EDITION", "")
    plan = ServerPlan(**json.loads(sys.argv[1]))
    env, pauses = build(plan)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        server = rlmesh.EnvServer(env, f"unix://{folder}/env.sock" if plan.unix else "127.0.0.1:0")
        server.start()

        def pauses_taken(_: Any) -> dict[str, float]:
            return {"slept": sum(p.slept for p in pauses), "count": sum(p.count for p in pauses)}

        answer_lines({"address": server.address}, pauses_taken)
        server.shutdown()


if __name__ == "__main__":
    main()
