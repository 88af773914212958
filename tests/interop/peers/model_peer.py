"""Serve one real rlmesh model: ``python -m tests.interop.peers.model_peer [options]``.

Prints ``READY host:port`` once clients may connect; SIGTERM or SIGINT stops it with status 0. With ``--log`` each
forward, episode end, seen window and the close leave one JSON object per line.
"""

import argparse
import contextlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

import attrs
import numpy as np
import rlmesh.numpy
from rlmesh import adapters

from tests.interop.peers.policies import POLICIES, Decide, act, act_chunk, act_chunk_rows, act_rows, row_count
from tests.interop.peers.serving import add_serve_options, serve_options, settle_process

FaultKind = Literal["none", "raise", "exit", "badaction"]


@attrs.define
class Desk:
    """What all kinds of model share: the options, the forward counter with its faults, and the log."""

    decide: Decide
    chunk: int
    pause: float
    fault: FaultKind
    fault_at: int
    log: TextIO | None
    forwards: int = 0

    def note(self, event: str, **facts: Any) -> None:
        if self.log is not None:
            self.log.write(json.dumps({"event": event, **facts}) + "\n")
            self.log.flush()

    def forward(self, method: str, **facts: Any) -> bool:
        """Count one forward, be as slow and as faulty as asked; true when the action shall be nonsense."""
        self.forwards += 1
        self.note("forward", number=self.forwards, method=method, **facts)
        time.sleep(self.pause)
        fault = self.fault if self.forwards == self.fault_at else "none"
        if fault == "exit":
            os._exit(17)
        if fault == "raise":
            raise RuntimeError("the model failed on purpose")
        return fault == "badaction"


class PeerModel(rlmesh.numpy.Model[Any, Any]):
    """The two lifecycle hooks; subclasses add the predict method that gives the kind its name."""

    def __init__(self, desk: Desk, native_chunk: int | None, spec: adapters.ModelSpec | None) -> None:
        self.desk = desk
        self.native_chunk = native_chunk
        super().__init__(spec=spec)

    def on_episode_end(self, episode_id: str = "") -> None:
        self.desk.note("episode_end", episode=episode_id)

    def close(self) -> None:
        self.desk.note("close")


class StepModel(PeerModel):
    def predict(self, observation: Any, context: Any = None) -> Any:
        known: dict[str, Any] = context or {}
        episode, seed = known.get("episode_id"), known.get("episode_seed")
        nonsense = self.desk.forward("predict", episode=episode, seed=seed)
        return "no action" if nonsense else act(self.desk.decide, observation)


class BatchModel(StepModel):
    def predict_batch(self, observations: Any, context: Any = None) -> Any:
        nonsense = self.desk.forward("predict_batch", rows=row_count(observations))
        return "no action" if nonsense else act_rows(self.desk.decide, observations)


class ChunkModel(PeerModel):
    def predict_chunk(self, observation: Any, execution_horizon: int = 1, context: Any = None) -> Any:
        nonsense = self.desk.forward("predict_chunk", horizon=execution_horizon)
        return "no action" if nonsense else act_chunk(self.desk.decide, observation, self.desk.chunk)


class ChunkBatchModel(PeerModel):
    def predict_chunk_batch(self, observations: Any, execution_horizon: int = 1) -> Any:
        rows = row_count(observations)
        nonsense = self.desk.forward("predict_chunk_batch", rows=rows, horizon=execution_horizon)
        return "no action" if nonsense else act_chunk_rows(self.desk.decide, observations, self.desk.chunk)


class RememberingModel(PeerModel):
    """Reads frames of the past, or its own last action, through an adapter; for the tagged arm alone."""

    def predict_chunk(self, observation: Any, execution_horizon: int = 1) -> Any:
        self.desk.forward("predict_chunk", horizon=execution_horizon)
        if "frames" in observation:
            window: list[Any] = [int(frame.flat[0]) for frame in np.asarray(observation["frames"])]
        else:
            window = np.asarray(observation["last"]).tolist()
        self.desk.note("seen", window=window)
        return act_chunk(self.desk.decide, {"joints": np.ravel(observation["joints"])}, self.desk.chunk)


PLAIN_KINDS: dict[str, type[PeerModel]] = {
    "step": StepModel,
    "batch": BatchModel,
    "chunk": ChunkModel,
    "chunkbatch": ChunkBatchModel,
}


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=(*PLAIN_KINDS, "history", "previous"), default="step")
    parser.add_argument("--policy", choices=tuple(POLICIES), default="counter")
    parser.add_argument("--chunk", type=int, default=4, help="actions per forward of a chunk kind")
    parser.add_argument("--declare-chunk", action="store_true", help="announce the chunk length")
    parser.add_argument("--stack", type=int, default=3, help="frames in the window of kind history")
    parser.add_argument("--offsets", help="which frames kind history wants, e.g. -4,-2,0")
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds per forward")
    parser.add_argument("--fault", choices=get_args(FaultKind), default="none")
    parser.add_argument("--fault-at", type=int, default=2, help="which forward, from 1")
    parser.add_argument("--log", type=Path)
    add_serve_options(parser)
    return parser.parse_args(argv)


def adapter_spec(args: argparse.Namespace) -> adapters.ModelSpec:
    inputs: dict[str, Any] = {"joints": adapters.State(adapters.JOINT_POS)}
    if args.kind == "history":
        offsets = tuple(map(int, args.offsets.split(","))) if args.offsets else None
        inputs["frames"] = adapters.Image(adapters.IMAGE_PRIMARY, height=4, width=4, stack=args.stack, offsets=offsets)
    else:
        inputs["last"] = adapters.Previous(adapters.ACTION_JOINT_POS)
    return adapters.ModelSpec(input=inputs, output=adapters.Action(adapters.Actuator(adapters.ACTION_JOINT_POS, 2)))


def build(args: argparse.Namespace, log: TextIO | None) -> PeerModel:
    remembers = args.kind in ("history", "previous")
    kind = RememberingModel if remembers else PLAIN_KINDS[args.kind]
    decide = POLICIES["arm" if remembers else args.policy]
    desk = Desk(decide, args.chunk, args.sleep, args.fault, args.fault_at, log)
    return kind(desk, args.chunk if args.declare_chunk else None, adapter_spec(args) if remembers else None)


def free_port(host: str) -> int:
    with socket.create_server((host, 0)) as probe:
        return probe.getsockname()[1]


def announce(host: str, port: int, patience: float = 30.0) -> None:
    """Say READY once the port takes connections: the model server itself does not tell."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, port), timeout=1.0).close()
        except OSError:
            time.sleep(0.02)
        else:
            print(f"READY {host}:{port}", flush=True)
            return
    print(f"no server on {host}:{port} after {patience:g} s", file=sys.stderr, flush=True)


def main() -> None:
    args = parse()
    log: TextIO | None = args.log.open("a") if args.log else None
    model = build(args, log)
    port: int = args.port or free_port(args.host)
    settle_process()
    threading.Thread(target=announce, args=(args.host, port), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        model.serve(f"{args.host}:{port}", options=serve_options(args))


if __name__ == "__main__":
    main()
