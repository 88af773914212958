"""Generate `rlmesh_trio/wire/pb/` and `schemas/rlmesh.binpb` from the .proto files; `--check` only compares."""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SCHEMAS = Path(__file__).resolve().parent
PACKAGE = SCHEMAS.parent / "rlmesh_trio" / "wire" / "pb"
DESCRIPTORS = SCHEMAS / "rlmesh.binpb"


def main(arguments: list[str] | None = None) -> int:
    """Write the generated files, or with `--check` name what differs; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a generated file is out of date")
    check = parser.parse_args(arguments).check
    with tempfile.TemporaryDirectory() as scratch:
        package, descriptors = Path(scratch, "pb"), Path(scratch, DESCRIPTORS.name)
        package.mkdir()
        run_protoc(package, descriptors)
        if check:
            return report_differences(package, descriptors)
        shutil.rmtree(PACKAGE, ignore_errors=True)
        shutil.copytree(package, PACKAGE)
        shutil.copyfile(descriptors, DESCRIPTORS)
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


def report_differences(package: Path, descriptors: Path) -> int:
    """Compare the fresh files with the committed ones; 1 when any differs, is missing or is left over."""
    fresh = {PACKAGE / path.relative_to(package): path.read_bytes() for path in package.rglob("*.py")}
    fresh[DESCRIPTORS] = descriptors.read_bytes()
    committed = {*PACKAGE.rglob("*.py"), DESCRIPTORS}
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
