"""Generate from the .proto files what is made of them; `--check` only compares.

That is `rlmesh_trio/wire/pb/`, `schemas/rlmesh.binpb`, and `rlmesh_trio/recording/schemas/`: a recording carries the
schema of each of its channels, with what that message needs and nothing else.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

SCHEMAS = Path(__file__).resolve().parent
PACKAGE = SCHEMAS.parent / "rlmesh_trio" / "wire" / "pb"
DESCRIPTORS = SCHEMAS / "rlmesh.binpb"
CHANNELS = SCHEMAS.parent / "rlmesh_trio" / "recording" / "schemas"
RECORDED = ("Run", "Episode", "Tick", "Decision")


def main(arguments: list[str] | None = None) -> int:
    """Write the generated files, or with `--check` name what differs; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a generated file is out of date")
    check = parser.parse_args(arguments).check
    with tempfile.TemporaryDirectory() as scratch:
        package, descriptors = Path(scratch, "pb"), Path(scratch, DESCRIPTORS.name)
        package.mkdir()
        run_protoc(package, descriptors)
        fresh = {PACKAGE / path.relative_to(package): path.read_bytes() for path in package.rglob("*.py")}
        fresh[DESCRIPTORS] = descriptors.read_bytes()
    described = FileDescriptorSet.FromString(fresh[DESCRIPTORS])
    for message in RECORDED:
        fresh[CHANNELS / f"{message}.binpb"] = needed_for(f".rlmesh_trio.recording.v1.{message}", described)
    if check:
        return report_differences(fresh)
    for folder in (PACKAGE, CHANNELS):
        shutil.rmtree(folder, ignore_errors=True)
    for path, content in fresh.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return 0


def run_protoc(package: Path, descriptors: Path) -> None:
    """Compile every schema into *package* and *descriptors*; exit with a clear line when a tool is missing or fails."""
    plugin = Path(sys.executable).with_name("protoc-gen-python_betterproto")
    if not plugin.exists():
        raise SystemExit(f"{plugin} is missing: install the project's dev extra into this environment")
    sources = sorted(str(path.relative_to(SCHEMAS)) for path in SCHEMAS.rglob("*.proto"))
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc"),
        f"--proto_path={SCHEMAS}",
        f"--plugin=protoc-gen-python_betterproto={plugin}",
        f"--python_betterproto_out={package}",
        "--include_imports",
        f"--descriptor_set_out={descriptors}",
        *sources,
    ]
    done = subprocess.run(command, cwd=SCHEMAS, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"protoc failed:\n{done.stderr.strip()}")


def needed_for(message: str, described: FileDescriptorSet) -> bytes:
    """The descriptors of *message* (``.package.Name``) and of all it is made of."""
    known = {f".{file.package}.{kind.name}": kind for file in described.file for kind in types_of(file)}
    needed: set[str] = set()
    waiting = {message}
    while waiting:
        needed |= waiting
        # Every name of a type in the text of a type, also those of its map entries.
        named = {name for kind in waiting for name in re.findall(r'type_name: "([^"]+)"', str(known[kind]))}
        waiting = (named & known.keys()) - needed
    kept = FileDescriptorSet()
    for file in described.file:
        slim = FileDescriptorProto(name=file.name, package=file.package, syntax=file.syntax)
        slim.message_type.extend(kind for kind in file.message_type if f".{file.package}.{kind.name}" in needed)
        slim.enum_type.extend(kind for kind in file.enum_type if f".{file.package}.{kind.name}" in needed)
        if types_of(slim):
            slim.dependency.extend(name for name in file.dependency if name in {each.name for each in kept.file})
            kept.file.append(slim)
    return kept.SerializeToString(deterministic=True)


def types_of(file: FileDescriptorProto) -> list[Any]:
    """The messages and enums at the top of *file*."""
    return [*file.message_type, *file.enum_type]


def report_differences(fresh: dict[Path, bytes]) -> int:
    """Compare the fresh files with the committed ones; 1 when any differs, is missing or is left over."""
    committed = {*PACKAGE.rglob("*.py"), *CHANNELS.glob("*"), DESCRIPTORS}
    stale = [
        path for path in sorted(committed | fresh.keys()) if not path.exists() or path.read_bytes() != fresh.get(path)
    ]
    for path in stale:
        print(
            f"{path.relative_to(SCHEMAS.parent)} is not what the .proto files give: run `make proto`", file=sys.stderr
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
