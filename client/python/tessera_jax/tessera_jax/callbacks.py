"""Calls of Python functions that programs make: jax.debug.print, jax.debug.callback, pure_callback, io_callback.

In the program that JAX writes, such a call is a custom call with a name for the function. The plugin does not send it to
the cluster. Instead, the operands of the call come back as results, and the plugin calls this module when the run has
ended: in the order of the program, in loops iteration by iteration, and in a shard_map device by device. A run that
calls more often than its results have room for fails, and then no function is called (docs/decisions/0042). A function that
returns something is called before the run; a part of the program that computes its operands runs first. In a loop, a
branch or a shard_map such a function can only fail, or return NaN or zeros. See docs/decisions/0026 and 0028.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import itertools
import logging
import os
import traceback
import weakref

import ml_dtypes
import numpy as np

from tessera_jax import library

_TARGET = "tessera.host_callback"
# NumPy's dtypes, by the numbers of PJRT's element types.
_DTYPES = {1: np.bool_, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.uint8, 7: np.uint16, 8: np.uint32,
           9: np.uint64, 10: np.float16, 11: np.float32, 12: np.float64, 13: ml_dtypes.bfloat16, 14: np.complex64,
           15: np.complex128, 16: ml_dtypes.float8_e5m2, 17: ml_dtypes.float8_e4m3fn,
           18: ml_dtypes.float8_e4m3b11fnuz, 19: ml_dtypes.float8_e5m2fnuz, 20: ml_dtypes.float8_e4m3fnuz,
           21: ml_dtypes.int4, 22: ml_dtypes.uint4}


class _Function:
    def __init__(self, call, returns):
        self.call = call
        self.returns = returns


# The functions that programs call, by name. A function stays as long as JAX or the plugin holds a program that calls
# it. Names contain the process id and random bytes, so that no two processes use the same name: a program of another
# process may come from JAX's cache on a disk.
_functions: weakref.WeakValueDictionary[str, _Function] = weakref.WeakValueDictionary()
# The functions that executables hold, one entry for each executable.
_held: collections.defaultdict[str, list[_Function]] = collections.defaultdict(list)
_numbers = itertools.count()


def _description(value):
    return np.dtype(_DTYPES[value.type]), tuple(value.dims[i] for i in range(value.num_dims))


def _array(value):
    dtype, shape = _description(value)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return np.frombuffer(ctypes.string_at(value.data, size) if size else b"", dtype).reshape(shape)


def _write(number, array, result):
    from jax._src import dtypes

    dtype, shape = _description(result)
    array = np.asarray(dtypes.canonicalize_value(np.asarray(array)), order="C")  # as JAX does on CPUs
    if array.shape != shape:
        raise RuntimeError(f"Incorrect output shape for return value #{number}: "
                           f"Expected: {shape}, Actual: {array.shape}")
    if array.dtype != dtype:
        raise RuntimeError(f"Incorrect output dtype for return value #{number}: "
                           f"Expected: {dtype}, Actual: {array.dtype}")
    ctypes.memmove(result.data, array.ctypes.data, array.nbytes)


@library.CALLBACK
def _call(name, num_values, values, num_results, results, error, error_size):
    function = None
    try:
        key = name.decode()
        if key not in _functions:
            raise RuntimeError("the program calls a function of another process")
        function = _functions[key]
        returned = function.call(*[_array(values[i]) for i in range(num_values)])
        if num_results and num_results != len(returned):
            raise RuntimeError("Mismatched number of outputs from callback. "
                               f"Expected: {num_results}, Actual: {len(returned)}")
        for i in range(num_results):
            _write(i, returned[i], results[i])
        return 0
    except BaseException:
        if function is not None and not function.returns:  # No caller is there to catch the error.
            logging.getLogger(__name__).exception("a callback of a program failed")
            return 0
        text = f"CpuCallback error calling callback: {traceback.format_exc()}".encode()
        text = text if len(text) < error_size else text[:error_size // 2] + text[-(error_size // 2 - 1):]
        ctypes.memmove(error, text + b"\0", len(text) + 1)
        return 1


@library.HOLD
def _hold(name, held):
    key = name.decode()
    if held:
        if key in _functions:
            _held[key].append(_functions[key])
    elif key in _held:
        _held[key].pop()
        if not _held[key]:
            del _held[key]


def _failure_of(token):
    buffer = token._buf
    if buffer.is_ready():
        try:
            buffer.block_until_ready()
        except Exception as error:
            return error
    return None


def _forget_failed_tokens():
    """Lets programs with ordered effects run again after one of them has failed.

    JAX passes a token from each such program to the next. The token of a failed run is an error, and so is the run that
    takes it; nothing would ever replace the token.
    """
    from jax._src import dispatch

    get_token_input = dispatch.RuntimeTokenSet.get_token_input
    block_until_ready = dispatch.RuntimeTokenSet.block_until_ready

    def get_token_input_if_good(self, effect, devices):
        token = self.current_tokens.get(effect)
        if token is not None and (error := _failure_of(token)):
            del self.current_tokens[effect]
            logging.getLogger(__name__).warning("a program with ordered effects failed before this one: %s", error)
        return get_token_input(self, effect, devices)

    def block_and_forget(self):
        try:
            block_until_ready(self)
        except Exception:
            self.clear()
            raise

    dispatch.RuntimeTokenSet.get_token_input = get_token_input_if_good
    dispatch.RuntimeTokenSet.block_until_ready = block_and_forget


def install(plugin: library.Library, platform: str) -> None:
    """Makes the plugin call the functions in this module, and makes JAX write such calls for `platform`."""
    plugin.set_callbacks(_call, _hold)

    import jax
    from jax._src import callback as jax_callback
    from jax._src.interpreters import mlir

    @atexit.register
    def _end():
        try:
            jax.effects_barrier()  # waits for calls that are still to be made; Python reports an error
        finally:
            plugin.set_callbacks(library.CALLBACK(), library.HOLD())

    _forget_failed_tokens()

    emit_on_other_platforms = jax_callback.emit_python_callback

    def emit(ctx, callback, token, operands, operand_avals, result_avals, **options):
        platforms = ctx.platforms or ctx.module_context.platforms
        if tuple(platforms) != (platform,):
            return emit_on_other_platforms(ctx, callback, token, operands, operand_avals, result_avals, **options)
        function = _Function(callback, bool(result_avals))
        name = f"{os.getpid()}-{os.urandom(8).hex()}-{next(_numbers)}"
        _functions[name] = function
        ctx.module_context.add_keepalive(function)
        call = mlir.custom_call(_TARGET, result_types=[mlir.aval_to_ir_type(ctx.module_context, aval) for aval in result_avals],
                                operands=operands, backend_config=name,
                                has_side_effect=options.get("has_side_effect", True) or not result_avals,
                                api_version=2)
        return list(call.results), token, function

    jax_callback.emit_python_callback = emit
