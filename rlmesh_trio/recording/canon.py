"""The canonical form of a recording: equal runs have one, byte for byte, whatever their lanes, timing and machine."""

import os

import attrs

from rlmesh_trio.errors import EndpointError
from rlmesh_trio.messages import EnvReply
from rlmesh_trio.recording.appearing import appearing
from rlmesh_trio.recording.digests import ordered_spec
from rlmesh_trio.recording.errors import RecordingError
from rlmesh_trio.recording.reader import Recording, open_recording
from rlmesh_trio.recording.records import EpisodeEntry, Footer, Header, Tick
from rlmesh_trio.recording.rows import Row

__all__ = ("canon",)


def canon(path: str | os.PathLike[str], out: str | os.PathLike[str]) -> Footer:
    """Write the episodes of the recording at *path* to *out*, in order of ordinals, as if one lane had played them all.

    Left out are decisions, earlier attempts, ids, requests that were never answered, and of the header what does not
    decide the run. The run root stays what it was. Raises :exc:`RecordingError` for a file that cannot be read to its
    end, and when *out* cannot be written or is *path* itself; *out* stays as it is then.
    """
    with open_recording(path) as recording:
        if os.path.exists(out) and os.path.samefile(path, out):
            raise RecordingError(os.fspath(out), "its canonical form cannot be written in place; name another file")
        with appearing(out, _canonical(recording.header)) as writer:
            for ordinal in sorted(recording.entries):
                entry = recording.entries[ordinal]
                for row in recording.rows(ordinal):
                    if row.answered:
                        writer.copy([_alone(recording, row, entry, writer.ticks + 1)])
                writer.record_end(0, ordinal, entry.end)
            return writer.finish()


def _canonical(header: Header) -> Header:
    return Header(
        contract=attrs.evolve(header.contract, num_envs=1, encoded_spec=ordered_spec(header.contract)),
        level="full" if header.level == "full" else "digest",
        workflow_edition=header.workflow_edition,
        base_seed=header.base_seed,
        seed_rule=header.seed_rule,
        unstable_leaves=header.unstable_leaves,
        ignored_infos=header.ignored_infos,
        tolerance=header.tolerance,
    )


def _alone(recording: Recording, row: Row, entry: EpisodeEntry, number: int) -> Tick:
    """*row* as a tick of its own."""
    tick = Tick(number=number, lanes=(0,), observation_digests=row.observation_digests, info_digests=row.info_digest)
    if row.reset is not None:
        tick.begins, tick.reset = (entry.ordinal,), row.reset
    else:
        tick.episodes, tick.action = (entry.ordinal,), row.action or ()
    if row.error is not None:
        tick.error = EndpointError(row.error.code, "", row.error.recoverable)
        return tick
    tick.reply = EnvReply(
        observation=row.observation,
        rewards=() if row.reward is None else (row.reward,),
        terminated_mask=b"" if row.terminated is None else bytes((row.terminated,)),
        truncated_mask=b"" if row.truncated is None else bytes((row.truncated,)),
    )
    if row.infos is not None:
        tick.reply.infos = recording.digester.compared_infos(row.infos)
    return tick
