"""Settings of a run: one resolver and one shipped file, used by ``fit``, ``bench`` and ``tune``.

Settings are nested dictionaries with the sections patches, features, model and train (`gpatcher.estimator.settings`); a
baseline has no patches, and its hyper-parameters are in the section model. ``settings.json`` has the settings that
``gpatcher tune`` chose on validation data, for each data set and model. ``reference.json`` has the default and the
description of every setting, so that showing them does not import torch; tools/settings.py writes it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from gpatcher.baselines import baseline_titles
from gpatcher.errors import InputError

if TYPE_CHECKING:
    from gpatcher.estimator.settings import Settings

Shipped = dict[str, dict[str, dict[str, Any]]]  # data set → model → {"settings", "trials", "val", ...}

# the extractor of each model; deep reads direct neighbours in several rounds
PATCHERS = {"gpatcher": "heterophily-aware", "fast": "ppr", "deep": "hop"}
AUTO = "auto"  # the portfolio, see `gpatcher.estimator.ensemble`
MODELS = (*baseline_titles(), *PATCHERS)
_AUTO: Settings = {"auto": {"quality": "good", "budget": None, "keep_best": False}}
_KINDS = {bool: "true or false", int: "an integer", float: "a number", str: "text"}

# NOTE[DIFF] rows are scaled by their scores here too: without it no gradient would reach the filter.
PAPER: Settings = {
    "patches": {"size": 32, "K": 10, "c": 0.5},
    "features": {"normalise": "standard"},
    "model": {
        "hidden": 64,
        "mixer_hidden": None,
        "layers": 2,
        "dropout": 0.5,
        "input_dropout": 0.0,
        "skip": False,
        "readout": ["mixer"],
        "head_layers": 2,
    },
    "train": {"lr": 0.005, "weight_decay": 5e-4, "epochs": 500, "patience": 50, "monitor": "loss"},
}
# the paper's protocol for all baselines; other hyper-parameters have the values of the baseline's own paper
PROTOCOL: Settings = {
    "features": {"normalise": "none"},
    "model": {"hidden": 64, "dropout": 0.5},
    "train": {"lr": 0.005, "weight_decay": 5e-4, "epochs": 500, "patience": 50, "monitor": "loss"},
}


@cache
def shipped_settings() -> Shipped:
    """Return the settings that ship with the package; do not modify them."""
    shipped: Shipped = json.loads((files("gpatcher.runs") / "settings.json").read_text(encoding="utf-8"))
    return shipped


def read_settings(path: Path) -> Shipped:
    """Read settings that ``gpatcher tune`` wrote, from the file or from the folder that has ``best.json``."""
    path = path / "best.json" if path.is_dir() else path
    if not path.is_file():  # a pipe without a writer would block
        problem = "is not a file" if path.exists() else "does not exist"
        raise InputError(f"{path} {problem}; 'gpatcher tune' writes a file best.json")
    try:
        chosen: Shipped = json.loads(path.read_text(encoding="utf-8"))
        for models in chosen.values():
            for model, entry in models.items():
                dict(entry["settings"]), int(entry["trials"])
                if model in PATCHERS:
                    complete(entry["settings"], model)
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise InputError(f"{path} is not a file of settings ({error}); 'gpatcher tune' writes one") from None
    return chosen


def resolve_settings(
    model: str,
    dataset: str = "",
    preset: str | None = None,
    *,
    shipped: Shipped | None = None,
    changes: Mapping[str, Any] | None = None,
) -> tuple[Settings, int | None]:
    """Return the settings of a model on a data set, and the number of trials they were chosen from (None: not tuned).

    Parameters
    ----------
    model : str
        ``gpatcher``, ``fast``, ``deep``, ``auto`` or the name of a baseline.
    dataset : str
        Key of a named data set, or anything else.
    preset : str, optional
        ``paper``, ``default`` or the name of a data set; by default ``dataset``, if it has settings.
    shipped : dict, optional
        Settings by data set and model, from `read_settings`; by default those of the package.
    changes : mapping, optional
        Values by dotted name, such as ``{"train.lr": 0.01}``, applied last.
    """
    shipped = shipped_settings() if shipped is None else shipped
    if model not in (*MODELS, AUTO):
        raise InputError(f"unknown model {model!r}; choose one of {', '.join((*MODELS, AUTO))}")
    if preset not in (None, "paper", "default") and str(preset).lower() not in shipped:
        raise InputError(f"unknown preset {preset!r}; choose paper, default or one of {', '.join(shipped)}")
    if model == AUTO:
        if preset is not None:
            raise InputError(f"the preset {preset!r} is for a single model; pass one of {', '.join(PATCHERS)} too")
        return apply_changes(_AUTO, changes or {}), None
    chosen: dict[str, Any] = {}
    if preset not in ("paper", "default"):
        chosen = shipped.get((preset or dataset).lower(), {}).get(model, {})
    trials = int(chosen["trials"]) if chosen else None
    if model in PATCHERS:
        settings = _fill(PAPER if preset == "paper" else chosen.get("settings", {}), model)
    else:
        settings = copy.deepcopy(PROTOCOL)
        for section, values in chosen.get("settings", {}).items():
            settings[section] = {**settings.get(section, {}), **values}
    return apply_changes(settings, changes or {}), trials


# defaults of a model that differ from those of the configurations
_DEFAULTS: dict[str, Settings] = {
    "deep": {
        "patches": {"size": 512},  # enough for all neighbours of nearly all nodes
        "model": {
            "rounds": 4,
            "norm": "batch",
            "aggregate": "sum",
            "readout": ["ego", "mean"],
            "dropout": 0.5,
            "input_dropout": 0.2,
        },
        "train": {"monitor": "accuracy", "patience": 100, "lr": 0.01},
    }
}


@cache
def _reference() -> dict[str, dict[str, dict[str, Any]]]:
    """Return [default, description] of each setting, by section and by extractor; do not modify it."""
    reference: dict[str, Any] = json.loads((files("gpatcher.runs") / "reference.json").read_text(encoding="utf-8"))
    return reference


def describe_settings(extractor: str) -> dict[str, str]:
    """Return the description of each setting of a patch model."""
    extractors, sections = _reference()["extractors"], _reference()["sections"]
    texts = {"patches.name": f"Extractor: {', '.join(extractors)}."}
    for section, settings in {"patches": extractors[extractor], **sections}.items():
        texts |= {f"{section}.{name}": text for name, (_, text) in settings.items()}
    return texts


def _fill(settings: Mapping[str, Any], model: str) -> Settings:
    """Return valid settings of a patch model with all defaults filled in."""

    def fill(reference: dict[str, Any], *given: Mapping[str, Any]) -> Settings:
        values = {name: default for name, (default, _) in reference.items()}
        for part in given:
            values |= {name: value for name, value in part.items() if name in values}
        return values

    def fill_source(source: Mapping[str, Any]) -> Settings:
        values = fill(_reference()["extractors"][source["name"]], source)
        if values.get("edge_type", "") is None:
            del values["edge_type"]
        return {"name": source["name"], **values}

    own = _DEFAULTS.get(model, {})
    patches = settings.get("patches", {})
    if isinstance(patches, Mapping):
        patches = [{"name": PATCHERS[model], **own.get("patches", {}), **patches}]
    filled = [fill_source(source) for source in patches]
    sections = {
        section: fill(reference, own.get(section, {}), settings.get(section, {}))
        for section, reference in _reference()["sections"].items()
    }
    return copy.deepcopy({"patches": filled if len(filled) > 1 else filled[0], **sections})


def complete(settings: Mapping[str, Any], model: str) -> Settings:
    """Return the settings of a patch model with all defaults filled in; unknown names and wrong values are errors."""
    from gpatcher.estimator.settings import to_parts, to_settings

    patches = settings.get("patches", {})
    named = {"name": PATCHERS[model], **patches} if isinstance(patches, Mapping) else patches
    to_parts({**settings, "patches": named})
    return to_settings(**to_parts(_fill(settings, model)))


def apply_changes(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Return the settings with values replaced, given by dotted names such as ``{"train.lr": 0.01}``.

    Another ``patches.name`` keeps the parameters that both extractors have; ``patches`` replaces all sources.
    """
    settings = copy.deepcopy(settings)
    if not changes:
        return settings
    from gpatcher.estimator.ensemble import check_effort
    from gpatcher.estimator.settings import CONFIGS, make_config

    for name, value in sorted(changes.items(), key=lambda change: change[0] not in ("patches", "patches.name")):
        section, dot, key = name.partition(".")
        if name == "patches" and "patches" in settings:
            settings["patches"] = parse_sources(value)
            continue
        if section not in settings or not dot:
            sections = ", ".join(settings)
            raise InputError(f"unknown setting {name!r}; write section.name, the sections are {sections}")
        if section == AUTO and key not in settings[AUTO]:
            raise InputError(f"unknown setting {name!r}; auto has {', '.join(settings[AUTO])}")
        if name == "auto.keep_best" and not isinstance(value, bool):
            raise InputError(f"{name} must be true or false, got {value!r}")
        if section == "patches":
            settings["patches"] = _changed_source(settings["patches"], key, value)
            continue
        if section in CONFIGS and (section != "model" or "patches" in settings):
            value = _as_type(CONFIGS[section], name, value)
            make_config(section, {key: value})
        settings[section][key] = value
    if AUTO in settings:
        check_effort(settings[AUTO]["quality"], settings[AUTO]["budget"])
    return settings


