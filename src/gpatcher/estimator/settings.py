"""Settings: the parts of a classifier as plain nested dictionaries, for files, records and the command line.

``{"patches": {"name": "ppr", "size": 16, ...}, "features": {...}, "model": {...}, "train": {...}}``; ``patches`` is a
list if the model has several patch sources.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from gpatcher.codec import from_json
from gpatcher.errors import InputError
from gpatcher.estimator.prepare import Patching, as_extractors
from gpatcher.model.config import ModelConfig
from gpatcher.model.inputs import FeatureConfig
from gpatcher.patches.base import Extractor
from gpatcher.patches.extract import extractor_parameters, make_extractor
from gpatcher.training.loop import TrainConfig

Settings = dict[str, Any]
CONFIGS: dict[str, type[Any]] = {"features": FeatureConfig, "model": ModelConfig, "train": TrainConfig}


def to_settings(patches: Patching, features: FeatureConfig, model: ModelConfig, train: TrainConfig) -> Settings:
    """Return the settings of these parts, defaults included."""
    sources = sources_to_settings(as_extractors(patches))
    parts = {"features": asdict(features), "model": asdict(model), "train": asdict(train)}
    parts["model"]["readout"] = list(model.readout)
    parts["features"]["structure"] = list(features.structure)
    return {"patches": sources[0] if len(sources) == 1 else sources, **parts}


def to_parts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a classifier, as its keyword arguments, from settings; missing ones have their defaults.

    Examples
    --------
    >>> to_parts({"patches": {"name": "ppr", "size": 8}, "train": {"lr": 0.01}})["patches"]
    PPR(size=8, c=0.5, eps=1e-05, self_loops=False, direction='both', edge_type=None)
    """
    if not isinstance(settings, Mapping):
        raise InputError(f"settings must be a dict of sections, got {settings!r}")
    unknown = [section for section in settings if section not in ("patches", *CONFIGS)]
    if unknown:
        raise InputError(f"settings have no section {unknown[0]!r}; the sections are patches, {', '.join(CONFIGS)}")
    parts: dict[str, Any] = {
        section: make_config(section, settings.get(section, {})) for section in CONFIGS if section in settings
    }
    if "patches" in settings:
        sources = to_sources(settings["patches"])
        parts["patches"] = sources[0] if len(sources) == 1 else sources
    return parts


def sources_to_settings(extractors: Sequence[Extractor]) -> list[Settings]:
    """Return the settings of several patch sources."""
    return [{"name": extractor.name, **extractor_parameters(extractor)} for extractor in extractors]


def to_sources(settings: Any) -> tuple[Extractor, ...]:
    """Return the extractors of one patch source or of a list of them."""
    return tuple(_make_source(source) for source in (settings if isinstance(settings, list | tuple) else [settings]))


def _make_source(source: Mapping[str, Any]) -> Extractor:
    if not isinstance(source, Mapping) or "name" not in source:
        raise InputError(f"a patch source needs a name, such as ppr, got {source!r}")
    return make_extractor(source["name"], {key: value for key, value in source.items() if key != "name"})


def make_config(section: str, values: Mapping[str, Any]) -> Any:
    """Return the configuration of a section; an unknown name is an error that names the closest one."""
    if not isinstance(values, Mapping):
        raise InputError(f"the section {section} must be a dict, got {values!r}")
    names = [part.name for part in fields(CONFIGS[section])]
    for name in values:
        if name not in names:
            close = difflib.get_close_matches(name, names)
            hint = f"did you mean {section}.{close[0]}?" if close else f"{section} has {', '.join(names)}"
            raise InputError(f"unknown setting {section}.{name}; {hint}")
    return from_json(CONFIGS[section], dict(values), section)
