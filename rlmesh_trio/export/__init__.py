"""Recordings as data sets of other tools: Parquet, Minari, LeRobot. Each needs the extra of its name, and ``mcap``."""

from rlmesh_trio.export.episodes import Exported
from rlmesh_trio.export.errors import ExportError
from rlmesh_trio.export.lerobot import export_lerobot
from rlmesh_trio.export.minari import export_minari
from rlmesh_trio.export.parquet import export_parquet
from rlmesh_trio.export.video import VideoKind

__all__ = ("ExportError", "Exported", "VideoKind", "export_lerobot", "export_minari", "export_parquet")
