"""What two peers tell each other first, and on what they agree.

One generation of the protocol, compared as text. The edition is the highest that both sides know and neither wants to
stay below. A capability counts when its value is the text ``true``.
"""

import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import attrs

from rlmesh_trio.editions import CURRENT_EDITION, RETAINED_EDITIONS, select_edition
from rlmesh_trio.errors import HandshakeError
from rlmesh_trio.transport.address import Address
from rlmesh_trio.wire.pb.rlmesh.core import v1 as core
from rlmesh_trio.wire.strict import present

__all__ = ("GENERATION", "NAMED_RESETS", "SUBSET_STEP", "Agreement", "PeerInfo", "agree", "introduce")

GENERATION = "rlmesh-wire-v1"

# What an env's server may offer: its lanes can be stepped by name; those of a vector can be reset by name.
SUBSET_STEP = "subset_step"
NAMED_RESETS = "rlmesh_trio.named_resets.v1"


@attrs.frozen
class PeerInfo:
    """What a peer says of itself; advisory only."""

    component: str = ""
    package_version: str = ""
    language: str = ""
    language_version: str = ""
    os: str = ""
    os_version: str = ""
    arch: str = ""
    framework_versions: Mapping[str, str] = attrs.field(factory=dict[str, str])
    extra: Mapping[str, str] = attrs.field(factory=dict[str, str])


@attrs.frozen
class Agreement:
    """What came of a handshake: the edition to use, and what the peer offered."""

    edition: str
    supported_editions: tuple[str, ...]
    capabilities: Mapping[str, str]
    peer_info: PeerInfo

    def can(self, capability: str) -> bool:
        """Whether the peer offers *capability*."""
        return self.capabilities.get(capability) == "true"


def introduce(component: str, edition: str | None) -> core.HandshakeRequest:
    """Our half, as *component* (``rlmesh-env`` on the env leg). *edition* is wanted; by default the newest."""
    return present(
        core.HandshakeRequest(
            protocol_generation=GENERATION,
            peer_info=core.PeerInfo(
                component=component,
                package_version=_version("rlmesh_trio"),
                language="python",
                language_version=platform.python_version(),
                os=platform.system().lower(),
                os_version=platform.release(),
                arch=platform.machine(),
                framework_versions={name: _version(name) for name in ("gymnasium", "numpy", "trio")},
            ),
            supported_workflow_editions=[each.name for each in RETAINED_EDITIONS],
            preferred_workflow_edition=edition or CURRENT_EDITION.name,
        )
    )


def agree(address: Address, reply: core.HandshakeResponse, edition: str | None) -> Agreement:
    """What *reply* and our own introduction come to.

    Raises :exc:`~rlmesh_trio.errors.HandshakeError`, saying what each side offered, when they have no generation or no
    edition in common.
    """
    if not reply.compatible:
        said = reply.error_message or "it gave no reason"
        raise HandshakeError(f"{address} refused the protocol generation {GENERATION!r}: {said}")
    ours = [each.name for each in RETAINED_EDITIONS]
    theirs = reply.supported_workflow_editions
    wanted = edition or CURRENT_EDITION.name
    selected = select_edition([ours, theirs], [wanted, reply.preferred_workflow_edition])
    if selected is None:
        raise HandshakeError(
            f"no common workflow edition: {address} offers {_listed(theirs)} and wants "
            f"{reply.preferred_workflow_edition or 'its highest'}; this side offers {_listed(ours)} and wants {wanted}"
        )
    peer = reply.peer_info
    return Agreement(
        edition=selected,
        supported_editions=tuple(theirs),
        capabilities=dict(reply.capabilities),
        peer_info=PeerInfo(
            peer.component,
            peer.package_version,
            peer.language,
            peer.language_version,
            peer.os,
            peer.os_version,
            peer.arch,
            dict(peer.framework_versions),
            dict(peer.extra),
        ),
    )


def _listed(names: list[str]) -> str:
    return "[" + ", ".join(names) + "]"


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
