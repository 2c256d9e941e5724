"""Copies the plugin of a build into the package: the file at TESSERA_PJRT_PLUGIN or, without that
variable, the plugin in build/release or build/dev. Everything else is in pyproject.toml.

The wheel works with any Python 3, since the plugin does not use Python. It works only on machines
that have the libraries that the plugin was built with (scripts/packages.txt). So it is no manylinux
wheel, which would have to contain these libraries.
"""

import os
import pathlib
import shutil

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

HERE = pathlib.Path(__file__).resolve().parent
NAME = "pjrt_plugin_tessera.so"
BUILDS = HERE.parent.parent.parent / "build"


def plugin():
    named = os.environ.get("TESSERA_PJRT_PLUGIN")
    places = [pathlib.Path(named)] if named else [BUILDS / p / "lib" / NAME for p in ("release", "dev")]
    for place in places:
        if place.is_file():
            return place
    looked = ", ".join(map(str, places))
    raise SystemExit(f"no plugin at {looked}: cmake --preset release && cmake --build --preset release "
                     "--target tessera_pjrt_plugin")


class BuildPy(build_py):
    def run(self):
        shutil.copyfile(plugin(), HERE / "tessera_jax" / NAME)
        super().run()


class Binary(Distribution):
    """Marks the wheel as one for this kind of machine only."""

    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"build_py": BuildPy, "bdist_wheel": AnyPython}, distclass=Binary)
