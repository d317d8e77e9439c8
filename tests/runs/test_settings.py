"""Settings: the order of the resolver, changes by dotted name, what is shipped, and descriptions."""

import json
import os
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from gpatcher.baselines import BASELINES, make_baseline
from gpatcher.bench.tuning import best_settings
from gpatcher.datasets.synthetic import csbm
from gpatcher.errors import InputError
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.estimator.prepare import as_extractors
from gpatcher.estimator.settings import CONFIGS, make_config, to_parts, to_settings
from gpatcher.model.inputs import node_features
from gpatcher.patches import EXTRACTORS
from gpatcher.runs.settings import (
    MODELS,
    PATCHERS,
    PROTOCOL,
    apply_changes,
    complete,
    describe_settings,
    parse_change,
    parse_sources,
    read_settings,
    resolve_settings,
    shipped_settings,
    sources_text,
)

DEFAULT = {model: GPatcherClassifier(patches=name).settings() for model, name in PATCHERS.items()}
SHIPPED = {
    "texas": {
        "fast": {"settings": {"train": {"lr": 0.5}, "model": {"readout": ["ego", "mean"]}}, "trials": 7},
        "gcn": {"settings": {"train": {"lr": 0.5}, "model": {"layers": 3}}, "trials": 8},
    }
}


@pytest.fixture(scope="module")
def graph():
    return csbm(phi=-0.5, n=80, features=6)


def merged(settings, **sections):
    return {name: {**values, **sections.get(name, {})} for name, values in settings.items()}


# ------------------------------------------------------------------------------------------------ order


def test_without_anything_they_are_the_defaults():
    for model in ("gpatcher", "fast"):
        assert resolve_settings(model, "mine", shipped={}) == (DEFAULT[model], None)
    deep, trials = resolve_settings("deep", "mine", shipped={})
    assert trials is None
    own = {"patches": {"size": 512}, "model": {"rounds": 4, "norm": "batch", "aggregate": "sum"}}
    for section, values in own.items():
        assert deep[section] == {**deep[section], **values}
    changed = resolve_settings("deep", "mine", shipped={}, changes={"model.rounds": 2})[0]
    assert changed == merged(deep, model={"rounds": 2})
    assert resolve_settings("gcn", "mine", shipped={}) == (PROTOCOL, None)
    assert resolve_settings("gcn", "mine", shipped={})[0] is not PROTOCOL


def test_shipped_settings_replace_defaults():
    expected = merged(DEFAULT["fast"], train={"lr": 0.5}, model={"readout": ["ego", "mean"]})
    assert resolve_settings("fast", "Texas", shipped=SHIPPED) == (expected, 7)
    assert resolve_settings("gpatcher", "texas", shipped=SHIPPED) == (DEFAULT["gpatcher"], None)
    expected = merged(PROTOCOL, train={"lr": 0.5}, model={"layers": 3})
    assert resolve_settings("gcn", "texas", shipped=SHIPPED) == (expected, 8)
    assert resolve_settings("gcn", "cora", shipped=SHIPPED) == (PROTOCOL, None)


def test_a_preset_replaces_what_is_shipped_for_the_data_set():
    assert resolve_settings("fast", "texas", "default", shipped=SHIPPED) == (DEFAULT["fast"], None)
    assert resolve_settings("fast", "mine", "Texas", shipped=SHIPPED) == resolve_settings(
        "fast", "texas", shipped=SHIPPED
    )
    settings, trials = resolve_settings("fast", "texas", "paper", shipped=SHIPPED)
    assert (settings["model"]["readout"], settings["train"]["lr"], trials) == (["mixer"], 0.005, None)
    for preset in ("paper", "default"):
        assert resolve_settings("gcn", "texas", preset, shipped=SHIPPED) == (PROTOCOL, None)


@pytest.mark.parametrize("preset", [None, "paper", "default", "texas"])
def test_changes_come_last(preset):
    changes = {"train.lr": 0.25, "model.readout": ["ego"], "patches.size": 3}
    settings, trials = resolve_settings("fast", "texas", preset, shipped=SHIPPED, changes=changes)
    assert (settings["train"]["lr"], settings["model"]["readout"], settings["patches"]["size"]) == (0.25, ["ego"], 3)
    before, trials_before = resolve_settings("fast", "texas", preset, shipped=SHIPPED)
    assert trials == trials_before
    assert settings == merged(before, train={"lr": 0.25}, model={"readout": ["ego"]}, patches={"size": 3})


