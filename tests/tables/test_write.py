import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from gpatcher.errors import InputError
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
