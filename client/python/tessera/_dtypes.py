"""Element types: Tessera's names and NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

_NUMPY = {
    "bool": "bool",
    "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f16": "float16", "f32": "float32", "f64": "float64",
    "c64": "complex64", "c128": "complex128",
}  # fmt: skip
# NumPy has no dtypes for these.
_ML_DTYPES = {"bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
_NAMES = {v: k for k, v in (_NUMPY | _ML_DTYPES).items()}


def to_numpy(name: str) -> np.dtype[Any]:
    """The NumPy dtype of "f32"; for bf16 and the f8s that of ml_dtypes."""
    if name in _NUMPY:
        found: np.dtype[Any] = np.dtype(_NUMPY[name]).newbyteorder("<")
        return found
    if name not in _ML_DTYPES:
        raise TypeError(f"{name} is not a dtype of this client; it knows {', '.join(names())}")
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(
            f"NumPy has no dtype for {name}: pip install ml_dtypes, "
            "or convert to f32 in the program"
        ) from None
    extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
    return extended


def from_numpy(dtype: np.dtype[Any]) -> str:
    """ "f32" for np.float32; TypeError for a dtype that Tessera does not have."""
    name = _NAMES.get(dtype.name)
    if name is None:
        raise TypeError(
            f"NumPy's {dtype} is none of Tessera's dtypes, which are {', '.join(names())}: "
            "use astype"
        )
    return name


def byte_width(name: str) -> int:
    """The bytes of an element; needs no ml_dtypes."""
    if name in ("f8e4m3fn", "f8e5m2"):
        return 1
    return 2 if name == "bf16" else to_numpy(name).itemsize


def bits_of(name: str) -> np.dtype[Any]:
    """The unsigned integers as wide as its elements."""
    return np.dtype(f"u{byte_width(name)}")


def names() -> list[str]:
    """All dtypes."""
    return [*_NUMPY, *_ML_DTYPES]
