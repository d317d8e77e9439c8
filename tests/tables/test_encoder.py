import json
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer

from gpatcher.errors import InputError, InputWarning
from gpatcher.tables.columns import CATEGORIES, TEXT_WIDTH, find_kind
from gpatcher.tables.encoder import TableEncoder, _refuse


def column(values, kind=None):
    return pa.chunked_array([pa.array(values, kind)])


def encode(values, kind=None, later=None):
    """The features of one column; of other values by the same encoder where they are given."""
    encoder = TableEncoder.fit({"a": column(values)}, {} if kind is None else {"a": kind})
    return encoder.transform({"a": column(values if later is None else later)})


def dense(x):
    return x.toarray() if sp.issparse(x) else x


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, 3], "number"),
        ([1.5, None], "number"),
        ([0, 1, 1], "boolean"),
        ([True, None], "boolean"),
        (["u", "v", "u", "v"], "category"),
        ([date(2020, 1, 1), date(2021, 1, 1)], "date"),
        (["2020-01-01", None, "2021-05-03 10:30:00"], "date"),
        (["2020", "2021", "2020"], "category"),
        (["one two", "two three", "six seven"], "text"),
        ([f"word{i} and {i % 500}" for i in range(1000)], "text"),
        ([f"key{i}" for i in range(1000)], "ignore"),
        ([4, 4, 4], "ignore"),
        ([None, None], "ignore"),
        (["", " ", None], "ignore"),
        ([[1], [2]], "ignore"),
    ],
)
def test_kinds_are_found(values, kind):
    assert find_kind(column(values))[0] == kind


def test_numbers():
    np.testing.assert_allclose(encode([1, 2, None, 6]), standard([1, 2, None, 6]))
    assert encode([1.5, 2.5], "raw").tolist() == [[1.5], [2.5]]
    assert encode([1.5, None], "raw").tolist() == [[1.5, 0], [0, 1]]
    # text that is numbers, where it is said to be
    np.testing.assert_allclose(encode(["1", " 2", "", "6"], "number"), standard([1, 2, None, 6]))


def standard(values):
    known = np.array([v for v in values if v is not None])
    return np.array(
        [[0.0, 1.0] if v is None else [(v - known.mean()) / known.std(), 0.0] for v in values], dtype=np.float32
    )


def test_a_number_missing_at_prediction_only_is_the_mean():
    with pytest.warns(InputWarning, match=r"column 'a': 1 of 2 values are missing, none was .*the mean, 2, stands for"):
        assert encode([1, 3], "number", later=[None, 3]).tolist() == [[0], [1]]


@pytest.mark.parametrize(
    ("values", "kind", "instead"),
    [
        ([1.5, 2.5], "raw", "0 stands"),
        ([True, False], "boolean", "share of true, 0.5, stands"),
        ([date(2020, 1, 1), date(2021, 1, 1)], "date", "zeros stand"),
        (["u", "v", "u", "v"], "category", "no category stands"),
        (["u", "v", "u"], "category", "'rare' stands"),
    ],
)
def test_gaps_at_prediction_only_are_told(values, kind, instead):
    with pytest.warns(InputWarning, match=f"column 'a': 1 of 2 values are missing, none was at fitting; .*{instead}"):
        encode(values, kind, later=[None, values[0]])


@pytest.mark.parametrize(
    ("values", "later", "unit"),
    [
        ([1.0, 3.0], 1e9, "deviations"),
        ([datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 1)], datetime(2021, 1, 1), "span"),
    ],
)
def test_a_value_out_of_all_proportion_is_cut_off_and_told(values, later, unit):
    with pytest.warns(
        InputWarning, match=rf"column 'a': 1 of 3 values lie more than 1,000,000 .*{unit}.* in row 1 \(.*"
    ):
        x = encode(values, later=[values[0], later, values[1]])
    assert x[1, 0] == 1e6
    np.testing.assert_array_equal(x[[0, 2]], encode(values))


def test_booleans():
    assert encode([True, False, None]).tolist() == [[1, 0], [0, 0], [0.5, 1]]
    assert encode(["Yes", "no", "TRUE", "0"], "boolean").tolist() == [[1], [0], [1], [0]]


def test_dates():
    x = encode([datetime(2020, 1, 1), datetime(2020, 1, 3, 12), None])
    assert x.shape == (3, 8)  # place, two each for year, week and day, missing
    assert x[:, 0].tolist() == [0, 1, 0]
    assert x[:, -1].tolist() == [0, 0, 1]
    assert x[2, :-1].tolist() == [0] * 7
    np.testing.assert_allclose(x[0, 1:3], [0, 1], atol=1e-6)  # the start of the year
    np.testing.assert_allclose(x[1, 5:7], [0, -1], atol=1e-6)  # noon
    monday = encode([date(2024, 1, 1), date(2024, 1, 8), date(2024, 1, 9)])
    np.testing.assert_allclose(monday[0, 3:5], monday[1, 3:5], atol=1e-6)
    assert not np.allclose(monday[0, 3:5], monday[2, 3:5], atol=0.1)
    assert encode([date(2020, 1, 1), date(2020, 1, 5)], later=["2020-01-05", "2020-01-01"])[:, 0].tolist() == [1, 0]
    assert encode([date(1066, 10, 14), date(2999, 1, 1)])[:, 0].tolist() == [0, 1]


