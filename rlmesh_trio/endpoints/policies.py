"""What may serve as a policy, and which of its corners answers at a given horizon.

A plain callable is a ``predict_batch``. An object or class may define any of ``predict``, ``predict_batch``,
``predict_chunk`` and ``predict_chunk_batch``; asked one action at a time, un-chunked corners come first, and batched
corners come before those that take one row. Beside them it may have ``load()``, ``on_episode_end(episode_id)``,
``close()``, ``wants_history`` and ``native_chunk``. Signatures are looked at once, here.
"""

import difflib
import inspect
from collections.abc import Callable
from typing import Any, Literal, cast

import attrs

from rlmesh_trio.endpoints.builtin_policies import RandomForm, ZeroForm
from rlmesh_trio.endpoints.loading import instantiate, load_object
from rlmesh_trio.endpoints.policy_forms import BatchForm, ChunkBatchForm, ChunkForm, Corner, Form, RowForm
from rlmesh_trio.errors import ConnectError, InvalidSpec
from rlmesh_trio.spec import MAX_HORIZON, ValueSpace

__all__ = ("Policy", "find_policy")

_BUILTIN = {"random": RandomForm, "zero": ZeroForm}
_FORMS = {
    "predict_batch": BatchForm,
    "predict": RowForm,
    "predict_chunk_batch": ChunkBatchForm,
    "predict_chunk": ChunkForm,
}
_CHUNKING = ("predict_chunk_batch", "predict_chunk")
_EXTRAS = ("context", "history", "execution_horizon")


@attrs.frozen(eq=False)
class Policy:
    """A policy as found: its corners by name, and what it has beside them. A built-in one has its name alone."""

    name: str
    corners: dict[str, Corner] = attrs.field(factory=dict[str, Corner])
    builtin: Literal["random", "zero"] | None = None
    load: Callable[[], object] | None = None
    close: Callable[[], object] | None = None
    on_episode_end: Callable[[str], object] | None = None
    wants_history: bool = False
    native_chunk: int | None = None

    def form(self, observations: ValueSpace, actions: ValueSpace, horizon: int) -> Form:
        """How this policy answers *horizon* frames at a time; raises :exc:`InvalidSpec` when it cannot."""
        if not 1 <= horizon <= MAX_HORIZON:
            raise InvalidSpec(f"execution_horizon must be 1 to {MAX_HORIZON}, not {horizon}")
        if self.builtin is not None:
            return _BUILTIN[self.builtin](actions, horizon)
        if self.native_chunk is not None and horizon > self.native_chunk:
            raise InvalidSpec(
                f"execution_horizon={horizon} is above the native_chunk={self.native_chunk} of policy {self.name}"
            )
        for name, form in _FORMS.items():
            if name in self.corners and (horizon == 1 or name in _CHUNKING):
                return form(self.corners[name], observations, actions, horizon)
        raise InvalidSpec(
            f"execution_horizon={horizon} needs a policy with predict_chunk or predict_chunk_batch; "
            f"{self.name} has {', '.join(self.corners)}: use a horizon of 1"
        )


def find_policy(source: object) -> Policy:
    """The policy that *source* is or names; a class is created without arguments. Raises :exc:`ConnectError`."""
    if isinstance(source, str):
        return _named(source)
    return _described(source, getattr(source, "__name__", type(source).__name__))


def _named(text: str) -> Policy:
    if text in ("random", "zero"):
        return Policy(text, builtin=text)
    if ":" not in text:
        close = difflib.get_close_matches(text, _BUILTIN, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise ConnectError(f"unknown policy {text!r}{hint}: use {', '.join(_BUILTIN)} or module:name")
    return _described(load_object(text), text)


def _described(found: object, name: str) -> Policy:
    if isinstance(found, type):
        found = instantiate(found, f"policy class {name}")
    corners = {corner: _corner(getattr(found, corner), corner) for corner in _FORMS if _method(found, corner)}
    if not corners:
        if not callable(found):
            raise ConnectError(
                f"policy {name} is of type {type(found).__name__}: neither callable nor with any of {', '.join(_FORMS)}"
            )
        corners = {"predict_batch": _corner(found, "predict_batch")}
    wants_history = bool(getattr(found, "wants_history", False))
    if wants_history and not any(corner.history for corner in corners.values()):
        raise ConnectError(f"policy {name} wants history, but none of {', '.join(corners)} has a parameter history")
    native_chunk = getattr(found, "native_chunk", None)
    if native_chunk is not None and (not isinstance(native_chunk, int) or native_chunk < 1):
        raise ConnectError(f"policy {name} has native_chunk={native_chunk!r}: it must be a positive whole number")
    return Policy(
        name,
        corners,
        load=_method(found, "load"),
        close=_method(found, "close"),
        on_episode_end=_method(found, "on_episode_end"),
        wants_history=wants_history,
        native_chunk=native_chunk,
    )


def _method(found: object, name: str) -> Callable[..., Any] | None:
    method = getattr(found, name, None)
    return cast("Callable[..., Any]", method) if callable(method) else None


def _corner(call: Callable[..., Any], name: str) -> Corner:
    try:
        parameters = set(inspect.signature(call).parameters)
    except (TypeError, ValueError):
        parameters = set[str]()
    return Corner(call, name, **{extra: extra in parameters for extra in _EXTRAS})