def test_resolving_leaves_the_shipped_settings_as_they_are():
    before = json.dumps(shipped_settings())
    settings, _ = resolve_settings("gpatcher", "texas", changes={"train.lr": 0.25})
    settings["model"]["hidden"] = -1
    settings["model"]["readout"].append("x")
    settings, _ = resolve_settings("gcn", "texas", changes={"train.lr": 0.25})
    settings["model"]["hidden"] = -1
    assert json.dumps(shipped_settings()) == before


def test_the_paper_preset_is_its_plain_reading():
    """The values of version 1, by their names then."""
    paper = {
        **{"patch_size": 32, "filters": 10, "c": 0.5, "hidden": 64, "mixer_hidden": None, "layers": 2, "dropout": 0.5},
        **{"input_dropout": 0.0, "skip": False, "paths": ("mixer",), "head_layers": 2, "normalise": "standard"},
        **{"lr": 0.005, "weight_decay": 5e-4, "epochs": 500, "patience": 50, "stop": "loss"},
    }
    settings, trials = resolve_settings("gpatcher", "texas", "paper")
    assert trials is None
    assert settings == merged(
        DEFAULT["gpatcher"],
        patches={"size": paper["patch_size"], "K": paper["filters"], "c": paper["c"]},
        features={"normalise": paper["normalise"]},
        model={
            **{name: paper[name] for name in ("hidden", "mixer_hidden", "layers", "dropout", "input_dropout", "skip")},
            "readout": list(paper["paths"]),
            "head_layers": paper["head_layers"],
        },
        train={**{name: paper[name] for name in ("lr", "weight_decay", "epochs", "patience")}, "monitor": "loss"},
    )
    fast, _ = resolve_settings("fast", "texas", "paper")
    assert fast["patches"] == {
        "name": "ppr",
        "size": 32,
        "c": 0.5,
        "eps": 1e-5,
        "self_loops": False,
        "direction": "both",
    }
    assert {k: v for k, v in fast.items() if k != "patches"} == {k: v for k, v in settings.items() if k != "patches"}


def test_several_patch_sources():
    sources = [{"name": "ppr", "size": 4}, {"name": "heat"}]
    settings = complete({"patches": sources}, "gpatcher")
    assert [source["name"] for source in settings["patches"]] == ["ppr", "heat"]
    shipped = {"mine": {"gpatcher": {"settings": {"patches": sources}, "trials": 1}}}
    assert resolve_settings("gpatcher", "mine", shipped=shipped) == (settings, 1)
    assert len(GPatcherClassifier.from_settings(settings).patches) == 2
    # a model with defaults of its own, too; and as text
    deep = complete({"patches": sources, "model": {"hidden": 8}}, "deep")
    assert (deep["patches"], deep["model"]["rounds"], deep["model"]["hidden"]) == (settings["patches"], 4, 8)
    assert parse_sources(sources_text(deep["patches"])) == deep["patches"]


def test_an_empty_list_of_names():
    assert parse_change("features.structure=") == ("features.structure", [])
    assert parse_change("model.readout=ego, mean") == ("model.readout", ["ego", "mean"])


# ------------------------------------------------------------------------------------------------ errors


