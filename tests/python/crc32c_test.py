"""Compares the checksum with its definition."""
import random

import pytest
from tessera import _crc32c


def by_definition(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


BYTES = random.Random(7).randbytes(20_000)


def test_the_known_answer():
    # This is the check value of CRC-32C.
    assert _crc32c._numpy_extend(0, memoryview(b"123456789")) == 0xE3069283
    assert _crc32c.crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("size", [*range(0, 18), 63, 64, 65, 127, 128, 191, 4095, 4096, 9999, 20_000])
def test_every_length(size):
    data = BYTES[:size]
    expected = by_definition(data)
    assert _crc32c._numpy_extend(0, memoryview(data)) == expected
    assert _crc32c.crc32c(memoryview(data)) == expected


@pytest.mark.parametrize("cut", [0, 1, 64, 777, 19_999, 20_000])
def test_pieces_make_the_whole(cut):
    first, second = BYTES[:cut], BYTES[cut:]
    whole = by_definition(BYTES)
    assert _crc32c.extend(_crc32c.crc32c(first), second) == whole
    assert _crc32c.combine(_crc32c.crc32c(first), _crc32c.crc32c(second), len(second)) == whole
