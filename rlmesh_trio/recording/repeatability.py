"""Why a recorded run need not come out the same when it is played again, read off its header. Pure."""

from rlmesh_trio.recording.records import Header

__all__ = ("why_not_repeatable",)


def why_not_repeatable(header: Header) -> tuple[str, ...]:
    """What keeps the run of *header* from being repeated whatever the lanes and the time, one line each; often none.

    Only what its settings decide: of the env, the model and the machine a header does not know whether they repeat.
    """
    settings, found = header.settings, list[str]()
    if (seconds := settings.get("max_episode_seconds")) is not None:
        found.append(f"its episodes are capped by the clock, after {seconds:g} s: cap steps instead")
    if header.base_seed is None and not settings.get("episode_seeds"):
        found.append("it has no seed: what the env draws is drawn anew each time")
    elif header.seed_rule == "by=lane":
        lanes = header.contract.num_envs
        found.append(
            "its env restarts lanes without a seed (by=lane): it repeats lane by lane and not by episode, with "
            f"{lanes} lane{'s' * (lanes != 1)} only"
        )
    if settings.get("prefetch_lead") and header.seed_rule == "by=lane":
        found.append(
            "its env restarts lanes while the model is asked ahead: which answers still count hangs on time, so play "
            "without prefetch"
        )
    return tuple(found)
