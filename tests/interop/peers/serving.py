"""What both peer scripts share: the serve options, and a clean stop on SIGTERM."""

import argparse
import os
import signal
from types import FrameType
from typing import cast

import rlmesh

__all__ = ("add_serve_options", "serve_options", "settle_process")


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--allow-remote-shutdown", action="store_true")
    parser.add_argument("--idle-timeout", type=float, metavar="SECONDS")
    parser.add_argument("--drain-timeout", type=float, default=0.5, metavar="SECONDS")
    parser.add_argument("--workflow-edition", default="", metavar="EDITION", help="the edition to prefer")


def serve_options(args: argparse.Namespace) -> rlmesh.ServeOptions:
    return rlmesh.ServeOptions(
        allow_remote_shutdown=cast("bool", args.allow_remote_shutdown),
        idle_timeout_seconds=cast("float | None", args.idle_timeout),
        drain_timeout_seconds=cast("float", args.drain_timeout),
        workflow_edition=cast("str", args.workflow_edition) or None,
    )


def settle_process() -> None:
    """Make SIGTERM end the serve loop as Ctrl-C does, and declare no edition without being told off for it."""
    os.environ.setdefault("RLMESH_WORKFLOW_EDITION", "")
    signal.signal(signal.SIGTERM, interrupt)


def interrupt(signal_number: int, frame: FrameType | None) -> None:
    os.kill(os.getpid(), signal.SIGINT)
