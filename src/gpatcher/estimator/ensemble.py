"""AutoClassifier and AutoRegressor: an ensemble of the configurations of a portfolio, weighted by validation loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gpatcher.arrays import FloatArray, IntArray, as_node_index
from gpatcher.codec import from_json
from gpatcher.errors import InputError, check_choice
from gpatcher.estimator.base import NodeClassifier, NodeModel, NodeRegressor, labelled
from gpatcher.estimator.classifier import PatchModel
from gpatcher.estimator.folder import read_model_manifest
from gpatcher.estimator.members import (
    Member,
    MemberEntry,
    Progress,
    Trainer,
    choose_jobs,
    choose_seeds,
    describe_member,
    make_folds,
    read_member,
    slug,
    why_inapplicable,
    write_member,
)
from gpatcher.estimator.persistence import SavedModel
from gpatcher.estimator.portfolio import KINDS, Candidate, shipped_portfolio
from gpatcher.estimator.prepare import Prepared
from gpatcher.estimator.weights import ensemble_weights
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split
from gpatcher.graph.unseen import UnseenNodes
from gpatcher.io import remove_folder
from gpatcher.scale.executors import Engine, ProcessEngine, RayEngine
from gpatcher.tables.typed_encoder import Encoder
from gpatcher.training.task import Regression
from gpatcher.trust.calibration import calibrate, fit_temperature
from gpatcher.trust.explain import Describer, combine, top_two
from gpatcher.trust.explanation import Explanation

_MEMBERS = "members"
_FIGURES = ("weight", "temperature", "loss", "accuracy", "seconds", "stopped")


@dataclass(frozen=True)
class Quality:
    """How much is trained: the number of members, and of models that each consists of.

    These are trained on as many folds where there are few validation nodes, else on a small graph with as many seeds.
    """

    members: int
    models: int


QUALITIES = {"quick": Quality(1, 1), "good": Quality(12, 3), "best": Quality(16, 5)}


def check_effort(quality: Any, budget: Any) -> None:
    """Refuse a quality or a budget that an ensemble cannot be trained with."""
    check_choice("quality", quality, tuple(QUALITIES))
    number = isinstance(budget, int | float) and not isinstance(budget, bool)
    if budget is not None and not (number and budget > 0):
        raise InputError(f"budget must be above 0 seconds, got {budget!r}")


class AutoModel(NodeModel):
    """An ensemble of the portfolio, for classes and for numbers; see `AutoClassifier`."""

    _entries: list[MemberEntry]  # as read from the manifest of a saved ensemble

    def __init__(
        self,
        *,
        quality: str = "good",
        budget: float | None = None,
        portfolio: Sequence[Candidate] | None = None,
        jobs: int | None = 1,
        memory: int | None = None,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.quality = quality
        self.budget = budget
        self.portfolio = portfolio
        self.jobs = jobs
        self.memory = memory
        self.device = device
        self.seed = seed

    # ---- fitting

    def fit(
        self,
        graph: Graph,
        split: Split | int | None = None,
        *,
        refit: bool | None = None,
        cross_validate: bool | None = None,
        folder: Path | None = None,
        progress: Progress | None = None,
        engine: Engine | None = None,
    ) -> Self:
        """Train on a graph.

        Parameters
        ----------
        graph : Graph
        split : Split or int, optional
            See `NodeClassifier.fit`.
        refit : bool, optional
            Whether to retrain the chosen members on all labels; by default if no split is given.
        cross_validate : bool, optional
            Whether cross-validation may replace the split's training and validation nodes; by default as ``refit``.
        folder : Path, optional
            Folder for finished members, so that an interrupted fit with the same arguments can continue.
        progress : callable, optional
            Called when a member is done.
        engine : Engine, optional
            Where to train members, such as a `RayEngine`; by default in processes of this machine.
        """
        check_effort(self.quality, self.budget)
        own = split is None and not graph.splits
        refit = own if refit is None else refit
        cross_validate = refit if cross_validate is None else cross_validate
        self._begin(graph, split)
        self._graph = graph
        quality = QUALITIES[self.quality]
        folds = make_folds(graph, self.split_, quality.models if cross_validate else 1, self.seed)
        if folds is None:
            raise InputError("the split has no validation nodes with a label; training needs them to choose by")
        seeds = choose_seeds(graph, self.seed, quality.models)
        chosen, self.skipped_ = self._applicable(graph, quality.members)
        parameters = {"memory": self.memory, "device": self.device}
        share = 0.6 if refit else 1.0  # of the budget; the rest is for training on all labels
        held = np.concatenate([fold.val for fold in folds])
        y = graph.labels()[held]
        with ExitStack() as stack:
            if len(chosen) == 1 and not isinstance(engine, RayEngine):
                engine = ProcessEngine()  # to start another process would take longer
            elif engine is None:
                jobs = choose_jobs(graph, self.jobs, self.device)
                engine = stack.enter_context(ProcessEngine(min(jobs, len(chosen))))
            trainer = Trainer(graph, parameters, engine, self.budget, self.skipped_, folder, progress)
            self.members_ = trainer.run(chosen, folds, seeds if len(folds) == 1 else seeds[:1], share)
            self._weigh(y)
            if refit:
                every = labelled(graph, np.arange(graph.n))
                final = Split(every, np.empty(0, np.int64), np.empty(0, np.int64))
                self.members_ = trainer.refit(self.members_, final, seeds)
        self._models: dict[tuple[str, bool, int], NodeModel] = {}
        self._shared: list[Prepared] = []
        self.held_out_ = held, self._combine(y)
        return self

    def _combine(self, y: npt.NDArray[Any]) -> FloatArray:
        """Calibrate on the held-out nodes, and return their logits."""
        logits = np.asarray(sum(m.weight / m.temperature * m.held_out for m in self.used))
        self.calibration_ = calibrate(logits, y, self.seed)
        self._score = self.task_.score(logits, y)
        return logits

    def _applicable(self, graph: Graph, count: int) -> tuple[list[Candidate], dict[str, str]]:
        """Return the first ``count`` candidates that apply to this graph, and why others before them were skipped."""
        chosen: list[Candidate] = []
        skipped: dict[str, str] = {}
        for candidate in self.portfolio or shipped_portfolio():
            if len(chosen) == count:
                break
            reason = why_inapplicable(candidate, graph, self.memory)
            if reason is None:
                chosen.append(candidate.adapted(graph))
            else:
                skipped[candidate.name] = reason
        if not chosen:
            raise InputError(f"no member of the portfolio can be trained on {graph.name}: {skipped}")
        return chosen, skipped

    def _weigh(self, y: npt.NDArray[Any]) -> None:
        """Set temperature, loss and weight of each member from the held-out nodes."""
        regression = isinstance(self.task_, Regression)
        temperatures = [1.0 if regression else fit_temperature(member.held_out, y) for member in self.members_]
        logits = [member.held_out / t for member, t in zip(self.members_, temperatures, strict=True)]
        weights = ensemble_weights(logits, y, self.seed)
        self.members_ = [
            replace(
                member,
                temperature=t,
                loss=self.task_.mean_loss(z, y),
                accuracy=self.task_.score(z, y),
                weight=float(weight),
            )
            for member, t, z, weight in zip(self.members_, temperatures, logits, weights, strict=True)
        ]

    @property
    def used(self) -> list[Member]:
        """The members with nonzero weight, largest first."""
        return sorted((m for m in self.members_ if m.weight > 0), key=lambda m: -m.weight)

    def keep_best(self) -> Self:
        """Keep only the member with the largest weight, trained with one seed, for cheap prediction."""
        self._check_fitted()
        best, held, members = self.used[0], self.held_out_[0], self.members_
        y = self._graph.labels()[held]
        kept = replace(best, models=best.models[:: best.seeds], final=best.final[:1], seeds=1)
        if best.seeds > 1:
            kept = replace(kept, held_out=self.member_logits(kept, held))
        self.members_ = [kept]
        self._weigh(y)
        [kept] = self.members_
        self.members_ = [kept if member is best else replace(member, weight=0.0) for member in members]
        self.held_out_ = held, self._combine(y)
        return self

    def validation_score(self, graph: Graph | None = None) -> float:
        """Return the score on the held-out nodes, from models that were not trained on them."""
        self._check_fitted()
        return self._score

    # ---- prediction

    def decision_function(self, graph: Graph | UnseenNodes | None = None, nodes: Any = None) -> FloatArray:
        """Return the logits, averaged over the members; see `NodeClassifier.decision_function`."""
        self._check_fitted()
        if isinstance(graph, UnseenNodes):
            if nodes is not None:
                raise InputError("nodes selects nodes of a graph; leave it out for unseen nodes")
            return self._average(partial(_ask, graph=graph), final=True)
        graph = self._attach(graph)
        ids = np.arange(graph.n) if nodes is None else as_node_index(nodes, graph.n)
        out = np.zeros((len(ids), self.num_outputs), np.float32 if self.class_names_ else np.float64)
        # the final models have seen the labels of the split, so these nodes are predicted by the others
        seen = self._seen(ids)
        for final in (False, True):
            part = ids[seen != final]
            if part.size:
                out[seen != final] = self._average(partial(_ask, graph=graph, nodes=part), final)
        return out

    def member_logits(self, member: Member, nodes: Any = None) -> FloatArray:
        """Return the logits of one member, from the models that were trained on the split."""
        models = self._fitted(member, final=False)
        return np.asarray(sum(model.decision_function(self._graph, nodes) for model in models) / len(models))

    def _average(self, ask: Callable[[NodeModel], FloatArray], final: bool) -> FloatArray:
        total: Any = 0.0
        for member in self.used:
            models = self._fitted(member, final)
            logits = sum(ask(model) for model in models) / len(models)
            total = total + np.float32(member.weight / member.temperature) * logits
        return np.asarray(total)

    def _fitted(self, member: Member, final: bool) -> list[NodeModel]:
        """Return the classifiers of a member, restored once."""
        final = final and bool(member.final)
        fitted = []
        for number, one in enumerate(member.final if final else member.models):
            key = member.candidate.name, final, number
            if key not in self._models:
                self._models[key] = KINDS[one.kind].restore(one)
                self._models[key].shared = self._shared
            fitted.append(self._models[key])
        return fitted

    def only_model(self) -> tuple[NodeModel | None, float]:
        """Return the model that predicts new nodes, None if there are several, and the factor of its logits."""
        self._check_fitted()
        models = [(model, member) for member in self.used for model in self._fitted(member, final=True)]
        if len(models) > 1:
            return None, 1.0
        [(model, member)] = models
        model._attach(self._attach(None))
        return model, member.weight / member.temperature

    def explain_nodes(
        self,
        nodes: Any,
        graph: Graph | None = None,
        *,
        encoder: Encoder | None = None,
        columns: bool = False,
        pairs: IntArray | None = None,
        share: float = 1.0,
    ) -> list[Explanation]:
        """Explain several nodes; contributions add up over the members. See `NodeClassifier.explain_nodes`."""
        self._check_fitted()
        graph = self._attach(graph)
        describer = Describer(graph, self.split_, self.class_names_)
        regression = isinstance(self.task_, Regression)
        explanations: list[Explanation] = []
        for node in as_node_index(nodes, graph.n).tolist():
            logits = self.decision_function(graph, [node])
            if pairs is None:
                pair = np.zeros((1, 2), np.int64) if regression else top_two(logits)
            else:
                pair = pairs[[len(explanations)]]
            final = not self._seen([node])[0]
            fitted = [(member, self._fitted(member, final)) for member in self.used]
            models = [model for _, members in fitted for model in members]
            weights = [m.weight / m.temperature / len(members) for m, members in fitted for _ in members]
            parts = []
            for model, weight in zip(models, weights, strict=True):
                part = share * weight / sum(weights)
                parts += model.explain_nodes([node], graph, encoder=encoder, columns=columns, pairs=pair, share=part)
            probability = None if regression else float(self.calibration_.probability(logits).max())
            explanations.append(combine(describer, parts, weights, pair[0].tolist(), probability))
        return explanations

    def prepared(self) -> list[Prepared]:
        """Return the graph as prepared for the members."""
        return self._shared

    def on_graph(self, graph: Graph, shared: list[Prepared] | None = None) -> Self:
        """Return a copy that reads another graph of the same nodes; see `NodeClassifier.on_graph`."""
        model = copy(self)
        model._graph, model.fingerprint_, model._shared = graph, graph.fingerprint, [] if shared is None else shared
        # those that have predicted so far
        model._models = {key: one.on_graph(graph, model._shared) for key, one in self._models.items()}
        return model

    def _seen(self, nodes: Any) -> npt.NDArray[np.bool_]:
        """Return which nodes have a label that the final models were trained on."""
        return np.isin(nodes, np.concatenate([self.split_.train, self.split_.val, self.split_.test]))

    def _attach(self, graph: Graph | None, nodes: IntArray | None = None) -> Graph:
        if graph is None:
            if not hasattr(self, "_graph"):
                raise InputError("a loaded model does not contain its graph; pass it: predict(graph)")
            return self._graph
        self._check_edges(graph)
        self._graph = graph
        return graph

    # ---- persistence

    def to_saved(self, source: dict[str, Any] | None = None) -> SavedModel:
        """Return the ensemble, without its members, as it is saved on disk."""
        self._check_fitted()
        names = ("quality", "budget", "memory", "device", "seed")
        return SavedModel(
            kind=self.kind,
            parameters={name: getattr(self, name) for name in names},
            details={
                "members": [describe_member(m) for m in self.members_],
                "skipped": self.skipped_,
                "accuracy": self._score,
                **self._target(),
            },
            classes=self.class_names_,
            fingerprint=self.fingerprint_,
            split=self.split_,
            calibration=self.calibration_,
            state={},
            source=source,
        )

    def save(self, folder: str | Path, source: dict[str, Any] | None = None) -> Path:
        """Write the ensemble into a folder, and its members with nonzero weight into the subfolder ``members``."""
        folder = Path(folder)
        saved = self.to_saved(source)
        remove_folder(folder / _MEMBERS)
        for member in self.used:
            write_member(member, folder / _MEMBERS / slug(member.candidate.name), "")
        saved.write(folder)
        return folder

    @classmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Return the ensemble without its members."""
        model = cls(**saved.parameters)
        model.skipped_, model._models, model._shared = dict(saved.details["skipped"]), {}, []
        model._score = from_json(float, saved.details["accuracy"], "accuracy")
        model._entries = from_json(list[MemberEntry], saved.details["members"], "members")
        return model

    @classmethod
    def load(cls, folder: str | Path, graph: Graph | None = None) -> Self:
        """Read a saved ensemble; pass the graph it was trained on here or to `predict`."""
        model = super().load(folder)
        model.members_ = []
        for entry in model._entries:
            figures: dict[str, Any] = {name: getattr(entry, name) for name in _FIGURES}
            candidate = Candidate(entry.name, entry.kind, entry.settings)
            read = Member(candidate, (), np.empty(0), 0.0, 0.0)
            if entry.weight > 0:
                path = Path(folder) / _MEMBERS / slug(candidate.name)
                found = read_member(candidate, path, "")
                if found is None:
                    raise InputError(f"{path} is missing or does not belong to the model in {folder}; train again")
                for part in (*found.models, *found.final):
                    if part.classes != model.class_names_:
                        raise InputError(f"{part.folder} has other classes than the model in {folder}; train again")
                read = found
            model.members_.append(replace(read, **figures))
        if graph is not None:
            model._attach(graph)
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "members_")


