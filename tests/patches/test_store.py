"""The patch table: its content, continuing after any interruption, and what it refuses."""

import json
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from gpatcher.datasets.load import load_graph
from gpatcher.errors import InputError
from gpatcher.io import write_json
from gpatcher.patches.ppr import PPR, push_patches
from gpatcher.patches.store import PatchTable, StoredPatches, _make_shard, write_patches
from gpatcher.scale.executors import LocalEngine

SOURCE = "rmat:n=3000,m=20000,seed=1"
EXTRACTOR = PPR(size=8)


@pytest.fixture(scope="module")
def graph():
    return load_graph(SOURCE)


@pytest.fixture(scope="module")
def written(graph, tmp_path_factory):
    return write_patches(graph, tmp_path_factory.mktemp("written") / "patches", EXTRACTOR, shard=700)


@pytest.fixture
def table(written, tmp_path):
    """A table of its own, which a test may damage."""
    shutil.copytree(written.folder, tmp_path / "patches")
    return PatchTable.open(tmp_path / "patches")


def shards(folder):
    return sorted(folder.glob("*.npy"))


def stamps(folder):
    return {path.name: path.stat().st_mtime_ns for path in shards(folder)}


# ------------------------------------------------------------------------------------------------ content


def test_the_table_holds_the_patches(table, graph):
    whole = push_patches(graph, EXTRACTOR)
    assert len(table) == table.n == 3000
    assert table.size == 8
    assert table.extractor == EXTRACTOR
    assert table.nbytes == 0
    assert table.fingerprint == graph.fingerprint
    assert len(shards(table.folder)) == 5
    rows = table[:]
    np.testing.assert_array_equal(rows.index, whole.index)
    np.testing.assert_array_equal(rows.score, whole.score)
    assert rows.index.dtype == np.int32
    assert rows.score.dtype == np.float32


@pytest.mark.parametrize(
    "nodes",
    [
        [2999, 0, 700, 699, 0],
        np.array([5]),
        [],
        slice(690, 1405),
        slice(None, None, 500),
        2100,
        torch.tensor([4, 2800]),
    ],
    ids=str,
)
def test_rows_are_read_in_any_order(table, graph, nodes):
    whole = push_patches(graph, EXTRACTOR)
    rows = table[nodes]
    ids = np.asarray(nodes, dtype=np.int64) if not isinstance(nodes, slice) else nodes
    np.testing.assert_array_equal(rows.index, whole.index[ids])
    np.testing.assert_array_equal(rows.score, whole.score[ids])


def test_a_mask_selects_its_nodes(table):
    mask = np.zeros(3000, bool)
    mask[[3, 2998]] = True
    assert table[mask].index[:, 0].tolist() == [3, 2998]


@pytest.mark.parametrize("wrong", [[3000], [-1], [0.5]])
def test_nodes_outside_the_table_are_refused(table, wrong):
    with pytest.raises(InputError, match=str(wrong[0]).replace("0.5", "float64")):
        table[wrong]


def test_the_module_reads_the_rows_of_a_batch(table, graph):
    whole = push_patches(graph, EXTRACTOR)
    source = table.source()
    assert isinstance(source, StoredPatches)
    assert (source.size, source.learned) == (8, False)
    index, score = source(torch.tensor([2999, 0, 2999]))
    assert index.dtype == torch.int64
    np.testing.assert_array_equal(index, whole.index[[2999, 0, 2999]])
    np.testing.assert_array_equal(score, whole.score[[2999, 0, 2999]])
    np.testing.assert_array_equal(source.patches().index, whole.index)
    assert source.state_dict() == {}


def test_a_table_is_pickled_as_its_path(table):
    sent = pickle.dumps(table)
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent)[[7]].index, table[[7]].index)


@pytest.mark.parametrize("options", [{"self_loops": True}, {"c": 0.8, "eps": 1e-3}, {"size": 1}, {"size": 5000}])
def test_parameters_reach_the_push(tmp_path, options):
    small = load_graph("rmat:n=300,m=900,seed=2")
    extractor = PPR(**{"size": 4} | options)
    whole = push_patches(small, extractor)
    table = write_patches(small, tmp_path, extractor, shard=128)
    assert table.extractor == PatchTable.open(tmp_path).extractor == extractor
    np.testing.assert_array_equal(table[:].index, whole.index)
    np.testing.assert_array_equal(table[:].score, whole.score)


def test_the_default_extractor(tmp_path):
    table = write_patches(load_graph("rmat:n=300,m=900,seed=2"), tmp_path)
    assert table.extractor == PPR(size=32)


def test_files_do_not_depend_on_the_number_of_threads(graph, table, tmp_path):
    write_patches(graph, tmp_path / "other", EXTRACTOR, shard=700, engine=LocalEngine(threads=1))
    for one, two in zip(shards(table.folder), shards(tmp_path / "other"), strict=True):
        assert one.name == two.name
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(("n", "shard", "count"), [(1000, 1024, 1), (200_000, 1563, 128)])
def test_shards_are_a_128th_of_the_nodes(tmp_path, n, shard, count):
    table = write_patches(load_graph(f"rmat:n={n},m={n},seed=1"), tmp_path, PPR(size=2, eps=1e-2))
    assert table.shard == shard
    assert len(table.files) == count


