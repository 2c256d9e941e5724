"""Puts the plugin of a build beside the package: the one at TESSERA_PJRT_PLUGIN, else that of
build/release, else of build/dev. Everything else is in pyproject.toml.

The wheel is for any Python 3, as the plugin does not know of Python, and for machines that have the
libraries it was built with (scripts/packages.txt): no manylinux, which would have to carry them.
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
    """The wheel is for this kind of machine only."""

    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(cmdclass={"build_py": BuildPy, "bdist_wheel": AnyPython}, distclass=Binary)
