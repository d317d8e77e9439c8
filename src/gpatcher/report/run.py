"""The page of a run, report.html: accuracy, calibration, the learned filter, explanations of nodes, the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import counted
from gpatcher.report.diagnosis import class_matrix, diagnosis_parts, largest_classes
from gpatcher.report.leaderboard import leaderboard_cells, leaderboard_columns, verdict
from gpatcher.report.page import Explorer, Figure, Heading, Notes, Part, Table, write_page
from gpatcher.report.regression import regression_in_short, regression_parts
from gpatcher.runs.results import BaselineResult, Evaluation, Groups, RegressionEvaluation, Results
from gpatcher.trust.explanation import Explanation
from gpatcher.trust.palette import BLUE, GREY, ORANGE, model_colour
from gpatcher.trust.words import sentences

# beside accuracy
_METRICS = {"balanced_accuracy": "balanced accuracy", "macro_f1": "macro-F1", "roc_auc": "ROC-AUC", "pr_auc": "PR-AUC"}
_FEW_NODES = 100  # validation nodes below which a temperature is a rough estimate
_SMALL_GROUP = 5  # nodes below which a group is merged with the next
_Z = 1.96  # of a 95 % interval
_ABOUT = {
    "date": "Trained",
    "command": "Command",
    "name": "Data",
    "database": "Database",
    "nodes": "Nodes",
    "edges": "Edges",
}


def write_run_page(evaluation: Evaluation | RegressionEvaluation, path: str | Path) -> Path:
    """Write the page of a run, and return its path; it needs neither the model nor the graph.

    `gpatcher.runs.results.read_evaluation` gives the evaluation of an earlier run; equal ones give equal bytes.
    """
    train, val, test = evaluation.split_sizes
    model = f"with the {evaluation.extractor} extractor, patches of {evaluation.patch_size} nodes"
    if evaluation.response is None:
        model = f"of {evaluation.extractor}"
    subtitle = (
        f"{evaluation.model} {model}, {evaluation.parameters:,} parameters; {train:,} training, {val:,} validation "
        f"and {test:,} test nodes"
    )
    parts: list[Part] = [Notes("In short", in_short(evaluation), wide=True)]
    if evaluation.about:
        lines = [f"{_ABOUT[key]}: {value}" for key, value in evaluation.about.items()]
        parts.append(Notes("This run", lines, wide=True))
    parts.append(Heading("How well it did", f"On the {evaluation.part} nodes, which it was not trained on."))
    parts.append(_leaderboard(evaluation))
    parts += _class_parts(evaluation) if isinstance(evaluation, Evaluation) else regression_parts(evaluation)
    parts.append(_coverage(evaluation))
    if evaluation.importance or evaluation.response is not None or evaluation.history:
        parts.append(Heading("What it learned"))
    if evaluation.importance:
        parts.append(_importance(evaluation))
    if evaluation.response is not None:
        caption = "Weight of each frequency in the scores that rank the members of a patch."
        if np.array_equal(evaluation.response.response, evaluation.response.start):
            caption += f" The {evaluation.extractor} filter is fixed; training does not change it."
        parts.append(Figure("Frequency response of the filter", caption, evaluation.response.plot()))
    if evaluation.history:
        parts.append(_learning_curve(evaluation))
    if evaluation.explanations:
        parts += [Heading("Single nodes"), _explorer(evaluation)]
    if evaluation.diagnosis is not None:
        caption = "'gpatcher diagnose' has these figures and the theory of the paper on a page of their own."
        if isinstance(evaluation, RegressionEvaluation):
            caption = f"The classes here are quantiles of the numbers. {caption}"
        parts += [Heading("The graph", caption), *diagnosis_parts(evaluation.diagnosis)]
    return write_page(path, f"{evaluation.name}: how far to trust this model", subtitle, parts)


def in_short(evaluation: Evaluation | RegressionEvaluation) -> list[str]:
    """Return the main results in a few sentences."""
    numbers = isinstance(evaluation, RegressionEvaluation)
    lines = [verdict(evaluation)]
    lines += _class_lines(evaluation) if isinstance(evaluation, Evaluation) else regression_in_short(evaluation)
    if evaluation.part != "test":
        lines.insert(
            2,
            "No test node has a label. These results are on the validation nodes, which early stopping used: expect "
            f"{'worse' if numbers else 'lower'} ones on new nodes.",
        )
    for level, fraction, _ in evaluation.coverage:
        # below the level by more than chance: two standard errors
        if level - fraction > 2 * np.sqrt(level * (1 - level) / evaluation.evaluated):
            lines.append(
                f"Conformal {'intervals' if numbers else 'sets'} at {level:.0%} hold the label of {fraction:.1%} of "
                f"the {evaluation.part} nodes only: these differ from the validation nodes, do not rely on the level."
            )
    return lines + evaluation.notes


def _class_lines(evaluation: Evaluation) -> list[str]:
    count = evaluation.evaluated
    others = ", ".join(
        f"{name} {value:.1%}" for key, name in _METRICS.items() if (value := evaluation.metrics[key]) is not None
    )
    lines = [
        f"Accuracy {evaluation.accuracy:.1%} on {count:,} {evaluation.part} nodes ({others}); "
        f"validation accuracy {evaluation.val_score:.1%}.",
    ]
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
        lines.append(f"{text}. The probabilities are not scaled (T = 1.00), as that gained too little on {nodes}.")
    else:
        lines.append(f"{text} raw, {100 * calibrated:.1f} after temperature scaling (T = {t:.2f}, from {nodes}).")
    if t != 1 and calibrated > raw:
        lines.append(
            "Scaling did not lower the error on these nodes; in Python, predict_proba(calibrated=False) returns the "
            "raw probabilities."
        )
    elif t != 1 and evaluation.calibration.nodes < _FEW_NODES:
        lines.append(f"With fewer than {_FEW_NODES} validation nodes the temperature is a rough estimate.")
    present = np.flatnonzero(evaluation.per_class.support > 0)
    weakest = present[evaluation.per_class.f1[present].argmin()]
    lines.append(
        f"Class with the lowest F1: {evaluation.classes[weakest]} ({evaluation.per_class.f1[weakest]:.1%}, "
        f"{counted(evaluation.per_class.support[weakest], 'node')})."
    )
    return lines


def _accuracy(result: BaselineResult, evaluation: Evaluation) -> float:
    """Return the accuracy of a baseline on the evaluated nodes."""
    accuracy = result.test if evaluation.part == "test" else result.val
    return float("nan") if accuracy is None else accuracy


def _leaderboard(evaluation: Evaluation | RegressionEvaluation) -> Table:
    caption = (
        "The same nodes for all; intervals are for these nodes alone. Baselines have the paper's settings and are not "
        "tuned for this graph. The weight of a member is its share in the ensemble."
    )
    if isinstance(evaluation, RegressionEvaluation):
        caption += " The interval of R² is a bootstrap over the nodes. RMSE and MAE are in the unit of the label."
    rows = [leaderboard_cells(row) for row in evaluation.leaderboard]
    return Table("Leaderboard", caption, leaderboard_columns(evaluation), rows)


def _class_parts(evaluation: Evaluation) -> list[Part]:
    """Return the tables and figures that show how well classes are predicted."""
    parts: list[Part] = [_per_class(evaluation), _confusion(evaluation), _reliability(evaluation)]
    if evaluation.by_heterophily is not None:
        caption = "Nodes grouped by the fraction of their labelled neighbours with another label, from all labels."
        parts.append(_groups("Accuracy by heterophily", caption, "node heterophily", evaluation.by_heterophily))
    if evaluation.by_degree is not None:
        caption = "Nodes grouped by their number of neighbours."
        parts.append(_groups("Accuracy by degree", caption, "degree", evaluation.by_degree))
    return parts


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
    curves = [("raw", evaluation.raw, ORANGE), ("calibrated", evaluation.calibrated, BLUE)]
    if evaluation.calibration.temperature == 1:  # nothing was scaled: one curve
        curves = [("the model", evaluation.calibrated, BLUE)]
    for name, curve, colour in curves:
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
    groups = merge_small(groups)
    names = [f"{name}<br>{counted(count, 'node')}" for name, count in zip(groups.names, groups.count, strict=True)]
    for model, accuracy in groups.accuracy.items():
        low, high = _wilson(accuracy, groups.count)
        whiskers = {"array": high - accuracy, "arrayminus": accuracy - low, "thickness": 1, "width": 3, "color": GREY}
        bars = {"x": names, "y": accuracy, "name": model, "error_y": {"type": "data", **whiskers}}
        plot.add_bar(**bars, marker_color=model_colour(model), hovertemplate="%{y:.1%}")
    plot.update_layout(barmode="group", hovermode="x unified")
    caption += " Whiskers: 95 % intervals by Wilson's formula."
    plot.update_xaxes(type="category", title=axis)
    plot.update_yaxes(title="accuracy", tickformat=".0%", range=[0, 1.02])
    return Figure(title, caption, plot)


def merge_small(groups: Groups) -> Groups:
    """Merge each group of fewer than five nodes with the next one, the last with the one before it."""
    merged: list[list[int]] = []
    for k in range(len(groups.count)):
        if merged and groups.count[merged[-1]].sum() < _SMALL_GROUP:
            merged[-1].append(k)
        else:
            merged.append([k])
    if len(merged) > 1 and groups.count[merged[-1]].sum() < _SMALL_GROUP:
        merged[-2:] = [merged[-2] + merged[-1]]
    count = np.array([groups.count[part].sum() for part in merged])
    accuracy = {
        model: np.array([np.average(values[part], weights=groups.count[part]) for part in merged])
        for model, values in groups.accuracy.items()
    }
    return Groups([_joined([groups.names[k] for k in part]) for part in merged], count, accuracy)


def _joined(names: list[str]) -> str:
    """Return the range from the first of some neighbouring ranges, such as ``4 to 15``, to the last."""
    first, last = names[0].split()[0], names[-1]
    if len(names) == 1 or last.endswith("or more"):
        return names[0] if len(names) == 1 else f"{first} or more"
    return f"{first} to {last.split()[-1]}"


def _wilson(fraction: FloatArray, count: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the 95 % interval of fractions of these counts, by Wilson's score."""
    centre = (fraction + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    half = _Z * np.sqrt(fraction * (1 - fraction) / count + _Z**2 / (4 * count**2)) / (1 + _Z**2 / count)
    return centre - half, centre + half


def _coverage(evaluation: Evaluation | RegressionEvaluation) -> Table:
    columns = ["level", f"coverage on {evaluation.part} nodes"]
    average = "the probability is an average over nodes exchangeable with those."
    if isinstance(evaluation, RegressionEvaluation):
        caption = (
            "Intervals that contain the true number with a chosen probability (gpatcher predict --conformal 0.9), from "
            f"the errors on {evaluation.intervals.nodes:,} validation nodes; {average}"
        )
        rows = [(f"{level:.0%}", f"{fraction:.1%}", f"{width:.4g}") for level, fraction, width in evaluation.coverage]
        return Table("Conformal intervals", caption, (*columns, "width"), rows)
    caption = (
        "Sets of classes that contain the true class with a chosen probability (gpatcher predict --conformal 0.9). "
        f"Their threshold comes from {len(evaluation.calibration.scores):,} validation nodes, on which their "
        f"temperature was not fitted; {average}"
    )
    rows = [(f"{level:.0%}", f"{fraction:.1%}", f"{size:.2f}") for level, fraction, size in evaluation.coverage]
    return Table("Conformal sets", caption, (*columns, "mean number of classes in a set"), rows)


def _importance(evaluation: Evaluation | RegressionEvaluation) -> Table:
    numbers = isinstance(evaluation, RegressionEvaluation)
    form, factor = ("{:+z.3f}", 1) if numbers else ("{:+z.1f}", 100)

    def text(value: float) -> str:
        return form.format(factor * value)

    rows = [(one.name, text(one.lost), f"{text(one.low)} to {text(one.high)}") for one in evaluation.importance]
    caption = (
        f"{'R²' if numbers else 'Points of accuracy'} lost on the {evaluation.part} nodes if the values of a column "
        "are permuted over all nodes, and if these nodes lose their edges. The model is not trained again: columns "
        "that say the same replace each other."
    )
    columns = ("without", "R² lost" if numbers else "points lost", "95 % interval")
    return Table("What the columns and the edges contribute", caption, columns, rows)


def _learning_curve(evaluation: Results) -> Figure:
    plot = go.Figure()
    epochs = list(range(1, len(evaluation.history) + 1))
    for key, name in (("train_loss", "training loss, with dropout"), ("val_loss", "validation loss")):
        plot.add_scatter(x=epochs, y=[losses[key] for losses in evaluation.history], name=name)
    plot.add_vline(x=evaluation.best_epoch, line_dash="dot", line_color=GREY)
    plot.update_xaxes(title="epoch")
    numbers = isinstance(evaluation, RegressionEvaluation)
    plot.update_yaxes(title="mean squared error, standardised" if numbers else "loss")
    return Figure("Learning curve", f"The weights of epoch {evaluation.best_epoch} (dotted) were kept.", plot)


def _explorer(evaluation: Evaluation | RegressionEvaluation) -> Explorer:
    nodes = [_compact(explanation) for explanation in evaluation.explanations]
    count = f"The list has {len(nodes):,} of {evaluation.nodes:,} nodes"
    rest = "The others are random. Use gpatcher explain for any other node."
    if isinstance(evaluation, RegressionEvaluation):
        caption = (
            f"Select a node to see what its number is made of. {count}, first the {evaluation.explained_errors:,} of "
            f"test and validation with the largest errors. {rest} Blue members raise the number, orange ones lower it."
        )
        return Explorer("Explanations", caption, nodes, ())
    shown, wrong = evaluation.misclassified_shown, evaluation.misclassified
    listed = sum(e.label is not None and e.label != e.predicted for e in evaluation.explanations)
    trained = f" and {counted(listed - shown, 'training node')}" if listed > shown else ""
    held_out = f"all {wrong:,}" if shown == wrong else f"{shown:,} of {wrong:,}"
    caption = (
        f"Select a node to see why it got its class. {count}, {listed:,} of them misclassified: {held_out} of test and "
        f"validation{trained}. {rest}"
    )
    return Explorer("Explanations", caption, nodes, evaluation.classes)


def _compact(explanation: Explanation) -> dict[str, Any]:
    """Return what the page shows of an explanation: members by contribution with coordinates, and no more digits."""
    content = explanation.to_dict()
    del content["classes"]
    xy = explanation.layout().round(3).tolist()
    ranked = explanation.ranked()
    place = {index: rank for rank, index in enumerate(ranked)}
    members = [content["members"][index] | {"x": xy[index][0], "y": xy[index][1]} for index in ranked]
    for member in members:
        del member["node"]
        member |= {name: float(f"{member[name]:.6g}") for name in ("score", "contribution")}
    edges = [[place[a], place[b]] for a, b in explanation.edges]
    return content | {"words": sentences(explanation), "members": members, "edges": edges}
