import functools
import hashlib
import http.server
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

from gpatcher.datasets import download, raw
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
    "Chameleon-filtered-directed": (890, 13584, 2325, 5, 10, (409, 287, 194)),
    "Squirrel-filtered-directed": (2223, 65718, 2089, 5, 10, (1053, 718, 452)),
    "Minesweeper": (10000, 2 * 39402, 7, 2, 10, (5000, 2500, 2500)),
    "Tolokers": (11758, 2 * 519000, 10, 2, 10, (5879, 2939, 2940)),
}


@pytest.fixture
def no_network(monkeypatch):
    """Send every request to a closed port: the real download code runs and fails at once."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def copied(data_root, tmp_path):
    """Copy the raw files of one set into a temporary data folder."""

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


def pyg_class(name: str):
    """Return a function that makes torch_geometric's data set of that name, from the data folder."""
    import torch_geometric.datasets

    family = named_set(name).raw.split("/")[0]
    arguments = {} if family == "Actor" else {"name": name}
    if family == "WikipediaNetwork":
        arguments["geom_gcn_preprocess"] = True
    return lambda root: getattr(torch_geometric.datasets, family)(f"{root}/{family}", **arguments)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() or path.is_symlink()}


def equal(a: Graph, b: Graph) -> bool:
    parts = all(np.array_equal(getattr(a, part), getattr(b, part)) for part in ("indptr", "indices", "x", "y"))
    return parts and [s.hash for s in a.splits] == [s.hash for s in b.splits]


def edge_set(graph: Graph) -> set[tuple[int, int]]:
    source = np.repeat(np.arange(graph.n), np.diff(graph.indptr))
    return set(zip(source.tolist(), graph.indices.tolist(), strict=True))


# ------------------------------------------------------------------------------------------ content


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "Squirrel" else name for name in FACTS]
)
def test_published_sizes(copied, name):
    graph = load_dataset(name, copied(name))
    sizes = (graph.n, graph.stored_edges, graph.num_features, graph.num_classes, len(graph.splits))
    assert (*sizes, graph.splits[0].sizes) == FACTS[name]
    assert graph.name == name
    assert graph.is_directed == named_set(name).directed


@pytest.mark.parametrize("name", ["Texas", "Chameleon"])
def test_geom_gcn_sets_keep_the_direction_as_filed(copied, name):
    root = copied(name)
    filed = np.loadtxt(root / named_set(name).raw / "out1_graph_edges.txt", dtype=int, skiprows=1)
    edges = edge_set(load_dataset(name, root))
    assert edges == set(map(tuple, filed.tolist()))
    assert {(b, a) for a, b in edges} != edges


@pytest.mark.parametrize("name", ["chameleon-filtered", "squirrel-filtered"])
def test_directed_form_of_a_filtered_set(data_root, name):
    for key in (name, f"{name}-directed"):
        if not is_present(key, data_root):
            pytest.skip(f"{key} is not in GPATCHER_DATA")
    graph, directed = load_dataset(name, data_root), load_dataset(f"{name}-directed", data_root)
    with np.load(data_root / "filtered" / f"{name.replace('-', '_')}_directed.npz") as arrays:
        assert edge_set(directed) == set(map(tuple, arrays["edges"].tolist()))
    # the undirected file leaves out self-loops
    assert {(a, b) for a, b in edge_set(directed.undirected()) if a != b} == edge_set(graph)
    assert graph.self_loops == 0 < directed.self_loops
    assert np.array_equal(directed.x, graph.x)
    assert np.array_equal(directed.y, graph.y)
    assert [split.hash for split in directed.splits] == [split.hash for split in graph.splits]


@pytest.mark.filterwarnings("ignore::gpatcher.errors.InputWarning")
@pytest.mark.parametrize("name", ["Cora", "CiteSeer", "Texas", "Chameleon", "Actor", "Minesweeper"])
def test_raw_files_are_read_as_torch_geometric_reads_them(copied, name):
    root = copied(name)
    assert equal(load_dataset(name, root), Graph.from_pyg(pyg_class(name)(root)[0], name))


