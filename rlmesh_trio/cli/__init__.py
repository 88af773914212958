"""The command line."""

from rlmesh_trio.cli.app import main

__all__ = ("main",)
