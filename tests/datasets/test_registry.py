import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from gpatcher.datasets import download
from gpatcher.datasets import registry as named
from gpatcher.datasets.load import load_dataset, load_graph
from gpatcher.datasets.registry import NAMED, dataset_root, is_present, missing_files, named_set
from gpatcher.errors import InputError, InputWarning
from gpatcher.graph.graph import Graph

# nodes, stored edges, features, classes, splits, sizes of the first split
FACTS = {
    "Cora": (2708, 10556, 1433, 7, 1, (140, 500, 1000)),
    "CiteSeer": (3327, 9104, 3703, 6, 1, (120, 500, 1000)),
    "PubMed": (19717, 88648, 500, 3, 1, (60, 500, 1000)),
    "Texas": (183, 325, 1703, 5, 10, (87, 59, 37)),
    "Cornell": (183, 298, 1703, 5, 10, (87, 59, 37)),
    "Wisconsin": (251, 515, 1703, 5, 10, (120, 80, 51)),
    "Chameleon": (2277, 36101, 2325, 5, 10, (1092, 729, 456)),
    "Squirrel": (5201, 217073, 2089, 5, 10, (2496, 1664, 1041)),
    "Actor": (7600, 30019, 932, 5, 10, (3648, 2432, 1520)),
    "Chameleon-filtered": (890, 2 * 8854, 2325, 5, 10, (409, 287, 194)),
    "Squirrel-filtered": (2223, 2 * 46998, 2089, 5, 10, (1053, 718, 452)),
    "Minesweeper": (10000, 2 * 39402, 7, 2, 10, (5000, 2500, 2500)),
    "Tolokers": (11758, 2 * 519000, 10, 2, 10, (5879, 2939, 2940)),
}


@pytest.fixture
def no_network(monkeypatch):
    """Send every request to a port where nobody listens: the real download code runs and fails at once."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def take(data_root, tmp_path):
    """Copy the raw files of one set into a root of the test's own."""

    def copy(name: str, root: Path = tmp_path / "root") -> Path:
        if not is_present(name, data_root):
            pytest.skip(f"{name} is not in GPATCHER_DATA")
        raw = named_set(name).raw
        (root / raw).mkdir(parents=True)
        for file in named_set(name).files:
            shutil.copyfile(data_root / raw / file, root / raw / file)
        return root

    return copy


@pytest.fixture
def serve(monkeypatch):
    """Serve a folder over HTTP and return its address."""
    servers = []
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    def start(folder: Path) -> str:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() or path.is_symlink()}


def equal(a: Graph, b: Graph) -> bool:
    parts = all(np.array_equal(getattr(a, part), getattr(b, part)) for part in ("indptr", "indices", "x", "y"))
    return parts and [s.hash for s in a.splits] == [s.hash for s in b.splits]


# ------------------------------------------------------------------------------------------ what is read


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "Squirrel" else name for name in FACTS]
)
def test_published_sizes(take, name):
    graph = load_dataset(name, take(name))
    found = (graph.n, graph.stored_edges, graph.num_features, graph.num_classes, len(graph.splits))
    assert (*found, graph.splits[0].sizes) == FACTS[name]
    assert graph.name == name
    assert graph.is_directed == (named_set(name).reader in ("WebKB", "WikipediaNetwork", "Actor"))


@pytest.mark.parametrize("name", ["Texas", "Chameleon-filtered"])
def test_second_load_is_equal_to_the_first(take, name):
    root = take(name)
    first = load_dataset(name, root)
    assert (root / named_set(name).processed).is_file() == (name == "Texas")
    assert equal(first, load_dataset(name, root))


def test_filtered_set_agrees_with_its_file(take):
    root = take("Chameleon-filtered")
    graph = load_dataset("chameleon_filtered", root)
    with np.load(root / "filtered" / "chameleon_filtered.npz") as arrays:
        edges = {frozenset(edge) for edge in arrays["edges"].tolist()}
        assert {frozenset((v, int(u))) for v in range(graph.n) for u in graph.neighbours(v)} == edges
        for k, split in enumerate(graph.splits):
            assert np.array_equal(split.val, np.flatnonzero(arrays["val_masks"][k]))


def test_load_graph_takes_names(take):
    root = take("Texas")
    assert load_graph("TEXAS", root).n == 183


def test_load_graph_takes_generators():
    assert load_graph("colouring").n > 0
    assert load_graph("csbm:n=100,features=5").n == 100


# ------------------------------------------------------------------------------------------ names and folders


@pytest.mark.parametrize("spelling", ["Roman-empire", "ROMAN_EMPIRE", "roman-empire", " roman_Empire "])
def test_any_spelling(spelling):
    assert named_set(spelling) is NAMED["roman-empire"]


def test_unknown_name_lists_the_known():
    with pytest.raises(InputError, match=r"'corra'.*did you mean Cora.*Squirrel-filtered.*Questions"):
        load_dataset("corra")
    with pytest.raises(InputError, match=r"'chamelon'.*did you mean Chameleon.*data sets are.*generators.*csbm"):
        load_graph("chamelon")


