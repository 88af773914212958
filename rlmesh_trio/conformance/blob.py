"""A failing case in one word that can be mailed and typed: JSON, zlib, base85, with the contract it was found on.

A contract's digest covers what a script relies on: the env's id, its spaces, its lanes and who restarts them. It is the
same whoever serves the env, whatever else its metadata say.
"""

import base64
import hashlib
import json
import zlib
from typing import Any, cast

import attrs

from rlmesh_trio.conformance.scripts_json import case_from_json, case_to_json
from rlmesh_trio.contract import EnvContract, ValueSpace
from rlmesh_trio.errors import SessionError
from rlmesh_trio.spaces import space_from_gymnasium

__all__ = ("FORMAT", "Blob", "BlobError", "contract_digest", "decode_blob", "encode_blob")

FORMAT = 1
_LARGEST = 64 * 1024 * 1024


class BlobError(SessionError):
    """Text that is no blob, one of another format, or one that was found on another contract; told in one line."""


@attrs.frozen
class Blob:
    """A case of the check with the id ``check``, and of what contract: its digest, the env's id and its lanes."""

    check: str
    case: Any = attrs.field(hash=False)
    digest: str
    env_id: str
    lanes: int

    def expect(self, contract: EnvContract) -> None:
        """Raise :exc:`BlobError` unless this was found on a contract that equals *contract* in what scripts rely on."""
        if self.digest == contract_digest(contract):
            return
        if (self.env_id, self.lanes) == (contract.env_id, contract.num_envs):
            here = "the one here has other spaces or another autoreset mode"
        else:
            here = f"here is {contract.env_id} with {_lanes(contract.num_envs)}"
        raise BlobError(f"the blob was made for {self.env_id} with {_lanes(self.lanes)}; {here}")


def _lanes(count: int) -> str:
    return f"{count} lane{'' if count == 1 else 's'}"


def contract_digest(contract: EnvContract) -> str:
    """32 hexadecimal digits that change with the env's id, spaces, number of lanes or autoreset mode."""
    digest = hashlib.blake2b(digest_size=16)
    head = json.dumps([contract.env_id, contract.num_envs, int(contract.autoreset_mode)])
    for part in (head.encode(), _written(contract.observation_space), _written(contract.action_space)):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _written(space: ValueSpace | None) -> bytes:
    """*space* as we write it: servers have more than one way to say the same."""
    return b"" if space is None else space_from_gymnasium(space.space).encoded


def encode_blob(check: str, case: object, contract: EnvContract) -> str:
    """*case* as a word without quotes, spaces and backslashes. Raises :exc:`TypeError` for a case that is no data."""
    document = {
        "format": FORMAT,
        "check": check,
        "contract": contract_digest(contract),
        "env_id": contract.env_id,
        "lanes": contract.num_envs,
        "case": case_to_json(case),
    }
    text = json.dumps(document, separators=(",", ":"), sort_keys=True)
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode()


def decode_blob(text: str) -> Blob:
    """The inverse of :func:`encode_blob`. Raises :exc:`BlobError`."""
    inflater = zlib.decompressobj()
    try:
        document: Any = json.loads(inflater.decompress(base64.b85decode(text.strip()), _LARGEST))
    except (ValueError, zlib.error, RecursionError) as fault:
        raise BlobError(f"this is no blob, or one that was cut short: {fault}") from fault
    if not isinstance(document, dict):
        raise BlobError("this is no blob of a conformance check")
    told = cast("dict[str, Any]", document)
    if told.get("format") != FORMAT:
        raise BlobError(f"the blob has format {told.get('format')!r}, this version reads {FORMAT}")
    try:
        case = case_from_json(told["case"])
        return Blob(str(told["check"]), case, str(told["contract"]), str(told["env_id"]), int(told["lanes"]))
    except (KeyError, TypeError, ValueError) as fault:
        raise BlobError(f"the blob is damaged: {fault}") from fault
