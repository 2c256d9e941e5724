"""Element types: converts between Tessera's names and NumPy's dtypes."""

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
# NumPy has no dtypes for these; ml_dtypes has.
_ML_DTYPES = {
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "f8e3m4": "float8_e3m4",
    "f8e4m3": "float8_e4m3", "f8e4m3b11fnuz": "float8_e4m3b11fnuz",
    "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu", "f4e2m1fn": "float4_e2m1fn",
    "s4": "int4", "u4": "uint4", "s2": "int2", "u2": "uint2",
}  # fmt: skip
_NAMES = {v: k for k, v in (_NUMPY | _ML_DTYPES).items()}
# The number of bits of an element, for dtypes whose elements do not fill a byte.
_FEW_BITS = {"f4e2m1fn": 4, "s4": 4, "u4": 4, "s2": 2, "u2": 2}


def to_numpy(name: str) -> np.dtype[Any]:
    """Returns the NumPy dtype for a name such as "f32".

    The dtypes for bf16, for floats of 8 and 4 bits and for integers of 4 and 2 bits are those of
    ml_dtypes. Raises TypeError if ml_dtypes is not installed or lacks the dtype."""
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
            "or convert the array in the program"
        ) from None
    try:
        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
    except AttributeError:
        raise TypeError(
            f"ml_dtypes {ml_dtypes.__version__} has no dtype for {name}: "
            "pip install --upgrade ml_dtypes, or convert the array in the program"
        ) from None
    return extended


def from_numpy(dtype: np.dtype[Any]) -> str:
    """Returns the name of a dtype, such as "f32" for np.float32. Raises TypeError for a dtype that
    Tessera does not have."""
    name = _NAMES.get(dtype.name)
    if name is None:
        raise TypeError(
            f"Tessera has no dtype for NumPy's {dtype}; it has {', '.join(names())}: use astype"
        )
    return name


def is_whole(name: str) -> bool:
    """Returns whether the elements are booleans or integers."""
    return name == "bool" or name[0] in "su"


def byte_width(name: str) -> int:
    """Returns the number of bytes of an element. Does not need ml_dtypes."""
    if name in _ML_DTYPES:
        return 2 if name == "bf16" else 1
    return to_numpy(name).itemsize


def bits_of(name: str) -> np.dtype[Any]:
    """Returns the dtype of unsigned integers that are as wide as the elements."""
    return np.dtype(f"u{byte_width(name)}")


def to_service(name: str, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns an array with the bytes that the service expects for elements of this dtype.

    In the service an integer of 4 or 2 bits fills its byte with its sign; in ml_dtypes it fills the
    byte with zeros.
    """
    if name not in _FEW_BITS:
        return value
    codes = value.view(np.int8 if name[0] == "s" else np.uint8)
    unused = codes.dtype.type(8 - _FEW_BITS[name])
    # Shift to the top of the byte and back, which repeats the sign.
    return np.asarray(np.right_shift(np.left_shift(codes, unused), unused))


def from_service(name: str, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns an array with the bytes that ml_dtypes expects, converted in place. The inverse of
    to_service."""
    if name in _FEW_BITS:
        codes = value.view(np.uint8)
        np.bitwise_and(codes, np.uint8((1 << _FEW_BITS[name]) - 1), out=codes)
    return value


def names() -> list[str]:
    """Returns the names of all dtypes."""
    return [*_NUMPY, *_ML_DTYPES]
