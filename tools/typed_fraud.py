"""Compare models with and without types, and with and without the future, on the generated fraud tables.

``run`` appends a line per seed and variant to results/typed/fraud.jsonl, and continues where it stopped; ``show``
prints the means. The variant ``types`` reads four tables, ``no types`` the same rows as one table of nodes and one of
edges. In the other three, every fraudster makes a payment of 5,000 after 2024-06-01: ``future`` reads these payments,
``cut`` passes that date as the cut, and ``no future`` reads tables from which later rows were taken away by hand. All
train the first member of the portfolio (``--quality quick``).
"""

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.metrics import roc_auc_score

from gpatcher.datasets.fraud import fraud_tables
from gpatcher.errors import InputWarning
from gpatcher.estimator.ensemble import AutoClassifier
from gpatcher.tables.load import load_tables
from gpatcher.tables.result import Tables

RECORDS = Path(__file__).parents[1] / "results" / "typed" / "fraud.jsonl"
PEOPLE, SEEDS = 1000, range(10)


def tables(seed: int) -> dict[str, pa.Table]:
    """Return the generated tables; an empty label is missing."""
    made = {name: pa.table(columns) for name, columns in fraud_tables(PEOPLE, seed).items()}
    labels = [label or None for label in made["people"]["label"].to_pylist()]
    return made | {"people": made["people"].set_column(1, "label", [labels])}


def with_types(seed: int) -> Tables:
    """Read the four tables."""
    made = tables(seed)
    return load_tables(
        {"person": made["people"], "device": made["devices"]},
        {"uses": made["uses"], "paid": made["payments"]},
        source={"uses": "person", "paid": "payer"},
        target={"uses": "device", "paid": "payee"},
        ends={"uses": ("person", "device"), "paid": ("person", "person")},
    )


def without_types(seed: int) -> Tables:
    """Read the same rows as one table of nodes and one of edges; a column is empty in the rows that lack it."""
    made = tables(seed)

    def ids(prefix: str, values: pa.ChunkedArray) -> list[str]:
        return [f"{prefix}{value}" for value in values.to_pylist()]

    nodes = [
        made[name].set_column(0, "id", [ids(prefix, made[name]["id"])])
        for name, prefix in (("people", "p"), ("devices", "d"))
    ]
    edges = []
    for name, (source, target), prefix in (("uses", ("person", "device"), "d"), ("payments", ("payer", "payee"), "p")):
        table = made[name]
        ends = {"source": ids("p", table[source]), "target": ids(prefix, table[target])}
        rest = {column: table[column] for column in table.column_names if column not in (source, target)}
        edges.append(pa.table({**ends, **rest}))
    both = [pa.concat_tables(parts, promote_options="default") for parts in (nodes, edges)]
    return load_tables(*both)


CUT = np.datetime64("2024-06-01")
TYPED = {
    "source": {"uses": "person", "paid": "payer"},
    "target": {"uses": "device", "paid": "payee"},
    "ends": {"uses": ("person", "device"), "paid": ("person", "person")},
    "time": {"person": "joined"},
}


def leaking(seed: int) -> dict[str, pa.Table]:
    """Return the tables with a payment of each fraudster after the cut."""
    made = tables(seed)
    people = made["people"].to_pandas()
    fraud = people[people.label == "fraud"]
    day = np.maximum(fraud.joined.to_numpy().astype("datetime64[D]"), CUT) + np.timedelta64(10, "D")
    payee = (fraud.id.to_numpy() + 1) % PEOPLE
    leak = pa.table({"payer": fraud.id.to_numpy(), "payee": payee, "amount": np.full(len(fraud), 5000.0), "day": day})
    return made | {"payments": pa.concat_tables([made["payments"], leak.cast(made["payments"].schema)])}


def load_leaking(made: dict[str, pa.Table], **options: Any) -> Tables:
    """Read the tables with the time that people joined, by which they are split."""
    nodes = {"person": made["people"], "device": made["devices"]}
    return load_tables(nodes, {"uses": made["uses"], "paid": made["payments"]}, **TYPED, **options)


def no_future(seed: int) -> Tables:
    """Read tables without people who joined after the cut, what they did, and payments after it."""
    made = leaking(seed)
    people, uses, payments = (made[name].to_pandas() for name in ("people", "uses", "payments"))
    people = people[people.joined.to_numpy().astype("datetime64[D]") <= CUT]
    known = set(people.id)
    uses = uses[uses.person.isin(known)]
    before = payments.day.to_numpy().astype("datetime64[D]") <= CUT
    payments = payments[before & payments.payer.isin(known) & payments.payee.isin(known)]
    past = {"people": people, "uses": uses, "payments": payments}
    return load_leaking(
        made | {name: pa.Table.from_pandas(frame, preserve_index=False) for name, frame in past.items()}
    )


VARIANTS: dict[str, Callable[[int], Tables]] = {
    "types": with_types,
    "no types": without_types,
    "future": lambda seed: load_leaking(leaking(seed)),
    "cut": lambda seed: load_leaking(leaking(seed), cut=str(CUT), edge_time={"paid": "day"}),
    "no future": no_future,
}


def run() -> None:
    """Train what is not on record."""
    RECORDS.parent.mkdir(parents=True, exist_ok=True)
    done = {(record["seed"], record["variant"]) for record in read()}
    for seed in SEEDS:
        for variant, load in VARIANTS.items():
            if (seed, variant) in done:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InputWarning)
                graph = load(seed).with_split(seed=seed).graph
                model = AutoClassifier(quality="quick", seed=seed).fit(graph, refit=True, cross_validate=True)
            test = graph.splits[0].test
            fraud = graph.classes.index("fraud")
            auc = roc_auc_score(graph.labels()[test] == fraud, model.predict_proba(graph, test)[:, fraud])
            record = {"seed": seed, "variant": variant, "people": PEOPLE, "test": len(test), "roc_auc": round(auc, 4)}
            with RECORDS.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(record, flush=True)


def read() -> list[dict[str, Any]]:
    """Return the records."""
    return [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []


def show() -> None:
    """Print mean and standard error of each variant and of the difference."""
    scores = {variant: {r["seed"]: r["roc_auc"] for r in read() if r["variant"] == variant} for variant in VARIANTS}
    both = sorted(set.intersection(*(set(of) for of in scores.values())))
    rows = {variant: np.array([of[seed] for seed in both]) for variant, of in scores.items()}
    rows["types - no types"] = rows["types"] - rows["no types"]
    rows["cut - no future"] = rows["cut"] - rows["no future"]
    for name, values in rows.items():
        error = values.std(ddof=1) / len(values) ** 0.5
        print(f"{name}: ROC-AUC {100 * values.mean():.1f}, standard error {100 * error:.1f}, {len(values)} seeds")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "show"])
    {"run": run, "show": show}[parser.parse_args().command]()
