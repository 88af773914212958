"""What an open env declares, as one record: for programs as it is, for people as a table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import attrs
import click

from rlmesh_trio.cli.space_table import LeafRow, leaf_rows
from rlmesh_trio.contract import autoreset_name
from rlmesh_trio.editions import RETAINED_EDITIONS
from rlmesh_trio.endpoints.remote_env import ServedEnv
from rlmesh_trio.messages import MetaValue
from rlmesh_trio.spec import WIRE_DTYPES, AutoresetMode, DescribedEnv, EnvContract, ValueSpace
from rlmesh_trio.transport.handshake import PeerInfo

if TYPE_CHECKING:
    from rich.padding import Padding

__all__ = ("EnvDescription", "description_of", "print_description")

_WIDTH = 80
_RESETS = {
    AutoresetMode.UNSPECIFIED: "the engine resets every episode",
    AutoresetMode.NEXT_STEP: "the env restarts its lanes itself",
    AutoresetMode.SAME_STEP: "cannot be driven",
    AutoresetMode.DISABLED: "the engine resets every episode",
}


@attrs.frozen
class EnvDescription:
    """An env's own words. ``width`` is its number of lanes; ``limits`` and ``peer`` are ``None`` for one run here."""

    env: str
    env_id: str
    width: int
    driven: str
    autoreset_mode: str
    render_mode: str
    observation_space: Sequence[LeafRow] | None
    action_space: Sequence[LeafRow] | None
    metadata: Mapping[str, MetaValue]
    capabilities: Mapping[str, str]
    editions: Mapping[str, object]
    peer: PeerInfo | None
    limits: Mapping[str, object] | None


def description_of(name: str, env: DescribedEnv) -> EnvDescription:
    """The description of *env*, which the user calls *name*."""
    contract, ceiling = env.contract, env.ceiling
    remote = env if isinstance(env, ServedEnv) else None
    offered = remote.supported_editions if remote else tuple(edition.name for edition in RETAINED_EDITIONS)
    local_capabilities = {"subset_step": "true"} if env.subset_step else {}
    return EnvDescription(
        env=name,
        env_id=contract.env_id,
        width=contract.num_envs,
        driven=_driven(contract, env.subset_step),
        autoreset_mode=autoreset_name(contract.autoreset_mode),
        render_mode=contract.render_mode,
        observation_space=_leaves(contract.observation_space),
        action_space=_leaves(contract.action_space),
        metadata=contract.metadata,
        capabilities=remote.capabilities if remote else local_capabilities,
        editions={"selected": env.edition, "offered": offered},
        peer=remote.peer_info if remote else None,
        limits=None
        if ceiling is None
        else {"max_message_bytes": ceiling.max_message_size, "dtypes": sorted(ceiling.dtypes, key=WIRE_DTYPES.index)},
    )


def _leaves(space: ValueSpace | None) -> list[LeafRow] | None:
    return None if space is None else leaf_rows(space)


def _driven(contract: EnvContract, subset_step: bool) -> str:
    if contract.num_envs == 1:
        return "one lane"
    return f"{contract.num_envs} lanes, each by itself" if subset_step else f"{contract.num_envs} lanes in lockstep"


def print_description(description: EnvDescription) -> None:
    """Print *description* as tables on standard output: 80 columns wide and plain where that is no terminal."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH
    named = description.env_id not in (description.env, EnvContract().env_id)
    with console.capture() as drawn:
        console.print(f"{description.env} ({description.env_id})" if named else description.env, style="bold")
        console.print(_pairs(_facts(description)))
        for title, leaves in (("observations", description.observation_space), ("actions", description.action_space)):
            console.print(title, style="bold")
            console.print("  not declared" if leaves is None else _space_table(leaves))
        if description.metadata:
            console.print("metadata", style="bold")
            console.print(_pairs((key, _plain(value)) for key, value in description.metadata.items()))
    for line in drawn.get().splitlines():
        click.echo(line.rstrip())


def _facts(description: EnvDescription) -> Iterator[tuple[str, str]]:
    yield "driven as", description.driven
    mode = AutoresetMode.__members__.get(description.autoreset_mode)
    yield "autoreset", description.autoreset_mode + ("" if mode is None else f": {_RESETS[mode]}")
    yield "render mode", description.render_mode or "none"
    names = [key if value == "true" else f"{key}={value}" for key, value in description.capabilities.items()]
    yield "capabilities", ", ".join(names) or "none"
    offered = ", ".join(cast("Sequence[str]", description.editions["offered"]))
    yield "edition", f"{description.editions['selected']}, offered: {offered or 'none'}"
    limits = description.limits
    if limits is not None:
        dtypes = ", ".join(cast("Sequence[str]", limits["dtypes"]))
        yield "limits", f"messages up to {cast('int', limits['max_message_bytes']) / 2**20:g} MiB; {dtypes}"
    peer = description.peer
    if peer is not None:
        system = " ".join((peer.os, peer.os_version, peer.arch))
        yield "peer", f"{peer.component} {peer.package_version}, {peer.language} {peer.language_version}, {system}"
        for key, value in (*sorted(peer.framework_versions.items()), *sorted(peer.extra.items())):
            yield "", f"{key} {value}"


def _pairs(rows: Iterable[tuple[str, str]]) -> "Padding":
    from rich.padding import Padding
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", ratio=1)
    for label, value in rows:
        table.add_row(label, value)
    return Padding.indent(table, 2)


def _space_table(leaves: Sequence[LeafRow]) -> "Padding":
    from rich.padding import Padding
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    for heading in ("path", "kind", "dtype", "shape", "values"):
        table.add_column(heading, overflow="fold")
    for leaf in leaves:
        table.add_row(leaf.path, leaf.kind, leaf.dtype, str(leaf.shape), leaf.values)
    return Padding.indent(table, 2)


def _plain(value: MetaValue) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else str(value)
