"""Generate from the .proto files what is made of them; `--check` only compares.

That is `rlmesh_trio/wire/pb/`, `schemas/rlmesh.binpb`, and for recordings, which carry the schema they are written in,
`rlmesh_trio/replay/recording.binpb`.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SCHEMAS = Path(__file__).resolve().parent
PACKAGE = SCHEMAS.parent / "rlmesh_trio" / "wire" / "pb"
DESCRIPTORS = SCHEMAS / "rlmesh.binpb"
RECORDING = SCHEMAS.parent / "rlmesh_trio" / "replay" / "recording.binpb"
RECORDING_SCHEMA = "rlmesh_trio/recording/v1/recording.proto"


def main(arguments: list[str] | None = None) -> int:
    """Write the generated files, or with `--check` name what differs; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a generated file is out of date")
    check = parser.parse_args(arguments).check
    with tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch, "pb")
        package.mkdir()
        descriptors = {DESCRIPTORS: Path(scratch, DESCRIPTORS.name), RECORDING: Path(scratch, RECORDING.name)}
        generate(package, descriptors)
        if check:
            return report_differences(package, descriptors)
        shutil.rmtree(PACKAGE, ignore_errors=True)
        shutil.copytree(package, PACKAGE)
        for committed, fresh in descriptors.items():
            shutil.copyfile(fresh, committed)
    return 0


def generate(package: Path, descriptors: dict[Path, Path]) -> None:
    """Compile every schema into *package*, and descriptors of all and of a recording's into their files."""
    plugin = Path(sys.executable).with_name("protoc-gen-python_betterproto")
    if not plugin.exists():
        raise SystemExit(f"{plugin} is missing: install the project's dev extra into this environment")
    sources = sorted(str(path.relative_to(SCHEMAS)) for path in SCHEMAS.rglob("*.proto"))
    run_protoc(
        f"--plugin=protoc-gen-python_betterproto={plugin}",
        f"--python_betterproto_out={package}",
        "--include_imports",
        f"--descriptor_set_out={descriptors[DESCRIPTORS]}",
        *sources,
    )
    run_protoc("--include_imports", f"--descriptor_set_out={descriptors[RECORDING]}", RECORDING_SCHEMA)


def run_protoc(*arguments: str) -> None:
    """Run the compiler over the schemas; exit with its own words when it fails."""
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={SCHEMAS}", *arguments]
    done = subprocess.run(command, cwd=SCHEMAS, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"protoc failed:\n{done.stderr.strip()}")


def report_differences(package: Path, descriptors: dict[Path, Path]) -> int:
    """Compare the fresh files with the committed ones; 1 when any differs, is missing or is left over."""
    fresh = {PACKAGE / path.relative_to(package): path.read_bytes() for path in package.rglob("*.py")}
    fresh |= {committed: path.read_bytes() for committed, path in descriptors.items()}
    committed = {*PACKAGE.rglob("*.py"), *descriptors}
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