def test_raw_files_are_those_of_the_classes(monkeypatch):
    import torch_geometric.datasets
    from torch_geometric.data import InMemoryDataset

    # the classes' own properties, without the reading that their constructors go on to
    monkeypatch.setattr(InMemoryDataset, "_download", lambda self: None)
    monkeypatch.setattr(InMemoryDataset, "_process", lambda self: None)
    monkeypatch.setattr(InMemoryDataset, "load", lambda self, path: None)
    checked = 0
    for known in NAMED.values():
        if known.reader is not None:
            dataset = getattr(torch_geometric.datasets, known.reader)(f"root/{known.folder}", **known.arguments)
            assert dataset.raw_paths == [f"root/{known.raw}/{file}" for file in known.files]
            assert dataset.processed_paths == [f"root/{known.processed}"]
            checked += 1
    assert checked == 14


def test_protocols():
    assert {key for key, known in NAMED.items() if known.leaky} == {"chameleon", "squirrel"}
    assert {key for key, known in NAMED.items() if known.metric == "roc_auc"} == {
        "minesweeper",
        "tolokers",
        "questions",
    }


def test_root_is_argument_then_environment_then_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GPATCHER_DATA", str(tmp_path / "env"))
    assert dataset_root(tmp_path) == tmp_path
    assert dataset_root() == tmp_path / "env"
    monkeypatch.setenv("GPATCHER_DATA", "")
    assert dataset_root().parts[-2:] == ("gpatcher", "data")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        dataset_root(tmp_path / "file")


def test_presence(take):
    root = take("Texas")
    assert is_present("texas", root)
    gone = root / "WebKB/texas/raw/texas_split_0.6_0.2_3.npz"
    gone.unlink()
    assert missing_files("texas", root) == [gone]
    assert not is_present("texas", root)


def test_asking_for_files_does_not_import_torch():
    code = "import sys, gpatcher.datasets.load as d; d.named.is_present('cora'); print({'torch', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ------------------------------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize(
    ("name", "file"), [("Roman-empire", "roman_empire.npz"), ("Squirrel-filtered", "squirrel_filtered.npz")]
)
def test_without_a_network(tmp_path, no_network, name, file):
    with pytest.raises(InputError, match=rf"{name}: 1 of 1 .*{tmp_path}.*{file}.*download failed \(\w+: .*by hand"):
        load_dataset(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_put_there_after_a_failed_download_are_used(take, tmp_path, no_network):
    with pytest.raises(InputError, match="12 of 12 files are missing"):
        load_dataset("Texas", tmp_path / "root")
    assert load_dataset("Texas", take("Texas")).n == 183


def test_a_missing_file_is_named_and_the_others_stay(take, no_network):
    root = take("Texas")
    (root / "WebKB/texas/raw/out1_graph_edges.txt").unlink()
    before = files_below(root)
    with pytest.raises(InputError, match=r"1 of 12 files are missing from .*: out1_graph_edges.txt; the download"):
        load_dataset("Texas", root)
    assert files_below(root) == before


@pytest.mark.parametrize("content", [b"", b"not a zip", None])
def test_damaged_processed_file_is_made_anew(take, content):
    root = take("Texas")
    first = load_dataset("Texas", root)
    data = root / "WebKB/texas/processed/data.pt"
    data.write_bytes(data.read_bytes()[:5000] if content is None else content)
    with pytest.warns(InputWarning, match=r"Texas: .*data.pt could not be read \(.*made anew") as caught:
        assert equal(first, load_dataset("Texas", root))
    assert caught[0].filename == __file__
    assert equal(first, load_dataset("Texas", root))  # and no second warning
    assert not list(root.glob(".partial-*"))


def test_leftovers_of_an_interrupted_run_are_replaced(take):
    root = take("Texas")
    left = root / "WebKB/texas/processed/pre_filter.pt"
    left.parent.mkdir()
    left.write_bytes(b"half")
    assert load_dataset("Texas", root).n == 183
    assert (left.parent / "data.pt").is_file()
    assert left.read_bytes() != b"half"


# NumPy leaves an archive that it cannot read open, in the classes' own code
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("Texas", "out1_graph_edges.txt"),
        ("Texas", "out1_node_feature_label.txt"),
        ("Texas", "texas_split_0.6_0.2_3.npz"),
        ("Cora", "ind.cora.allx"),
        ("Cora", "ind.cora.test.index"),
        ("Minesweeper", "minesweeper.npz"),
        ("Chameleon-filtered", "chameleon_filtered.npz"),
    ],
)
def test_truncated_raw_file(take, name, file):
    root = take(name)
    path = root / named_set(name).raw / file
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    before = files_below(root)
    with pytest.raises(InputError, match=rf"{name}: the files in {path.parent} are damaged \(.*delete that folder"):
        load_dataset(name, root)
    assert files_below(root) == before
    path.write_bytes(whole)
    assert load_dataset(name, root).n == FACTS[name][0]