def test_categories():
    values = ["u", "v", "u", "v", "w", None, "u"]
    assert encode(values).tolist() == [
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 0],  # rare
        [0, 0, 0, 1],  # missing
        [1, 0, 0, 0],
    ]
    with pytest.warns(InputWarning, match=r"column 'a': 1 value is new and counts as rare: 'new' \(1\)"):
        later = encode(values, later=["new", "", "v", "w"]).tolist()
    assert later == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]]


def test_a_new_category_where_none_was_rare():
    with pytest.warns(InputWarning, match=r"column 'a': 1 value is new and counts as no category: 'z' \(2\)"):
        assert encode(["u", "v", "u", "v"], later=["z", "v", "z"]).tolist() == [[0, 0], [0, 1], [0, 0]]


def test_categories_by_number_whatever_their_type():
    given = encode([7, 8, 7, 8], "category")
    assert encode([7, 8, 7, 8], "category", later=[7.0, 8.0, 7.0, 8.0]).tolist() == given.tolist()
    assert encode([7, 8, 7, 8], "category", later=["7", "8", "7", "8"]).tolist() == given.tolist()


def test_most_frequent_categories_get_a_feature_each():
    values = [f"c{i % 100}" for i in range(1050)]
    x = dense(encode(values))
    assert x.shape == (1050, CATEGORIES + 1)
    assert (x.sum(1) == 1).all()
    assert {values[v] for v in np.flatnonzero(x[:, -1])} == {f"c{i}" for i in range(100)} - set(kept(values))


def kept(values):
    counts = {value: values.count(value) for value in values}
    return sorted(counts, key=lambda value: (-counts[value], value))[:CATEGORIES]


WORDS = st.lists(st.text("abcAZ_é -,.'1\n", max_size=40) | st.text(max_size=20), min_size=1, max_size=20)


@settings(max_examples=100, deadline=None)
@given(WORDS)
def test_text_is_hashed_as_scikit_learn_does(values):
    expected = HashingVectorizer(n_features=TEXT_WIDTH).transform(values)
    found = dense(encode(values, "text"))
    np.testing.assert_allclose(found, expected.toarray(), atol=1e-6)


@pytest.mark.parametrize("text", ["İstanbul ǅ STRASSE", "日本語 テキスト", "a\u0301b x1 _y", "\x00ab\x00cd", "x" * 99])
def test_hashing_beyond_ascii(text):
    expected = HashingVectorizer(n_features=TEXT_WIDTH).transform([text, "plain Words"])
    np.testing.assert_allclose(dense(encode([text, "plain Words"], "text")), expected.toarray(), atol=1e-6)
    # a slice of an arrow array, whose bytes start elsewhere
    encoder = TableEncoder.fit({"a": column(["one two"])}, {"a": "text"})
    part = {"a": column(["before", text, None, "plain Words"]).slice(1)}
    np.testing.assert_allclose(dense(encoder.transform(part))[[0, 2]], expected.toarray(), atol=1e-6)


def test_days_are_the_same_whether_many_share_one_or_not():
    days = [date(1965, 3, 1), date(1999, 12, 31), None, date(2000, 2, 29), date(2000, 3, 1)]
    alone = encode(days)
    crowd = encode([day for day in days for _ in range(4000)])
    assert np.array_equal(crowd[::4000], alone)


def test_wide_features_are_sparse():
    x = encode([f"word{i} and {i % 500}" for i in range(1000)])
    assert sp.issparse(x)
    assert x.dtype == np.float32
    assert not sp.issparse(encode([1.0, 2.0]))


MIXED = {
    "n": column([1.0, None, 3.0, 4.5]),
    "b": column([True, False, True, True]),
    "c": column(["u", "v", "u", None]),
    "d": column([date(2020, 1, 1), None, date(2020, 5, 1), date(2021, 1, 1)]),
    "t": column(["a cat sat", "", "two dogs", None]),
}


def test_names_match_the_features():
    encoder = TableEncoder.fit(MIXED, {"t": "text"})
    x = dense(encoder.transform(MIXED))
    names = encoder.names()
    assert x.shape[1] == encoder.width == len(names)
    assert x[:, names.index("c = u")].tolist() == [1, 0, 1, 0]
    assert x[:, names.index("n: missing")].tolist() == [0, 1, 0, 0]
    assert x[:, names.index("b")].tolist() == [1, 0, 1, 1]
    assert encoder.columns == {"n": "number", "b": "boolean", "c": "category", "d": "date", "t": "text"}


