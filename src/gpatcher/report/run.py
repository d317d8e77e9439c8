"""The page of a run, report.html: how well a model did, what it learned, why nodes got their class, and the graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from gpatcher.errors import counted
from gpatcher.report.diagnosis import diagnosis_parts
from gpatcher.report.page import BLUE, GREEN, GREY, ORANGE, Explorer, Figure, Heading, Notes, Part, Table, write_page
from gpatcher.runs.evaluation import Evaluation, Groups
from gpatcher.trust.calibration import Reliability
from gpatcher.trust.explain import Explanation

_COLOURS = [BLUE, GREY, GREEN]
_OTHERS = {
    "balanced_accuracy": "balanced over the classes",
    "macro_f1": "macro-F1",
    "roc_auc": "ROC-AUC",
    "pr_auc": "PR-AUC",
}  # metrics beside accuracy
_ROUGH = 100  # validation nodes from which a temperature is worth its digits
_MOST_CLASSES = 40  # classes drawn in the confusion matrix


def write_run(found: Evaluation, path: str | Path) -> Path:
    """Write the page of a run to ``path``."""
    train, val, test = found.split_sizes
    subtitle = (
        f"extractor {found.extractor}, patches of {found.patch_size}, {found.parameters:,} parameters; "
        f"{counted(train, 'node')} to train on, {val:,} for validation, {test:,} for test"
    )
    parts: list[Part] = [Notes("In short", in_short(found), wide=True)]
    parts.append(Heading("How well it did", f"On the {found.part} nodes, which it was not trained on."))
    if found.rivals:
        parts.append(_rivals(found))
    parts += [_per_class(found), _confusion(found), _reliability(found)]
    if found.by_heterophily is not None:
        caption = "By the share of a node's labelled neighbours with another label, as all labels together tell it."
        parts.append(_groups("Accuracy by heterophily", caption, "heterophily of the node", found.by_heterophily))
    if found.by_degree is not None:
        caption = "By the number of a node's neighbours."
        parts.append(_groups("Accuracy by degree", caption, "degree", found.by_degree))
    parts.append(_coverage(found))
    parts.append(Heading("What it learned"))
    learned = not np.array_equal(found.response.response, found.response.start)
    caption = "How strongly each frequency counts when nodes are ranked for a patch"
    caption += "." if learned else f"; {found.extractor} is fixed, nothing in it is learned."
    parts.append(Figure("Response of the filter", caption, found.response.plot()))
    if found.history:
        parts.append(_course(found))
    if found.explanations:
        parts += [Heading("Single nodes"), _explorer(found)]
    if found.diagnosis is not None:
        parts += [Heading("What the graph looks like"), *diagnosis_parts(found.diagnosis)]
    return write_page(path, f"{found.name}: how far to trust this model", subtitle, parts)


def in_short(found: Evaluation) -> list[str]:
    """Say what matters in a few sentences."""
    count = int(found.per_class.support.sum())
    others = ", ".join(
        f"{name} {value:.1%}" for key, name in _OTHERS.items() if (value := found.metrics[key]) is not None
    )
    lines = [
        f"Accuracy {found.accuracy:.1%} on {count:,} {found.part} nodes ({others}); "
        f"validation {found.val_accuracy:.1%}."
    ]
    if found.part != "test":
        lines.append("No test node has a label: the figures are of nodes that chose the weights, so expect worse.")
    if found.rivals:
        others = ", ".join(f"{r.name} {_share(r, found):.1%}" for r in found.rivals)
        best = max(found.rivals, key=lambda r: _share(r, found))
        ahead = 100 * (found.accuracy - _share(best, found))
        # one standard error of the difference of two shares of the same nodes, at most
        noise = 100 * np.sqrt(2 * found.accuracy * (1 - found.accuracy) / count)
        word = "better" if ahead > 0 else "worse"
        size = f"{abs(ahead):.1f} points {word} than the best of them" if ahead else "level with the best of them"
        doubt = "" if abs(ahead) > 2 * noise else "; with so few nodes the difference may be chance"
        lines.append(f"On the same split: {others}. This model is {size}{doubt}.")
    before, after, t = found.before.error, found.after.error, found.calibration.temperature
    nodes = counted(found.calibration.nodes, "validation node")
    off = f"Calibration: a stated confidence is off by {100 * before:.1f} points on average"
    if t == 1:
        lines.append(f"{off}; probabilities are as the model gives them, since scaling did not help on {nodes}.")
    else:
        lines.append(f"{off} before and {100 * after:.1f} after temperature scaling (T = {t:.2f}, from {nodes}).")
    if after > before:
        lines.append(
            "On these nodes scaling did not lower the error; predict_proba(calibrated=False) gives the raw ones."
        )
    elif t != 1 and found.calibration.nodes < _ROUGH:
        lines.append(f"With fewer than {_ROUGH} validation nodes the temperature is rough.")
    some = np.flatnonzero(found.per_class.support > 0)
    weakest = some[found.per_class.f1[some].argmin()]
    lines.append(
        f"Weakest class: {found.classes[weakest]} (F1 {found.per_class.f1[weakest]:.1%}, "
        f"{counted(found.per_class.support[weakest], 'node')})."
    )
    return lines + found.left_out


def _share(rival: Any, found: Evaluation) -> float:
    accuracy = rival.test_accuracy if found.part == "test" else rival.val_accuracy
    return float(accuracy)


def _rivals(found: Evaluation) -> Table:
    own = "from a saved model" if found.seconds is None else f"{found.seconds:.1f}"
    rows = [(found.model, f"{found.val_accuracy:.1%}", f"{found.accuracy:.1%}", own)]
    rows += [(r.name, f"{r.val_accuracy:.1%}", f"{_share(r, found):.1%}", f"{r.seconds:.1f}") for r in found.rivals]
    caption = (
        "The same nodes, features, hidden width and training settings for all; MLP and GCN were not tuned for this "
        "graph. "
    )
    caption += (
        "The rows of the adjacency are among the features, so MLP sees the edges too."
        if found.structure
        else "MLP sees no edges: what is gained over it, the graph gave."
    )
    columns = ("model", "validation accuracy", f"{found.part} accuracy", "seconds of training")
    return Table("Against MLP and GCN", caption, columns, rows)


def _per_class(found: Evaluation) -> Table:
    by = found.per_class

    def share(value: float, defined: bool) -> str:
        return f"{value:.1%}" if defined else "not defined"

    called = found.confusion.sum(axis=0)
    rows = [
        (
            name,
            share(by.precision[c], called[c] > 0),
            share(by.recall[c], by.support[c] > 0),
            share(by.f1[c], by.support[c] > 0),
            f"{by.support[c]:,}",
        )
        for c, name in enumerate(found.classes)
    ]
    caption = "Precision: of those called so, how many are. Recall: of those that are, how many were called so."
    return Table("Each class", caption, ("class", "precision", "recall", "F1", f"{found.part} nodes"), rows)


def _confusion(found: Evaluation) -> Figure:
    order = np.sort(np.argsort(-found.per_class.support, kind="stable")[:_MOST_CLASSES])
    counts = found.confusion[np.ix_(order, order)]
    total = found.confusion.sum(axis=1)[order][:, None]
    names = [found.classes[c] for c in order]
    plot = go.Figure(
        go.Heatmap(
            z=np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0),
            text=counts,
            x=names,
            y=names,
            zmin=0,
            zmax=1,
            colorscale="Blues",
            texttemplate="%{text}" if len(order) <= 12 else None,
            hovertemplate="%{y} called %{x}: %{text} nodes, %{z:.1%}<extra></extra>",
            colorbar={"tickformat": ".0%", "thickness": 12},
        )
    )
    plot.update_xaxes(type="category", title="predicted")
    plot.update_yaxes(type="category", title="true", autorange="reversed")
    rest = len(found.classes) - len(order)
    more = f" {rest} smaller classes are not drawn." if rest else ""
    return Figure("Confusion", f"Numbers of nodes; the colour is their share of the true class.{more}", plot)


def _reliability(found: Evaluation) -> Figure:
    plot = go.Figure()
    plot.add_scatter(x=[0, 1], y=[0, 1], mode="lines", line={"dash": "dot", "color": GREY}, name="ideal")
    for name, curve, colour in (("raw", found.before, ORANGE), ("calibrated", found.after, BLUE)):
        _curve(plot, f"{name}, error {curve.error:.3f}", curve, colour)
    plot.update_xaxes(title="confidence", range=[0, 1.03], tickformat=".0%")
    plot.update_yaxes(title="how often right", range=[-0.03, 1.05], tickformat=".0%")
    caption = "Above the dotted line the model is too modest, below it too sure. Larger points hold more nodes."
    return Figure("Can the probabilities be believed?", caption, plot)


def _curve(plot: go.Figure, name: str, curve: Reliability, colour: str) -> None:
    some = curve.count > 0
    plot.add_scatter(
        x=curve.confidence[some],
        y=curve.accuracy[some],
        mode="lines+markers",
        name=name,
        line={"color": colour},
        marker={"size": 6 + 16 * np.sqrt(curve.count[some] / curve.count.sum())},
        customdata=curve.count[some],
        hovertemplate="confidence %{x:.1%}: right %{y:.1%} of %{customdata} nodes<extra></extra>",
    )


def _groups(title: str, caption: str, axis: str, groups: Groups) -> Figure:
    plot = go.Figure()
    names = [f"{name}<br>{counted(count, 'node')}" for name, count in zip(groups.names, groups.count, strict=True)]
    for (model, accuracy), colour in zip(groups.accuracy.items(), _COLOURS, strict=False):
        plot.add_bar(x=names, y=accuracy, name=model, marker_color=colour, hovertemplate="%{y:.1%}")
    plot.update_layout(barmode="group", hovermode="x unified")
    plot.update_xaxes(type="category", title=axis)
    plot.update_yaxes(title="accuracy", tickformat=".0%", range=[0, 1.02])
    return Figure(title, caption, plot)


def _coverage(found: Evaluation) -> Table:
    rows = [(f"{level:.0%}", f"{share:.1%}", f"{size:.2f}") for level, share, size in found.coverage]
    caption = (
        "Sets of classes made to hold the true one at a chosen level (gpatcher predict --conformal 0.9). They rest on "
        f"{len(found.calibration.scores):,} validation nodes that the temperature of the sets did not see; the promise "
        "is for nodes like those, on average."
    )
    columns = ("level", f"{found.part} nodes whose set holds the label", "classes in a set, on average")
    return Table("Conformal sets", caption, columns, rows)


def _course(found: Evaluation) -> Figure:
    plot = go.Figure()
    epochs = list(range(1, len(found.history) + 1))
    for name, label in (("train_loss", "training loss, with dropout"), ("val_loss", "validation loss")):
        plot.add_scatter(x=epochs, y=[h[name] for h in found.history], name=label)
    plot.add_vline(x=found.best_epoch, line_dash="dot", line_color=GREY)
    plot.update_xaxes(title="epoch")
    plot.update_yaxes(title="loss")
    return Figure("Learning curve", f"The weights of epoch {found.best_epoch} (dotted) were kept.", plot)


def _explorer(found: Evaluation) -> Explorer:
    shown = len(found.explanations)
    wrong = f"all {found.wrong:,}" if found.wrong_shown == found.wrong else f"{found.wrong_shown:,} of {found.wrong:,}"
    caption = (
        f"Pick a node to see its patch and what each member adds to the decision. Here are {shown:,} of "
        f"{found.nodes:,} nodes: {wrong} wrongly predicted ones of test and validation, the others by "
        "chance. gpatcher explain shows any node."
    )
    return Explorer("Why was it called that?", caption, [_compact(e) for e in found.explanations])


def _compact(found: Explanation) -> dict[str, Any]:
    plain = found.to_dict()
    for member, (x, y) in zip(plain["members"], found.places().round(3).tolist(), strict=True):
        del member["node"]
        member |= {"x": x, "y": y, "score": round(member["score"], 6), "contribution": round(member["contribution"], 6)}
    return plain
