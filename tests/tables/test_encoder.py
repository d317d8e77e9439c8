import json
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from gpatcher.errors import InputError, InputWarning
from gpatcher.io import write_json
from gpatcher.tables.columns import MAX_CATEGORIES, MAX_WORDS, infer_kind
from gpatcher.tables.encoder import TableEncoder
from gpatcher.tables.values import reject_values


def column(values, dtype=None):
    return pa.chunked_array([pa.array(values, dtype)])


def encode(values, kind=None, later=None):
    """Return the features of a column, or of later values by the encoder fitted on it."""
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
        ([f"{i % 7};{i};{i % 11}" for i in range(1000)], "text"),
        ([f"[{i % 7}, {i}]" for i in range(1000)], "text"),
        ([[i, 3] for i in range(5)], "text"),
        ([["red", "blue"], ["red"], None], "text"),
        (["+".join(["a", "b c"][: i % 2 + 1]) for i in range(1000)], "category"),
        ([f"city {i % 100}" for i in range(5000)], "category"),
        ([" ".join(f"tag{j}" for j in range(10) if i >> j & 1) for i in range(1024)] * 12, "text"),
        ([f"key{i}" for i in range(1000)], "ignore"),
        ([f"key{i % 950}" for i in range(1000)], "ignore"),
        ([f"{i}.5" for i in range(1000)], "number"),
        ([f"zip{i % 300}" for i in range(1000)], "category"),
        ([i % 50 for i in range(1000)], "code"),
        ([float(i % 50) for i in range(1000)], "code"),
        ([i % 300 for i in range(1000)], "number"),
        ([i * 7 % 101 for i in range(101)], "ignore"),
        ([i**3 for i in range(1000)], "number"),
        ([4, 4, 4], "ignore"),
        ([None, None], "ignore"),
        (["", " ", None], "ignore"),
        ([[1.5], [2.5]], "ignore"),
        ([{"a": 1}, {"a": 2}], "ignore"),
    ],
)
def test_kinds_are_inferred(values, kind):
    assert infer_kind(column(values))[0] == kind


def test_a_column_that_is_called_an_id_and_is_unique_is_left_out():
    values = column([i**3 for i in range(1000)])
    for name in ("id", "user_id", "UUID", "account.key"):
        assert infer_kind(values, name)[0] == "ignore"
    for name in ("paid", "idle", "views"):
        assert infer_kind(values, name)[0] == "number"


def test_numbers():
    np.testing.assert_allclose(encode([1, 2, None, 6]), standard([1, 2, None, 6]))
    assert encode([1.5, 2.5], "raw").tolist() == [[1.5], [2.5]]
    assert encode([1.5, None], "raw").tolist() == [[1.5, 0], [0, 1]]
    # text is parsed where the kind is set
    np.testing.assert_allclose(encode(["1", " 2", "", "6"], "number"), standard([1, 2, None, 6]))


def standard(values):
    present = np.array([v for v in values if v is not None])
    return np.array(
        [[0.0, 1.0] if v is None else [(v - present.mean()) / present.std(), 0.0] for v in values], dtype=np.float32
    )


@pytest.mark.parametrize(
    "change", [lambda x: x, lambda x: -x, lambda x: 1e-6 * x + 3, lambda x: x * np.tile([1, -1], 500)]
)
def test_heavy_tailed_numbers_are_put_on_a_logarithmic_scale(change):
    views = change(np.floor(np.random.default_rng(0).lognormal(3, 2, 1000)))
    assert np.abs(views - views.mean()).max() / views.std() > 15
    x = encode(views)[:, 0]
    order = np.argsort(views, kind="stable")
    assert (np.diff(x[order]) >= 0).all()
    assert (np.diff(x[order])[np.diff(views[order]) > 0] > 0).all()
    assert np.abs(x).max() < 5
    np.testing.assert_allclose([x.mean(), x.std()], [0, 1], atol=1e-5)
    # a later value beyond all others is a little further out, not thousands of deviations
    later = encode(views, later=[2 * views.max(), 2 * views.min()])[:, 0]
    assert np.abs(later).max() < 10
    # light tails stay linear
    even = np.linspace(0, 1, 1000)
    np.testing.assert_allclose(encode(even)[:, 0], (even - 0.5) / even.std(), atol=1e-5)


def test_counts_become_log_counts():
    counts = np.array([0] * 700 + [1] * 200 + [2, 5, 20, 300] * 20, float)
    logs = np.log1p(counts)
    np.testing.assert_allclose(encode(counts, "number")[:, 0], (logs - logs.mean()) / logs.std(), atol=1e-5)


def test_rare_values_at_fitting_are_clipped_without_a_warning():
    x = encode([0.0] * 9999 + [0.5], "number")
    assert x.max() == 10


