"""A recording of what a failing case was answered: its traces one after the other, as one run of the env.

The header says which check and case it is of, so that the file alone is enough to try the case again.
"""

import os
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from rlmesh_trio.conformance.blob import Blob, BlobError, decode_blob
from rlmesh_trio.conformance.scripts import Op, Reset, Row, Step, Wait
from rlmesh_trio.conformance.traces import Answer, Refusal, Trace
from rlmesh_trio.contract import AutoresetMode, EnvContract
from rlmesh_trio.errors import EndpointError, SpaceError
from rlmesh_trio.messages import EnvReply, Leaves, ResetRequest, StepTarget
from rlmesh_trio.recording import Header, RecordingWriter, machine_facts, open_recording
from rlmesh_trio.recording.records import CASE
from rlmesh_trio.spaces import codec_for

__all__ = ("blob_in", "record_traces")

_CHECK = "conform.check"


def record_traces(
    path: str | os.PathLike[str], traces: Iterable[Trace], contract: EnvContract, *, check: str, blob: str
) -> None:
    """Write the recording of *traces*, level ``full``, to *path*. Traces of another number of lanes are left out.

    Raises :exc:`~rlmesh_trio.recording.RecordingError`, and ``MissingExtra`` without the extra ``mcap``.
    """
    header = Header(contract=contract, settings={_CHECK: check, CASE: blob}, machine=machine_facts())
    with RecordingWriter(path, header, "full") as writer:
        recorder = _TraceRecorder(writer, contract)
        for trace in traces:
            if trace.script.lanes == contract.num_envs:
                recorder.record(trace)


def blob_in(path: str | os.PathLike[str]) -> Blob:
    """The failing case that the recording at *path* is of.

    Raises :exc:`~rlmesh_trio.recording.RecordingError` for a file that is none, and :exc:`BlobError` for one of another
    kind.
    """
    with open_recording(path) as recording:
        told: Any = recording.header.settings.get(CASE)
    if not isinstance(told, str) or not told:
        raise BlobError(f"{os.fspath(path)} is no recording of a failed check: it holds no case to play again")
    return decode_blob(told)


class _TraceRecorder:
    """Counts the episodes of the traces it records."""

    def __init__(self, writer: RecordingWriter, contract: EnvContract) -> None:
        self._writer = writer
        self._mode = contract.autoreset_mode
        self._actions = None if contract.action_space is None else codec_for(contract.action_space)
        self._begun = 0
        self._ended: set[int] = set()

    def record(self, trace: Trace) -> None:
        answers = {answer.op: answer for answer in trace.answers}
        for place, op in enumerate(trace.script.ops):
            if not isinstance(op, Wait) and place in answers:
                self._record(op, answers[place])

    def _record(self, op: Op, answer: Answer) -> None:
        reply = _reply(answer)
        if isinstance(op, Reset):
            request = ResetRequest(op.seeds, op.options, 0, op.lanes, answer.episode_ids)
            self._ended.difference_update(answer.lanes)
            self._writer.record_reset(request, reply, self._begins(answer.lanes, repeat(True)))
        elif isinstance(op, Step):
            ends = [any(flags) for flags in zip(answer.terminated, answer.truncated, strict=False)]
            ended = {lane for lane, over in zip(answer.lanes, ends, strict=False) if over}
            restarting: set[int] = set()
            if self._mode == AutoresetMode.NEXT_STEP:
                restarting = self._ended & set(answer.lanes)
            elif self._mode == AutoresetMode.SAME_STEP:
                restarting = ended
            self._ended = (self._ended - set(answer.lanes)) | ended
            begins = self._begins(answer.lanes, [lane in restarting for lane in answer.lanes])
            target = StepTarget(0, op.lanes, answer.episode_ids)
            self._writer.record_step(self._joined(op.actions), reply, target, begins)

    def _begins(self, lanes: Sequence[int], starts: Iterable[bool]) -> tuple[int, ...]:
        ordinals: list[int] = []
        for _, begins in zip(lanes, starts, strict=False):
            self._begun += begins
            ordinals.append(self._begun if begins else 0)
        return tuple(ordinals)

    def _joined(self, actions: Sequence[Row]) -> Leaves:
        if len(actions) == 1 or self._actions is None:
            return list(actions[0])
        try:
            return self._actions.concatenate(actions, [1] * len(actions))
        except SpaceError:  # actions that are none were sent put together like this
            return [b"".join(leaf) for leaf in zip(*actions, strict=False)]


def _reply(answer: Answer) -> EnvReply | EndpointError | None:
    refusal = answer.refusal
    if refusal is not None:
        return _error(refusal)
    return EnvReply(
        observation=list(answer.raw_leaves) or None,
        infos=answer.infos,
        rewards=answer.rewards,
        terminated_mask=bytes(answer.terminated),
        truncated_mask=bytes(answer.truncated),
        completed=answer.completed,
    )


def _error(refusal: Refusal) -> EndpointError | None:
    """What was answered; nothing, where our own deadline was what came."""
    if refusal.code == "TIMEOUT" and not refusal.recoverable:
        return None
    return EndpointError(refusal.code, refusal.message, recoverable=refusal.recoverable)
