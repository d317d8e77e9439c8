import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from gpatcher.errors import InputError, InputWarning
from gpatcher.tables.write import write_pieces, write_table


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".pq"])
def test_pieces_are_one_table(tmp_path, suffix):
    pieces = [{"id": ["a", "b"], "score": [0.5, 1.5]}, {"id": ["c"], "score": [2.5]}]
    path = write_pieces(iter(pieces), tmp_path / f"table{suffix}")
    table = pa.csv.read_csv(path) if suffix == ".csv" else pa.parquet.read_table(path)
    assert table.to_pydict() == {"id": ["a", "b", "c"], "score": [0.5, 1.5, 2.5]}


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = write_table({"id": [1]}, tmp_path / "table.csv")
    before = path.read_bytes()

    def pieces():
        yield {"id": [2]}
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        write_pieces(pieces(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_bad_paths(tmp_path):
    with pytest.raises(InputError, match=r"table.xlsx: unknown file format; use one of \.csv, \.parquet, \.pq"):
        write_table({"id": [1]}, tmp_path / "table.xlsx")
    with pytest.raises(InputError, match="is not a folder"):
        write_table({"id": [1]}, tmp_path / "missing" / "table.csv")


FORMULAS = ["=cmd|' /C calc'!A0", "@sum", "+A1", "-x", "\tx", "a", "-1.5", "+2e3", "", None]


def test_a_spreadsheet_would_run_it(tmp_path):
    pieces = [{"id": FORMULAS[:4], "=name": [1, 2, 3, 4]}, {"id": FORMULAS[4:], "=name": [5, 6, 7, 8, 9, 10]}]
    with pytest.warns(InputWarning, match=r"table.csv: 7 values would run as a formula .*--escape-formulas"):
        path = write_pieces(pieces, tmp_path / "table.csv")
    assert path.read_text().splitlines()[:2] == ['"id","=name"', "\"=cmd|' /C calc'!A0\",1"]
    write_pieces(pieces, path, escape_formulas=True)  # warnings are errors in the tests
    table = pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types={"id": pa.string()}))
    assert table.column_names == ["id", "'=name"]
    assert table["id"].to_pylist()[:8] == [f"'{text}" for text in FORMULAS[:5]] + FORMULAS[5:8]


def test_formulas_stay_in_parquet(tmp_path):
    path = write_pieces([{"id": FORMULAS}], tmp_path / "table.parquet", escape_formulas=True)
    assert pa.parquet.read_table(path)["id"].to_pylist() == FORMULAS
