"""Convert records and logs of version 1 to version 2, in place: flat configurations become nested settings.

Records of version 2 get the settings that were added since, at their defaults.

    python tools/convert_records.py results

Figures are kept as they are. Fields that a record of a training run lacks are null.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gpatcher.bench.tuning import Search
from gpatcher.errors import InputError
from gpatcher.io import write_text
from gpatcher.runs.records import RECORD_VERSION, seal, settings_hash
from gpatcher.runs.run import Job
from gpatcher.runs.settings import PATCHERS, complete

PATCHES = {"extractor": "name", "patch_size": "size", "filters": "K"}
PATCHES |= {name: name for name in ("c", "eps", "self_loops", "sigma", "candidates")}
FEATURES = {"normalise": "normalise", "structure": "adjacency_features", "mass": "log_l1_norm"}
TRAIN = {"stop": "monitor", "renew_every": "reselect_every", "average": "ema_decay"}
TRAIN |= {name: name for name in ("lr", "weight_decay", "epochs", "patience", "batch_size", "filter_lr")}
TRAIN |= {"class_weights": "class_weights"}
EXPERIMENTS = {"honest": "leak_free", "dial": "csbm_sweep"}
NEW_FIELDS = ("directed", "metrics", "batch_size", "memory", "extractors", "compared", "calibration", "response")
NEW_FIELDS += ("members",)  # of an ensemble


def dotted(name: str, patcher: bool) -> str:
    """Return the name of a parameter of version 1 as that of a setting."""
    if patcher and name in PATCHES:
        return f"patches.{PATCHES[name]}"
    if name in FEATURES:
        return f"features.{FEATURES[name]}"
    if name in TRAIN:
        return f"train.{TRAIN[name]}"
    return f"model.{'readout' if name == 'paths' else name}"


def settings(model: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return nested settings of a flat configuration."""
    patcher = model in PATCHERS
    nested: dict[str, dict[str, Any]] = {"features": {}, "model": {}, "train": {}}
    if patcher:
        nested = {"patches": {"name": PATCHERS[model]}, **nested}
    for name, value in config.items():
        section, _, key = dotted(name, patcher).partition(".")
        nested[section][key] = value
    return complete(nested, model) if patcher else nested


def job_record(old: dict[str, Any]) -> dict[str, Any]:
    """Return a record of a job in version 2."""
    config = dict(old["config"])
    ablation: dict[str, Any] = {}
    if config.pop("patch_order", None) == "shuffled":
        ablation["shuffle_patches"] = True
    if "induced" in config:
        ablation["induced"] = settings("gpatcher", config.pop("induced"))
    experiment = EXPERIMENTS.get(old["preset"], old["preset"])
    task = {"response": "response", "statistics": "statistics", "runtime": "runtime"}.get(experiment, "train")
    new = settings(old["model"], config) if config and task != "runtime" else {}
    if task == "runtime":
        new = {"patches.size": config["p"]}
    job = Job(
        experiment,
        old["dataset"],
        old["model"],
        new,
        old["split"],
        old["seed"],
        old["row"],
        old["tuned"],
        ablation,
        task,
    )
    gone = ("job", "preset", "tuned", "config", "config_hash")
    return with_all_fields(job.header() | {name: value for name, value in old.items() if name not in gone})


def completed(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of version 2 with the settings that were added since, at their defaults, and the new id."""
    if record["model"] not in PATCHERS or "patches" not in record["settings"]:
        return record
    ablation = dict(record["ablation"])
    if isinstance(ablation.get("induced"), dict):
        ablation["induced"] = complete(ablation["induced"], "gpatcher")
    names = ("split", "seed", "row", "trials")
    task = record["experiment"] if record["experiment"] in ("response", "statistics", "runtime") else "train"
    job = Job(
        record["experiment"],
        record["dataset"],
        record["model"],
        complete(record["settings"], record["model"]),
        *(record[name] for name in names),
        ablation,
        task,
    )
    return record | job.header()


def with_all_fields(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record of a training run with null for the fields that it lacks; any other record unchanged."""
    missing = {name: None for name in NEW_FIELDS if name not in record} if "val" in record else {}
    return record | missing


def trial_record(old: dict[str, Any], latest: dict[tuple[str, str], str]) -> dict[str, Any]:
    """Return a trial of the log in version 2; the trials of a model's latest search get the key that it has now."""
    patcher = old["model"] in PATCHERS
    search = Search(**{name: old[name] for name in ("model", "dataset", "space", "splits", "seed", "trials")})
    current = latest[old["dataset"], old["model"]] == old["search"]
    drawn = {dotted(name, patcher): value for name, value in old["drawn"].items()}
    rest = {name: value for name, value in old.items() if name != "config"}
    return {"version": RECORD_VERSION} | rest | {"search": search.key if current else old["search"], "drawn": drawn}


def published_record(old: dict[str, Any]) -> dict[str, Any]:
    """Return a record of tools/published.py in version 2."""
    new = {name: value for name, value in old.items() if name not in ("config", "config_hash", "directed_input")}
    flat = {"monitor" if name == "stop" else name: value for name, value in old["config"].items()}
    new |= {"directed": old["directed_input"], "settings_hash": settings_hash(flat), "settings": flat}
    return {"version": RECORD_VERSION} | new


def convert(path: Path) -> int:
    """Convert a file; return how many of its lines changed."""
    lines = path.read_text().splitlines()
    parsed = [_parse(line) for line in lines]
    latest = {(old["dataset"], old["model"]): old["search"] for old in parsed if old is not None and "search" in old}
    new = []
    for line, old in zip(lines, parsed, strict=True):
        if old is None:
            new.append(line)
        elif "published" in old:
            new.append(json.dumps(old if old.get("version") == RECORD_VERSION else published_record(old)))
        elif "search" in old:
            new.append(json.dumps(old if old.get("version") == RECORD_VERSION else trial_record(old, latest)))
        elif "job" in old:
            current = old.get("version") == RECORD_VERSION
            sealed = old.pop("checksum", None) is not None
            record = completed(with_all_fields(old)) if current else job_record(old)
            new.append(json.dumps(seal(record) if sealed else record))
        else:
            raise InputError(f"{path} holds records of 'gpatcher fit'; run it again with another --out")
    write_text(path, "".join(f"{line}\n" for line in new))
    return sum(old != line for old, line in zip(lines, new, strict=True))


def _parse(line: str) -> dict[str, Any] | None:
    """Return a record; None for a line truncated by a killed process, which stays unchanged."""
    try:
        record: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return record


def main() -> None:
    """Convert all files in the folders given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    for folder in parser.parse_args().folders:
        for path in sorted(p for p in folder.rglob("*.jsonl") if p.stem in ("records", "trials", "published")):
            print(f"{path}: {convert(path)} lines")


if __name__ == "__main__":
    main()
