"""What a recording says of the run it is of, and of the machine: gathered once, when a recording begins."""

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import attrs

from rlmesh_trio.errors import ProtocolError
from rlmesh_trio.observers.identity import run_facts
from rlmesh_trio.recording.records import Header
from rlmesh_trio.spec import SessionSpec
from rlmesh_trio.transport.handshake import PeerInfo
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.strict import decode, encode

__all__ = ("header_of", "machine_facts", "peer_of")

_PACKAGES: Final = ("rlmesh_trio", "numpy", "trio", "gymnasium", "torch", "jax")
_SWITCHES: Final = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_CBWR",
    "NPY_DISABLE_CPU_FEATURES",
    "PYTHONHASHSEED",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE",
    "TF_DETERMINISTIC_OPS",
    "XLA_FLAGS",
)


def header_of(
    spec: SessionSpec,
    env: object = None,
    model: object = None,
    *,
    execution_horizon: int = 1,
    prefetch_lead: int = 0,
    unstable_leaves: Sequence[str] = (),
    ignored_infos: Sequence[str] = (),
    tolerance: str = "",
) -> Header:
    """The header of a run of *spec* with these endpoints, which may say where and what they are."""
    by_slot = spec.seeds_by_slot or bool(spec.episode_seeds)
    return Header(
        contract=spec.env_contract,
        workflow_edition=spec.workflow_edition,
        base_seed=spec.base_seed,
        seed_rule="by=slot" if by_slot and spec.driver_owns_resets else "by=lane",
        unstable_leaves=tuple(unstable_leaves),
        ignored_infos=tuple(ignored_infos),
        tolerance=tolerance,
        settings=run_facts(spec, execution_horizon=execution_horizon, prefetch_lead=prefetch_lead),
        env_address=str(getattr(env, "address", "")).rpartition("@")[2],
        env_peer=_peer(getattr(env, "peer_info", None)),
        model_peer=_peer(getattr(model, "peer_info", None)),
        machine=machine_facts(),
    )


def _peer(info: PeerInfo | None) -> bytes:
    return b"" if info is None else encode(core.PeerInfo(**attrs.asdict(info)))


def peer_of(encoded: bytes) -> PeerInfo | None:
    """What a peer said of itself, as a header has it; ``None`` for bytes that say nothing."""
    try:
        told = decode(core.PeerInfo, encoded, what="a peer")
    except ProtocolError:
        return None
    return PeerInfo(**{field.name: getattr(told, field.name) for field in attrs.fields(PeerInfo)})


def machine_facts() -> dict[str, str]:
    """What numerics may depend on here: versions, CPU and GPU, and the switches that are set. Only texts, none empty.

    A package that nobody has imported is not imported for this.
    """
    facts = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "commit": _commit(Path(__file__).parents[2] / ".git"),
        **{name: _version(name) for name in _PACKAGES},
        **_cpu(),
        **_gpu(),
        **{name: os.environ.get(name, "") for name in _SWITCHES},
    }
    return {name: told for name, told in facts.items() if told}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _commit(git: Path) -> str:
    """The commit of the checkout that this package lies in, if it lies in one."""
    head = _read(git / "HEAD").strip()
    return _read(git / head.removeprefix("ref: ")).strip() if head.startswith("ref: ") else head


def _cpu() -> dict[str, str]:
    lines = [line.partition(":") for line in _read(Path("/proc/cpuinfo")).split("\n\n")[0].splitlines()]
    told = {name.strip(): value.strip() for name, _, value in lines}
    return {
        "cpu": told.get("model name", platform.processor()),
        "cpu_flags": told.get("flags", told.get("Features", "")),
        "cpu_count": str(os.cpu_count() or ""),
    }


def _gpu() -> dict[str, str]:
    names = [
        line.partition(":")[2].strip()
        for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        for line in _read(path).splitlines()
        if line.startswith("Model:")
    ]
    return {"gpu": ", ".join(names)} | _torch_switches(sys.modules)


def _torch_switches(modules: Mapping[str, Any]) -> dict[str, str]:
    torch = modules.get("torch")
    if torch is None:
        return {}
    return {
        "torch.deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "torch.cudnn.deterministic": str(torch.backends.cudnn.deterministic),
        "torch.cudnn.benchmark": str(torch.backends.cudnn.benchmark),
    }
