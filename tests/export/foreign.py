"""The packages that judge what was exported. Those without types are as good as :class:`Any`."""

from importlib import import_module
from typing import Any

pa: Any = import_module("pyarrow")
pq: Any = import_module("pyarrow.parquet")
minari: Any = import_module("minari")
av: Any = import_module("av")
