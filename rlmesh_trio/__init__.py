"""A trio engine that drives one environment session with one model session, in process or over rlmesh-wire-v1.

``run_local`` is the one-call form: a policy here, an env at an address. ``run_session`` and ``open_session`` drive any
open env with any open model; ``connect_env``, ``connect_model``, ``open_local_env`` and ``open_local_model`` open them.
"""

from rlmesh_trio import errors, events
from rlmesh_trio.endpoints.local_env import LocalEnv, open_local_env
from rlmesh_trio.endpoints.local_model import LocalModel, open_local_model
from rlmesh_trio.endpoints.remote_env import RemoteEnv, connect_env
from rlmesh_trio.endpoints.remote_model import RemoteModel, connect_model
from rlmesh_trio.engine.adaptive import Adaptive
from rlmesh_trio.engine.schedulers import EagerScheduler, FullBatch, PatientScheduler, Scheduler
from rlmesh_trio.engine.session import Session, open_session, run_session
from rlmesh_trio.errors import SessionError
from rlmesh_trio.hooks import Hooks
from rlmesh_trio.one_call import run_local
from rlmesh_trio.recovery import Recovery
from rlmesh_trio.report import EpisodeSummary, Incident, Report
from rlmesh_trio.spec import Limits, SessionSpec

__version__ = "0.1.0"

__all__ = (
    "Adaptive",
    "EagerScheduler",
    "EpisodeSummary",
    "FullBatch",
    "Hooks",
    "Incident",
    "Limits",
    "LocalEnv",
    "LocalModel",
    "PatientScheduler",
    "Recovery",
    "RemoteEnv",
    "RemoteModel",
    "Report",
    "Scheduler",
    "Session",
    "SessionError",
    "SessionSpec",
    "connect_env",
    "connect_model",
    "errors",
    "events",
    "open_local_env",
    "open_local_model",
    "open_session",
    "run_local",
    "run_session",
)