def test_loading_writes_nothing(copied):
    root = copied("Texas")
    before = files_below(root)
    load_dataset("Texas", root)
    assert files_below(root) == before


def test_filtered_set_agrees_with_its_file(copied):
    root = copied("Chameleon-filtered")
    graph = load_dataset("chameleon_filtered", root)
    with np.load(root / "filtered" / "chameleon_filtered.npz") as arrays:
        edges = {tuple(edge) for edge in arrays["edges"].tolist()}
        assert edge_set(graph) == edges | {(b, a) for a, b in edges}
        for k, split in enumerate(graph.splits):
            assert np.array_equal(split.val, np.flatnonzero(arrays["val_masks"][k]))


def test_load_graph_takes_names(copied):
    root = copied("Texas")
    assert load_graph("TEXAS", root).n == 183


def test_load_graph_takes_generators():
    assert load_graph("colouring").n > 0
    assert load_graph("csbm:n=100,features=5").n == 100


# ------------------------------------------------------------------------------------------ names and folders


@pytest.mark.parametrize("spelling", ["Roman-empire", "ROMAN_EMPIRE", "roman-empire", " roman_Empire "])
def test_any_spelling(spelling):
    assert named_set(spelling) is NAMED["roman-empire"]


def test_unknown_name_lists_the_names():
    with pytest.raises(InputError, match=r"'corra'.*did you mean Cora.*Squirrel-filtered.*Questions"):
        load_dataset("corra")
    with pytest.raises(InputError, match=r"'chamelon'.*did you mean Chameleon.*data sets are.*generators.*csbm"):
        load_graph("chamelon")


def test_raw_files_are_those_of_the_classes(monkeypatch):
    from torch_geometric.data import InMemoryDataset

    # only the properties of the classes: the constructors would download and read
    monkeypatch.setattr(InMemoryDataset, "_download", lambda self: None)
    monkeypatch.setattr(InMemoryDataset, "_process", lambda self: None)
    monkeypatch.setattr(InMemoryDataset, "load", lambda self, path: None)
    of_pyg = [dataset for dataset in NAMED.values() if dataset.raw != "filtered"]
    assert len(of_pyg) == 14
    for dataset in of_pyg:
        assert pyg_class(dataset.name)("root").raw_paths == [f"root/{dataset.raw}/{file}" for file in dataset.files]


def test_protocols():
    assert {key for key, dataset in NAMED.items() if dataset.leaky} == {"chameleon", "squirrel"}
    auc = {key for key, dataset in NAMED.items() if dataset.metric == "roc_auc"}
    assert auc == {"minesweeper", "tolokers", "questions"}


def test_root_is_argument_then_environment_then_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GPATCHER_DATA", str(tmp_path / "env"))
    assert dataset_root(tmp_path) == tmp_path
    assert dataset_root() == tmp_path / "env"
    monkeypatch.setenv("GPATCHER_DATA", "")
    assert dataset_root().parts[-2:] == ("gpatcher", "data")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="is a file"):
        dataset_root(tmp_path / "file")


def test_presence(copied):
    root = copied("Texas")
    assert is_present("texas", root)
    missing = root / "WebKB/texas/raw/texas_split_0.6_0.2_3.npz"
    missing.unlink()
    assert missing_files("texas", root) == [missing]
    assert not is_present("texas", root)