def test_unknown_models_and_presets():
    with pytest.raises(InputError, match=r"'nonsense'.*gcn.*gpatcher, fast"):
        resolve_settings("nonsense", "texas")
    with pytest.raises(InputError, match=r"'nonsense'.*paper, default.*texas"):
        resolve_settings("fast", "texas", "nonsense")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.1}, r"'lr'.*section\.name.*patches, features, model, train"),
        ({"optimiser.lr": 0.1}, r"'optimiser\.lr'.*patches, features, model, train"),
        ({"train.learning_rate": 0.1}, r"train\.learning_rate.*train has lr, weight_decay"),
        ({"train.epoch": 3}, r"train\.epoch; did you mean train\.epochs"),
        ({"model.widt": 3}, r"model\.widt"),
        ({"features.": 3}, r"features\."),
        ({"patches.sizes": 3}, r"patches\.sizes: heterophily-aware has .*size"),
        ({"patches.eps": 0.1}, r"patches\.eps: heterophily-aware has"),
        ({"patches.name": "nonsense"}, r"'nonsense'.*heterophily-aware, polynomial"),
    ],
)
def test_unknown_settings(changes, message):
    with pytest.raises(InputError, match=message):
        resolve_settings("gpatcher", changes=changes)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("train.lr", "fast", "a number"),
        ("train.lr", True, "a number"),
        ("train.lr", None, "a number"),
        ("train.lr", [0.1, 0.2], "a number"),
        ("train.epochs", 2.5, "an integer"),
        ("train.epochs", float("nan"), "an integer"),
        ("train.batch_size", "all", "an integer"),
        ("train.monitor", 3, "text"),
        ("train.class_weights", 1, "true or false"),
        ("model.hidden", {"a": 1}, "an integer"),
        ("model.readout", "mixer", "a list of names"),
        ("model.readout", [1], "a list of names"),
        ("model.readout", None, "a list of names"),
        ("features.normalise", ["l1"], "text"),
        ("patches.size", "8", "an integer"),
        ("patches.size", [8], "an integer"),
        ("patches.self_loops", "yes", "true or false"),
        ("patches.name", ["ppr"], "text"),
        ("patches.name", None, "text"),
    ],
)
def test_values_of_a_wrong_type_name_the_setting(name, value, wanted):
    with pytest.raises(InputError, match=f"^{name} must be {wanted}, got"):
        resolve_settings("gpatcher", changes={name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("train.lr", -1),
        ("train.lr", float("nan")),
        ("train.monitor", "x"),
        ("model.hidden", 0),
        ("model.readout", ["x"]),
        ("features.normalise", "max"),
        ("patches.size", 0),
        ("patches.c", 1.5),
        ("patches.sigma", "x"),
    ],
)
def test_values_out_of_range_name_the_setting(name, value):
    with pytest.raises(InputError, match=name.partition(".")[2]):
        resolve_settings("gpatcher", changes={name: value})


def test_changes_of_several_sources_are_ambiguous():
    settings = complete({"patches": [{"name": "ppr"}, {"name": "heat"}]}, "gpatcher")
    for name, value in (("patches.size", 8), ("patches.name", "ppr")):
        with pytest.raises(InputError, match=rf"{name} is ambiguous: the model has 2"):
            apply_changes(settings, {name: value})
    assert apply_changes(settings, {"train.lr": 0.5})["train"]["lr"] == 0.5


def test_the_training_of_a_baseline_is_checked_too():
    with pytest.raises(InputError, match=r"train\.lr must be a number"):
        resolve_settings("gcn", changes={"train.lr": "x"})
    with pytest.raises(InputError, match=r"unknown setting features\.nonsense"):
        resolve_settings("gcn", changes={"features.nonsense": 1})
    with pytest.raises(InputError, match=r"'patches\.size'.*features, model, train"):
        resolve_settings("gcn", changes={"patches.size": 1})
    assert resolve_settings("appnp", changes={"model.alpha": 0.2})[0]["model"]["alpha"] == 0.2


# ------------------------------------------------------------------------------------------------ changes


def test_changes_leave_the_settings_as_they_are():
    settings = complete({}, "fast")
    before = json.dumps(settings)
    changed = apply_changes(settings, {"train.lr": 0.5, "patches.size": 3, "patches.name": "heat"})
    assert json.dumps(settings) == before
    assert apply_changes(changed, {}) == changed


def test_numbers_take_the_type_of_their_setting():
    """So that 64.0 and 64 are the same settings, with one hash."""
    changes = {"model.hidden": 64.0, "patches.size": 8.0, "train.lr": 1, "train.batch_size": None}
    settings = apply_changes(complete({}, "gpatcher"), changes)
    hidden, size, lr = settings["model"]["hidden"], settings["patches"]["size"], settings["train"]["lr"]
    assert (hidden, size, lr, settings["train"]["batch_size"]) == (64, 8, 1.0, None)
    assert [type(value) for value in (hidden, size, lr)] == [int, int, float]


