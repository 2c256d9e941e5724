"""The registry of JAX programs, and how their inputs are made.

    @program(f32(4, 8), s32(3, high=4))
    def take_rows(x, i):
        return x[i]

registers a function under its name. Inputs are made when they are needed, from random numbers that
only the name seeds. So the inputs of a program do not change when other programs are added or
removed.
"""
import contextlib
import dataclasses
import math
import zlib
from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax.sharding import AxisType

PROGRAMS = {}  # programs by name


@dataclasses.dataclass(frozen=True)
class Program:
    """A program. If `rtol` is None, run.py chooses the tolerance by the dtype of the results. If
    `mesh_shape` is None, the program says nothing about devices, and run.py runs it on 1, 2 and 4
    of them."""
    name: str
    function: Callable
    specs: tuple
    rtol: float | None = None
    mesh_shape: tuple | None = None
    shardings: tuple | None = None  # PartitionSpecs of the arguments
    out_shardings: Any = None
    custom_calls: tuple = ()  # targets of custom calls that JAX only exports if they are named
    explicit: bool = False  # whether the axes of the mesh are Explicit

    def inputs(self):
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        return jax.tree.map(lambda s: s(rng) if isinstance(s, Spec) else s, self.specs,
                            is_leaf=lambda s: isinstance(s, Spec))

    def mesh(self):
        kind = AxisType.Explicit if self.explicit else AxisType.Auto
        return mesh_of(self.mesh_shape, kind)


_devices = None  # devices for meshes; None means the first devices of JAX's default platform


@contextlib.contextmanager
def meshes_of(devices):
    """While the context lasts, meshes are made from the first of these devices."""
    global _devices
    before, _devices = _devices, devices
    try:
        yield
    finally:
        _devices = before


def mesh_of(shape, kind=AxisType.Auto):
    """Returns a mesh of this shape with the axes "x" and "y"."""
    devices = _devices and _devices[:math.prod(shape)]
    return jax.make_mesh(shape, ("x", "y"), axis_types=(kind, kind), devices=devices)


@dataclasses.dataclass(frozen=True)
class Spec:
    """A recipe that makes an input, or a tree of inputs, from random numbers."""
    make: Callable

    def __call__(self, rng):
        return self.make(rng)


def program(*specs, **options):
    def register(function):
        name = function.__name__
        assert name not in PROGRAMS, f"two programs are named {name}"
        PROGRAMS[name] = Program(name, function, specs, **options)
        return function
    return register


def _floats(dtype):
    def spec(*shape, low=-2, high=2):
        # The values have few significant bits, so every float type holds and adds them exactly.
        return Spec(lambda rng: (np.round(rng.uniform(low, high, shape) * 64) / 64).astype(dtype))
    return spec


def _ints(dtype, lowest, highest):
    def spec(*shape, low=lowest, high=highest):
        return Spec(lambda rng: rng.integers(low, high, shape, endpoint=False).astype(dtype))
    return spec


f32, f16, bf16 = _floats(np.float32), _floats(np.float16), _floats(ml_dtypes.bfloat16)
s32, s16, s8 = _ints(np.int32, -50, 50), _ints(np.int16, -999, 999), _ints(np.int8, -128, 128)
u32, u16, u8 = _ints(np.uint32, 0, 1 << 32), _ints(np.uint16, 0, 1 << 16), _ints(np.uint8, 0, 256)


def flags(*shape):
    return Spec(lambda rng: rng.uniform(size=shape) < 0.5)


def c64(*shape):
    return Spec(lambda rng: (rng.normal(size=shape) + 1j * rng.normal(size=shape))
                .astype(np.complex64))


def key(seed=0):
    """Returns a key for jax.random in its old form, an array of two numbers."""
    return np.array([0, seed], np.uint32)


def normal(*shape, scale=1.0):
    return Spec(lambda rng: (scale * rng.normal(size=shape)).astype(np.float32))


def weights(*shape):
    """Returns initial weights of a layer, which are so small that sums stay near one."""
    fan_in = shape[-2] if len(shape) > 1 else shape[0]
    return normal(*shape, scale=fan_in**-0.5)


def positive_definite(n):
    def make(rng):
        a = rng.normal(size=(n, n)).astype(np.float32)
        return a @ a.T / n + np.eye(n, dtype=np.float32)
    return Spec(make)
