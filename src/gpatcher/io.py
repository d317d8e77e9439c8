"""Atomic writes, checksummed manifests and locks: the only module that does these.

A file is written to a draft in the same folder, flushed to disk and renamed, so that a killed process leaves either the
old file or the new one. The name of a draft starts with a dot and ends in ``.partial``.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from gpatcher.codec import from_json
from gpatcher.errors import InputError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_BLOCK_BYTES = 1 << 18  # read at a time for a hash
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_SMALL_BYTES = 1 << 26  # larger files are compared with their checksum at first use, others whenever they are opened


@contextmanager
def draft_of(path: str | Path) -> Iterator[Path]:
    """Yield the path of a draft, which replaces ``path`` if the block ends without an error."""
    path = Path(path)
    check_replaceable(path)
    draft = _own_draft(path)
    try:
        yield draft
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise write_error(path, error) from None
    finally:
        with suppress(OSError):  # renamed, or never created
            draft.unlink()


def check_replaceable(path: Path) -> None:
    """Refuse to write to a device, a pipe or a folder: a rename would replace it."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path} cannot be written: it is not a regular file; choose another path")


def _own_draft(path: Path) -> Path:
    """Return the draft of this process for ``path``, and remove those of processes of this machine that were killed."""
    path = path.absolute()  # '.' has no name
    # one name per process: two machines of a cluster may write the same file
    start = f".{path.name}-{socket.gethostname()}-"
    for left in path.parent.glob(f"{glob.escape(start)}*.partial"):
        pid = left.name[len(start) :].removesuffix(".partial")
        if pid == str(os.getpid()) or not _is_alive(pid):  # its own: of a process with the same id, as in containers
            _remove(left)
    return path.parent / f"{start}{os.getpid()}.partial"


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except PermissionError:  # of another user
        return True
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    return True


def _remove(draft: Path) -> None:
    if draft.is_dir():
        shutil.rmtree(draft, ignore_errors=True)
    else:
        with suppress(OSError):
            draft.unlink()


def write_bytes(path: str | Path, content: bytes | memoryview) -> None:
    """Write a file whole or not at all."""
    with draft_of(path) as draft, draft.open("wb", buffering=0) as file:
        left = memoryview(content)
        while left:  # a raw write may be short
            left = left[file.write(left) :]


def write_text(path: str | Path, text: str) -> None:
    """Write text in UTF-8 whole or not at all; bytes of a path that are not UTF-8 are escaped."""
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_json(path: str | Path, content: Any) -> None:
    """Write an object as JSON whole or not at all; NaN and infinity are refused.

    A manifest, that is a dict with a ``format``, gets a checksum of itself; `read_manifest` reads it.
    """
    if isinstance(content, dict) and "format" in content:
        content = {**content, "checksum": _own_checksum(content)}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_bytes(path, text.encode(errors="surrogatepass"))  # as `json.loads` decodes it


def append_line(path: str | Path, line: bytes) -> None:
    """Append a line, with its newline, in one write and flush it, so that lines of two processes never mix."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            length = os.fstat(handle).st_size
            written = os.write(handle, line)
            if written != len(line):
                os.ftruncate(handle, length)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise write_error(Path(path), error) from None


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """Yield a draft folder, which is renamed to ``folder``, new or empty, if the block ends without an error."""
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists already; choose another folder or remove it")
    draft = _own_draft(folder)
    try:
        draft.mkdir(parents=True)
        yield draft
        draft.replace(folder)
    except OSError as error:
        raise write_error(folder, error) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_error(path: Path, error: OSError) -> InputError:
    """Return the `InputError` to raise if ``path`` cannot be written."""
    cause = error.strerror or str(error)
    if error.errno in (*_FULL, None):  # NumPy gives no number where a write was short
        with suppress(OSError):
            folder = next(parent for parent in path.absolute().parents if parent.exists())
            cause = f"{cause}, {shutil.disk_usage(folder).free:,} bytes are free"
        return InputError(f"the disk is full: {path} was not written ({cause}); make room and run the command again")
    return InputError(f"{path} cannot be written: {cause}; choose another folder")


def make_folder(folder: str | Path) -> Path:
    """Create a folder and its parents, and return its path."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from None
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, if it exists; it is renamed first, so that no half of it remains."""
    if not folder.exists():
        return
    draft = _own_draft(folder)
    try:
        folder.replace(draft)
    except OSError as error:
        raise write_error(folder, error) from None
    shutil.rmtree(draft, ignore_errors=True)


def exchange_folders(one: Path, other: Path) -> None:
    """Exchange two folders: at once where the system can (Linux), otherwise in three renames."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None and rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return
    between = _own_draft(one)
    try:
        one.replace(between)
        other.replace(one)
        between.replace(other)
    except OSError as error:
        raise write_error(one, error) from None


def clear_drafts(folder: Path) -> None:
    """Remove the drafts that killed processes left in a folder, and nothing else."""
    for draft in list(folder.rglob(".*-*-*.partial")):
        if draft.stem.rpartition("-")[2].isdecimal():
            _remove(draft)


@dataclass(frozen=True)
class FileEntry:
    """Size and checksum of a file, as listed under ``files`` in a manifest."""

    bytes: int
    checksum: str