def test_codes_are_numbers_and_categories():
    values = [10, 20, 30] * 20 + [40] + [None]
    encoder = TableEncoder.fit({"a": column(values)}, {"a": "code"})
    assert encoder.names() == ["a", "a: missing", "a = 10", "a = 20", "a = 30", "a: rare"]
    assert encoder.columns == {"a": "code"}
    x = dense(encoder.transform({"a": column(values)}))
    np.testing.assert_allclose(x[:, :2], standard(values), atol=1e-6)
    assert x[[0, 1, 2, 60, 61], 2:].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]


def test_a_number_missing_only_at_prediction_is_the_mean():
    with pytest.warns(InputWarning, match=r"column 'a': 1 of 2 values are missing, none was .*the mean, 2$"):
        assert encode([1, 3], "number", later=[None, 3]).tolist() == [[0], [1]]


@pytest.mark.parametrize(
    ("values", "kind", "replacement"),
    [
        ([1.5, 2.5], "raw", "0$"),
        ([True, False], "boolean", "the mean, 0.5$"),
        ([date(2020, 1, 1), date(2021, 1, 1)], "date", "0$"),
        (["u", "v", "u", "v"], "category", "no category$"),
        (["u", "v", "u"], "category", "'rare'$"),
    ],
)
def test_values_missing_only_at_prediction_give_a_warning(values, kind, replacement):
    with pytest.warns(
        InputWarning, match=f"column 'a': 1 of 2 values are missing, none was at fitting: .*{replacement}"
    ):
        encode(values, kind, later=[None, values[0]])


@pytest.mark.parametrize(
    ("values", "later", "unit", "shown"),
    [
        ([1.0, 3.0], 1e9, "standard deviations", "1000000000.0"),
        ([datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 1)], datetime(2021, 1, 1), "range", "2021-01-01 00:00:00"),
    ],
)
def test_extreme_values_are_clipped_with_a_warning(values, later, unit, shown):
    with pytest.warns(
        InputWarning, match=rf"column 'a': 1 of 3 values are clipped at 10 .*{unit}.* in row 1 \({shown}\)"
    ):
        x = encode(values, later=[values[0], later, values[1]])
    assert x[1, 0] == 10
    np.testing.assert_array_equal(x[[0, 2]], encode(values))


def test_booleans():
    assert encode([True, False, None]).tolist() == [[1, 0], [0, 0], [0.5, 1]]
    assert encode(["Yes", "no", "TRUE", "0"], "boolean").tolist() == [[1], [0], [1], [0]]


def test_dates():
    x = encode([datetime(2020, 1, 1), datetime(2020, 1, 3, 12), None])
    assert x.shape == (3, 8)  # position, two each for year, week and day, missing
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
    with pytest.warns(InputWarning, match=r"column 'a': 1 value is new, encoded as 'rare': 'new' \(1\)"):
        later = encode(values, later=["new", "", "v", "w"]).tolist()
    assert later == [[0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]]


def test_a_new_category_without_rare_ones():
    with pytest.warns(InputWarning, match=r"column 'a': 1 value is new, encoded as no category: 'z' \(2\)"):
        assert encode(["u", "v", "u", "v"], later=["z", "v", "z"]).tolist() == [[0, 0], [0, 1], [0, 0]]


def test_numeric_categories_match_across_dtypes():
    x = encode([7, 8, 7, 8], "category")
    assert encode([7, 8, 7, 8], "category", later=[7.0, 8.0, 7.0, 8.0]).tolist() == x.tolist()
    assert encode([7, 8, 7, 8], "category", later=["7", "8", "7", "8"]).tolist() == x.tolist()


def test_most_frequent_categories_get_a_feature_each():
    values = [f"c{i % 400}" for i in range(4100)]
    x = dense(encode(values))
    assert x.shape == (4100, MAX_CATEGORIES + 1)
    assert (x.sum(1) == 1).all()
    assert {values[v] for v in np.flatnonzero(x[:, -1])} == {f"c{i}" for i in range(400)} - set(kept(values))


def kept(values):
    counts = {value: values.count(value) for value in values}
    return sorted(counts, key=lambda value: (-counts[value], value))[:MAX_CATEGORIES]


WORDS = st.lists(st.text("abcAZ_é -,.'1\n", max_size=40) | st.text(max_size=20), min_size=1, max_size=20)
EXTRA = ["plain Words", "plain words 7", "words 7;8"]


