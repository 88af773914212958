"""What is known of a target before anything is played: what it declares, and what the user told about it."""

from typing import Any

import gymnasium

from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import OpenEnv, Target
from rlmesh_trio.contract import EnvContract
from rlmesh_trio.transport.handshake import PeerInfo

__all__ = ("declared_limit", "facts_of", "package_of", "unreadable_facts")

_LIMIT_KEY = "max_episode_steps"
"""The metadata entry, a positive int, by which an env declares its time limit."""


def facts_of(target: Target, env: OpenEnv, settings: Settings) -> Facts:
    """The facts of *target*, of which *env* is a session."""
    capabilities: Any = getattr(env, "capabilities", {"subset_step": "true"} if env.subset_step else {})
    return _facts(
        target,
        settings,
        contract=env.contract,
        subset_step=env.subset_step,
        capabilities=frozenset(name for name, value in capabilities.items() if value == "true"),
        limit=settings.max_steps or declared_limit(target.source, env.contract),
    )


def unreadable_facts(target: Target, settings: Settings) -> Facts:
    """The facts of a server whose contract cannot be read: it has no spaces, and nothing can be played on it."""
    return _facts(
        target,
        settings,
        contract=EnvContract(),
        subset_step=False,
        capabilities=frozenset[str](),
        limit=settings.max_steps,
    )


def package_of(env: OpenEnv) -> tuple[str, str]:
    """The package that serves *env*, and its version; both empty for an env of this process."""
    peer = getattr(env, "peer_info", None)
    if not isinstance(peer, PeerInfo):
        return "", ""
    # Both this package and rlmesh call their env servers "rlmesh-env"; only one of them builds on trio.
    package = "rlmesh_trio" if "trio" in peer.framework_versions else peer.component.removesuffix("-env")
    return package, peer.package_version


def _facts(target: Target, settings: Settings, **known: Any) -> Facts:
    return Facts(
        name=target.name,
        factory=target.kind == "factory",
        local=target.source is not None,
        nondeterministic=settings.nondeterministic,
        ignored_leaves=frozenset(settings.ignored_leaves),
        ignored_infos=frozenset(settings.ignored_infos),
        ulps=settings.ulps,
        options=settings.options,
        allow_shutdown=settings.allow_shutdown,
        bounds=settings.bounds,
        **known,
    )


def declared_limit(source: object, contract: EnvContract) -> int | None:
    """The time limit in steps that *contract* declares, or gymnasium for the id *source*; ``None`` without one."""
    declared = contract.metadata.get(_LIMIT_KEY)
    if declared is None and isinstance(source, str) and source in gymnasium.registry:
        declared = gymnasium.registry[source].max_episode_steps
    return declared if isinstance(declared, int) and declared > 0 else None
