"""The baselines against figures published for them: `python tools/published.py run`, then `... table`.

`run` trains each baseline with its own paper's settings on the protocol of the figure and appends to
results/published.jsonl; what is there already is not run again. `table` writes docs/baselines.md from the records and
removes those of settings that no check has any more, so nothing may be running then.
"""

import argparse
import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch

from gpatcher.baselines import make_baseline
from gpatcher.datasets.load import load_dataset
from gpatcher.datasets.registry import NAMED
from gpatcher.errors import InputWarning
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.model.inputs import node_features
from gpatcher.runs.records import Record, append_record, config_hash, peak_rss_mb, read_records, summarise, versions
from gpatcher.training.loop import TrainConfig, fit

RECORDS = Path("results/published.jsonl")
PAGE = Path("docs/baselines.md")
RUNS = 10
FAR = 1.5  # points below the published figure that ask for a reason

GCNII = "Chen et al. (2020, GCNII), Table 2"
SHEAF = "Bodnar et al. (2022, neural sheaf diffusion), Table 1"
NOWHERE = "nowhere; quoted from memory"


@dataclass(frozen=True)
class Check:
    """A figure published for a model, and the settings to meet it with.

    Parameters
    ----------
    published : test accuracy, %
    source : paper and table
    seen : where the figure was looked up, if not in the paper itself
    normalise : of the features
    random : ten nodes per class to train and 68 to stop by, drawn anew for each run; else the splits of the data
    reason : why the run falls short, where it does
    """

    model: str
    dataset: str
    published: float
    source: str
    parameters: dict = field(default_factory=dict)
    train: dict = field(default_factory=dict)
    normalise: str = "l1"
    random: bool = False
    seen: str = ""
    reason: str = ""

    @property
    def config(self) -> dict:
        """All that the result depends on."""
        train = {k: v for k, v in asdict(TrainConfig(**self.train)).items() if k in self.train}
        return {"normalise": self.normalise, "random": self.random, **self.parameters, **train}

    @property
    def key(self) -> tuple[str, str, str]:
        """What its records are found by."""
        return self.model, NAMED[self.dataset].name, config_hash(self.config)

    @property
    def protocol(self) -> str:
        """The splits, in words."""
        if self.random:
            return "ten random splits, 10 nodes per class to train"
        return f"{NAMED[self.dataset].protocol}{', ten seeds' if NAMED[self.dataset].folder == 'Planetoid' else ''}"


def _webkb(model: str, figures: tuple[float, float, float], source: str, **settings: object) -> Iterator[Check]:
    for dataset, published in zip(("texas", "wisconsin", "cornell"), figures, strict=True):
        yield Check(model, dataset, published, source, **settings)