def test_asking_for_files_does_not_import_torch():
    code = (
        "import sys, gpatcher.datasets.load; from gpatcher.datasets.registry import is_present; is_present('cora');"
        "print({'torch', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ------------------------------------------------------------------------------------------ failures


@pytest.mark.parametrize(
    ("name", "file"), [("Roman-empire", "roman_empire.npz"), ("Squirrel-filtered", "squirrel_filtered.npz")]
)
def test_without_a_network(tmp_path, no_network, name, file):
    with pytest.raises(InputError, match=rf"{name}: 1 of 1 .*{tmp_path}.*{file}.*download failed \(\w+: .*by hand"):
        load_dataset(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_copied_by_hand_after_a_failed_download_are_used(copied, tmp_path, no_network):
    with pytest.raises(InputError, match="12 of 12 files are missing"):
        load_dataset("Texas", tmp_path / "root")
    assert load_dataset("Texas", copied("Texas")).n == 183


def test_a_missing_file_is_named_and_the_others_stay(copied, no_network):
    root = copied("Texas")
    (root / "WebKB/texas/raw/out1_graph_edges.txt").unlink()
    before = files_below(root)
    with pytest.raises(InputError, match=r"1 of 12 files are missing from .*: out1_graph_edges.txt; the download"):
        load_dataset("Texas", root)
    assert files_below(root) == before


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
def test_truncated_raw_file(copied, name, file):
    root = copied(name)
    path = root / named_set(name).raw / file
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    before = files_below(root)
    with pytest.raises(InputError, match=rf"^{name}, files in {path.parent}: .*"):
        load_dataset(name, root)
    assert files_below(root) == before
    path.write_bytes(whole)
    assert load_dataset(name, root).n == FACTS[name][0]


# ------------------------------------------------------------------------------------------ hostile files


class Payload:
    """An object whose pickle creates a file when it is read by an ordinary unpickler."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("wrap", [lambda p: p, lambda p: {0: [1], 1: [p]}, lambda p: np.array([p], object)])
@pytest.mark.parametrize("part", ["x", "allx", "tx", "y", "ally", "ty", "graph"])
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickled_payload_does_not_run(copied, tmp_path, part, wrap, protocol):
    root, mark = copied("Cora"), tmp_path / "mark"
    content = pickle.dumps(wrap(Payload(mark)), protocol)
    pickle.loads(content)
    mark.rmdir()  # the payload works
    file = root / named_set("Cora").raw / f"ind.cora.{part}"
    file.write_bytes(content)
    if part == "x":  # its rows are the first of allx; it is not read
        assert load_dataset("Cora", root).n == 2708
    else:
        with pytest.raises(InputError, match=rf"{re.escape(str(file))} cannot be read"):
            load_dataset("Cora", root)
    assert not mark.exists()


def test_names_in_a_pickle_are_refused(tmp_path):
    path = tmp_path / "file"
    for name in (b"os system", b"builtins eval", b"numpy load", b"scipy.sparse load_npz", b"collections OrderedDict"):
        path.write_bytes(b"c" + name.replace(b" ", b"\n") + b"\n(S'x'\ntR.")
        with pytest.raises(InputError, match=rf"file cannot be read .*{name.decode().replace(' ', '.')}"):
            raw._read_pickle(path)


@pytest.mark.parametrize("name", ["Texas", "Cora", "Minesweeper"])
def test_processed_files_are_not_read(copied, tmp_path, name):
    root, mark = copied(name), tmp_path / "mark"
    folder = (root / named_set(name).raw).parent / "processed"
    folder.mkdir()
    for file in ("data.pt", "pre_filter.pt", "pre_transform.pt"):
        (folder / file).write_bytes(pickle.dumps(Payload(mark)))
    assert load_dataset(name, root).n == FACTS[name][0]
    assert not mark.exists()


def test_an_npz_with_a_pickle_does_not_run(copied, tmp_path):
    root, mark = copied("Chameleon-filtered"), tmp_path / "mark"
    path = root / "filtered/chameleon_filtered.npz"
    with np.load(path) as arrays:
        content = dict(arrays)
    np.savez(path, **{**content, "node_labels": np.array([Payload(mark)], object)})
    with pytest.raises(InputError, match=r"chameleon_filtered.npz cannot be read .*allow_pickle=False"):
        load_dataset("Chameleon-filtered", root)
    assert not mark.exists()


@pytest.fixture
def read_only_folder(copied):
    """A read-only data folder, also where the tests run as root."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = copied("Texas", Path(folder) / "root")
        load_dataset("Texas", root)  # imports and compiles what is needed on first use
        folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
        for path in folders:
            path.chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        yield root
        os.seteuid(user)
        for path in folders:
            path.chmod(0o755)


def test_read_only_root(read_only_folder):
    before = files_below(read_only_folder)
    assert load_dataset("Texas", read_only_folder).n == 183
    assert files_below(read_only_folder) == before


# ------------------------------------------------------------------------------------------ downloads


@pytest.mark.parametrize("name", ["Minesweeper", "Chameleon-filtered"])
def test_download_moves_into_place(copied, tmp_path, serve, monkeypatch, name):
    remote, local, dataset = copied(name), tmp_path / "local", named_set(name)
    monkeypatch.setitem(download.ADDRESSES, "npz", serve(remote / dataset.raw))
    graph = load_dataset(name, local)
    assert graph.n == FACTS[name][0]
    assert files_below(local) == {f"{dataset.raw}/{dataset.files[0]}"}
    assert equal(graph, load_dataset(name, local))


def test_only_what_is_missing_is_taken_from_a_download(copied, tmp_path, serve, monkeypatch):
    root = copied("Texas")
    raw = root / "WebKB/texas/raw"
    server = tmp_path / "server"
    shutil.copytree(raw, server / "new_data/texas")
    shutil.copytree(raw, server / "splits")
    (raw / "out1_graph_edges.txt").unlink()
    (raw / "texas_split_0.6_0.2_7.npz").unlink()
    untouched = raw / "texas_split_0.6_0.2_0.npz"
    written = untouched.stat().st_mtime_ns
    monkeypatch.setitem(download.ADDRESSES, "geom-gcn", serve(server))
    assert load_dataset("Texas", root).stored_edges == 325
    assert untouched.stat().st_mtime_ns == written
    assert is_present("Texas", root)


def test_a_changed_download_is_refused(copied, tmp_path, serve, monkeypatch):
    remote, local, mark = copied("Cora"), tmp_path / "local", tmp_path / "mark"
    folder = remote / named_set("Cora").raw
    (folder / "ind.cora.allx").write_bytes(pickle.dumps(Payload(mark)))
    monkeypatch.setitem(download.ADDRESSES, "planetoid", serve(folder))
    with pytest.raises(InputError, match=r"ind.cora.allx is not the published file: its SHA-256 is [0-9a-f]{64} inst"):
        load_dataset("Cora", local)
    assert not local.exists()
    assert not mark.exists()


def test_a_download_without_a_known_hash_is_read_before_it_is_kept(tmp_path, serve, monkeypatch):
    (tmp_path / "server").mkdir()
    (tmp_path / "server/questions.npz").write_text("<html>please log in</html>")
    monkeypatch.setitem(download.ADDRESSES, "npz", serve(tmp_path / "server"))
    with pytest.raises(InputError, match=r"questions.npz cannot be read .*the downloaded files were not kept"):
        load_dataset("Questions", tmp_path / "local")
    assert not (tmp_path / "local").exists()


def test_hashes_are_those_of_the_files_here(data_root):
    hashes = download.published_hashes()
    unknown = {key for key, d in NAMED.items() if any(f"{d.raw}/{file}" not in hashes for file in d.files)}
    # in docs/reliability.md by name
    assert unknown == {"pubmed", "chameleon", "squirrel", "roman-empire", "amazon-ratings", "questions"}
    for path, digest in hashes.items():
        if (data_root / path).is_file():
            assert hashlib.sha256((data_root / path).read_bytes()).hexdigest() == digest, path


def test_a_download_that_cannot_be_stored_is_still_loaded(copied, tmp_path, serve, monkeypatch):
    remote = copied("Chameleon-filtered")
    monkeypatch.setitem(download.ADDRESSES, "npz", serve(remote / "filtered"))
    (tmp_path / "file").touch()
    with pytest.warns(InputWarning, match=r"file/root cannot be written, so the 1 files downloaded were not kept"):
        assert load_dataset("Chameleon-filtered", tmp_path / "file" / "root").n == 890


def test_loading_prints_nothing(copied, capfd):
    load_dataset("Texas", copied("Texas"))
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_two_processes_at_once(copied):
    root = copied("Texas")
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
    assert not list(root.rglob("*.partial"))