def reference(values, encoder):
    """Return the words as scikit-learn counts them: shape (rows, words) with rows of one length."""
    words = encoder.encoders[-1].words
    options = {"token_pattern": r"\w+", "use_idf": False, "sublinear_tf": True}
    vectorizer = TfidfVectorizer(vocabulary=words, lowercase=False, **options)  # warns of letters such as 𝖠 otherwise
    return vectorizer.fit_transform([value.lower() for value in values]).toarray() * encoder.encoders[-1].length ** 0.5


def text_features(encoder, columns):
    return dense(encoder.transform(columns))[:, -len(encoder.encoders[-1].words) :]


@settings(max_examples=100, deadline=None)
@given(WORDS)
@example(["𝖠", "𝖠"])
def test_words_are_those_of_scikit_learn(values):
    values = values + EXTRA
    encoder = TableEncoder.fit({"a": column(values)}, {"a": "text"})
    vectorizer = TfidfVectorizer(token_pattern=r"\w+", min_df=2).fit(values)
    assert set(encoder.encoders[-1].words) == set(vectorizer.get_feature_names_out())
    np.testing.assert_allclose(text_features(encoder, {"a": column(values)}), reference(values, encoder), atol=1e-6)


@pytest.mark.parametrize("text", ["İstanbul ǅ STRASSE", "日本語 テキスト", "a\u0301b x1 _y", "\x00ab\x00cd", "x" * 99])
def test_words_beyond_ascii(text):
    values = [text, text + " 7", *EXTRA]
    encoder = TableEncoder.fit({"a": column(values)}, {"a": "text"})
    expected = reference(values, encoder)
    np.testing.assert_allclose(text_features(encoder, {"a": column(values)}), expected, atol=1e-6)
    # the bytes of a sliced arrow array start at an offset
    part = {"a": column(["before", text, "plain Words"]).slice(1)}
    np.testing.assert_allclose(text_features(encoder, part), expected[[0, 2]], atol=1e-6)


@pytest.mark.parametrize("form", ["w{} w{} w{}", "{};{};{}", "[{}, {}, {}]", "{} {} {}"])
def test_each_token_of_a_list_is_a_feature(form):
    rng = np.random.default_rng(0)
    tokens = [rng.choice(40, 3, replace=False).tolist() for _ in range(300)]
    values = [form.format(*row) for row in tokens]
    encoder = TableEncoder.fit({"a": column(values)})
    assert encoder.columns == {"a": "text"}
    prefix = "a: w" if "w" in form else "a: "
    names = encoder.names()
    x = dense(encoder.transform({"a": column(values)}))
    assert len(names) == 41  # the length is not dropped: it may vary later
    for v, row in enumerate(tokens):
        assert {name for name, value in zip(names, x[v], strict=True) if value} == {f"{prefix}{j}" for j in row}
        np.testing.assert_allclose(x[v][x[v] != 0], 1, atol=1e-5)


def test_lists_of_parquet_are_words():
    values = column([[3, 17], [17, 4, 3], None, [], [4]])
    encoder = TableEncoder.fit({"a": values})
    x = dense(encoder.transform({"a": values}))
    assert encoder.names() == ["a: length", "a: missing", *(f"a: {word}" for word in encoder.encoders[-1].words)]
    assert x[:, 1].tolist() == [0, 0, 1, 1, 0]
    assert (x[:, 2:] > 0).sum(axis=1).tolist() == [2, 3, 0, 0, 1]


def test_the_most_frequent_words_are_kept_whatever_the_order_of_the_rows():
    rng = np.random.default_rng(0)
    values = [" ".join(f"w{j}" for j in rng.zipf(1.2, 30) % 20000) for _ in range(3000)]
    words = TableEncoder.fit({"a": column(values)}).encoders[-1].words
    assert len(words) == MAX_WORDS
    again = TableEncoder.fit({"a": column(values[::-1])}).encoders[-1].words
    assert words == again
    counts = {word: sum(word in row for row in map(set, map(str.split, values))) for word in (words[0], words[-1])}
    assert counts[words[0]] > 10 * counts[words[-1]] > 10


def test_text_without_a_repeated_word_is_not_used():
    with pytest.warns(InputWarning, match=r"not used \(no word is in two rows\): 'a'"):
        assert TableEncoder.fit({"a": column(["one two", "three four", "five six"])}).width == 0


def test_dates_do_not_depend_on_how_many_rows_share_a_day():
    days = [date(1965, 3, 1), date(1999, 12, 31), None, date(2000, 2, 29), date(2000, 3, 1)]
    repeated = encode([day for day in days for _ in range(4000)])
    assert np.array_equal(repeated[::4000], encode(days))


def test_wide_features_are_sparse():
    x = encode([f"word{i} and some {i % 500}" for i in range(1000)])
    assert sp.issparse(x)
    assert x.dtype == np.float32
    assert not sp.issparse(encode([1.0, 2.0]))


