"""The Protocol the engine drives an env through."""

from typing import Protocol

from rlmesh_trio.messages import EnvReply, Leaves, ResetRequest, StepTarget

__all__ = ("Env",)


class Env(Protocol):
    """One env session. Requests for different lanes may run at once.

    A failure is an :exc:`~rlmesh_trio.errors.EndpointError`; any other exception counts as one with code ``INTERNAL``.
    Every call passes a real checkpoint, so that a deadline or a cancellation can end it.
    """

    async def reset(self, request: ResetRequest) -> EnvReply:
        """Start episodes on the named lanes and return their first observations, rows in the request's order."""
        ...

    async def step(self, action: Leaves, target: StepTarget) -> EnvReply:
        """Step the lanes *target* names with one batched action, one row per lane."""
        ...

    async def close(self) -> None:
        """Close the env itself (not just this session). Called once, when the spec asks for it."""
        ...
