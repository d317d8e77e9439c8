"""Download missing raw files of the named data sets, check them and publish them in the data folder."""

from __future__ import annotations

import hashlib
import shutil
import urllib.request
from functools import cache
from importlib import resources
from pathlib import Path

from gpatcher.datasets.registry import NamedSet
from gpatcher.errors import InputError, some
from gpatcher.io import draft_of, make_folder

_TIMEOUT = 60  # seconds without an answer
ADDRESSES = {
    "planetoid": "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data",
    "geom-gcn": "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master",
    "npz": "https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/main/data",
}


@cache
def published_hashes() -> dict[str, str]:
    """Return the SHA-256 of each raw file whose published content is on record, by its path in the data folder."""
    text = resources.files("gpatcher.datasets").joinpath("sha256sums.txt").read_text(encoding="utf-8")
    return {path: digest for digest, path in (line.split("  ", 1) for line in text.splitlines())}


def download(dataset: NamedSet, files: list[str], folder: Path) -> None:
    """Download raw files into a folder and compare each with its published hash, where that is on record."""
    for file in files:
        path = folder / file
        address = f"{ADDRESSES[dataset.reader]}/{dataset.address(file)}"
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer, path.open("wb") as copy:
            shutil.copyfileobj(answer, copy)
        expected = published_hashes().get(f"{dataset.raw}/{file}")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if expected is not None and found != expected:
            raise InputError(
                f"{address} is not the published file: its SHA-256 is {found} instead of {expected}; nothing of it "
                "was read or kept"
            )


def publish(dataset: NamedSet, files: list[str], folder: Path, base: Path) -> bool:
    """Copy downloaded files to the data folder, each whole or not at all; return False where that fails."""
    try:
        raw = make_folder(base / dataset.raw)
        for file in files:
            with draft_of(raw / file) as draft:
                shutil.copyfile(folder / file, draft)
    except InputError:
        return False
    return True


def download_failed(dataset: NamedSet, missing: list[str], raw: Path, error: Exception) -> InputError:
    """Return the error for files that are neither here nor to be had."""
    cause = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return InputError(
        f"{dataset.name}: {len(missing)} of {len(dataset.files)} files are missing from {raw}: {some(missing)}; "
        f"the download failed ({cause}); copy them to that folder by hand, or set root or GPATCHER_DATA to the folder "
        "that contains them"
    )
