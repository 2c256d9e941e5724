"""Calls of Python functions that programs make: jax.debug.print, jax.debug.callback, io_callback without results.

A call is a custom call of the program that JAX writes, with a name for the function. The plugin leaves it out of what it
sends, has the values that it reads come back as results, and calls here when the run has ended: in order, in loops turn by
turn and in a shard_map device by device. A function that returns something would have to be called in the middle of a run.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import itertools
import logging
import os
import weakref

import ml_dtypes
import numpy as np

_TARGET = "tessera.host_callback"
_EXTENSION = 7470  # client/pjrt/abi.h, which has the structs below
# By PJRT's numbers of element types.
_DTYPES = {1: np.bool_, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.uint8, 7: np.uint16, 8: np.uint32,
           9: np.uint64, 10: np.float16, 11: np.float32, 12: np.float64, 13: ml_dtypes.bfloat16, 14: np.complex64,
           15: np.complex128, 16: ml_dtypes.float8_e5m2, 17: ml_dtypes.float8_e4m3fn,
           18: ml_dtypes.float8_e4m3b11fnuz, 19: ml_dtypes.float8_e5m2fnuz, 20: ml_dtypes.float8_e4m3fnuz,
           21: ml_dtypes.int4, 22: ml_dtypes.uint4}


class _HostValue(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int), ("dims", ctypes.POINTER(ctypes.c_int64)),
                ("num_dims", ctypes.c_size_t)]


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(_HostValue))
_HOLD = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_bool)


class _Extension(ctypes.Structure):
    pass


_Extension._fields_ = [("struct_size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", ctypes.POINTER(_Extension)),
                       ("set_callbacks", ctypes.CFUNCTYPE(None, _CALLBACK, _HOLD))]  # the last: of ours alone


class _Api(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("extensions", ctypes.POINTER(_Extension))]


class _Function:
    def __init__(self, call):
        self.call = call


# By name, as long as JAX or the plugin holds a program that calls them. Names are never those of another process, whose
# programs a cache on a disk may hold.
_functions: weakref.WeakValueDictionary[str, _Function] = weakref.WeakValueDictionary()
_held: collections.defaultdict[str, list[_Function]] = collections.defaultdict(list)  # one for each executable
_numbers = itertools.count()


def _array(value):
    dtype = np.dtype(_DTYPES[value.type])
    shape = tuple(value.dims[i] for i in range(value.num_dims))
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.frombuffer(ctypes.string_at(value.data, size) if size else b"", dtype).reshape(shape)


@_CALLBACK
def _call(name, num_values, values):
    try:
        _functions[name.decode()].call(*[_array(values[i]) for i in range(num_values)])
    except BaseException:  # Nobody is there to catch it.
        logging.getLogger(__name__).exception("a callback of a program failed")


@_HOLD
def _hold(name, held):
    key = name.decode()
    if held:
        if key in _functions:
            _held[key].append(_functions[key])
    elif key in _held:
        _held[key].pop()
        if not _held[key]:
            del _held[key]


def install(library_path: str, platform: str) -> None:
    """Has the plugin call here, and JAX write the calls for `platform`."""
    library = ctypes.CDLL(library_path)
    library.GetPjrtApi.restype = ctypes.POINTER(_Api)
    extension = library.GetPjrtApi().contents.extensions
    while extension and extension.contents.type != _EXTENSION:
        extension = extension.contents.next
    extension.contents.set_callbacks(_call, _hold)

    import jax
    from jax._src import callback as jax_callback
    from jax._src.interpreters import mlir

    @atexit.register
    def _end():
        jax.effects_barrier()  # calls that are still to be made
        extension.contents.set_callbacks(_CALLBACK(), _HOLD())

    emit_elsewhere = jax_callback.emit_python_callback

    def emit(ctx, callback, token, operands, operand_avals, result_avals, **options):
        platforms = ctx.platforms or ctx.module_context.platforms
        if tuple(platforms) != (platform,):
            return emit_elsewhere(ctx, callback, token, operands, operand_avals, result_avals, **options)
        if result_avals:
            raise NotImplementedError(
                "a callback that returns something (pure_callback, io_callback) is not implemented on "
                f"{platform}: it would be called in the middle of a run, on another machine")
        function = _Function(callback)
        name = f"{os.getpid()}-{os.urandom(8).hex()}-{next(_numbers)}"
        _functions[name] = function
        ctx.module_context.add_keepalive(function)
        mlir.custom_call(_TARGET, result_types=[], operands=operands, backend_config=name, has_side_effect=True,
                         api_version=2)
        return [], token, function

    jax_callback.emit_python_callback = emit