def parse_sources(text: Any) -> Any:
    """Return the settings of one or several patch sources from text.

    Examples
    --------
    >>> [source["direction"] for source in parse_sources("hop:direction=out + hop:direction=in,size=8")]
    ['out', 'in']
    """
    from gpatcher.patches.extract import extractor_parameters, make_extractor

    if not isinstance(text, str):
        raise InputError(f"patches must be text such as 'hop:direction=out + ppr:size=8', got {text!r}")
    sources = []
    for part in text.split("+"):
        name, _, parameters = part.strip().partition(":")
        source = {"name": name, **extractor_parameters(make_extractor(name))}
        for parameter in filter(None, parameters.split(",")):
            key, value = parse_change(parameter)
            source = _changed_source(source, key, value)
        sources.append(source)
    return sources if len(sources) > 1 else sources[0]


def sources_text(sources: list[dict[str, Any]]) -> str:
    """Return several patch sources as text that `parse_sources` reads."""
    parts = []
    for source in sources:
        values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in source.items()}
        parts.append(f"{values.pop('name')}:" + ",".join(f"{key}={value}" for key, value in values.items()))
    return " + ".join(parts)


def _changed_source(source: Any, key: str, value: Any) -> dict[str, Any]:
    from gpatcher.patches.extract import EXTRACTORS, extractor_parameters, make_extractor

    if isinstance(source, list):
        raise InputError(
            f"patches.{key} is ambiguous: the model has {len(source)} patch sources; give it for each, as in "
            f"'patches={source[0]['name']}:{key}={value} + ...'"
        )
    if key == "name" and not isinstance(value, str):
        raise InputError(f"patches.name must be text, got {value!r}")
    name = value if key == "name" else source["name"]
    parameters = {k: v for k, v in source.items() if k != "name"}
    if key != "name":
        if key not in {field.name for field in fields(EXTRACTORS[name])}:
            own = ", ".join(field.name for field in fields(EXTRACTORS[name]))
            raise InputError(f"unknown setting patches.{key}: {name} has {own}")
        parameters[key] = _as_type(EXTRACTORS[name], f"patches.{key}", value)
    extractor = make_extractor(name, parameters)
    return {"name": extractor.name, **extractor_parameters(extractor)}


def parse_change(text: str) -> tuple[str, Any]:
    """Return name and value of a change such as ``train.lr=0.01``; the value is JSON, else text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InputError(f"--set takes NAME=VALUE, such as train.lr=0.01, got {text!r}")
    if name.strip() in ("model.readout", "features.structure"):
        return name.strip(), [part.strip() for part in value.split(",") if part.strip()]
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), {"True": True, "False": False, "None": None}.get(value.strip(), value.strip())


def _as_type(config: type[Any], name: str, value: Any) -> Any:
    """Return the value of a setting in its type, 64.0 as 64; an error if the type is wrong."""
    hint = get_type_hints(config).get(name.partition(".")[2])
    if hint is None:
        return value  # an unknown name, which `make_config` reports
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise InputError(f"{name} must be a list of names, got {value!r}")
        return list(value)
    kinds = get_args(hint) or (hint,)
    if value is None and NoneType in kinds:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if int in kinds and number and float(value).is_integer():
        return int(value)
    if float in kinds and number:
        return float(value)
    if type(value) in (bool, str) and type(value) in kinds:
        return value
    raise InputError(f"{name} must be {' or '.join(_KINDS[kind] for kind in kinds if kind in _KINDS)}, got {value!r}")
