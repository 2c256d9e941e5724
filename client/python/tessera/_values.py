"""Arrays of other libraries, as NumPy's and back: by DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

# DLPack's kinds of devices whose memory this process can read: CPU, and CUDA's pinned.
_READABLE = (1, 3)
CPU_DEVICE = (1, 0)


def native(value: Any) -> Any:
    """A value of DLPack's, and one of another byte order, as NumPy's array of this machine's; what
    NumPy takes as it is, and what is no array, unchanged."""
    if isinstance(value, np.ndarray):
        native_order = value.dtype.isnative
        return value if native_order else value.astype(value.dtype.newbyteorder("="))
    if not hasattr(value, "__dlpack__"):
        return value
    # JAX's arrays are NumPy's to convert, with dtypes that DLPack lacks; torch's tensors are not.
    if hasattr(value, "__array__") and isinstance(getattr(value, "dtype", None), np.dtype):
        return value
    return _from_dlpack(value)


def _from_dlpack(value: Any) -> Any:
    kind = int(value.__dlpack_device__()[0])
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if kind not in _READABLE:
        raise TypeError(
            f"a {name} on a device of DLPack's kind {kind} is no argument, as this process cannot "
            "read its memory: copy it to the CPU first"
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        problem = error
    try:  # bf16, which NumPy does not know without JAX's help, and bool in older ones.
        import jax.dlpack

        return np.asarray(jax.dlpack.from_dlpack(value))
    except Exception:  # Of whatever kind: what NumPy said is what counts.
        raise TypeError(f"a {name} cannot be read by DLPack: {problem}") from problem


def to_dlpack(value: np.ndarray[Any, Any], max_version: tuple[int, int] | None) -> Any:
    """The capsule of an array that nobody else has."""
    try:
        if max_version is None:
            return value.__dlpack__()
        try:
            options: Any = {"max_version": max_version}
            return value.__dlpack__(**options)
        except TypeError:  # An older NumPy, whose capsules have no versions.
            return value.__dlpack__()
    except (BufferError, RuntimeError):
        if value.dtype.kind in "biufc" and value.dtype != np.bool_:
            raise
    # What NumPy has no code for: bf16, the f8s, bool in older ones.
    try:
        import jax
    except ImportError:
        raise BufferError(
            f"NumPy has no DLPack for {value.dtype}: install jax, or convert in the program"
        ) from None
    on_cpu = jax.device_put(value, jax.devices("cpu")[0])
    return on_cpu.__dlpack__(max_version=max_version)
