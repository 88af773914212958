"""What a simulated world is made of: plain frozen records, each printed as the expression that makes it again."""

import random
from typing import Final, Literal

import attrs

from rlmesh_trio.recovery import Recovery

__all__ = (
    "ENDING_HOOKS",
    "KINDS",
    "NOTICES",
    "SLOW",
    "TRANSFORMS",
    "Autoreset",
    "Cancellation",
    "Delays",
    "EnvKind",
    "EnvPlan",
    "ModelPlan",
    "NetworkPlan",
    "Reconnects",
    "SchedulerName",
    "SessionPlan",
    "Trouble",
    "TroubleKind",
)

EnvKind = Literal["single", "lanes", "vector"]
Autoreset = Literal["UNSPECIFIED", "DISABLED", "NEXT_STEP"]
SchedulerName = Literal["eager", "lowest", "together", "never", "unruly", "full", "adaptive"]
TroubleKind = Literal[
    "fail",
    "crash",
    "die",
    "hang",
    "slow",
    "misshapen_observation",
    "no_observation",
    "short_rewards",
    "stale_completion",
    "another_request",
    "no_actions",
    "misshapen_actions",
    "too_few_results",
]


@attrs.frozen
class Delays:
    """How long something takes, in seconds: one of ``choices``, which makes ties, and up to ``jitter`` more."""

    choices: tuple[float, ...] = (0.0,)
    jitter: float = 0.0

    def pick(self, source: random.Random) -> float:
        """One delay, drawn from *source*."""
        chosen = source.choice(self.choices)
        return chosen + source.random() * self.jitter if self.jitter else chosen

    @property
    def longest(self) -> float:
        """No delay is longer."""
        return max(self.choices) + self.jitter


@attrs.frozen
class EnvPlan:
    """The env: ``single`` is one lane, ``lanes`` are driven one by one, a ``vector`` moves in lockstep.

    A vector that does not restart its lanes by itself has the finished ones reset by name.
    ``longest`` bounds the episodes' lengths in steps; ``None``: they never end by themselves. With ``echoes`` it
    reports an episode that a reset interrupts on the next step, as a served env does.
    """

    kind: EnvKind = "single"
    lanes: int = 1
    autoreset: Autoreset = "DISABLED"
    longest: int | None = 3
    salt: int = 0
    reset: Delays = Delays()
    step: Delays = Delays()
    echoes: bool = False
    declares_trials: bool = False


@attrs.frozen
class ModelPlan:
    """The model: a pure policy whose chunks have ``chunk`` frames, or up to so many if they are ``varied``."""

    chunk: int = 1
    varied: bool = False
    fuses: bool = False
    history: bool = False
    salt: int = 0
    predict: Delays = Delays()


@attrs.frozen
class Reconnects:
    """What tries to reconnect the env come to: each ``takes`` its time, and the first ``refusals`` of them fail.

    ``refusals`` are counted anew after a success; ``None``: no try succeeds. With ``stranger`` the try that would
    succeed finds another env there.
    """

    takes: Delays = Delays()
    refusals: int | None = 0
    stranger: bool = False


@attrs.frozen
class NetworkPlan:
    """The way to the peers: how long a message takes each way, and at which of its operations a peer is lost.

    Operations are counted from 1. The one that loses the connection, those under way and all later ones fail at once
    with the code ``CONNECTION``: the model's for good, the env's until a reconnect succeeds. Without ``reconnects`` it
    is an env that cannot be reconnected.
    """

    env: Delays = Delays()
    model: Delays = Delays()
    env_lost_at: tuple[int, ...] = ()
    model_lost_at: int | None = None
    reconnects: Reconnects | None = None


@attrs.frozen
class SessionPlan:
    """How the session is run: what of its spec matters here, who listens, and which scheduler plans.

    ``listening``: ``hooks``, a reader of the event ``stream``, ``both`` (a reader that may leave after ``reader_stays``
    events), or ``nobody``. ``hook`` and ``reader`` are how long each notice takes them. ``ceilings``: both legs of the
    relay are checked. ``finished`` are the indices of episodes that an earlier, undisturbed run has played.
    ``seed_every``: each episode is reset with a seed of its own, where the env would restart its lanes too.
    """

    budget: int | None = 1
    step_cap: int | None = None
    time_cap: float | None = None
    base_seed: int | None = None
    episode_seeds: tuple[int, ...] = ()
    trial_base: int | None = None
    seed_every: bool = False
    prefetch_lead: int = 0
    reset_limit: float = 11.0
    step_limit: float = 9.0
    predict_limit: float = 10.0
    close_limit: float = 2.0
    connect_limit: float = 12.0
    window: float = 0.0
    close_env: bool = True
    ceilings: bool = False
    scheduler: SchedulerName = "eager"
    listening: Literal["hooks", "stream", "both", "nobody"] = "hooks"
    transforms: bool = False
    hook: Delays = Delays()
    reader: Delays = Delays()
    reader_stays: int | None = None
    on_env_error: Recovery = Recovery()  # noqa: RUF009 - frozen
    on_timeout: Recovery = Recovery()  # noqa: RUF009 - frozen
    finished: tuple[int, ...] = ()


@attrs.frozen
class Trouble:
    """Something goes wrong at ``times`` calls (``None``: at every one) of ``part``, from the ``call``-th (from 1) on.

    ``part`` is an operation of the env (``reset``, ``step``, ``close``) or of the model (``predict``,
    ``predict_group``, ``evict``, ``release``), the name of a hook, or ``scheduler``. ``code`` is what a peer carries
    that is to ``fail`` or ``die``; the env that dies loses its connection. Of resets and steps those alone may count
    that name a ``lane``, and a trouble that comes ``late`` leaves the operation done before it goes wrong.
    """

    part: str
    kind: TroubleKind
    call: int = 1
    code: str = "INTERNAL"
    times: int | None = 1
    lane: int | None = None
    late: bool = False


@attrs.frozen
class Cancellation:
    """The session is cancelled ``at`` seconds, or before its ``step``-th task step: by itself or from ``outside``."""

    at: float | None = None
    step: int | None = None
    outside: bool = False


ENDING_HOOKS: Final = ("on_telemetry", "session_ended", "session_failed")
NOTICES: Final = (
    "session_started",
    "episode_started",
    "observation_emitted",
    "action_received",
    "step_completed",
    "episode_completed",
    "incident_happened",
    "log",
    *ENDING_HOOKS,
)
TRANSFORMS: Final = ("transform_observation", "transform_action")
SLOW: Final = 2.0
KINDS: Final[dict[str, tuple[TroubleKind, ...]]] = {
    "reset": ("fail", "crash", "die", "hang", "slow", "misshapen_observation", "no_observation"),
    "step": (
        "fail",
        "crash",
        "die",
        "hang",
        "slow",
        "misshapen_observation",
        "no_observation",
        "short_rewards",
        "stale_completion",
    ),
    "close": ("fail", "crash", "hang", "slow"),
    "predict": ("fail", "crash", "hang", "slow", "another_request", "no_actions", "misshapen_actions"),
    "predict_group": ("fail", "crash", "hang", "slow", "too_few_results"),
    "evict": ("fail", "crash", "hang", "slow"),
    "release": ("fail", "crash", "hang", "slow"),
    "scheduler": ("crash",),
    **dict.fromkeys(TRANSFORMS, ("crash", "slow")),
    **dict.fromkeys(NOTICES, ("crash", "slow")),
    **dict.fromkeys(ENDING_HOOKS, ("crash", "slow", "hang")),
}
"""What can go wrong where."""
