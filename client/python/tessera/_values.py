"""Converts arrays of other libraries to NumPy arrays and back, by DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

# The kinds of DLPack devices whose memory this process can read: the CPU, and CUDA's pinned memory.
_READABLE = (1, 3)
CPU_DEVICE = (1, 0)


def native(value: Any) -> Any:
    """Returns a value as a NumPy array in this machine's byte order.

    Converts values that have only DLPack's interface, and arrays of the other byte order. Returns
    values that NumPy can convert by itself, and values that are no arrays, unchanged."""
    if isinstance(value, np.ndarray):
        native_order = value.dtype.isnative
        return value if native_order else value.astype(value.dtype.newbyteorder("="))
    if not hasattr(value, "__dlpack__"):
        return value
    # NumPy converts JAX's arrays by itself, even those with dtypes that DLPack lacks. Tensors of
    # torch have dtypes that are not NumPy's, so they go by way of DLPack.
    if hasattr(value, "__array__") and isinstance(getattr(value, "dtype", None), np.dtype):
        return value
    return _from_dlpack(value)


def _from_dlpack(value: Any) -> Any:
    kind = int(value.__dlpack_device__()[0])
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if kind not in _READABLE:
        raise TypeError(
            f"a {name} on a device of DLPack's kind {kind} cannot be an argument, because this "
            "process cannot read its memory: copy it to the CPU first"
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        problem = error
    try:  # NumPy needs JAX's help for bf16, and older releases of NumPy need it for bool.
        import jax.dlpack

        return np.asarray(jax.dlpack.from_dlpack(value))
    except Exception:  # Any failure of JAX: report NumPy's error, which is the relevant one.
        raise TypeError(f"a {name} cannot be read by DLPack: {problem}") from problem


def to_dlpack(value: np.ndarray[Any, Any], max_version: tuple[int, int] | None) -> Any:
    """Returns the DLPack capsule of an array that no other code holds."""
    try:
        if max_version is None:
            return value.__dlpack__()
        try:
            options: Any = {"max_version": max_version}
            return value.__dlpack__(**options)
        except TypeError:  # The capsules of an older NumPy have no versions.
            return value.__dlpack__()
    except (BufferError, RuntimeError):
        if value.dtype.kind in "biufc" and value.dtype != np.bool_:
            raise
    # NumPy has no DLPack code for bf16 and the f8 dtypes, and older releases have none for bool.
    try:
        import jax
    except ImportError:
        raise BufferError(
            f"NumPy has no DLPack for {value.dtype}: install jax, or convert in the program"
        ) from None
    on_cpu = jax.device_put(value, jax.devices("cpu")[0])
    return on_cpu.__dlpack__(max_version=max_version)
