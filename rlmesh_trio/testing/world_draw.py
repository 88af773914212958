"""The choices that make a simulated world of one seed."""

import random
from typing import TypeVar

from rlmesh_trio.recovery import Recovery
from rlmesh_trio.testing.world_plan import (
    KINDS,
    Autoreset,
    Cancellation,
    Delays,
    EnvKind,
    EnvPlan,
    ModelPlan,
    NetworkPlan,
    Reconnects,
    SchedulerName,
    SessionPlan,
    Trouble,
    TroubleKind,
)

__all__ = ("Draw",)

T = TypeVar("T")


class Draw:
    """The choices of one seed, in order."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, *options: T) -> T:
        """One of *options*."""
        return self.random.choice(options)

    def up_to(self, most: int, least: int = 1) -> int:
        """A number from *least* to *most*."""
        return self.random.randint(least, most)

    def delays(self) -> Delays:
        """How long something of a peer takes."""
        return self.one(
            Delays(),
            Delays(),
            Delays((0.0, 0.25)),
            Delays((0.5,)),
            Delays((0.0, 0.25, 0.5, 1.0)),
            Delays((0.0,), jitter=1.0),
            Delays((0.25, 0.5), jitter=0.25),
        )

    def env(self) -> EnvPlan:
        """An env of any kind."""
        kind: EnvKind = self.one("single", "lanes", "lanes", "lanes", "vector")
        autoreset: Autoreset = self.one("UNSPECIFIED", "DISABLED", "DISABLED", "NEXT_STEP")
        if kind == "vector":
            autoreset = self.one("NEXT_STEP", "DISABLED")
        return EnvPlan(
            kind=kind,
            lanes=1 if kind == "single" else self.one(1, 2, 2, 3, 3, 4),
            autoreset=autoreset,
            longest=None if self.up_to(15) == 1 else self.up_to(6),
            salt=self.random.getrandbits(32),
            reset=self.delays(),
            step=self.delays(),
            echoes=autoreset != "NEXT_STEP" and self.one(True, False),
            declares_trials=self.one(True, False),
        )

    def model(self, *, history: bool) -> ModelPlan:
        """A model, which may want *history* or must not."""
        return ModelPlan(
            chunk=self.one(1, 1, 2, 3, 4),
            varied=self.one(True, False),
            fuses=self.one(True, False),
            history=self.up_to(4) == 1 and history,
            salt=self.random.getrandbits(32),
            predict=self.delays(),
        )

    def network(self, *, lossy: bool, recovers: bool) -> NetworkPlan:
        """The way to the peers; a *lossy* one may lose them."""
        lost = self.one(None, None, "env", *(["env"] if recovers else ["model"])) if lossy else None
        near = self.one(True, True, False)
        return NetworkPlan(
            env=Delays() if near else self.one(Delays((0.125,)), Delays((0.0,), jitter=0.5)),
            model=Delays() if near else self.one(Delays((0.125,)), Delays((0.0,), jitter=0.5)),
            env_lost_at=self.losses(most=self.one(1, 2, 3) if recovers else 1) if lost == "env" else (),
            model_lost_at=self.up_to(12) if lost == "model" else None,
            reconnects=self.one(None, *[self.reconnects()] * (3 if recovers else 1)),
        )

    def losses(self, *, most: int) -> tuple[int, ...]:
        """At which operations the env is lost."""
        return tuple(sorted({self.up_to(self.one(5, 20, 40)) for _ in range(most)}))

    def reconnects(self) -> Reconnects:
        """What reconnecting comes to: mostly a success, sooner or later."""
        return Reconnects(
            takes=self.one(Delays(), Delays((0.5,)), Delays((0.0, 0.25, 2.0)), Delays((1.0, 30.0))),
            refusals=self.one(0, 0, 1, 2, 4, None),
            stranger=self.up_to(12) == 1,
        )

    def recovery(self, env: EnvPlan) -> Recovery:
        """A policy that is mostly not to fail."""
        alone = env.kind != "lanes" or env.lanes == 1
        retry, quarantine = Recovery("retry", self.one(1, 2, 3, 4, 9)), Recovery("quarantine", self.one(1, 2, 3))
        return self.one(Recovery(), *[retry] * 5, *[quarantine] * (1 if alone else 4))

    def finished(self, budget: int) -> tuple[int, ...]:
        """Which of *budget* episodes an earlier run has played, in any order: mostly none, sometimes all."""
        if self.up_to(6) > 1:
            return ()
        return tuple(self.random.sample(range(1, budget + 1), self.up_to(budget)))

    def session(self, env: EnvPlan, *, recovers: bool) -> SessionPlan:
        """How the session is run."""
        owns_resets = env.autoreset != "NEXT_STEP"
        budget = None if self.up_to(20) == 1 else self.up_to(7)
        seeding = self.one("base", "base", "none", *(["listed", "listed in part"] if owns_resets else []))
        listed = {"listed": budget or 40, "listed in part": self.up_to(3)}.get(seeding, 0)
        scheduler: SchedulerName = self.one(
            *("eager", "eager", "eager", "eager"), *("lowest", "together", "never", "unruly", "full", "adaptive")
        )
        return SessionPlan(
            budget=budget,
            step_cap=self.one(None, None, 1, 3) if owns_resets else None,
            time_cap=self.one(*[None] * 8, 1.5) if owns_resets else None,
            base_seed=self.random.getrandbits(63) if seeding == "base" else None,
            episode_seeds=tuple(self.random.getrandbits(31) for _ in range(listed)),
            trial_base=self.one(None, 5) if owns_resets else None,
            prefetch_lead=self.one(0, 0, 0, 1, 2, 3),
            window=self.one(0.0, 0.0, 0.5),
            close_env=self.one(True, True, False),
            ceilings=self.up_to(4) == 1,
            scheduler=scheduler,
            listening=self.one("hooks", "hooks", "hooks", "stream", "both", "nobody"),
            transforms=self.up_to(4) == 1,
            hook=self.one(*[Delays()] * 4, Delays((0.0, 0.25)), Delays((0.0,), jitter=0.25)),
            reader=self.one(Delays(), Delays((0.0, 0.25)), Delays((3.0,))),
            reader_stays=self.one(None, None, self.up_to(20)),
            on_env_error=self.recovery(env) if recovers else Recovery(),
            on_timeout=self.recovery(env) if recovers else Recovery(),
        )

    def troubles(self, env: EnvPlan, *, recovers: bool) -> tuple[Trouble, ...]:
        """What goes wrong; where the session *recovers*, mostly operations of the env."""
        if not recovers:
            return self.any_troubles()
        planted = [self.env_trouble(env.lanes, may_be_slow=not number) for number in range(self.up_to(4))]
        return (*planted, *(self.any_troubles() if self.up_to(5) == 1 else ()))

    def env_trouble(self, lanes: int, *, may_be_slow: bool) -> Trouble:
        """An operation of the env goes wrong a few times, or from some call on at every one of a lane.

        Of those that only make it slow there must not be so many that they exceed a limit together.
        """
        kind: TroubleKind = self.one("fail", "fail", "crash", "die", "hang", "slow" if may_be_slow else "fail")
        lasting = self.up_to(5) == 1
        return Trouble(
            part=self.one("reset", "step", "step"),
            kind=kind,
            call=self.up_to(self.one(1, 6, 20)),
            code=self.one("INTERNAL", "INTERNAL", "CONNECTION"),
            times=None if lasting else self.one(1, 1, 2, 3),
            lane=self.random.randrange(lanes) if lasting or self.one(True, False) else None,
            late=kind != "slow" and self.one(True, False, False),
        )

    def any_troubles(self) -> tuple[Trouble, ...]:
        """One or two troubles of any kind."""
        peers = ("reset", "step", "step", "close", "predict", "predict", "predict_group", "evict", "release")
        planted: list[Trouble] = []
        for _ in range(self.one(1, 1, 1, 2)):
            part = self.one(*peers, *peers, *KINDS)
            first_only = part in ("close", "release", "session_started", "session_ended", "session_failed")
            call = 1 if first_only else self.up_to(self.one(1, 3, 12))
            code = self.one("INTERNAL", "UNAVAILABLE", "CONNECTION")
            planted.append(Trouble(part, self.one(*KINDS[part]), call, code))
        return tuple(planted)

    def cancellation(self, *, endless: bool) -> Cancellation:
        """When the session is cancelled; an *endless* one surely is."""
        outside = self.one(True, False)
        if endless or self.one(True, False):  # Where nothing takes time, an endless session never sees a later moment.
            return Cancellation(step=self.up_to(self.one(10, 100, 300)), outside=outside)
        at = self.one(0.0, 0.25, 0.5, 1.0, 2.0, 4.0) + self.one(0.0, 0.0, self.random.random())
        return Cancellation(at=at, outside=outside)