MIXED = {
    "n": column([1.0, None, 3.0, 4.5]),
    "b": column([True, False, True, True]),
    "c": column(["u", "v", "u", None]),
    "d": column([date(2020, 1, 1), None, date(2020, 5, 1), date(2021, 1, 1)]),
    "t": column(["a cat sat", "", "a dog sat", None]),
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


def test_a_saved_encoder_gives_the_same_features(tmp_path):
    encoder = TableEncoder.fit(MIXED, {"t": "text"})
    encoder.save(tmp_path / "encoder.json")
    again = TableEncoder.load(tmp_path / "encoder.json")
    assert again == encoder
    assert np.array_equal(dense(again.transform(MIXED)), dense(encoder.transform(MIXED)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "encoder.json does not describe a table encoder"),
        ("[]", "encoder.json does not describe a table encoder"),
        ("{}", "encoder.json does not describe a table encoder"),
        ('{"format": "gpatcher-encoder", "version": 9}', "version 9"),
        ('{"format": "gpatcher-encoder", "version": 5}', "encoder.json is damaged"),
    ],
)
def test_damaged_encoders_are_rejected(tmp_path, content, message):
    path = tmp_path / "encoder.json"
    with pytest.raises(InputError, match=r"encoder.json: no such file"):
        TableEncoder.load(path)
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        TableEncoder.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.pop("mean"),
        lambda fields: fields.update(colour="red"),
        lambda fields: fields.update(mean=2**70),
        lambda fields: fields.update(indicator={}),
        lambda fields: fields.update(kind=[]),
    ],
)
def test_encoders_with_other_fields_are_rejected(tmp_path, change):
    path = tmp_path / "encoder.json"
    TableEncoder.fit(MIXED).save(path)
    content = json.loads(path.read_text())
    change(content["columns"][0])
    write_json(path, content)  # with the right checksum
    with pytest.raises(InputError, match=r"encoder.json is damaged"):
        TableEncoder.load(path)


@pytest.mark.parametrize(
    ("values", "kind", "later", "message"),
    [
        ([1, 2], "number", ["3", "x"], r"1 of 2 values in column 'a' are not numbers, the first in row 1 \('x'\)"),
        ([1, 2], "number", [1.0, float("inf")], r"not finite .* row 1 \(inf\)"),
        ([1, 2], "number", [date(2020, 1, 1)], r"1 of 1 values in column 'a' are date32\[day\], not numbers"),
        ([True, False], "boolean", [1, 2], r"neither true nor false, the first in row 1 \(2\)"),
        ([True, False], "boolean", ["yes", "maybe"], r"row 1 \('maybe'\)"),
        ([date(2020, 1, 1)], "date", ["2020-01-01", "soon"], r"are not dates, the first in row 1 \('soon'\)"),
        ([date(2020, 1, 1)], "date", [1.5], r"are double, not dates"),
        (["a b", "b c"], "text", [{"a": 1}], r"column 'a' holds struct<.*, which cannot be read as text"),
    ],
)
def test_changed_dtypes_are_named_with_the_row(values, kind, later, message):
    with pytest.raises(InputError, match=message):
        encode(values, kind, later=later)


def test_a_missing_column_is_named():
    encoder = TableEncoder.fit(MIXED)
    with pytest.raises(InputError, match=r"1 fitted column is missing: 'n'; the columns are: b, c, d, t"):
        encoder.transform({name: values for name, values in MIXED.items() if name != "n"})


def test_an_unknown_kind():
    with pytest.raises(InputError, match="column 'n': unknown kind 'colour'; choose one of number, raw"):
        TableEncoder.fit(MIXED, {"n": "colour"})


def test_unused_columns_give_a_warning():
    with pytest.warns(InputWarning, match=r"2 columns are not used \(constant\): 'a', 'b'; .*--column a="):
        assert TableEncoder.fit({"a": column([1, 1]), "b": column([2, 2])}).width == 0
    assert TableEncoder.fit({"a": column([1, 2])}, {"a": "ignore"}).width == 0


def test_fit_transform_equals_fit_and_transform():
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
    encoder, x, messages = TableEncoder.fit_transform(columns, kinds, reject_values)
    assert messages == []
    fitted = TableEncoder.fit(columns, kinds)
    assert encoder == fitted
    np.testing.assert_array_equal(dense(x), dense(fitted.transform(columns)))


@pytest.mark.parametrize(
    "values", [[1.5, None], [True, None], [date(2020, 1, 1), datetime(2020, 1, 2, 3)], ["u", "u", "v", None]]
)
def test_width_is_the_number_of_names(values):
    encoder = TableEncoder.fit({"a": column(values)})
    assert encoder.width == len(encoder.names()) == encode(values).shape[1]