class AutoClassifier(NodeClassifier, AutoModel):
    """A classifier without settings, for any graph: an ensemble of the portfolio, combined by greedy selection.

    Each member is trained on the split, or by cross-validation over its training and validation nodes if these are few.
    The logits are averaged with weights that minimise the log loss of the held-out nodes; a member that adds nothing
    has weight 0. Unless a split is given, the chosen members are then retrained on all labels. The retrained models
    predict unlabelled and unseen nodes; labelled nodes are predicted by models that have not seen test labels.

    Parameters
    ----------
    quality : {"quick", "good", "best"}
        How much is trained: the first configuration, the first twelve, or sixteen with cross-validation.
    budget : float, optional
        Seconds for training; members for which no time is left are skipped, see ``skipped_``.
    portfolio : sequence of Candidate, optional
        Configurations in the order of training; by default those of the package.
    jobs : int or None
        Members trained at the same time, each in its own process; None for one per core, or for one job on small and
        on very large graphs.
    memory, device, seed
        See `GPatcherClassifier`.

    Attributes
    ----------
    members_ : list of Member
        All trained members.
    skipped_ : dict
        Name of each configuration that was not trained, and the reason.
    held_out_ : tuple of array
        The held-out nodes by which members were weighted, and their logits from models that were not trained on them.
    classes_, split_, calibration_
        See `NodeClassifier`.

    Examples
    --------
    >>> from gpatcher.datasets.synthetic import csbm
    >>> model = AutoClassifier(quality="quick").fit(csbm(phi=0.9, n=200, features=10))
    >>> model.predict(nodes=[0, 1]).shape
    (2,)
    """

    kind = "ensemble"


