"""What a caller may name as an env or a policy, and the one error when it cannot be had.

Everything that goes wrong here is a :exc:`~rlmesh_trio.errors.ConnectError` with one line that says what was named,
what is wrong with it and what to do: nothing was started.
"""

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import attrs
import gymnasium
from gymnasium.envs.registration import ENV_ID_RE
from gymnasium.vector import VectorEnv

from rlmesh_trio.errors import ConnectError, SessionError

__all__ = ("AnyEnv", "EnvMaker", "env_makers", "instantiate", "load_object")

AnyEnv = gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any]

_ENV_MEMBERS = ("reset", "step", "observation_space", "action_space")


@attrs.frozen(eq=False)
class EnvMaker:
    """Makes the env of one lane where it is called, which may be another thread or process.

    ``source`` is an env, a factory (called with ``lane=`` if it has such a parameter), or the text of either.
    """

    source: object
    lane: int

    @property
    def holds_env(self) -> bool:
        """Whether the env exists already, and so cannot be made in another process."""
        return _is_env(self.source)

    def __call__(self) -> AnyEnv:
        """Make the env; raises :exc:`ConnectError`."""
        source = self.source
        label = _label(source)
        if isinstance(source, str):
            if not _names_attribute(source):
                return _make_registered(source)
            source = load_object(source)
        if _is_env(source):
            return cast("AnyEnv", source)
        if not callable(source):
            raise ConnectError(f"{label} is {_article(source)}, neither a gymnasium env nor a factory of one")
        arguments = {"lane": self.lane} if "lane" in _parameters(source) else {}
        made = _call(f"env factory {label}", source, arguments)
        if not _is_env(made):
            raise ConnectError(f"env factory {label} returned {_article(made)}, not a gymnasium env")
        return cast("AnyEnv", made)


def env_makers(source: object, lanes: int) -> list[EnvMaker]:
    """One maker per lane of *source*: an env, a list of envs, a factory, a gymnasium id, or ``module:factory``.

    A list brings its own number of lanes. Raises :exc:`ConnectError`.
    """
    if lanes < 1:
        raise ConnectError(f"an env needs at least one lane, not {lanes}")
    if isinstance(source, (list, tuple)):
        return _makers_of(cast("Sequence[object]", source), lanes)
    if _is_env(source) and lanes > 1:
        raise ConnectError(f"one env object cannot serve {lanes} lanes: pass a factory, a gymnasium id, or a list")
    if not (_is_env(source) or isinstance(source, str) or callable(source)):
        raise ConnectError(f"{_article(source)} is no env: pass a gymnasium env, a list of them, a factory or its name")
    return [EnvMaker(source, lane) for lane in range(lanes)]


def load_object(text: str) -> object:
    """The object that ``module:name`` names, looked for in the working directory too; raises :exc:`ConnectError`."""
    module_name, _, path = text.partition(":")
    if not module_name or not path:
        raise ConnectError(f"cannot load {text!r}: expected module:name")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
    except Exception as failure:
        raise ConnectError(f"cannot load {text!r}: {_import_failure(module_name, failure)}") from failure
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as missing:
            hint = _did_you_mean(name, dir(found))
            raise ConnectError(f"cannot load {text!r}: {module_name} has no attribute {name!r}{hint}") from missing
    return found


def instantiate(made: Callable[..., object], label: str) -> object:
    """Create the class *made* without arguments; raises :exc:`ConnectError` when it needs some, or fails."""
    needed = [name for name, parameter in _parameters(made).items() if _is_required(parameter)]
    if needed:
        raise ConnectError(f"{label} cannot be created without {', '.join(needed)}: name a ready object instead")
    return _call(label, made, {})


def _makers_of(envs: Sequence[object], lanes: int) -> list[EnvMaker]:
    if not envs:
        raise ConnectError("an empty list has no lanes: pass at least one env")
    if lanes not in (1, len(envs)):
        raise ConnectError(f"{len(envs)} envs are {len(envs)} lanes, not {lanes}")
    for lane, env in enumerate(envs):
        if isinstance(env, VectorEnv) or not _is_env(env):
            kind = type(cast("object", env)).__name__
            raise ConnectError(f"entry {lane} of the env list is a {kind}: a list holds one scalar env per lane")
    if len({id(env) for env in envs}) < len(envs):
        raise ConnectError("the env list holds the same env twice: each lane needs its own")
    return [EnvMaker(env, lane) for lane, env in enumerate(envs)]


def _make_registered(text: str) -> AnyEnv:
    if ENV_ID_RE.fullmatch(text.rpartition(":")[2]) is None:
        raise _unknown(text)
    try:
        return gymnasium.make(text)
    except SessionError:
        raise
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.NameNotFound) as failure:
        raise _unknown(text) from failure
    except Exception as failure:
        raise ConnectError(f"env {text!r} could not be made: {_describe(failure)}") from failure


def _unknown(text: str) -> ConnectError:
    hint = _did_you_mean(text, gymnasium.registry)
    return ConnectError(f"unknown env {text!r}: no gymnasium id{hint}; an env of your own is named module:factory")


def _call(label: str, made: Callable[..., object], arguments: Mapping[str, object]) -> object:
    try:
        return made(**arguments)
    except SessionError:
        raise
    except Exception as failure:
        raise ConnectError(f"{label} raised {_describe(failure)}") from failure


def _names_attribute(text: str) -> bool:
    module_name, colon, path = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module_name.split("."), *path.split(".")))


def _is_env(value: object) -> bool:
    if isinstance(value, (gymnasium.Env, VectorEnv)):
        return True
    return not isinstance(value, type) and all(hasattr(value, member) for member in _ENV_MEMBERS)


def _parameters(made: Callable[..., object]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(made).parameters)
    except (TypeError, ValueError):
        return {}


def _is_required(parameter: inspect.Parameter) -> bool:
    gathers = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not gathers


def _import_failure(module_name: str, failure: Exception) -> str:
    missing = failure.name if isinstance(failure, ModuleNotFoundError) else None
    if missing is not None and (module_name == missing or module_name.startswith(f"{missing}.")):
        return f"no module named {missing!r} here or on the import path"
    return f"importing {module_name} failed with {_describe(failure)}"


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" (did you mean {', '.join(close)}?)" if close else ""


def _describe(failure: BaseException) -> str:
    first_line = str(failure).strip().partition("\n")[0]
    return f"{type(failure).__name__}: {first_line}" if first_line else type(failure).__name__


def _label(source: object) -> str:
    return repr(source) if isinstance(source, str) else str(getattr(source, "__qualname__", type(source).__qualname__))


def _article(value: object) -> str:
    kind = type(value).__name__ if not isinstance(value, type) else f"class {value.__name__}"
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
