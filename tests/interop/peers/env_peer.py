"""Serve one real rlmesh environment: ``python -m tests.interop.peers.env_peer [options]``.

Prints ``READY address`` once clients may connect; SIGTERM or SIGINT stops it with status 0.
"""

import argparse
import contextlib
import time
from typing import Any, cast

import gymnasium
import rlmesh
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rlmesh import adapters

from tests.interop.peers.serving import add_serve_options, serve_options, settle_process
from tests.interop.peers.toys import ANY_LANE, FAULT_KINDS, TOYS, Fault

TOY_LENGTH = 5


class Paused(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Any environment, slowed down."""

    def __init__(self, env: gymnasium.Env[Any, Any], pause: float) -> None:
        super().__init__(env)
        self.pause = pause

    def step(self, action: Any) -> Any:
        time.sleep(self.pause)
        return self.env.step(action)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("single", "vector", "lanes"), default="single")
    parser.add_argument("--env", default="counter", help=f"{', '.join(TOYS)} or a registered gymnasium id")
    parser.add_argument("--num-envs", type=int, default=3, help="width of a vector, number of lanes")
    parser.add_argument("--length", type=int, help=f"steps per episode (toys: {TOY_LENGTH})")
    parser.add_argument("--length-stagger", type=int, default=0, help="more steps per lane number")
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds per step")
    parser.add_argument("--autoreset", choices=("next_step", "same_step", "disabled"), default="next_step")
    parser.add_argument("--fault", choices=FAULT_KINDS, default="none")
    parser.add_argument("--fault-at", type=int, default=2, help="step within the episode")
    parser.add_argument("--fault-lane", type=int, default=ANY_LANE)
    parser.add_argument("--fault-once", action="store_true")
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--unix", metavar="PATH", help="listen on this socket instead of TCP")
    add_serve_options(parser)
    return parser.parse_args(argv)


def build(args: argparse.Namespace) -> Any:
    fault = Fault(args.fault, args.fault_at, args.fault_lane, args.fault_once)
    render_mode = "rgb_array" if args.render else None

    def lane(index: int) -> gymnasium.Env[Any, Any]:
        toy = TOYS.get(args.env)
        if toy is not None:
            length = (args.length or TOY_LENGTH) + index * args.length_stagger
            return toy(index, length, args.sleep, fault, render_mode)
        made: gymnasium.Env[Any, Any] = gymnasium.make(args.env, render_mode=render_mode, max_episode_steps=args.length)
        return Paused(made, args.sleep) if args.sleep else made

    if args.kind == "single":
        return lane(0)
    if args.kind == "lanes":
        return [lane(index) for index in range(args.num_envs)]
    makers = [lambda index=index: lane(index) for index in range(args.num_envs)]
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode[cast("str", args.autoreset).upper()])


def tags(args: argparse.Namespace) -> adapters.EnvTags | None:
    if args.env != "arm" or args.kind == "vector":
        return None
    return adapters.EnvTags(
        observation={
            "cam": adapters.ImageTag(adapters.IMAGE_PRIMARY),
            "joints": adapters.StateTag(adapters.JOINT_POS),
        },
        action=adapters.Action(adapters.Actuator(adapters.ACTION_JOINT_POS, 2)),
    )


def main() -> None:
    args = parse()
    bind = f"unix://{args.unix}" if args.unix else f"{args.host}:{args.port}"
    settle_process()
    server = rlmesh.EnvServer(build(args), bind, options=serve_options(args), tags=tags(args))
    with contextlib.suppress(KeyboardInterrupt):
        print("READY", server.address.removeprefix("tcp://"), flush=True)
        server.serve()


if __name__ == "__main__":
    main()