class AutoRegressor(NodeRegressor, AutoModel):
    """A regressor without settings, for any graph whose labels are numbers; see `AutoClassifier`.

    The numbers are averaged with weights that minimise the squared error of the held-out nodes.

    Examples
    --------
    >>> from gpatcher.datasets.synthetic import neighbour_sum
    >>> model = AutoRegressor(quality="quick").fit(neighbour_sum(n=200))
    >>> model.predict(nodes=[0, 1]).shape
    (2,)
    """

    kind = "ensemble-regressor"


def _ask(model: NodeModel, graph: Graph | UnseenNodes, nodes: IntArray | None = None) -> FloatArray:
    return model.decision_function(graph, nodes)


def load_model(folder: str | Path, graph: Graph | None = None, patch_table: str | Path | None = None) -> NodeModel:
    """Read a saved model of any kind; pass the graph it was trained on here or to `predict`.

    ``patch_table`` is the folder of its patch table, if that has moved.
    """
    kinds = {**KINDS, AutoClassifier.kind: AutoClassifier, AutoRegressor.kind: AutoRegressor}
    kind = read_model_manifest(Path(folder)).kind
    if kind not in kinds:
        raise InputError(f"the model in {folder} is of the unknown kind {kind!r}; choose another folder")
    if patch_table is not None and not issubclass(kinds[kind], PatchModel):
        raise InputError(f"the model in {folder} is of the kind {kind!r} and has no patch table; leave --patches out")
    more = {} if patch_table is None else {"patch_table": patch_table}
    model: NodeModel = kinds[kind].load(folder, graph, **more)
    return model
