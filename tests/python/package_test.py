"""Tests the package that pip makes from the source tree, as far as that is possible without a
network."""
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
    """Many packages contain google.rpc, with other files and fields."""
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


USER_CODE = """import numpy as np
import tessera


def main() -> None:
    with tessera.connect("localhost:8470") as client:
        a = client.put(np.arange(8.0), tessera.Mesh({"x": 2}), tessera.P("x"))
        reveal_type(a)
        client.put(1, 2, 3)
"""


def test_an_editable_install_type_checks_in_a_project_of_ones_own(tmp_path):
    """The test needs no network: pip builds the package with tools from Debian's packages."""
    ignored = shutil.ignore_patterns("_proto.binpb", "__pycache__", "build", "*.egg-info")
    shutil.copytree(ROOT / "client/python", tmp_path / "client/python", ignore=ignored)
    shutil.copytree(ROOT / "proto", tmp_path / "proto")

    def run(*command, expect=0):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MYPY"))}
        done = subprocess.run(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, timeout=120, check=False)
        assert done.returncode == expect, done.stdout
        return done.stdout
    python = tmp_path / "venv/bin/python"
    run("/usr/bin/python3", "-m", "venv", "--system-site-packages", tmp_path / "venv")
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", "-e",
        "client/python")
    (tmp_path / "app.py").write_text(USER_CODE)
    said = run("/usr/bin/mypy", "--strict", "--python-executable", python, "--cache-dir",
               tmp_path / "mypy", "app.py", expect=1)
    assert 'Revealed type is "tessera._array.Array"' in said
    assert 'Argument 2 to "put" of "Client" has incompatible type "int"; expected "Mesh"' in said
    assert said.endswith("Found 2 errors in 1 file (checked 1 source file)\n"), said