@pytest.fixture
def closed_folder(take):
    """A root that may be read but not written, also where the tests run as root."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = take("Texas", Path(folder) / "root")
        load_dataset("Texas", root)  # whatever is imported or compiled on first use is done by now
        shutil.rmtree(root / "WebKB/texas/processed")
        folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
        for path in folders:
            path.chmod(0o555)
        mine = os.geteuid()
        if mine == 0:
            os.seteuid(65534)
        yield root
        os.seteuid(mine)
        for path in folders:
            path.chmod(0o755)


def test_read_only_root(closed_folder):
    before = files_below(closed_folder)
    assert load_dataset("Texas", closed_folder).n == 183
    assert files_below(closed_folder) == before


# ------------------------------------------------------------------------------------------ downloads


def test_download_moves_into_place(take, tmp_path, serve, monkeypatch):
    from torch_geometric.datasets import HeterophilousGraphDataset

    there, here = take("Minesweeper"), tmp_path / "here"
    monkeypatch.setattr(HeterophilousGraphDataset, "url", serve(there / named_set("Minesweeper").raw))
    graph = load_dataset("Minesweeper", here)
    assert graph.n == 10000
    folder = "HeterophilousGraphDataset/minesweeper"
    made = {f"{folder}/raw/minesweeper.npz"} | {
        f"{folder}/processed/{file}.pt" for file in ("data", "pre_filter", "pre_transform")
    }
    assert files_below(here) == made
    assert equal(graph, load_dataset("Minesweeper", here))


def test_download_of_a_filtered_set(take, tmp_path, serve, monkeypatch):
    there, here = take("Chameleon-filtered"), tmp_path / "here"
    monkeypatch.setattr("gpatcher.datasets.download.FILTERED_URL", serve(there / "filtered"))
    assert load_dataset("Chameleon-filtered", here).n == 890
    assert files_below(here) == {"filtered/chameleon_filtered.npz"}


def test_only_what_is_missing_is_taken_from_a_download(take, tmp_path, serve, monkeypatch):
    from torch_geometric.datasets import WebKB

    root = take("Texas")
    raw = root / "WebKB/texas/raw"
    server = tmp_path / "server"
    (server / "new_data").mkdir(parents=True)
    shutil.copytree(raw, server / "new_data/texas")
    (raw / "out1_graph_edges.txt").unlink()
    stays = raw / "texas_split_0.6_0.2_0.npz"
    written = stays.stat().st_mtime_ns
    monkeypatch.setattr(WebKB, "url", serve(server))
    assert load_dataset("Texas", root).stored_edges == 325
    assert stays.stat().st_mtime_ns == written
    assert is_present("Texas", root)


def test_a_bad_download_is_not_kept(take, tmp_path, serve, monkeypatch):
    there, here = take("Chameleon-filtered"), tmp_path / "here"
    (there / "filtered/chameleon_filtered.npz").write_text("<html>please log in</html>")
    monkeypatch.setattr("gpatcher.datasets.download.FILTERED_URL", serve(there / "filtered"))
    with pytest.raises(InputError, match=r"what was downloaded, .* cannot be read \(.*was not kept"):
        load_dataset("Chameleon-filtered", here)
    assert list(here.iterdir()) == []


def test_loading_prints_nothing(take, monkeypatch, capfd):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # torch_geometric is silent where it sees this
    load_dataset("Texas", take("Texas"))
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_two_processes_at_once(take):
    root = take("Texas")
    code = (
        "import json, sys; from gpatcher.datasets.load import load_dataset; g = load_dataset('texas', sys.argv[1]);"
        "print(json.dumps([g.n, g.stored_edges, g.splits[9].hash]))"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(root)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=120) for process in both]
    assert [error for _, error in answers] == ["", ""]
    expected = load_dataset("texas", root)
    assert [json.loads(out) for out, _ in answers] == [[183, 325, expected.splits[9].hash]] * 2
    assert not list(root.glob(".partial-*"))


def test_a_slower_process_leaves_the_folder_of_the_quicker_one(take, monkeypatch):

    root, build = take("Texas"), download.build

    def overtaken(known, base, stage):
        monkeypatch.setattr(named, "_build", build)
        with download.staging(base) as (other, _):  # a whole load by somebody else, while ours is under way
            build(known, base, other)
            download.publish(known, other, base, [], replace=False)
        made.append((base / known.processed).stat().st_mtime_ns)
        return build(known, base, stage)

    made: list[int] = []
    monkeypatch.setattr(named, "_build", overtaken)
    assert load_dataset("Texas", root).n == 183
    assert (root / NAMED["texas"].processed).stat().st_mtime_ns == made[0]
    assert not list(root.glob(".partial-*"))
