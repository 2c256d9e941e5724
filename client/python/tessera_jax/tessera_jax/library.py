"""The plugin's library, and the functions that only this package calls.

JAX calls the functions of PJRT. Callbacks, Ctrl-C, cancellations and the states of devices are not part of PJRT, so the
plugin has an extension of its own for them. client/pjrt/abi.h defines its structs and functions.
"""

from __future__ import annotations

import ctypes

_EXTENSION = 7471
_TEXT_BYTES = 4096  # room for an error or a reason


class HostValue(ctypes.Structure):
    """An operand or a result of a callback."""

    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int), ("dims", ctypes.POINTER(ctypes.c_int64)),
                ("num_dims", ctypes.c_size_t)]


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(HostValue),
                            ctypes.c_size_t, ctypes.POINTER(HostValue), ctypes.c_void_p, ctypes.c_size_t)
HOLD = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_bool)
INTERRUPT_FILTER = ctypes.CFUNCTYPE(ctypes.c_bool)


class _Extension(ctypes.Structure):
    pass


_Extension._fields_ = [
    ("struct_size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", ctypes.POINTER(_Extension)),
    # Only the extension of Tessera has these fields.
    ("set_callbacks", ctypes.CFUNCTYPE(None, CALLBACK, HOLD)),
    ("set_interrupt_filter", ctypes.CFUNCTYPE(None, INTERRUPT_FILTER)),
    ("cancel_runs", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t)),
    ("device_state", ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
                                      ctypes.c_size_t))]


class _Api(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("extensions", ctypes.POINTER(_Extension))]


class Library:
    """The functions of the plugin at `path`.

    Raises RuntimeError if the plugin cannot be loaded, and ImportError if it comes from another build than this
    package.
    """

    def __init__(self, path: str) -> None:
        try:
            library = ctypes.CDLL(path)
            library.GetPjrtApi.restype = ctypes.POINTER(_Api)
        except (OSError, AttributeError) as error:
            raise RuntimeError(
                f"the plugin {path} cannot be loaded ({error}): install the libraries that it was built with "
                "(scripts/packages.txt of Tessera lists them), or install tessera-jax from a build on this machine"
            ) from error
        extension = library.GetPjrtApi().contents.extensions
        while extension and extension.contents.type != _EXTENSION:
            extension = extension.contents.next
        if not extension or extension.contents.struct_size < ctypes.sizeof(_Extension):
            raise ImportError(f"{path} has another version than this package, tessera_jax: "
                              "install both from the same build")
        self._extension = extension.contents

    def set_callbacks(self, call, hold) -> None:
        self._extension.set_callbacks(call, hold)

    def set_interrupt_filter(self, accepts) -> None:
        self._extension.set_interrupt_filter(accepts)

    def cancel_runs(self) -> int:
        error = ctypes.create_string_buffer(_TEXT_BYTES)
        count = self._extension.cancel_runs(error, len(error))
        if count < 0:
            raise RuntimeError(error.value.decode(errors="replace"))
        return count

    def device_state(self, device: int) -> tuple[str, str]:
        state, why = (ctypes.create_string_buffer(_TEXT_BYTES) for _ in range(2))
        self._extension.device_state(device, state, len(state), why, len(why))
        return state.value.decode(), why.value.decode(errors="replace")