def test_progress_counts_nodes(graph, tmp_path):
    calls = []
    write_patches(graph, tmp_path, PPR(size=4), shard=2000, progress=lambda a, b: calls.append((a, b)))
    assert calls[-1] == (3000, 3000)
    assert [a for a, _ in calls] == sorted({a for a, _ in calls})


# ------------------------------------------------------------------------------------------------ continuing


def test_a_second_call_writes_nothing(graph, table):
    before = stamps(table.folder)
    manifest = (table.folder / "manifest.json").read_text()
    write_patches(graph, table.folder, EXTRACTOR, shard=700)
    assert stamps(table.folder) == before
    assert (table.folder / "manifest.json").read_text() == manifest


def test_only_the_missing_shard_is_written(graph, table):
    before = stamps(table.folder)
    gone = shards(table.folder)[2]
    gone.unlink()
    with pytest.raises(InputError, match=f"{gone.name}.*missing.*run the same"):
        PatchTable.open(table.folder)
    calls = []
    write_patches(graph, table.folder, EXTRACTOR, shard=700, progress=lambda a, b: calls.append(a))
    assert calls == [3000]
    after = stamps(table.folder)
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {gone.name}
    PatchTable.open(table.folder).verify()


# ------------------------------------------------------------------------------------------------ damage


def test_the_error_names_a_truncated_shard(graph, table):
    damaged = shards(table.folder)[1]
    damaged.write_bytes(damaged.read_bytes()[:-100])
    for call in (
        lambda: PatchTable.open(table.folder),
        lambda: write_patches(graph, table.folder, EXTRACTOR, shard=700),
    ):
        with pytest.raises(InputError, match=f"{damaged.name} is damaged.*bytes.*delete it"):
            call()


def test_a_manifest_that_lists_too_few_shards_is_refused(table):
    path = table.folder / "manifest.json"
    content = json.loads(path.read_text())
    content["files"].popitem()
    write_json(path, content)  # with the right checksum
    with pytest.raises(InputError, match=r"manifest.json is damaged: it lists \d+ shards"):
        PatchTable.open(table.folder)


def test_a_changed_shard_fails_its_checksum(graph, table):
    table.verify()
    damaged = shards(table.folder)[3]
    content = bytearray(damaged.read_bytes())
    content[-7] ^= 1
    damaged.write_bytes(content)
    opened = PatchTable.open(table.folder)
    for call in (opened.verify, lambda: write_patches(graph, table.folder, EXTRACTOR, shard=700)):
        with pytest.raises(InputError, match=f"{damaged.name} is damaged.*checksum.*delete it"):
            call()
    damaged.unlink()
    write_patches(graph, table.folder, EXTRACTOR, shard=700).verify()


def test_verifying_reports_progress(table):
    calls = []
    table.verify(lambda a, b: calls.append((a, b)))
    assert calls == [(k, 5) for k in range(1, 6)]


# ------------------------------------------------------------------------------------------------ errors


def test_the_table_of_another_graph_is_refused(table):
    other = load_graph("rmat:n=3000,m=20000,seed=2")
    with pytest.raises(InputError, match=r"belongs to another graph.*fingerprint"):
        PatchTable.open(table.folder, other)
    before = stamps(table.folder)
    with pytest.raises(InputError, match="belongs to another graph"):
        write_patches(other, table.folder, EXTRACTOR, shard=700)
    assert stamps(table.folder) == before


def test_the_same_graph_is_accepted(table, graph):
    assert PatchTable.open(table.folder, graph).n == 3000


@pytest.mark.parametrize(
    ("parameters", "shard", "words"),
    [
        ({"c": 0.6}, 700, "c=0.5, not 0.6"),
        ({"size": 9}, 700, "size=8, not 9"),
        ({"self_loops": True}, 700, "self_loops=False, not True"),
        ({}, 512, "shard=700, not 512"),
    ],
)
def test_other_parameters_in_the_same_folder_are_refused(graph, table, parameters, shard, words):
    with pytest.raises(InputError, match=words):
        write_patches(graph, table.folder, replace(EXTRACTOR, **parameters), shard=shard)