def test_several_sources_are_written_as_text():
    text = "hop:direction=out,size=8 + hop:direction=in + ppr:c=0.9"
    settings = resolve_settings("fast", preset="default", changes={"patches": text})[0]
    names = [(source["name"], source["size"], source["direction"]) for source in settings["patches"]]
    assert names == [("hop", 8, "out"), ("hop", 16, "in"), ("ppr", 16, "both")]
    assert settings["patches"][2]["c"] == 0.9
    assert GPatcherClassifier.from_settings(settings).settings() == settings
    assert parse_sources(sources_text(settings["patches"])) == settings["patches"]
    one = resolve_settings("fast", preset="default", changes={"patches": "hop:hop=2", "patches.size": 4})[0]
    assert one["patches"] == {"name": "hop", "size": 4, "hop": 2, "direction": "both", "self_loops": False}
    for bad, message in (
        (3, "patches must be text such as 'hop:direction=out"),
        ("nonsense", "unknown extractor 'nonsense'|'nonsense'"),
        ("hop:c=0.5", "unknown setting patches.c: hop has"),
        ("hop:direction=up", "direction must be one of both, out, in"),
        ("hop:size", "--set takes NAME=VALUE"),
    ):
        with pytest.raises(InputError, match=message):
            resolve_settings("fast", preset="default", changes={"patches": bad})


def test_another_extractor_keeps_the_parameters_that_both_have():
    settings = apply_changes(complete({}, "gpatcher"), {"patches.size": 5, "patches.c": 0.3, "patches.K": 4})
    ppr = apply_changes(settings, {"patches.name": "ppr"})["patches"]
    assert ppr == {"name": "ppr", "size": 5, "c": 0.3, "eps": 1e-5, "self_loops": False, "direction": "both"}
    polynomial = apply_changes(settings, {"patches.name": "polynomial"})["patches"]
    assert (polynomial["size"], polynomial["c"], polynomial["K"]) == (5, 0.3, 4)
    # in whatever order they are given, the name comes first
    assert apply_changes(settings, {"patches.eps": 0.1, "patches.name": "ppr"})["patches"]["eps"] == 0.1
    for name in EXTRACTORS:
        patches = apply_changes(settings, {"patches.name": name})["patches"]
        assert (patches["name"], patches["size"]) == (name, 5)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("train.lr=0.01", ("train.lr", 0.01)),
        ("train.epochs = 5", ("train.epochs", 5)),
        ("features.normalise=l1", ("features.normalise", "l1")),
        ("model.skip=true", ("model.skip", True)),
        ("model.skip=True", ("model.skip", True)),
        ("train.batch_size=null", ("train.batch_size", None)),
        ("train.batch_size=None", ("train.batch_size", None)),
        ("model.readout=ego, mean", ("model.readout", ["ego", "mean"])),
        ("model.readout=mixer", ("model.readout", ["mixer"])),
    ],
)
def test_changes_as_text(text, change):
    assert parse_change(text) == change
    apply_changes(complete({}, "gpatcher"), dict([parse_change(text)]))


@pytest.mark.parametrize("text", ["train.lr", "=3", "", " = "])
def test_text_that_is_not_a_change(text):
    with pytest.raises(InputError, match=r"--set takes NAME=VALUE.*got"):
        parse_change(text)


# ------------------------------------------------------------------------------------------------ shipped


ENTRIES = [(dataset, model) for dataset, models in shipped_settings().items() for model in models]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dataset", ["paper", "default", *shipped_settings()])
def test_every_shipped_entry_builds(graph, model, dataset):
    settings, trials = resolve_settings(model, "", dataset)
    assert (trials is not None) == ((dataset, model) in ENTRIES)
    assert json.loads(json.dumps(settings)) == settings
    if model in PATCHERS:
        classifier = GPatcherClassifier.from_settings(settings)
        assert classifier.settings() == settings
        names = {extractor.name for extractor in as_extractors(classifier.patches)}
        assert names == {PATCHERS[model]} if model != "deep" else names <= {"hop", "ppr", "overlap"}
    else:
        make_config("train", settings["train"])
        x = node_features(graph, make_config("features", settings["features"]))
        module = make_baseline(model, graph, x.shape[1], graph.splits[0], **settings["model"])
        assert module(x, torch.arange(3)).shape == (3, 2)


@pytest.mark.parametrize("model", PATCHERS)
@pytest.mark.parametrize("dataset", ["paper", "default", *shipped_settings()])
def test_every_shipped_entry_of_a_patch_model_trains(graph, model, dataset):
    settings, _ = resolve_settings(model, "whatever", dataset, changes={"train.epochs": 2, "model.hidden": 8})
    sources = settings["patches"] if isinstance(settings["patches"], list) else [settings["patches"]]
    settings["patches"] = [{**source, "size": 4} for source in sources]
    assert np.isfinite(GPatcherClassifier.from_settings(settings).fit(graph).predict_proba()).all()


