"""Compare the baselines with published figures: `python tools/published.py run`, then `... table`.

`run` trains each baseline with the settings of its paper on the protocol of the figure and appends to
results/published.jsonl; runs on record are skipped. `table` removes records of settings that no check has any more and
writes docs/baselines.md from the others, so no `run` may be active then.
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
from gpatcher.estimator.memory import peak_rss_mb
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.io import write_text
from gpatcher.model.inputs import FeatureConfig, node_features
from gpatcher.runs.records import (
    RECORD_VERSION,
    Record,
    append_record,
    read_records,
    settings_hash,
    summarise,
    versions,
)
from gpatcher.training.loop import TrainConfig, fit

RECORDS = Path("results/published.jsonl")
PAGE = Path("docs/baselines.md")
RUNS = 10
FAR = 1.5  # a result this many points below the published figure needs a reason

GCNII = "Chen et al. (2020, GCNII), Table 2"
SHEAF = "Bodnar et al. (2022, neural sheaf diffusion), Table 1"
NOWHERE = "nowhere; quoted from memory"
LINKX = "Lim et al. (2021), LINKX"
# the authors search hidden in 16, 32, 128, 256 and layers in 1, 2, 3, by validation
LINKX_SETTINGS: dict = {
    "parameters": {"hidden": 128, "dropout": 0.5, "layers": 1},
    "train": {"lr": 0.01, "weight_decay": 1e-3, "epochs": 500, "patience": 500, "monitor": "accuracy"},
    "normalise": "none",
    "reason": (
        "not explained. Not tried: the authors' search of width and depth for each data set, and batch norm in the "
        "hidden layers"
    ),
    "seen": f"{NOWHERE}; settings: github.com/CUAI/Non-Homophily-Large-Scale, experiments/linkx_exp.sh",
}


@dataclass(frozen=True)
class Check:
    """A published figure and the settings to reproduce it with.

    Parameters
    ----------
    model : str
        Name of a baseline.
    dataset : str
        Key of `gpatcher.datasets.registry.NAMED`.
    published : float
        Test accuracy, %.
    source : str
        Paper and table of the figure.
    parameters : dict
        Hyper-parameters of the model.
    train : dict
        Arguments of `TrainConfig`.
    normalise : str
        Normalisation of the features.
    random : bool
        Whether each run draws ten training nodes per class and 68 validation nodes; else the splits of the data set.
    seen : str
        Where the figure was looked up, if not in the paper itself.
    reason : str
        Why the result falls short, if it does.
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
        """Everything that the result depends on."""
        train = {k: v for k, v in asdict(TrainConfig(**self.train)).items() if k in self.train}
        return {"normalise": self.normalise, "random": self.random, **self.parameters, **train}

    @property
    def key(self) -> tuple[str, str, str]:
        """Model, data set and hash of the settings, which identify its records."""
        return self.model, NAMED[self.dataset].name, settings_hash(self.config)

    @property
    def protocol(self) -> str:
        """Description of the splits."""
        if self.random:
            return "ten random splits, 10 nodes per class to train"
        return f"{NAMED[self.dataset].protocol}{', ten seeds' if NAMED[self.dataset].reader == 'planetoid' else ''}"


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
        train={"lr": 0.01, "weight_decay": 2e-5, "epochs": 2000, "patience": 2000, "monitor": "accuracy"},
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
        {"lr": 0.001, "weight_decay": 5e-4, "epochs": 1600, "patience": 800, "monitor": "accuracy"},
        normalise="none",
        reason=(
            "not explained. What the authors' code does otherwise was tried on the same splits and did not raise the "
            "figure: dropout of 0.5 in the MLP and 0.7 in the convolutions, the MLP's input and the last layer's "
            "whole; biases without decay; the last of equally good epochs; the MLP trained alone for 400 epochs "
            "first. The ten splits differ much (deviation)"
        ),
    ),
    *_webkb("linkx", (74.6, 75.5, 77.8), LINKX, **LINKX_SETTINGS),
    Check("linkx", "chameleon", 68.4, LINKX, **LINKX_SETTINGS),
    *(
        Check(
            "fsgnn",
            dataset,
            published,
            "Maurya et al. (2021), 3 hops",
            {
                "hidden": 64,
                "dropout": dropout,
                "layers": 3,
                "directed": True,
                "attention_decay": attention_decay,
                "classifier_decay": classifier_decay,
            },
            {"lr": lr, "weight_decay": decay, "epochs": 1500, "patience": 100},
            seen="github.com/sunilkmaurya/FSGNN, README and run_classification_3_hop.sh",
            reason="not explained. One weight decay for all parameters had given less",
        )
        for dataset, published, dropout, lr, decay, attention_decay, classifier_decay in (
            ("texas", 87.3, 0.7, 0.01, 1e-3, 1e-3, 0.0),
            ("wisconsin", 88.4, 0.5, 0.01, 1e-3, 1e-4, 1e-4),
            ("cornell", 87.0, 0.5, 0.01, 1e-3, 0.0, 1e-3),
            ("chameleon", 78.1, 0.5, 0.005, 0.0, 0.1, 0.0),
        )
    ),
    Check(
        "dirgnn",
        "chameleon",
        79.7,
        "Rossi et al. (2023), Dir-GNN",
        {"hidden": 128, "dropout": 0.0, "layers": 5, "alpha": 1.0, "conv": "gcn", "mode": "max", "unit_rows": True},
        {"lr": 0.005, "weight_decay": 0.0, "epochs": 2000, "patience": 400, "monitor": "accuracy"},
        seen="github.com/emalgorithm/directed-graph-neural-network, best_hyperparams.yml",
    ),
    Check(
        "classic",
        "chameleon-filtered",
        46.3,
        "Luo et al. (2024), tuned GCN",
        {"hidden": 512, "dropout": 0.2, "layers": 5, "conv": "gcn", "residual": False, "norm": "none"},
        {"lr": 0.005, "weight_decay": 1e-3, "epochs": 200, "patience": 200, "monitor": "accuracy"},
        normalise="none",
        reason="not explained",
        seen=f"{NOWHERE}; settings: github.com/LUOyk1999/tunedGNN, medium_graph/run_gnn.sh",
    ),
]


