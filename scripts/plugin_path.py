#!/usr/bin/env python3
"""Makes a folder in which JAX finds the plugin, as if pip had installed the package tessera-jax from this tree.

  PYTHONPATH=$(scripts/plugin_path.py FOLDER) python train.py

Writes the package's entry point into FOLDER and prints the PYTHONPATH. Needs Python 3.11 or later.
"""
import os
import pathlib
import sys
import tomllib

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "client/python/tessera_jax"


def plugin_path(folder):
    """Writes the entry point into the folder. Returns the PYTHONPATH with which Python finds it and the package."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    info = pathlib.Path(folder).resolve() / f"tessera_jax-{project['version']}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    entries = project["entry-points"]["jax_plugins"].items()
    (info / "entry_points.txt").write_text("[jax_plugins]\n" + "".join(f"{k} = {v}\n" for k, v in entries))
    return os.pathsep.join([str(info.parent), str(PACKAGE)])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(plugin_path(sys.argv[1]))
