"""What pip makes of the source tree, as far as that can be seen without a network."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import tessera

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def test_setup_makes_the_package_that_cmake_makes(tmp_path):
    ignored = shutil.ignore_patterns("_proto.binpb", "__pycache__", "build", "*.egg-info")
    source = tmp_path / "client/python"
    shutil.copytree(ROOT / "client/python", source, ignore=ignored)
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([sys.executable, "setup.py", "-q", "build", "--build-base", tmp_path / "out"],
                   cwd=source, env=env, check=True, capture_output=True, timeout=60)
    built, staged = tmp_path / "out/lib/tessera", pathlib.Path(tessera.__file__).parent
    names = {p.name for p in staged.iterdir() if p.name != "__pycache__"}
    assert {p.name for p in built.iterdir()} == names
    for name in names - {"_proto.binpb"}:
        assert (built / name).read_bytes() == (staged / name).read_bytes(), name
    script = "import tessera, tessera._proto as p; print(p.method('ArrayService/GetArray').path)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True,
                          env={**env, "PYTHONPATH": str(built.parent)}, timeout=60)
    assert done.stdout == "/tessera.v1.ArrayService/GetArray\n"


def test_a_source_tree_without_protos_says_what_is_missing(tmp_path):
    source = tmp_path / "a/b/python"
    shutil.copytree(ROOT / "client/python", source,
                    ignore=shutil.ignore_patterns("_proto.binpb", "__pycache__"))
    done = subprocess.run([sys.executable, "setup.py", "-q", "build"], cwd=source,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0 and "install from a checkout" in done.stderr


def test_the_version_is_the_repositorys():
    project = re.search(r"project\(Tessera VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert tessera.__version__ == project[1]


def test_another_packages_protos_do_not_clash():
    """google.rpc is in many packages, with other files and fields."""
    script = """
from google.protobuf import descriptor_pb2, descriptor_pool
pool = descriptor_pool.Default()
for name in ("google/rpc/status.proto", "google/rpc/error_details.proto"):
    file = descriptor_pb2.FileDescriptorProto(name=name, package="google.rpc", syntax="proto3")
    file.message_type.add(name="Status" if "status" in name else "ErrorInfo")
    pool.AddSerializedFile(file.SerializeToString())
import tessera
print(tessera._proto.message("google.rpc.Status")(code=5).code)
"""
    path = str(pathlib.Path(tessera.__file__).parent.parent)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": path}, timeout=60, check=True)
    assert done.stdout == "5\n"
