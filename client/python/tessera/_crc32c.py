"""CRC-32C (Castagnoli), vectorized by NumPy.

The checksum is linear over GF(2): advancing the register over n more bytes is a linear map of its
32 bits, and for a fixed n this map is four tables of 256 entries. So a block is cut into many
lanes, which are processed side by side. Then the registers of the lanes are joined pairwise, each
time with the map for twice as many bytes.

If google-crc32c is installed, it is used instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

_POLYNOMIAL = 0x82F63B78
_LANE = 64  # length of a lane in bytes
_ALL_ONES = 0xFFFFFFFF

U32 = Any  # an array of uint32


def _byte_table() -> U32:
    table: U32 = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table.astype(np.uint32)


_TABLE = _byte_table()
_TABLE_LIST = [int(x) for x in _TABLE]


def _over_bytes(register: U32, count: int) -> U32:
    """Advances registers over `count` zero bytes, one at a time."""
    for _ in range(count):
        register = _TABLE[register & 0xFF] ^ (register >> 8)
    return register


def _apply(tables: U32, register: U32) -> U32:
    """Applies a linear map to registers. The map is given as one table per byte of a register."""
    return (
        tables[0][register & 0xFF]
        ^ tables[1][(register >> 8) & 0xFF]
        ^ tables[2][(register >> 16) & 0xFF]
        ^ tables[3][register >> 24]
    )


@lru_cache(maxsize=64)
def _shift(level: int) -> U32:
    """Returns the tables of the map that advances a register over 2**level zero bytes."""
    places = (
        np.arange(256, dtype=np.uint32)[None, :] << (8 * np.arange(4, dtype=np.uint32))[:, None]
    )
    if level == 0:
        return _over_bytes(places, 1)
    half = _shift(level - 1)
    return _apply(half, _apply(half, places))


def _carry(register: int, count: int) -> int:
    """Advances one register over `count` zero bytes."""
    value = np.array([register], dtype=np.uint32)
    level = 0
    while count:
        if count & 1:
            value = _apply(_shift(level), value)
        count >>= 1
        level += 1
    return int(value[0])


@lru_cache(maxsize=1)
def _word_tables() -> U32:
    """Returns tables for eight bytes at a time. Table k is for a byte that 7 - k bytes follow."""
    return np.stack([_over_bytes(_TABLE, 7 - k) for k in range(8)])


def _numpy_extend(crc: int, data: memoryview) -> int:
    register = crc ^ _ALL_ONES
    at = 0
    lanes = len(data) // _LANE
    while lanes:
        # Take a number of lanes that is a power of two, so that they can be combined in pairs until
        # one is left.
        level = lanes.bit_length() - 1
        size = _LANE << level
        columns = np.frombuffer(data[at : at + size], dtype=np.uint8).reshape(-1, _LANE // 8, 8)
        lane = _lanes(columns)
        step = (_LANE - 1).bit_length()
        while len(lane) > 1:
            lane = _apply(_shift(step), lane[0::2]) ^ lane[1::2]
            step += 1
        register = _carry(register, size) ^ int(lane[0])
        at += size
        lanes = (len(data) - at) // _LANE
    for byte in bytes(data[at:]):
        register = _TABLE_LIST[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register ^ _ALL_ONES


def _lanes(columns: U32) -> U32:
    """Returns the registers of lanes, starting at 0. `columns` has the shape [lanes, words, 8]."""
    tables = _word_tables()
    register = np.zeros(columns.shape[0], dtype=np.uint32)
    for word in range(columns.shape[1]):
        column = columns[:, word, :]
        mixed = np.zeros_like(register)
        for k in range(4):
            mixed ^= tables[k][column[:, k] ^ (register >> np.uint32(8 * k)).astype(np.uint8)]
        for k in range(4, 8):
            mixed ^= tables[k][column[:, k]]
        register = mixed
    return register


def _native() -> Callable[[int, memoryview], int] | None:
    try:
        import google_crc32c
    except ImportError:
        return None
    if google_crc32c.implementation != "c":
        return None
    return lambda crc, data: int(google_crc32c.extend(crc, bytes(data)))


_extend = _native() or _numpy_extend


def extend(crc: int, data: bytes | bytearray | memoryview) -> int:
    """Returns the checksum `crc` extended by `data`."""
    view = memoryview(data)
    return _extend(crc, view if view.format == "B" else view.cast("B"))


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Returns the checksum of `data`."""
    return extend(0, data)


def combine(first: int, second: int, second_bytes: int) -> int:
    """Returns the checksum of a concatenation of two parts. `first` and `second` are the checksums
    of the parts, and the second part has `second_bytes` bytes."""
    return _carry(first, second_bytes) ^ second
