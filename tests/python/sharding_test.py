"""Tests meshes, specs, blocks and dtypes, as far as they need no cluster."""
import itertools
import pathlib
import pickle
import re
import sys
import types

import numpy as np
import pytest
import tessera
from tessera import _dtypes

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
P = tessera.P
MESH = tessera.Mesh({"x": 2, "y": 3}, range(6))


def spec(shape, of, mesh=MESH):
    return tessera.ArraySpec("f32", shape, mesh, of)


def test_blocks_follow_the_mesh_row_major():
    s = spec((4, 6), P("x", "y"))
    assert s.block_shape == (2, 2)
    # Device 4 has the coordinates x=1, y=1.
    assert s.block_of(4) == (slice(2, 4), slice(2, 4))


def test_axes_of_one_dim_count_major_to_minor():
    assert spec((12,), P(("x", "y"))).block_of(4) == (slice(8, 10),)
    # The coordinates y=1, x=1 are the fourth of six blocks.
    assert spec((12,), P(("y", "x"))).block_of(4) == (slice(6, 8),)


@pytest.mark.parametrize("of", [P(), P("x"), P("y"), P(None, "y"), P("x", "y"), P("y", "x"),
                                P(("x", "y")), P(("y", "x"), None), P(None, ("x", "y"))])
def test_blocks_cover_the_array_equally_often(of):
    s = spec((6, 6), of)
    counts = np.zeros((6, 6), int)
    for ordinal in range(6):
        block = counts[s.block_of(ordinal)]
        assert block.shape == s.block_shape
        block += 1
    parts = 36 // np.prod(s.block_shape)
    assert (counts == 6 // parts).all()


def test_scalars_have_one_block():
    s = spec((), P())
    assert s.block_of(3) == () and s.block_shape == () and s.nbytes == 4


def test_specs_print_and_compare_as_written():
    assert repr(P("x", None, ("y", "z"))) == "P('x', None, ('y', 'z'))"
    assert P("x", None) == P("x") != P(None, "x")
    assert pickle.loads(pickle.dumps(P(("x", "y"), None, "z"))) == P(("x", "y"), None, "z")


def test_the_wire_keeps_everything():
    s = spec((4, 6), P(("x",), "y"), tessera.Mesh({"x": 2, "y": 3}, [5, 4, 3, 2, 1, 0]))
    assert tessera.ArraySpec.from_proto(s.to_proto()) == s


def test_pending_sums_are_refused():
    proto = spec((4,), P("x")).to_proto()
    proto.placement.spec.unreduced.append("y")
    with pytest.raises(ValueError, match="the array is unreduced along"):
        tessera.ArraySpec.from_proto(proto)


@pytest.mark.parametrize("make, what", [
    (lambda: P("x", "x"), "names an axis twice"),
    (lambda: P(("x", "y"), "x"), "names an axis twice"),
    (lambda: tessera.Mesh({"x": 0}), "at least one device"),
    (lambda: tessera.Mesh({"x": 2}, [1]), "2 coordinates, but 1 devices"),
    (lambda: spec((4,), P("x", "y")), r"f32\[4\] has 1 dims"),
    (lambda: spec((4,), P("q")), "names axis 'q'; the mesh has"),
    (lambda: spec((4,), P("y")), r"dim 0 of f32\[4\] does not divide"),
])
def test_what_does_not_fit_is_named(make, what):
    with pytest.raises(ValueError, match=what):
        make()


def test_an_entry_that_is_no_axis():
    with pytest.raises(TypeError, match="an entry is None, an axis"):
        P((1, 2))


@pytest.mark.parametrize("name", [n for n in _dtypes.names() if n not in _dtypes._ML_DTYPES])
def test_dtypes_go_both_ways(name):
    assert _dtypes.from_numpy(_dtypes.to_numpy(name)) == name
    assert _dtypes.byte_width(name) == _dtypes.to_numpy(name).itemsize


@pytest.mark.parametrize("name", list(_dtypes._ML_DTYPES))
def test_dtypes_that_numpy_lacks(name):
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        with pytest.raises(TypeError, match=f"{name}: pip install ml_dtypes"):
            _dtypes.to_numpy(name)
    else:
        assert _dtypes.from_numpy(_dtypes.to_numpy(name)) == name
        assert _dtypes.byte_width(name) == _dtypes.to_numpy(name).itemsize


def test_every_dtype_of_the_service_is_known():
    rows = (ROOT / "ir/dtypes.def").read_text()
    of_service = re.findall(r'^TESSERA_(?:COMPUTED|STORED)\(\w+, "(\w+)"', rows, re.MULTILINE)
    assert len(of_service) > 20 and sorted(of_service) == sorted(_dtypes.names())
    for name in of_service:
        assert _dtypes.is_whole(name) == bool(re.fullmatch(r"bool|[su]\d+", name))


@pytest.mark.parametrize("name, codes, stored", [
    ("s4", [0, 7, 8, 15], [0, 7, 0xF8, 0xFF]), ("u4", [0, 7, 8, 15], [0, 7, 8, 15]),
    ("s2", [0, 1, 2, 3], [0, 1, 0xFE, 0xFF]), ("u2", [0, 1, 2, 3], [0, 1, 2, 3]),
    ("f4e2m1fn", [0, 7, 8, 15], [0, 7, 8, 15]), ("s8", [0, 7, 128, 255], [0, 7, 128, 255])])
def test_few_bits_are_extended_by_their_sign_in_the_service_alone(name, codes, stored):
    """The codes are those of ml_dtypes, which need not be installed for this test."""
    value = np.array(codes, np.uint8).reshape(2, 2).T
    sent = _dtypes.to_service(name, value)
    assert sent.view(np.uint8).T.ravel().tolist() == stored
    np.testing.assert_array_equal(_dtypes.from_service(name, sent.view(np.uint8)), value)
    np.testing.assert_array_equal(value.T.ravel(), np.array(codes, np.uint8))
    scalar = np.array(codes[-1], np.uint8)
    back = _dtypes.from_service(name, _dtypes.to_service(name, scalar).view(np.uint8))
    assert back.shape == () and back == codes[-1]


def test_an_ml_dtypes_that_lacks_a_dtype_is_to_be_upgraded(monkeypatch):
    old = types.ModuleType("ml_dtypes")
    old.__version__ = "0.2.0"
    monkeypatch.setitem(sys.modules, "ml_dtypes", old)
    with pytest.raises(TypeError, match="ml_dtypes 0.2.0 has no dtype for s2: pip install --up"):
        _dtypes.to_numpy("s2")


def test_dtypes_that_tessera_lacks():
    for value in (np.array(["a"]), np.array([None]), np.array([1], "M8[s]")):
        with pytest.raises(TypeError, match="Tessera has no dtype for NumPy's"):
            _dtypes.from_numpy(value.dtype)


def test_every_code_has_a_class():
    from tessera import errors
    found = [errors.class_of(n) for n in range(1, 17)]
    assert len({c.code for c in found}) == 16
    assert all(issubclass(c, tessera.Error) for c in found)
    assert errors.class_of(99) is tessera.UnknownError
    for a, b in itertools.combinations(found, 2):
        assert a is not b