def list_files(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Return the entries of files of one folder, by name."""
    return {path.name: {"bytes": path.stat().st_size, "checksum": checksum(path)} for path in paths}


def cache_folder(name: str) -> Path:
    """Return a folder in ``$GPATCHER_CACHE``, else in the user's cache."""
    import platformdirs

    return Path(os.environ.get("GPATCHER_CACHE") or platformdirs.user_cache_dir("gpatcher")) / name


def check_file(path: Path, entry: FileEntry, advice: str, *, always: bool = False) -> None:
    """Compare a file with its entry: the size, and the checksum, that of a large file at its first use alone.

    A copy is another file, and so is one that was written to since; with ``always`` the checksum is compared again.
    """
    try:
        size = path.stat().st_size
        if size != entry.bytes:
            raise InputError(f"{path} is damaged: it has {size:,} bytes, not {entry.bytes:,}; {advice}")
        if not always and size > _SMALL_BYTES and _was_checked(path, entry):
            return
        if checksum(path) != entry.checksum:
            raise InputError(f"{path} is damaged: its content does not match its checksum {entry.checksum}; {advice}")
        if size > _SMALL_BYTES:
            with suppress(InputError):  # a cache that cannot be written
                write_text(make_folder(cache_folder("checked")) / _mark(path), _state(path, entry))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); {advice}") from None


def _was_checked(path: Path, entry: FileEntry) -> bool:
    """Whether this file was compared with its checksum before, and neither moved nor written to since."""
    try:
        return (cache_folder("checked") / _mark(path)).read_text(encoding="utf-8") == _state(path, entry)
    except (OSError, ValueError):
        return False


def _mark(path: Path) -> str:
    return checksum(os.fsencode(path.absolute()))


def _state(path: Path, entry: FileEntry) -> str:
    status = path.stat()
    return f"{entry.checksum} {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}"


def _own_checksum(manifest: dict[str, Any]) -> str:
    content = {name: value for name, value in manifest.items() if name != "checksum"}
    return checksum(json.dumps(content, sort_keys=True).encode())


def read_manifest(path: Path, kind: str, version: Any, what: str, hint: Any = dict[str, Any]) -> Any:
    """Read a manifest of ``what``; its other fields are those of the dataclass ``hint``, which is returned.

    Another format or version, a missing or wrong field, which is named, and a wrong checksum are errors.
    """
    try:
        manifest: Any = json.loads(path.read_bytes())
        matches = manifest["format"] == kind
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        matches = False
    if not matches:
        raise InputError(f"{path} does not describe a {what}, or is damaged; choose another folder")
    if manifest.get("version") != version:
        raise InputError(
            f"{path}: the {what} has version {manifest.get('version')}, this gpatcher reads {version}; create it again"
        )
    try:
        fields = {name: manifest[name] for name in manifest if name not in ("format", "version", "checksum")}
        content = from_json(hint, fields, what)
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}; create it again") from None
    if manifest.get("checksum") != _own_checksum(manifest):
        raise InputError(f"{path} is damaged or was edited: it does not match its own checksum; create it again")
    return content


def verify(folder: Path) -> Iterator[tuple[Path, int, list[str]]]:
    """Compare everything below a folder that a manifest lists with its checksum.

    Yields the path of each manifest, the number of files that it lists, and what is wrong.
    """
    for path in sorted(folder.rglob("*.json")):
        problems: list[str] = []
        files: dict[str, FileEntry] = {}
        try:
            manifest = json.loads(path.read_bytes())
            if not isinstance(manifest, dict) or not {"format", "checksum"} & manifest.keys():
                continue  # of somebody else
            kind = str(manifest.get("format"))
            content = read_manifest(path, kind, manifest.get("version"), kind.removeprefix("gpatcher-"))
            files = from_json(dict[str, FileEntry], content.get("files", {}), "files")
        except (OSError, ValueError, RecursionError) as error:
            problems.append(str(error) if isinstance(error, InputError) else f"{path} is damaged: {error}")
        for name, entry in files.items():
            try:
                check_file(path.parent / name, entry, "create it again", always=True)
            except InputError as error:
                problems.append(str(error))
        yield path, len(files), problems


def checksum(content: bytes | memoryview | Path) -> str:
    """Return the first sixteen hexadecimal digits of the SHA-256 of bytes or of a file."""
    if not isinstance(content, Path):
        return hashlib.sha256(content).hexdigest()[:16]
    digest = hashlib.sha256()
    with content.open("rb") as file:
        for block in iter(partial(file.read, _BLOCK_BYTES), b""):
            digest.update(block)
    return digest.hexdigest()[:16]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for one writer and clear the drafts of killed ones; the folder is created if needed."""
    lock = FileLock(make_folder(folder) / ".lock", mode=0o644)
    try:
        held = lock.acquire(blocking=False)
    except Timeout:
        raise InputError(f"another process writes into {folder}; wait for it or choose another folder") from None
    except OSError as error:
        raise write_error(folder, error) from None
    with held:
        clear_drafts(folder)
        yield


@contextmanager
def claimed(folder: Path, key: str) -> Iterator[bool]:
    """Lock ``key`` while the block runs and yield True; yield False if another process holds it.

    The operating system releases the locks of a process that dies, so no lock is ever stale.
    """
    try:
        held = FileLock(make_folder(folder) / f"{key}.lock", mode=0o644).acquire(blocking=False)
    except Timeout:
        yield False
        return
    with held:
        yield True