def test_shipped_entries_say_how_they_were_chosen():
    for dataset, model in ENTRIES:
        entry = shipped_settings()[dataset][model]
        assert model in MODELS
        assert entry["trials"] >= (1 if dataset == "tolokers" else 8)  # a trial takes minutes there
        assert 0 < entry["val"] <= 1
        assert set(entry) == {"settings", "trials", "val", "space", "splits", "seed"}


def test_shipped_settings_are_those_that_the_log_of_trials_gives():
    assert best_settings(Path(__file__).parents[2] / "results/tuning") == shipped_settings()


def test_settings_of_the_block_models_are_those_that_their_log_gives():
    folder = Path(__file__).parents[2] / "results/tuning/csbm_sweep"
    assert best_settings(folder) == read_settings(folder)


def test_files_of_settings(tmp_path):
    with pytest.raises(InputError, match=r"x\.json does not exist.*gpatcher tune"):
        read_settings(tmp_path / "x.json")
    with pytest.raises(InputError, match=r"best\.json does not exist"):
        read_settings(tmp_path)
    (tmp_path / "best.json").write_text('{"texas": {"gcn": {"settings": {}, "trials": 3}}}')
    assert read_settings(tmp_path)["texas"]["gcn"]["trials"] == 3
    assert read_settings(tmp_path) == read_settings(tmp_path / "best.json")
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for ever
    with pytest.raises(InputError, match="pipe is not a file"):
        read_settings(tmp_path / "pipe")
    for text in ("", "[]", '{"texas": 1}', '{"texas": {"gcn": {"trials": 3}}}', '{"texas": {"gcn": {"settings": {}}}}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InputError, match=r"bad\.json is not a file of settings.*gpatcher tune"):
            read_settings(tmp_path / "bad.json")
    for section, values, named in (("train", '{"lrr": 1}', "train.lr"), ("patches", '{"size": 0}', "size")):
        (tmp_path / "bad.json").write_text(
            f'{{"texas": {{"fast": {{"settings": {{"{section}": {values}}}, "trials": 3}}}}}}'
        )
        with pytest.raises(InputError, match=rf"bad\.json is not a file of settings.*{named}"):
            read_settings(tmp_path / "bad.json")


@pytest.mark.parametrize("change", [("quality", "perfect"), ("budget", 0), ("budget", "long"), ("keep_best", 1)])
def test_settings_of_auto_are_checked(change):
    name, value = change
    with pytest.raises(InputError, match=rf"{name} must be .* got {value!r}"):
        resolve_settings("auto", changes={f"auto.{name}": value})
    assert resolve_settings("auto", changes={"auto.quality": "best", "auto.budget": 5})[0]["auto"]["budget"] == 5


def test_models_are_the_baselines_and_the_patch_models():
    assert (*BASELINES, *PATCHERS) == MODELS


# ------------------------------------------------------------------------------------------------ descriptions


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_every_setting_is_described(extractor):
    texts = describe_settings(extractor)
    for name, description in texts.items():
        assert description.endswith("."), name
    assert set(texts) - {"patches.edge_type"} == {  # which is left out where it is None
        f"{section}.{name}"
        for section, values in GPatcherClassifier(patches=extractor).settings().items()
        for name in values
    }


def test_the_reference_is_up_to_date():
    tool = runpy.run_path(str(Path(__file__).parents[2] / "tools/settings.py"))
    assert json.loads(tool["PATH"].read_text()) == tool["reference"](), "run tools/settings.py"


@pytest.mark.parametrize("model", PATCHERS)
@pytest.mark.parametrize("preset", ["paper", "default", *shipped_settings()])
def test_defaults_are_those_of_the_configurations(model, preset):
    settings, _ = resolve_settings(model, preset=preset)
    parts = to_parts(settings)
    assert settings == to_settings(**{name: parts[name] for name in ("patches", *CONFIGS)})
    assert settings == complete(settings, model)


def test_descriptions_are_those_of_the_docstrings():
    texts = describe_settings("heat")
    assert texts["patches.K"] == "Number of powers of the filter."  # inherited
    assert texts["train.lr"] == "Of Adam."
    assert "score-weighted mean" in texts["model.readout"]  # over several lines
