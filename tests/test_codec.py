"""Dataclasses to JSON and back, without loss."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpatcher.arrays import FloatArray
from gpatcher.codec import from_json, to_json
from gpatcher.errors import InputError


@dataclass(frozen=True)
class Inner:
    value: float | None
    names: tuple[str, ...]
    pair: tuple[int, float]


@dataclass(frozen=True, eq=False)
class Outer:
    array: FloatArray
    inner: dict[str, Inner | None]
    rows: list[list[int]]
    flag: bool
    id: Any


def through_text(hint, value):
    return from_json(hint, json.loads(json.dumps(to_json(value), allow_nan=False)))


numbers = st.floats(width=64)
inners = st.builds(
    Inner, st.none() | numbers, st.lists(st.text()).map(tuple), st.tuples(st.integers(-(2**63), 2**63 - 1), numbers)
)
arrays = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.dtype(">f8")]),
    hnp.array_shapes(min_dims=0, min_side=0),
)
outers = st.builds(
    Outer,
    arrays,
    st.dictionaries(st.text(), st.none() | inners),
    st.lists(st.lists(st.integers(-(2**63), 2**63 - 1))),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1) | st.text() | st.none(),
)


@given(outers)
def test_every_value_survives(value):
    again = through_text(Outer, value)
    # repr tells types, order, NaN, the sign of zero and every digit
    assert repr((again.inner, again.rows, again.flag, again.id)) == repr(
        (value.inner, value.rows, value.flag, value.id)
    )
    assert again.array.dtype == value.array.dtype
    assert again.array.shape == value.array.shape
    assert again.array.tobytes() == value.array.tobytes()


def test_arrays_in_any_memory_order():
    for array in (np.arange(6.0).reshape(2, 3).T, np.arange(10)[::3], np.asfortranarray(np.eye(3))):
        again = through_text(FloatArray, array)
        np.testing.assert_array_equal(again, array)
        again[0] = 7  # a copy that can be written to


def test_numpy_floats_become_floats():
    assert to_json([np.float64(0.1), np.float64("inf")]) == [0.1, "inf"]
    assert type(to_json(np.float64(0.1))) is float


def test_scalars_of_numpy_are_taken():
    assert [from_json(float, np.float64(0.1)), from_json(int, np.int64(3)), from_json(bool, np.True_)] == [0.1, 3, True]
    with pytest.raises(InputError, match=r"must be an integer, got 0\.5"):
        from_json(int, np.float32(0.5))


@pytest.mark.parametrize("value", [{1: 2}, {1, 2}, np.float32(1), np.array([None]), object(), b"x", 2**70])
def test_what_cannot_be_written_is_refused(value):
    with pytest.raises(TypeError, match=type(value).__name__):
        to_json(value)


@pytest.mark.parametrize(
    ("hint", "content", "named"),
    [
        (int, 1.5, "must be an integer, got 1.5"),
        (int, True, "must be an integer, got true"),
        (float, "0.5", 'must be a number, got "0.5"'),
        (str, None, "must be text, got null"),
        (list[int], [1, "x"], r"\[1\] must be an integer, got"),
        (list[int], {"a": 1}, "must be a list"),
        (dict[str, int], {"a": "x"}, "a must be an integer"),
        (tuple[int, int], [1], "must have 2 entries, got 1"),
        (Inner, [1.0], "must have the fields value, names, pair"),
        (Inner, {"value": 1.0, "names": []}, "content lacks the field 'pair'"),
        (Inner, {"value": 1.0, "names": [], "pair": [1, 2], "x": 1}, "content has the unknown field 'x'"),
        (int, 2**70, "must have at most 64 bits"),
        (float, -(2**70), "must have at most 64 bits"),
        (FloatArray, [1.0], "must be an array"),
        (FloatArray, {"dtype": "<f8", "shape": [1], "zlib": "!"}, "must be an array"),
        (FloatArray, {"dtype": "|O", "shape": [1], "zlib": "eJxjYIAAAAAIAAE="}, "must be an array"),
    ],
)
def test_content_of_another_type_is_refused(hint, content, named):
    with pytest.raises(ValueError, match=named):
        from_json(hint, content)
