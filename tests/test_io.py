"""Files: a failed write leaves the old file and nothing else; locks keep a second writer out."""

import hashlib
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass

import pytest

from gpatcher import io
from gpatcher.errors import InputError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def half_done(path, error):
    path.write_text("new")
    raise error("half done")


# ------------------------------------------------------------------------------------------------ files


def test_write_replaces_the_whole_file(tmp_path):
    for content in (b"a longer first content", b"", b"short"):
        io.write_bytes(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    io.write_text(tmp_path / "file", "φ")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "φ"
    io.write_json(tmp_path / "file", {"φ": [1, None]})
    assert json.loads((tmp_path / "file").read_text(encoding="utf-8")) == {"φ": [1, None]}
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failed_draft_leaves_the_old_file(tmp_path, error):
    io.write_text(tmp_path / "file", "old")
    with pytest.raises(error), io.draft_of(tmp_path / "file") as draft:
        half_done(draft, error)
    assert (tmp_path / "file").read_text() == "old"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("place", [".", "..", "/"])
def test_a_folder_is_no_file(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="cannot be written"):
        io.write_text(place, "text")
    assert names(tmp_path) == []


def test_a_pipe_is_not_replaced(tmp_path):
    """A rename would put a file in the place of a pipe, or of a device such as /dev/null."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link"
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(InputError, match=f"{path.name} cannot be written: it is not a regular file"):
            io.write_text(path, "x")
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_json_without_nan(tmp_path):
    with pytest.raises(ValueError, match="Out of range"):
        io.write_json(tmp_path / "file", float("nan"))
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "write",
    [
        lambda path: io.write_text(path / "file", "text"),
        lambda path: io.append_line(path / "file", b"line\n"),
        io.make_folder,
        lambda path: io.new_folder(path / "folder").__enter__(),
    ],
)
def test_error_names_the_path(tmp_path, write):
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(InputError, match=r"taken.* cannot be written: .*choose another folder"):
        write(tmp_path / "taken")


def test_lines_are_appended(tmp_path):
    for line in (b"one\n", b"two\n"):
        io.append_line(tmp_path / "file", line)
    assert (tmp_path / "file").read_bytes() == b"one\ntwo\n"


def test_incomplete_line_is_removed(tmp_path, monkeypatch):
    io.append_line(tmp_path / "file", b"one\n")
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, line: write(handle, line[:2]))
    with pytest.raises(InputError, match=r"disk is full.*file was not written"):
        io.append_line(tmp_path / "file", b"two\n")
    assert (tmp_path / "file").read_bytes() == b"one\n"


# ------------------------------------------------------------------------------------------------ folders


def test_new_folder_appears_at_the_end(tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "deep" / "new", tmp_path / "empty"):
        with io.new_folder(folder) as draft:
            (draft / "file").write_text("text")
            assert not (folder / "file").exists()
        assert names(folder) == ["file"]
        assert len(names(folder.parent)) == len([n for n in names(folder.parent) if not n.startswith(".")])


def test_failed_folder_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="half done"), io.new_folder(tmp_path / "new") as draft:
        half_done(draft / "file", ValueError)
    assert names(tmp_path) == []


def test_folder_in_use_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(InputError, match=f"{folder} exists already"), io.new_folder(folder):
            pass
    assert (tmp_path / "file").read_text() == "mine"


def test_draft_of_a_killed_process_with_the_same_id_is_replaced(tmp_path):
    with io.new_folder(tmp_path / "new") as draft:
        name = draft.name
    (tmp_path / "new").rmdir()
    (tmp_path / name).mkdir()
    (tmp_path / name / "stale").write_text("text")
    with io.new_folder(tmp_path / "new"):
        pass
    assert names(tmp_path) == ["new"]
    assert names(tmp_path / "new") == []


def test_drafts_of_dead_processes_are_removed_by_the_next_write(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = socket.gethostname()
    for pid in (ended.pid, 1):  # process 1 is alive
        (tmp_path / f".file-{host}-{pid}.partial").write_text("half")
    (tmp_path / f".folder-{host}-{ended.pid}.partial").mkdir()
    io.write_text(tmp_path / "file", "text")
    with io.new_folder(tmp_path / "folder"):
        pass
    assert names(tmp_path) == [f".file-{host}-1.partial", "file", "folder"]


def test_folders_are_exchanged(tmp_path, monkeypatch):
    for at_once in (True, False):
        if not at_once:
            monkeypatch.setattr(io, "_EXCHANGE", 1 << 20)  # a flag that no system has
        for name in "ab":
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "name").write_text(name)
        io.exchange_folders(tmp_path / "a", tmp_path / "b")
        assert [(tmp_path / name / "name").read_text() for name in "ab"] == ["b", "a"]
        assert names(tmp_path) == ["a", "b"]


SHORT = """
import resource, sys
import numpy as np
from gpatcher import InputError, io
from gpatcher.graph.graph import Graph
from gpatcher.graph.storage import save_graph

resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
writes = {
    "bytes": lambda: io.write_bytes("bytes", bytes(9000)),
    "line": lambda: io.append_line("line", bytes(9000)),
    "graph": lambda: save_graph(Graph.from_edge_index([[0], [1]], x=np.ones((2, 3000))), "graph"),
}
for name, write in writes.items():
    try:
        write()
    except InputError as error:
        print(name, "disk is full" in str(error), "bytes are free" in str(error), name in str(error))
"""


def test_short_writes_are_errors_that_name_the_file(tmp_path):
    script = [sys.executable, "-c", SHORT]
    ended = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [f"{name} True True True" for name in ("bytes", "line", "graph")]
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [("line", 0)]


# ------------------------------------------------------------------------------------------------ manifests


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "other", "version": 1}', "\udcff"])
def test_file_that_is_no_manifest(tmp_path, text):
    (tmp_path / "m.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=r"m.json does not describe a thing"):
        io.read_manifest(tmp_path / "m.json", "things", 1, "thing")


def test_manifest_of_another_version(tmp_path):
    io.write_json(tmp_path / "m.json", {"format": "things", "version": 3})
    with pytest.raises(InputError, match="has version 3, this gpatcher reads 4; create it again"):
        io.read_manifest(tmp_path / "m.json", "things", 4, "thing")
    assert io.read_manifest(tmp_path / "m.json", "things", 3, "thing") == {}


@dataclass(frozen=True)
class Thing:
    name: str
    size: int


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, None),
        ({"size": "3"}, r"m.json is damaged: thing.size must be an integer, got"),
        ({"size": None}, r"thing.size must be an integer"),
        ({"more": 1}, r"thing has the unknown field 'more'"),
        ({"size": 4}, r"m.json is damaged or was edited: it does not match its own checksum"),
        ({"checksum": "0" * 16}, r"its own checksum"),
    ],
)
def test_fields_of_a_manifest_are_checked_and_named(tmp_path, change, message):
    path = tmp_path / "m.json"
    io.write_json(path, {"format": "things", "version": 1, "name": "Ä", "size": 3})
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    if message is None:
        assert io.read_manifest(path, "things", 1, "thing", Thing) == Thing("Ä", 3)
    else:
        with pytest.raises(InputError, match=message):
            io.read_manifest(path, "things", 1, "thing", Thing)


def test_large_files_are_hashed_at_first_use(tmp_path, monkeypatch):
    monkeypatch.setenv("GPATCHER_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "file"
    path.write_bytes(b"a" * 100)
    entry = io.FileEntry(**io.list_files([path])["file"])
    monkeypatch.setattr(io, "_SMALL_BYTES", 50)
    io.check_file(path, entry, "do it again")
    hashed = []
    checksum = io.checksum
    monkeypatch.setattr(io, "checksum", lambda content: hashed.append(content) or checksum(content))
    io.check_file(path, entry, "do it again")
    assert path not in hashed  # known by its inode and its times
    copy = tmp_path / "copy"
    copy.write_bytes(b"a" * 99 + b"b")
    for damaged in (copy, path):
        path.write_bytes(b"a" * 99 + b"b")
        with pytest.raises(InputError, match=r"is damaged: its content does not match its checksum .*; do it again"):
            io.check_file(damaged, entry, "do it again")
    path.write_bytes(b"a" * 100)
    io.check_file(path, entry, "do it again", always=True)
    assert hashed.count(path) == 2


def test_small_files_are_hashed_whenever_they_are_opened(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a" * 100)
    entry = io.FileEntry(**io.list_files([path])["file"])
    io.check_file(path, entry, "do it again")
    path.write_bytes(b"a" * 99 + b"b")
    with pytest.raises(InputError, match="file is damaged: its content does not match its checksum"):
        io.check_file(path, entry, "do it again")


def test_verify_names_everything_that_is_wrong(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.bin").write_text(name)
    io.write_json(
        tmp_path / "m.json", {"format": "things", "version": 1, "files": io.list_files(tmp_path.glob("*.bin"))}
    )
    (tmp_path / "else.json").write_text("{}")  # of somebody else
    assert list(io.verify(tmp_path)) == [(tmp_path / "m.json", 2, [])]
    (tmp_path / "one.bin").write_text("One")
    (tmp_path / "two.bin").unlink()
    [(_, _, problems)] = io.verify(tmp_path)
    assert [name in text for name, text in zip(("one.bin", "two.bin"), sorted(problems), strict=True)] == [True, True]
    for content in ("{", "[" * 100000, '{"format": "things"}'):
        (tmp_path / "m.json").write_text(content)
        [(_, _, [problem])] = io.verify(tmp_path)
        assert "m.json" in problem


def test_checksum_of_bytes_and_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(io, "_BLOCK_BYTES", 7)
    content = bytes(range(100))
    (tmp_path / "file").write_bytes(content)
    assert io.checksum(content) == io.checksum(tmp_path / "file") == hashlib.sha256(content).hexdigest()[:16]


# ------------------------------------------------------------------------------------------------ locks


def test_second_writer_is_kept_out(tmp_path):
    with io.locked(tmp_path / "new"):
        with pytest.raises(InputError, match="another process writes into"), io.locked(tmp_path / "new"):
            pass
        (tmp_path / "new" / ".file-host-1.partial").write_text("draft of a killed process")
        (tmp_path / "new" / ".folder-host-1.partial").mkdir()
    with io.locked(tmp_path / "new"):
        assert names(tmp_path / "new") == [".lock"]


def test_key_is_claimed_once(tmp_path):
    with (
        io.claimed(tmp_path, "key") as first,
        io.claimed(tmp_path, "key") as second,
        io.claimed(tmp_path, "b") as other,
    ):
        assert (first, second, other) == (True, False, True)
    with io.claimed(tmp_path, "a") as again:
        assert again
