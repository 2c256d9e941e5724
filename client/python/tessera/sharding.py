"""Meshes, partition specs, and the slices of shards."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Union

from tessera import _dtypes, _proto

Entry: TypeAlias = Union[None, str, Sequence[str]]


class P(tuple[tuple[str, ...], ...]):
    """A partition spec: for each dim of an array, the mesh axes that shard it.

    `P("x", None)` shards dim 0 over the axis x. `P(("x", "y"))` shards dim 0 over both axes, x
    being the major one. With `P()` every device has the whole array. Dims beyond the entries are
    not sharded. Axes that the spec does not name hold copies.

    A spec is a tuple with a tuple of axes for each dim. Trailing dims that are not sharded are left
    out, so that `P("x")` and `P("x", None)` are equal.

    Args:
        *entries (None, str or sequence of str): The axes of each dim.

    Raises:
        TypeError: An entry has another type. Do not retry.
        ValueError: An axis occurs twice. Do not retry.

    Example:
        print(tessera.P("x", None) == tessera.P("x"))  # True
        print(tessera.P(None, ("x", "y")))  # P(None, ('x', 'y'))
    """

    __slots__ = ()

    def __new__(cls, *entries: Entry) -> P:
        dims = [() if e is None else (e,) if isinstance(e, str) else tuple(e) for e in entries]
        while dims and not dims[-1]:
            dims.pop()
        named = [a for dim in dims for a in dim]
        if not all(isinstance(a, str) for a in named):
            raise TypeError(f"P{entries}: an entry is None, an axis, or a sequence of axes")
        if len(set(named)) != len(named):
            raise ValueError(f"P{entries} names an axis twice")
        return tuple.__new__(cls, dims)

    def __getnewargs__(self) -> tuple[tuple[str, ...], ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return (
            f"P({', '.join('None' if not d else repr(d[0] if len(d) == 1 else d) for d in self)})"
        )


@dataclasses.dataclass(frozen=True)
class Device:
    """A device of the cluster.

    `Client.devices()` returns the devices as they are at that moment. `int(device)` is its id, and
    `Mesh` takes devices or ids.

    Attributes:
        id (int): Id of the device, which is the same as long as its worker is registered.
        kind (str): "cpu" or "gpu".
        worker (str): Name of its worker.
        host (str): Name of its host.
        executor (str): Name of the process that owns the device, such as "w0/0".
        healthy (bool): Whether work can be placed on it.
        reason (str): Reason why the device is not healthy, or why it is cordoned; otherwise "".
        memory_bytes (int): The device's memory in bytes, 0 if unknown.
        cordoned (bool): Whether it takes no new programs: its worker is cordoned, or it is a GPU that has reported
            a fault.

    Example:
        devices = client.devices()
        mesh = tessera.Mesh({"x": 2}, [d for d in devices if d.worker == "w1"])
        print(mesh.size)  # 2
    """

    id: int
    kind: str  # "cpu", "gpu"
    worker: str
    host: str
    executor: str  # the process that owns the device
    healthy: bool
    reason: str  # the reason why the device is not healthy, or why it is cordoned
    memory_bytes: int  # 0 if unknown
    cordoned: bool

    def __int__(self) -> int:
        """Returns the id."""
        return self.id


class Mesh:
    """A logical arrangement of devices, along axes with names.

    Two meshes are equal if they have the same axes in the same order, and the same devices.

    Args:
        axes (Mapping of str to int): The number of devices along each axis, the outermost axis
            first.
        devices (sequence of Device or int): The devices or their ids, one for each coordinate,
            row-major: the last axis changes fastest. If None, the client takes the first devices
            that are healthy and not cordoned, each time that the mesh is used.

    Attributes:
        axes (dict of str to int): The number of devices along each axis.
        devices (tuple of int, or None): The ids of the devices.

    Raises:
        TypeError: `axes` is not a Mapping. Do not retry.
        ValueError: An axis has no device, or the number of devices is not the size of the mesh. Do
            not retry.

    Example:
        mesh = tessera.Mesh({"data": 2, "model": 2})
        print(mesh.size, mesh.on([3, 2, 1, 0]).devices)  # 4 (3, 2, 1, 0)
    """

    def __init__(
        self, axes: Mapping[str, int], devices: Sequence[Device | int] | None = None
    ) -> None:
        """Makes a mesh; see the class."""
        if not isinstance(axes, Mapping):
            raise TypeError(
                "a mesh is made of axes by name, as in Mesh({'x': 2, 'y': 2}), not of "
                f"{type(axes).__name__}"
            )
        self.axes = {str(name): int(size) for name, size in axes.items()}
        if any(size < 1 for size in self.axes.values()):
            raise ValueError(f"Mesh({dict(axes)}): an axis has at least one device")
        self.devices = None if devices is None else tuple(int(d) for d in devices)
        if self.devices is not None and len(self.devices) != self.size:
            raise ValueError(
                f"Mesh({self.axes}) has {self.size} coordinates, but {len(self.devices)} devices "
                "were given"
            )

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.axes.values())

    def on(self, devices: Sequence[Device | int]) -> Mesh:
        """Returns this mesh with other devices.

        Args:
            devices (sequence of Device or int): The devices or their ids, one for each coordinate,
                row-major.

        Returns:
            Mesh: a mesh with the same axes.

        Raises:
            ValueError: The number of devices is not the size of the mesh. Do not retry.
        """
        return Mesh(self.axes, devices)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Mesh)
            and list(self.axes.items()) == list(other.axes.items())
            and self.devices == other.devices
        )

    def __hash__(self) -> int:
        return hash((tuple(self.axes.items()), self.devices))

    def __repr__(self) -> str:
        on = "" if self.devices is None else f", devices={list(self.devices)}"
        return f"Mesh({self.axes}{on})"


def set_placement(proto: Any, mesh: Mesh, spec: P) -> None:
    """Fills in a tessera.v1.Placement."""
    for name, size in mesh.axes.items():
        proto.mesh.axes.add(name=name, size=size)
    for axes in spec:
        proto.spec.dims.add(axes=axes)
    proto.devices.extend(mesh.devices or ())


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """The dtype, the shape and the placement of an array.

    `Array.spec`, `Executable.inputs` and `Executable.outputs` are specs. A spec that does not
    divide a dim evenly, or that names an axis which the mesh lacks, raises ValueError when it is
    made.

    Attributes:
        dtype (str): Tessera's name of the dtype, such as "f32".
        shape (tuple of int): The shape of the whole array.
        mesh (Mesh): The mesh, with its devices.
        spec (P): Says how the dims are sharded.

    Example:
        array = client.put(np.zeros((8, 4), np.float32), tessera.Mesh({"x": 2}), tessera.P("x"))
        print(array.spec.type, array.spec.spec, array.spec.block_shape)  # f32[8,4] P('x') (4, 4)
        print(array.spec.block_of(1))  # (slice(4, 8, None), slice(0, 4, None))
    """

    dtype: str  # "f32"
    shape: tuple[int, ...]
    mesh: Mesh
    spec: P

    def __post_init__(self) -> None:
        if len(self.spec) > len(self.shape):
            raise ValueError(
                f"{self.spec!r} has {len(self.spec)} entries, {self.type} has "
                f"{len(self.shape)} dims"
            )
        for dim, axes in enumerate(self.spec):
            for axis in axes:
                if axis not in self.mesh.axes:
                    raise ValueError(
                        f"{self.spec!r} names axis {axis!r}; the mesh has {list(self.mesh.axes)}"
                    )
            parts = math.prod(self.mesh.axes[a] for a in axes)
            if self.shape[dim] % parts:
                raise ValueError(
                    f"dim {dim} of {self.type} does not divide over {axes}, which are {parts} "
                    "devices: pad the array, or shard another dim"
                )

    @property
    def type(self) -> str:
        """The dtype and the shape as text, such as "f32[8,4]"."""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def nbytes(self) -> int:
        """The number of bytes of the array, without replicas."""
        return math.prod(self.shape) * _dtypes.byte_width(self.dtype)

    @property
    def block_shape(self) -> tuple[int, ...]:
        """The shape of a shard."""
        parts = [math.prod(self.mesh.axes[a] for a in axes) for axes in self.spec]
        return tuple(
            size // (parts[dim] if dim < len(parts) else 1) for dim, size in enumerate(self.shape)
        )

    def block_of(self, ordinal: int) -> tuple[slice, ...]:
        """Returns which block of the array a device has.

        Args:
            ordinal (int): The place of the device in the mesh, row-major, from 0.

        Returns:
            A tuple of slice, one for each dim.
        """
        at: dict[str, int] = {}
        for axis, size in reversed(self.mesh.axes.items()):
            ordinal, at[axis] = divmod(ordinal, size)
        starts = []
        for dim, size in enumerate(self.block_shape):
            index = 0
            for axis in self.spec[dim] if dim < len(self.spec) else ():
                index = index * self.mesh.axes[axis] + at[axis]
            starts.append(index * size)
        return tuple(slice(s, s + n) for s, n in zip(starts, self.block_shape))

    def to_proto(self) -> Any:
        """Converts the spec to a message, for programs that use the messages of the service
        themselves.

        Returns:
            A message `tessera.v1.ArraySpec`.
        """
        proto = _proto.message("ArraySpec")(dtype=self.dtype, shape=self.shape)
        set_placement(proto.placement, self.mesh, self.spec)
        return proto

    @staticmethod
    def from_proto(proto: Any) -> ArraySpec:
        """Converts a message to a spec. The inverse of `to_proto()`.

        Args:
            proto (message): A message `tessera.v1.ArraySpec`.

        Returns:
            ArraySpec: the spec.

        Raises:
            ValueError: The array is unreduced, which this client does not support. Do not retry.
        """
        placement = proto.placement
        if placement.spec.unreduced:
            raise ValueError(
                f"the array is unreduced along {placement.spec.unreduced}; this client does not "
                "support such arrays: reduce it in the program"
            )
        return ArraySpec(
            dtype=proto.dtype,
            shape=tuple(proto.shape),
            mesh=Mesh({a.name: a.size for a in placement.mesh.axes}, list(placement.devices)),
            spec=P(*(tuple(d.axes) for d in placement.spec.dims)),
        )

    def __repr__(self) -> str:
        return f"{self.type} {self.spec!r} on {self.mesh!r}"