def random_split(y: np.ndarray, seed: int) -> Split:
    """Draw ten training nodes per class and 68 validation nodes (2.5 % of Cora); the others are test nodes."""
    order = np.random.default_rng(seed).permutation(len(y))
    train = np.concatenate([order[y[order] == c][:10] for c in np.unique(y)])
    rest = order[~np.isin(order, train)]
    return Split(train, rest[:68], rest[68:])


def plan(check: Check, graph: Graph, runs: int) -> Iterator[tuple[int, int, Split]]:
    """Yield the split number, the seed and the split of each run."""
    for run in range(runs):
        if check.random:
            yield run, run, random_split(graph.labels(), run)
        else:
            number = run if len(graph.splits) > 1 else 0
            yield number, run, graph.splits[number]


def run(check: Check, runs: int) -> None:
    """Train the first ``runs`` runs, skipping those on record."""
    graph = load_dataset(check.dataset)
    on_record = {(r["split"], r["seed"]) for r in records_of(check)}
    x = node_features(graph, FeatureConfig(normalise=check.normalise))
    for number, seed, split in plan(check, graph, runs):
        if (number, seed) in on_record:
            continue
        torch.manual_seed(seed)
        model = make_baseline(check.model, graph, x.shape[1], split, **check.parameters)
        result = fit(model, x, graph.labels(), split, TrainConfig(**check.train), seed=seed)
        append_record(
            RECORDS,
            {
                "version": RECORD_VERSION,
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
                "directed": graph.is_directed,
                "settings_hash": check.key[2],
                "settings": check.config,
                "versions": versions(),
                "published": check.published,
                "source": check.source,
            },
        )
    print(*check.key[:2], check.published, summarise([r["test_accuracy"] for r in records_of(check)]), flush=True)


def records_of(check: Check) -> list[Record]:
    """Return the records of a check."""
    return [r for r in read_records(RECORDS) if (r["model"], r["dataset"], r["settings_hash"]) == check.key]


def drop_stale() -> None:
    """Remove the records that belong to none of the checks."""
    keys = {check.key for check in CHECKS}
    kept = [r for r in read_records(RECORDS) if (r["model"], r["dataset"], r["settings_hash"]) in keys]
    write_text(RECORDS, "".join(json.dumps(r) + "\n" for r in kept))


def table() -> str:
    """Return the text of docs/baselines.md, from the records alone."""
    rows, settings, reasons = [], [], []
    seen = {check.model: f"- {check.model}: {check.seen}" for check in CHECKS if check.seen}
    for check in CHECKS:
        name, dataset, _ = check.key
        values = [r["test_accuracy"] for r in records_of(check)]
        here, gap = "not run", ""
        if values:
            mean = summarise(values)
            here, gap = str(mean), f"{100 * mean.mean - check.published:+.1f}"
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
    parser.add_argument("action", choices=("run", "table"))
    parser.add_argument("models", nargs="*", help="models to run; all by default")
    parser.add_argument("--runs", type=int, default=RUNS, help="number of runs per figure; fewer for a first look")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", InputWarning)
    if options.action == "run":
        for check in CHECKS:
            if not options.models or check.model in options.models:
                run(check, options.runs)
    else:
        drop_stale()
        page = table()
        write_text(PAGE, page)
        print(page)