def test_chunks_do_not_matter():
    encoder = TableEncoder.fit(MIXED, {"t": "text"})
    cut = {name: pa.chunked_array([v.slice(0, 1).chunk(0), v.slice(1).chunk(0)]) for name, v in MIXED.items()}
    again = TableEncoder.fit(cut, {"t": "text"})
    assert again == encoder
    assert np.array_equal(dense(again.transform(cut)), dense(encoder.transform(MIXED)))


def test_saved_and_loaded_it_does_the_same(tmp_path):
    encoder = TableEncoder.fit(MIXED, {"t": "text"})
    encoder.save(tmp_path / "encoder.json")
    again = TableEncoder.load(tmp_path / "encoder.json")
    assert again == encoder
    assert np.array_equal(dense(again.transform(MIXED)), dense(encoder.transform(MIXED)))


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"format": "gpatcher-encoder", "format_version": 9}'])
def test_damaged_encoders_are_refused(tmp_path, damage):
    path = tmp_path / "encoder.json"
    with pytest.raises(InputError, match="no such file"):
        TableEncoder.load(path)
    path.write_text(damage)
    with pytest.raises(InputError, match=r"encoder.json is no encoder of this version or damaged"):
        TableEncoder.load(path)
    TableEncoder.fit(MIXED).save(path)
    found = json.loads(path.read_text())
    del found["columns"][0]["mean"]
    path.write_text(json.dumps(found))
    with pytest.raises(InputError, match=r"damaged"):
        TableEncoder.load(path)


@pytest.mark.parametrize(
    ("values", "kind", "later", "message"),
    [
        ([1, 2], "number", ["3", "x"], r"1 of 2 values in column 'a' are no numbers, the first in row 1 \('x'\)"),
        ([1, 2], "number", [1.0, float("inf")], r"not finite .* row 1 \(inf\)"),
        ([1, 2], "number", [date(2020, 1, 1)], r"1 of 1 values in column 'a' are date32\[day\], not numbers"),
        ([True, False], "boolean", [1, 2], r"neither true nor false, the first in row 1 \(2\)"),
        ([True, False], "boolean", ["yes", "maybe"], r"row 1 \('maybe'\)"),
        ([date(2020, 1, 1)], "date", ["2020-01-01", "soon"], r"are no dates, the first in row 1 \('soon'\)"),
        ([date(2020, 1, 1)], "date", [1.5], r"are double, not dates"),
        (["a b", "c d"], "text", [[1], [2]], r"column 'a' holds list<.*, which cannot be read as text"),
    ],
)
def test_changed_types_name_the_place(values, kind, later, message):
    with pytest.raises(InputError, match=message):
        encode(values, kind, later=later)


def test_a_column_that_is_gone_is_named():
    encoder = TableEncoder.fit(MIXED)
    with pytest.raises(InputError, match=r"1 column .* is not there: 'n'; the columns are: b, c, d, t"):
        encoder.transform({name: values for name, values in MIXED.items() if name != "n"})


def test_an_unknown_kind():
    with pytest.raises(InputError, match="column 'n': there is no kind 'colour'; there are number, raw"):
        TableEncoder.fit(MIXED, {"n": "colour"})


def test_what_is_not_used_is_said():
    with pytest.warns(InputWarning, match=r"2 columns are not used, being constant: 'a', 'b'; .*--column a="):
        assert TableEncoder.fit({"a": column([1, 1]), "b": column([2, 2])}).width == 0
    assert TableEncoder.fit({"a": column([1, 2])}, {"a": "ignore"}).width == 0


def test_fitting_and_transforming_at_once_gives_the_same():
    rng = np.random.default_rng(0)
    words = np.array(["one two", "three", "two three", ""])
    columns = {
        "number": column(rng.normal(size=50), pa.float64()),
        "gaps": column([None if i % 7 == 0 else i for i in range(50)]),
        "flag": column(rng.random(50) < 0.5),
        "day": column([date(2020, 1, 1 + i % 28) for i in range(50)]),
        "kind": column(["uvw"[i % 3] for i in range(50)]),
        "note": column(words[rng.integers(0, 4, 50)]),
    }
    kinds = {"note": "text", "gaps": "raw"}
    encoder, x, notes = TableEncoder.fit_transform(columns, kinds, _refuse)
    assert notes == []
    apart = TableEncoder.fit(columns, kinds)
    assert encoder == apart
    np.testing.assert_array_equal(dense(x), dense(apart.transform(columns)))


@pytest.mark.parametrize(
    "values", [[1.5, None], [True, None], [date(2020, 1, 1), datetime(2020, 1, 2, 3)], ["u", "u", "v", None]]
)
def test_the_width_is_the_number_of_names(values):
    encoder = TableEncoder.fit({"a": column(values)})
    assert encoder.width == len(encoder.names()) == encode(values).shape[1]