CHECKS = [
    *_webkb("mlp", (80.8, 85.3, 81.9), SHEAF, parameters={"hidden": 64}, train={"lr": 0.01, "patience": 100}),
    Check(
        "gcn",
        "cora",
        81.5,
        "Kipf and Welling (2017), Table 2",
        {"hidden": 16, "dropout": 0.5},
        {"lr": 0.01, "weight_decay": 5e-4, "epochs": 200, "patience": 200},
        seen="paperswithcode.com, results of the paper",
    ),
    Check(
        "chebnet",
        "cora",
        81.2,
        "Kipf and Welling (2017), Table 3, K = 2",
        {"hidden": 16, "dropout": 0.5, "K": 2},
        {"lr": 0.01, "weight_decay": 5e-4, "epochs": 200, "patience": 200},
        seen="github.com/BUPT-GAMMA/GammaGL, examples/chebnet, column of the paper",
    ),
    Check(
        "gat",
        "cora",
        83.0,
        "Veličković et al. (2018), Table 2",
        {"hidden": 64, "heads": 8, "dropout": 0.6},
        {"lr": 0.005, "weight_decay": 5e-4, "epochs": 1000, "patience": 100},
    ),
    *_webkb("graphsage", (82.4, 81.2, 76.0), SHEAF, parameters={"hidden": 64}, train={"lr": 0.01, "patience": 100}),
    Check(
        "appnp",
        "cora",
        83.3,
        GCNII,
        {"hidden": 64, "dropout": 0.5, "K": 10, "alpha": 0.1},
        {"lr": 0.01, "weight_decay": 5e-3, "epochs": 1000, "patience": 100},
        seen=NOWHERE,
    ),
    Check(
        "jknet",
        "cora",
        80.2,
        "Rong et al. (2020, DropEdge), four layers, every edge kept",
        # the fourth layer is the classifier
        {"hidden": 128, "dropout": 0.8, "layers": 3},
        {"lr": 0.001, "weight_decay": 5e-4, "epochs": 400, "patience": 400},
        seen=(
            "github.com/DropEdge/DropEdge, README and script/semi-supervised/cora_JKNet_nodrop.sh; the 81.1 that "
            "others quote is that README's figure for 32 layers"
        ),
    ),
    Check(
        "gprgnn",
        "cora",
        79.5,
        "Chien et al. (2021), Table 2",
        {"hidden": 64, "dropout": 0.5, "spread_dropout": 0.5, "K": 10, "alpha": 0.1},
        {"lr": 0.01, "weight_decay": 5e-4, "epochs": 1000, "patience": 200},
        random=True,
        seen=(
            "github.com/BUPT-GAMMA/GammaGL, examples/gprgnn, row of the paper; settings: "
            "github.com/jianhao2016/GPRGNN, src/Reproduce_GPRGNN.sh"
        ),
    ),
    Check(
        "fagcn",
        "cora",
        84.1,
        "Bo et al. (2021), results on Cora",
        {"hidden": 16, "dropout": 0.6, "layers": 4, "eps": 0.2},
        {"lr": 0.01, "weight_decay": 1e-3, "epochs": 500, "patience": 200},
    ),
    *_webkb(
        "h2gcn",
        (84.9, 86.7, 82.2),
        "Zhu et al. (2020), H2GCN-1",
        parameters={"hidden": 64, "dropout": 0.5, "layers": 1},
        # 1e-5 of the authors, twice: Keras adds w |W|² to the loss, here it is w / 2 |W|²
        train={"lr": 0.01, "weight_decay": 2e-5, "epochs": 2000, "patience": 2000, "stop": "accuracy"},
        seen=(
            "tables of later papers that quote it; settings: github.com/GemsLab/H2GCN, "
            "experiments/h2gcn/configs/real-geomgcn/h2gcn.json, which has two weight decays, with and without ReLU and "
            "dropout, to choose from for each data set; here the weight decay with the better validation on Cornell"
        ),
    ),
    Check(
        "bmgcn",
        "texas",
        85.1,
        "He et al. (2022), results on Texas",
        {"hidden": 64, "dropout": 0.7, "layers": 2, "enhance": 1.0},
        # the authors stop by patience too, but never before epoch 800
        {"lr": 0.001, "weight_decay": 5e-4, "epochs": 1600, "patience": 800, "stop": "accuracy"},
        normalise="none",
        reason=(
            "not explained. What the authors' code does otherwise was tried on the same splits and did not raise the "
            "figure: dropout of 0.5 in the MLP and 0.7 in the convolutions, the MLP's input and the last layer's "
            "whole; biases without decay; the last of equally good epochs; the MLP trained alone for 400 epochs "
            "first. The ten splits differ much (deviation)"
        ),
    ),
]


def random_split(y: np.ndarray, seed: int) -> Split:
    """Draw ten training nodes of each class, 68 validation nodes (2.5 % of Cora) and leave the rest to the test."""
    order = np.random.default_rng(seed).permutation(len(y))
    train = np.concatenate([order[y[order] == c][:10] for c in np.unique(y)])
    rest = order[~np.isin(order, train)]
    return Split(train, rest[:68], rest[68:])


def plan(check: Check, graph: Graph, runs: int) -> Iterator[tuple[int, int, Split]]:
    """Yield number of the split, seed and split of each run."""
    for run in range(runs):
        if check.random:
            yield run, run, random_split(graph.labels(), run)
        else:
            number = run if len(graph.splits) > 1 else 0
            yield number, run, graph.splits[number]


