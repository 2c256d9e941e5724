"""Writes tessera/_proto.binpb, the descriptors of the wire contract, before the package is built.

Everything else is in pyproject.toml. grpcio-tools makes the descriptors; pip installs it for the
build. Without it, protoc makes them.
"""

import os
import pathlib
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
PROTOS = HERE.parent.parent / "proto"
DESCRIPTORS = HERE / "tessera" / "_proto.binpb"


def write_descriptors():
    if not PROTOS.is_dir():
        if DESCRIPTORS.exists():
            return  # A source archive contains the descriptors.
        raise SystemExit(f"{PROTOS} is missing: install from a checkout of the repository")
    arguments = [
        f"--proto_path={PROTOS}",
        "--include_imports",
        f"--descriptor_set_out={DESCRIPTORS}",
        *sorted(str(p.relative_to(PROTOS)) for p in PROTOS.rglob("*.proto")),
    ]
    try:
        import grpc_tools
    except ImportError:
        command = ["protoc"]
    else:
        command = [sys.executable, "-m", "grpc_tools.protoc"]
        # The package grpc_tools includes the well-known types.
        well_known = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
        arguments.insert(1, f"--proto_path={well_known}")
    try:
        subprocess.run(command + arguments, check=True)
    except FileNotFoundError:
        raise SystemExit(
            "neither grpcio-tools nor protoc is installed; one of them is needed to make the "
            "client's descriptors"
        ) from None


class BuildPy(build_py):
    """Runs for wheels and for editable installs alike."""

    def run(self):
        write_descriptors()
        super().run()


setup(cmdclass={"build_py": BuildPy})