@pytest.mark.parametrize(
    ("parameters", "shard", "words"),
    [
        ({"c": 1.5}, None, "c must lie"),
        ({"eps": 0}, None, "eps must lie"),
        ({"size": 0}, None, "got 0"),
        ({}, 0, "got 0"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(graph, tmp_path, parameters, shard, words):
    with pytest.raises(InputError, match=words):
        write_patches(graph, tmp_path / "new", PPR(**parameters), shard=shard)
    assert not (tmp_path / "new").exists()


def test_a_folder_without_a_table_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no patch table.*gpatcher patches"):
        PatchTable.open(tmp_path)


def test_a_folder_with_something_else_is_left_alone(graph, tmp_path):
    for name in ("notes.txt", ".mine.partial"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match="is not empty and contains no patch table"):
        write_patches(graph, tmp_path, PPR(size=4))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mine.partial", "notes.txt"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}'])
def test_another_file_in_place_of_the_manifest_is_refused(graph, tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    for call in (lambda: PatchTable.open(tmp_path), lambda: write_patches(graph, tmp_path)):
        with pytest.raises(InputError, match="does not describe a patch table"):
            call()


@pytest.mark.parametrize(("change", "words"), [({"version": 99}, "version 99"), ({"complete": False}, "not finished")])
def test_other_versions_and_unfinished_tables_are_refused(table, change, words):
    path = table.folder / "manifest.json"
    write_json(path, json.loads(path.read_text()) | change)
    with pytest.raises(InputError, match=words):
        PatchTable.open(table.folder)


def test_a_file_in_the_way_is_an_error(graph, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="choose another folder"):
        write_patches(graph, tmp_path / "file")


class OtherDisk:
    """A machine that writes to a disk of its own: the other machines do not have its files."""

    def map(self, function, items, shared=()):
        folder, *rest = shared
        folder.with_name("elsewhere").mkdir()
        for item in items:
            yield item, function(item, folder.with_name("elsewhere"), *rest)


def test_a_folder_that_machines_do_not_share_is_an_error(graph, tmp_path):
    with pytest.raises(InputError, match=r"wrote 00000-.*not in .*patches on this machine.*all machines share"):
        write_patches(graph, tmp_path / "patches", EXTRACTOR, engine=OtherDisk())
    # the same on a machine where the folder is missing
    with pytest.raises(InputError, match=r"gone does not exist on .*all machines of the cluster share"):
        _make_shard((0, (0, 10)), tmp_path / "gone", EXTRACTOR)


# ------------------------------------------------------------------------------------------------ real faults

ARGUMENTS = ["patches", SOURCE, "--size", "8", "--shard", "200", "--threads", "1"]
# a pause before each shard, so that the fault comes before the last one
SLOWLY = """
import time
from gpatcher.cli import main
from gpatcher.patches import store

make = store._make_shard
def make_slowly(*arguments):
    time.sleep(0.2)
    return make(*arguments)

store._make_shard = make_slowly
main()
"""


def begin(folder, count):
    """Start the command and wait until some shards exist."""
    restore = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # background jobs of a shell ignore Ctrl-C
    command = [sys.executable, "-c", SLOWLY, *ARGUMENTS, "--out", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=restore)
    while len(shards(folder)) < count:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    return process


@pytest.fixture
def finish(command_in, tmp_path):
    """Call the same command again, without a new process."""

    def call(folder):
        command_in(tmp_path, *ARGUMENTS, "--out", folder)
        return PatchTable.open(folder)

    return call


def test_after_a_kill_the_same_command_writes_only_missing_shards(finish, graph, tmp_path):
    process = begin(tmp_path / "a", 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = stamps(tmp_path / "a")
    assert 2 <= len(kept) < 15
    (tmp_path / "a" / ".00014-host-14.partial").write_bytes(b"half")  # a kill within a write leaves such a draft
    table = finish(tmp_path / "a")
    after = stamps(tmp_path / "a")
    assert len(after) == 15
    assert {name: after[name] for name in kept} == kept
    assert not list((tmp_path / "a").glob(".*.partial"))
    table.verify()
    whole = write_patches(graph, tmp_path / "b", EXTRACTOR, shard=200)
    assert whole.files == table.files


def test_ctrl_c_keeps_finished_shards_and_says_how_to_continue(finish, tmp_path):
    process = begin(tmp_path, 1)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode == 130
    kept = stamps(tmp_path)
    assert re.search(rf"stopped: {len(kept)} shards? (is|are) finished in {tmp_path}; run it again", message)
    assert "Traceback" not in message
    assert 1 <= len(kept) < 15
    with pytest.raises(InputError, match="not finished; run the command that started it again"):
        PatchTable.open(tmp_path)
    finish(tmp_path).verify()
    assert {name: stamp for name, stamp in stamps(tmp_path).items() if name in kept} == kept


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 160 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_an_error_and_keeps_finished_shards(graph, small_disk):
    with pytest.raises(InputError, match=r"the disk is full.*run the command again"):
        write_patches(graph, small_disk, EXTRACTOR, shard=700, engine=LocalEngine(threads=1))
    kept = stamps(small_disk)
    assert 3 <= len(kept) < 5  # the last one is smaller and may still fit
    assert not list(small_disk.glob(".*.partial"))
    subprocess.run(["mount", "-o", "remount,size=10m", str(small_disk)], check=True)
    write_patches(graph, small_disk, EXTRACTOR, shard=700).verify()
    assert {name: stamp for name, stamp in stamps(small_disk).items() if name in kept} == kept


def test_a_second_writer_is_refused(graph, tmp_path):
    process = begin(tmp_path, 1)
    try:
        with pytest.raises(InputError, match="another process writes into"):
            write_patches(graph, tmp_path, EXTRACTOR, shard=200)
    finally:
        process.kill()
        process.communicate()