def run(check: Check, runs: int) -> None:
    """Train what is missing of the first runs."""
    graph = load_dataset(check.dataset)
    have = {(r["split"], r["seed"]) for r in found(check)}
    x = node_features(graph, check.normalise)
    for number, seed, split in plan(check, graph, runs):
        if (number, seed) in have:
            continue
        torch.manual_seed(seed)
        model = make_baseline(check.model, graph, x.shape[1], split, **check.parameters)
        result = fit(model, x, graph.labels(), split, TrainConfig(**check.train), seed=seed)
        append_record(
            RECORDS,
            {
                "dataset": graph.name,
                "graph": graph.content_hash,
                "model": check.model,
                "split": number,
                "seed": seed,
                "val_accuracy": result.val_accuracy,
                "test_accuracy": result.test_accuracy,
                "epochs": result.epochs,
                "best_epoch": result.best_epoch,
                "seconds": round(result.seconds, 3),
                "peak_rss_mb": peak_rss_mb(),
                "split_hash": split.hash,
                "directed_input": graph.is_directed,
                "config_hash": check.key[2],
                "config": check.config,
                "versions": versions(),
                "published": check.published,
                "source": check.source,
            },
        )
    print(*check.key[:2], check.published, summarise([r["test_accuracy"] for r in found(check)]), flush=True)


def found(check: Check) -> list[Record]:
    """Return the records of a check."""
    return [r for r in read_records(RECORDS) if (r["model"], r["dataset"], r["config_hash"]) == check.key]


def drop_stale() -> None:
    """Remove the records that belong to no check."""
    keys = {check.key for check in CHECKS}
    kept = [r for r in read_records(RECORDS) if (r["model"], r["dataset"], r["config_hash"]) in keys]
    draft = RECORDS.with_suffix(".partial")
    draft.write_text("".join(json.dumps(r) + "\n" for r in kept))
    draft.replace(RECORDS)


def table() -> str:
    """Return the page, from the records alone."""
    rows, settings, reasons = [], [], []
    seen = {check.model: f"- {check.model}: {check.seen}" for check in CHECKS if check.seen}
    for check in CHECKS:
        name, dataset, _ = check.key
        values = [r["test_accuracy"] for r in found(check)]
        here, gap = "not run", ""
        if values:
            mean = summarise(values)
            here, gap = f"{100 * mean.mean:.1f} ± {100 * mean.std:.1f}", f"{100 * mean.mean - check.published:+.1f}"
            here += f" ({len(values)} runs)" * (len(values) < RUNS)
            if 100 * mean.mean < check.published - FAR:
                reasons.append(f"- {name} on {dataset}, {gap}: {check.reason or 'no reason found'}")
        rows.append(
            f"| {name} | {dataset} | {check.protocol} | {check.published:.1f} | {here} | {gap} | {check.source} |"
        )
        choice = ", ".join(f"{k} {v}" for k, v in check.config.items() if k != "random")
        settings.append(f"- {name} on {dataset}: {choice}")
    lines = [
        "# Baselines against published figures",
        "",
        "Each baseline trained by the project's one loop, beside a figure published for the same protocol. Settings",
        "are those of its paper or its authors' code where they are known, see below; none was searched for on test",
        "data. Test accuracy, %; mean and standard deviation over ten runs, or as many as are noted. Made by",
        "`tools/published.py` from `results/published.jsonl`.",
        "",
        "| model | data set | protocol | published | here | difference | source of the figure |",
        "|---" * 7 + "|",
        *rows,
        "",
        f"## More than {FAR} points below",
        "",
        *(reasons or ["None."]),
        "",
        "## Where figures were looked up, if not in the paper itself",
        "",
        *seen.values(),
        "",
        "The numbers of tables were not compared with the papers' own text.",
        "",
        "## Settings",
        "",
        *settings,
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("models", nargs="*", help="all by default")
    parser.add_argument("--runs", type=int, default=RUNS, help="the first so many, to look before all are run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", InputWarning)
    if options.what == "run":
        for check in CHECKS:
            if not options.models or check.model in options.models:
                run(check, options.runs)
    else:
        drop_stale()
        PAGE.write_text(table())
        print(table())
