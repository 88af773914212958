"""The Protocols the engine drives an env through."""

from typing import Protocol, runtime_checkable

from rlmesh_trio.messages import EnvReply, Leaves, ResetRequest, StepTarget

__all__ = ("Env", "ReconnectingEnv")


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


@runtime_checkable
class ReconnectingEnv(Env, Protocol):
    """An env whose session can be opened anew after its connection was lost.

    When the connection is lost, the operations under way and all later ones fail at once, with the code ``CONNECTION``,
    until a reconnect succeeds. Nothing of the old session is left then: each lane has to be reset before it is stepped.
    """

    async def reconnect(self) -> None:
        """Drop what is left of the connection and make one attempt at a new session with the same env.

        Operations still under way on the old connection fail with the code ``CONNECTION``. An attempt is bounded in
        time; waiting and trying again is the caller's part. Who calls while another does waits for that one, and is
        content with its success. After a failure, or a cancellation, the env can be reconnected again.

        Raises :exc:`~rlmesh_trio.errors.ConnectError` when the server is not there, or not free, which may pass, and
        :exc:`~rlmesh_trio.errors.HandshakeError` when it cannot be driven any more or declares another contract, which
        will not.
        """
        ...
