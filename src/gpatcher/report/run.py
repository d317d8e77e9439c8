"""The page of a run, report.html: accuracy, calibration, the learned filter, explanations of nodes, the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gpatcher.errors import counted
from gpatcher.report.diagnosis import class_matrix, diagnosis_parts, largest_classes
from gpatcher.report.page import BLUE, GREEN, GREY, ORANGE, Explorer, Figure, Heading, Notes, Part, Table, write_page
from gpatcher.runs.evaluation import BaselineResult, Evaluation, Groups
from gpatcher.trust.explain import Explanation

_COLOURS = [BLUE, GREY, GREEN]
# beside accuracy
_METRICS = {"balanced_accuracy": "balanced accuracy", "macro_f1": "macro-F1", "roc_auc": "ROC-AUC", "pr_auc": "PR-AUC"}
_FEW_NODES = 100  # validation nodes below which a temperature is a rough estimate


def write_run_page(evaluation: Evaluation, path: str | Path) -> Path:
    """Write the page of a run, and return its path; it needs neither the model nor the graph.

    `gpatcher.runs.evaluation.read_evaluation` gives the evaluation of an earlier run; equal ones give equal bytes.
    """
    train, val, test = evaluation.split_sizes
    subtitle = (
        f"{evaluation.model} with the {evaluation.extractor} extractor, patches of {evaluation.patch_size} nodes, "
        f"{evaluation.parameters:,} parameters; {train:,} training, {val:,} validation and {test:,} test nodes"
    )
    parts: list[Part] = [Notes("In short", in_short(evaluation), wide=True)]
    parts.append(Heading("How well it did", f"On the {evaluation.part} nodes, which it was not trained on."))
    if evaluation.baselines:
        parts.append(_baselines(evaluation))
    parts += [_per_class(evaluation), _confusion(evaluation), _reliability(evaluation)]
    if evaluation.by_heterophily is not None:
        caption = "Nodes grouped by the fraction of their labelled neighbours with another label, from all labels."
        parts.append(_groups("Accuracy by heterophily", caption, "node heterophily", evaluation.by_heterophily))
    if evaluation.by_degree is not None:
        caption = "Nodes grouped by their number of neighbours."
        parts.append(_groups("Accuracy by degree", caption, "degree", evaluation.by_degree))
    parts.append(_coverage(evaluation))
    parts.append(Heading("What it learned"))
    caption = "Weight of each frequency in the scores that rank the members of a patch."
    if np.array_equal(evaluation.response.response, evaluation.response.start):
        caption += f" The {evaluation.extractor} filter is fixed; training does not change it."
    parts.append(Figure("Frequency response of the filter", caption, evaluation.response.plot()))
    if evaluation.history:
        parts.append(_learning_curve(evaluation))
    if evaluation.explanations:
        parts += [Heading("Single nodes"), _explorer(evaluation)]
    if evaluation.diagnosis is not None:
        parts += [Heading("The graph"), *diagnosis_parts(evaluation.diagnosis)]
    return write_page(path, f"{evaluation.name}: how far to trust this model", subtitle, parts)


def in_short(evaluation: Evaluation) -> list[str]:
    """Return the main results in a few sentences."""
    count = int(evaluation.per_class.support.sum())
    others = ", ".join(
        f"{name} {value:.1%}" for key, name in _METRICS.items() if (value := evaluation.metrics[key]) is not None
    )
    lines = [
        f"Accuracy {evaluation.accuracy:.1%} on {count:,} {evaluation.part} nodes ({others}); "
        f"validation accuracy {evaluation.val_accuracy:.1%}."
    ]
    if evaluation.part != "test":
        lines.append(
            "No test node has a label. These results are on the validation nodes, which early stopping used: expect "
            "lower ones on new nodes."
        )
    if evaluation.baselines:
        scores = {result.name: _accuracy(result, evaluation) for result in evaluation.baselines}
        gap = 100 * (evaluation.accuracy - max(scores.values()))
        # an upper bound of the standard error of the difference of two accuracies on the same nodes
        error = 100 * np.sqrt(2 * evaluation.accuracy * (1 - evaluation.accuracy) / count)
        comparison = f"{abs(gap):.1f} points {'above' if gap > 0 else 'below'}" if gap else "equal to"
        chance = f"; with {counted(count, 'node')} the difference may be due to chance"
        doubt = chance if 0 < abs(gap) <= 2 * error else ""
        listed = ", ".join(f"{name} {score:.1%}" for name, score in scores.items())
        lines.append(f"On the same split: {listed}. This model is {comparison} the best of them{doubt}.")
    raw, calibrated, t = evaluation.raw.error, evaluation.calibrated.error, evaluation.calibration.temperature
    nodes = counted(evaluation.calibration.nodes, "validation node")
    text = f"Expected calibration error: {100 * raw:.1f} points"
    if t == 1:
        lines.append(f"{text}. The probabilities are not scaled (T = 1.00), as scaling did not help on {nodes}.")
    else:
        lines.append(f"{text} raw, {100 * calibrated:.1f} after temperature scaling (T = {t:.2f}, from {nodes}).")
    if calibrated > raw:
        lines.append(
            "Scaling did not lower the error on these nodes; predict_proba(calibrated=False) returns the raw "
            "probabilities."
        )
    elif t != 1 and evaluation.calibration.nodes < _FEW_NODES:
        lines.append(f"With fewer than {_FEW_NODES} validation nodes the temperature is a rough estimate.")
    present = np.flatnonzero(evaluation.per_class.support > 0)
    weakest = present[evaluation.per_class.f1[present].argmin()]
    lines.append(
        f"Class with the lowest F1: {evaluation.classes[weakest]} ({evaluation.per_class.f1[weakest]:.1%}, "
        f"{counted(evaluation.per_class.support[weakest], 'node')})."
    )
    return lines + evaluation.notes


def _accuracy(result: BaselineResult, evaluation: Evaluation) -> float:
    """Return the accuracy of a baseline on the evaluated nodes."""
    accuracy = result.test_accuracy if evaluation.part == "test" else result.val_accuracy
    return float("nan") if accuracy is None else accuracy


def _baselines(evaluation: Evaluation) -> Table:
    seconds = "from a saved model" if evaluation.seconds is None else f"{evaluation.seconds:.1f}"
    rows = [(evaluation.model, f"{evaluation.val_accuracy:.1%}", f"{evaluation.accuracy:.1%}", seconds)]
    for result in evaluation.baselines:
        accuracy = f"{_accuracy(result, evaluation):.1%}"
        rows.append((result.name, f"{result.val_accuracy:.1%}", accuracy, f"{result.seconds:.1f}"))
    caption = (
        "All models have the same nodes, features, hidden width and training settings; MLP and GCN are not tuned for "
        "this graph. "
    )
    caption += (
        "The rows of the adjacency matrix are among the features, so MLP sees the edges too."
        if evaluation.adjacency_features
        else "MLP does not see the edges, so a gain over MLP comes from the graph."
    )
    columns = ("model", "validation accuracy", f"{evaluation.part} accuracy", "training time (s)")
    return Table("Against MLP and GCN", caption, columns, rows)


def _per_class(evaluation: Evaluation) -> Table:
    scores = evaluation.per_class
    predicted = evaluation.confusion.sum(axis=0)

    def percent(value: float, defined: bool) -> str:
        return f"{value:.1%}" if defined else "not defined"

    rows = [
        (
            name,
            percent(scores.precision[c], predicted[c] > 0),
            percent(scores.recall[c], scores.support[c] > 0),
            percent(scores.f1[c], scores.support[c] > 0),
            f"{scores.support[c]:,}",
        )
        for c, name in enumerate(evaluation.classes)
    ]
    caption = (
        "Precision: of the nodes predicted as this class, the fraction that belong to it. Recall: of the nodes of this "
        "class, the fraction predicted as such."
    )
    return Table("Each class", caption, ("class", "precision", "recall", "F1", f"{evaluation.part} nodes"), rows)


def _confusion(evaluation: Evaluation) -> Figure:
    largest, more = largest_classes(evaluation.per_class.support)
    order = np.sort(largest)
    counts = evaluation.confusion[np.ix_(order, order)]
    total = evaluation.confusion.sum(axis=1)[order][:, None]
    plot = class_matrix(
        np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0),
        [evaluation.classes[c] for c in order],
        "predicted class",
        "true class",
        text=counts,
        texttemplate="%{text}" if len(order) <= 12 else None,
        hovertemplate="%{y} predicted as %{x}: %{text} nodes, %{z:.1%}<extra></extra>",
        colorbar={"tickformat": ".0%", "thickness": 12},
    )
    return Figure("Confusion matrix", f"Number of nodes; colour: fraction of the true class.{more}", plot)


def _reliability(evaluation: Evaluation) -> Figure:
    plot = go.Figure()
    plot.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line={"dash": "dot", "color": GREY}, name="ideal")
    for name, curve, colour in (("raw", evaluation.raw, ORANGE), ("calibrated", evaluation.calibrated, BLUE)):
        filled = curve.count > 0
        plot.add_scatter(
            x=curve.confidence[filled],
            y=curve.accuracy[filled],
            mode="lines+markers",
            name=f"{name}, error {curve.error:.3f}",
            line={"color": colour},
            marker={"size": 6 + 16 * np.sqrt(curve.count[filled] / curve.count.sum())},
            customdata=curve.count[filled],
            hovertemplate="confidence %{x:.1%}, accuracy %{y:.1%}, %{customdata} nodes<extra></extra>",
        )
    plot.update_xaxes(title="confidence", range=[0, 1.03], tickformat=".0%")
    plot.update_yaxes(title="accuracy", range=[-0.03, 1.05], tickformat=".0%")
    caption = "Above the dotted line the model is underconfident, below it overconfident. Larger points: more nodes."
    return Figure("Reliability of the probabilities", caption, plot)


def _groups(title: str, caption: str, axis: str, groups: Groups) -> Figure:
    plot = go.Figure()
    names = [f"{name}<br>{counted(count, 'node')}" for name, count in zip(groups.names, groups.count, strict=True)]
    for (model, accuracy), colour in zip(groups.accuracy.items(), _COLOURS, strict=False):
        plot.add_bar(x=names, y=accuracy, name=model, marker_color=colour, hovertemplate="%{y:.1%}")
    plot.update_layout(barmode="group", hovermode="x unified")
    plot.update_xaxes(type="category", title=axis)
    plot.update_yaxes(title="accuracy", tickformat=".0%", range=[0, 1.02])
    return Figure(title, caption, plot)


def _coverage(evaluation: Evaluation) -> Table:
    rows = [(f"{level:.0%}", f"{fraction:.1%}", f"{size:.2f}") for level, fraction, size in evaluation.coverage]
    caption = (
        "Sets of classes that contain the true class with a chosen probability (gpatcher predict --conformal 0.9). "
        f"Their threshold comes from {len(evaluation.calibration.scores):,} validation nodes, on which their "
        "temperature was not fitted; the probability is an average over nodes exchangeable with those."
    )
    columns = ("level", f"coverage on {evaluation.part} nodes", "mean number of classes in a set")
    return Table("Conformal sets", caption, columns, rows)


def _learning_curve(evaluation: Evaluation) -> Figure:
    plot = go.Figure()
    epochs = list(range(1, len(evaluation.history) + 1))
    for key, name in (("train_loss", "training loss, with dropout"), ("val_loss", "validation loss")):
        plot.add_scatter(x=epochs, y=[losses[key] for losses in evaluation.history], name=name)
    plot.add_vline(x=evaluation.best_epoch, line_dash="dot", line_color=GREY)
    plot.update_xaxes(title="epoch")
    plot.update_yaxes(title="loss")
    return Figure("Learning curve", f"The weights of epoch {evaluation.best_epoch} (dotted) were kept.", plot)


def _explorer(evaluation: Evaluation) -> Explorer:
    shown, wrong = evaluation.misclassified_shown, evaluation.misclassified
    caption = (
        f"Select a node to see its patch and what each member contributes to the decision. The list has "
        f"{len(evaluation.explanations):,} of {evaluation.nodes:,} nodes: "
        f"{f'all {wrong:,}' if shown == wrong else f'{shown:,} of {wrong:,}'} misclassified nodes of test and "
        "validation, then random ones. Use gpatcher explain for any other node."
    )
    return Explorer("Explanations", caption, [_compact(explanation) for explanation in evaluation.explanations])


def _compact(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation with the coordinates of its members, and no more digits than the page shows."""
    content = explanation.to_dict()
    for member, (x, y) in zip(content["members"], explanation.layout().round(3).tolist(), strict=True):
        del member["node"]
        member |= {"x": x, "y": y, "score": round(member["score"], 6), "contribution": round(member["contribution"], 6)}
    return content
