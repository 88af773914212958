"""The first look at a target, before anything is played: what it declares, and whether anything can be played."""

from contextlib import suppress

import attrs

from rlmesh_trio.conformance.blob import contract_digest
from rlmesh_trio.conformance.facts import facts_of, package_of, unreadable_facts
from rlmesh_trio.conformance.handshakes import flaw_of, shaken
from rlmesh_trio.conformance.outcome import TargetOutcome
from rlmesh_trio.conformance.raw_stream import open_raw_stream
from rlmesh_trio.conformance.registry import Facts
from rlmesh_trio.conformance.settings import Settings
from rlmesh_trio.conformance.targets import Target
from rlmesh_trio.contract import EnvContract
from rlmesh_trio.errors import ConnectError, HandshakeError, SpaceError

__all__ = ("OPENING", "FirstLook", "first_look")

OPENING = 10.0
"""How long a target may take to answer at first, in seconds."""


@attrs.frozen(eq=False)
class FirstLook:
    """What was learnt: ``about`` is an outcome without findings, ``unreadable`` why nothing can be played, if so."""

    facts: Facts
    about: TargetOutcome
    unreadable: str


async def first_look(target: Target, settings: Settings) -> FirstLook:
    """Connect to *target* and learn what it declares. Raises what connecting raises.

    A server whose spaces are no spaces, or that shakes hands badly, is there to be tested for just that. What was
    started here, and has ended, as when the time of an earlier run was over in a restart, is started again.
    """
    if target.ended and target.restartable:
        await target.restart()
    package = version = unreadable = ""
    try:
        async with target.connect(OPENING) as env:
            facts = facts_of(target, env, settings)
            package, version = package_of(env)
    except HandshakeError as failure:
        if not isinstance(failure.__cause__, SpaceError) and not await _shakes_badly(target):
            raise
        facts, unreadable = unreadable_facts(target, settings), str(failure)
    contract = None if unreadable else facts.contract
    if contract is not None:
        unreadable = _unplayable(contract)
    about = TargetOutcome(
        target.name,
        target.kind,
        address=target.address,
        contract=contract,
        contract_digest="" if contract is None else contract_digest(contract),
        package=package,
        version=version,
    )
    return FirstLook(facts, about, unreadable)


async def _shakes_badly(target: Target) -> bool:
    """Whether there is a server that answers a handshake, though not as it has to."""
    with suppress(ConnectError):
        async with open_raw_stream(target.address, token=target.token, limit=OPENING) as stream:
            shake = await shaken(stream)
            return shake.reply is not None and flaw_of(shake) is not None
    return False


def _unplayable(contract: EnvContract) -> str:
    """Why nothing can be played on an env of *contract*; empty when something can."""
    spaces = {"observation_space": contract.observation_space, "action_space": contract.action_space}
    missing = [name for name, space in spaces.items() if space is None]
    if missing:
        return f"it declares no {' and no '.join(missing)}"
    return "" if contract.num_envs >= 1 else "it declares num_envs = 0"
