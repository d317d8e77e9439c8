"""GPatcherClassifier: the model behind scikit-learn's conventions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.torch
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from gpatcher import __version__
from gpatcher.arrays import FloatArray, IntArray
from gpatcher.errors import InputError, counted, some
from gpatcher.estimator.memory import held_bytes
from gpatcher.estimator.persistence import FORMAT, FORMAT_VERSION, read_about
from gpatcher.graph.graph import Graph
from gpatcher.graph.split import Split, stratified_split
from gpatcher.graph.unseen import UnseenNodes, localise
from gpatcher.model.gpatcher import PATHS, GPatcher
from gpatcher.model.inputs import FeatureTable, node_features
from gpatcher.patches.base import FixedPatches, Patches
from gpatcher.patches.extract import FIXED, LEARNABLE, check_extractor
from gpatcher.patches.polynomial import moment_products
from gpatcher.patches.ppr import push_patches
from gpatcher.patches.spectral import PairProducts, SpectralPatches, spectral_patches
from gpatcher.patches.store import PatchTable, TablePatches
from gpatcher.runs.records import peak_rss_mb
from gpatcher.scale.executors import RayEngine
from gpatcher.scale.process_group import ProcessGroup
from gpatcher.scale.ray_training import run_together
from gpatcher.spectral.filters import LearnableFilter, ppr_response, response
from gpatcher.spectral.spectrum import graph_spectrum, is_affordable
from gpatcher.training.loop import FitResult, TrainConfig, fit, predict_logits, train
from gpatcher.trust.calibration import Calibration, calibrate
from gpatcher.trust.explain import Explanation, explain_nodes

Source = FixedPatches | TablePatches | SpectralPatches
AUTO = "auto"  # the name of no extractor, but of the choice between some
_TABLE_BATCH = 4096  # nodes in a step where no batch size is given; the memory may ask for fewer
_SMALLEST_BATCH = 32


@dataclass(frozen=True, eq=False)
class FilterResponse:
    """A filter over the frequencies: λ from -1 (high) to 1 (low) and g(λ), the one before training beside it."""

    values: FloatArray
    response: FloatArray
    start: FloatArray

    def plot(self) -> Any:
        """Return a plotly figure of the response."""
        import plotly.graph_objects as go

        figure = go.Figure()
        figure.add_scatter(
            x=self.values, y=self.start, name="before training", line={"dash": "dot", "color": "#8a94a0"}
        )
        figure.add_scatter(x=self.values, y=self.response, name="after training", line={"color": "#2f6fb0"})
        figure.update_xaxes(title="eigenvalue λ (low frequency on the left)", range=[1.02, -1.02])
        figure.update_yaxes(title="response g(λ)")
        return figure


@dataclass(frozen=True, eq=False)
class Prepared:
    """What is made once per graph and shared by all runs on it: features, and patches or products of pairs.

    ``exact`` says that eigenvectors were used; ``options`` has one for each extractor that ``auto`` compares.
    """

    graph: Graph
    key: tuple[Any, ...]
    x: FeatureTable
    fixed: Patches | PatchTable | None
    pairs: PairProducts | None
    seconds: float
    exact: bool = True
    options: tuple[Prepared, ...] = ()


class GPatcherClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Node classifier by patches; ``extractor="ppr"`` is Fast-GPatcher.

    Parameters
    ----------
    extractor : heterophily-aware, polynomial, shared, heat, bandpass or ppr; ``polynomial`` needs no eigenvectors
        where they would take more than ``memory`` or ten minutes (`gpatcher.patches.polynomial`). ``auto`` trains
        heterophily-aware, or polynomial in place of it where eigenvectors would take that much, and ppr, and keeps
        the one with the smaller validation loss
    patch_size : p, the node itself included
    filters : K, number of powers of the filter
    c, eps : of personalised PageRank, with which learnable filters start
    self_loops : of the normalised adjacency
    sigma : activation inside the sum of the heterophily-aware filter: none, tanh or relu
    candidates : nodes that may enter a patch, as a multiple of patch_size
    hidden, mixer_hidden, layers, dropout, input_dropout, skip : of encoder and mixer
    paths : what reaches the classifier: some of ego, mean, mixer
    ego_gate, mixer_gate, mean_ego, head_layers : see `GPatcher`
    normalise : of the features: none, l1, l2 or standard
    structure : rows of the adjacency as features too
    mass : the sum of each row of features as a feature too, see `gpatcher.model.inputs.node_features`
    lr, weight_decay, epochs, patience, stop, batch_size, renew_every, filter_lr, class_weights, average : see
        `TrainConfig`
    memory : bytes that eigenvectors may take, by default half of what is free; with ``ppr``, bytes that the whole
        run may take: batches of 4096 nodes, where none are given, or as many as it allows (`GPatcher.step_bytes`)
    device : where to train: cpu, cuda, ...
    seed : of weights and dropout

    Attributes
    ----------
    extractor_ : the extractor in use: as given, or what ``auto`` chose
    exact_ : whether eigenvectors were used
    compared_ : validation loss of each extractor that was trained
    classes_ : names of the classes
    model_ : the fitted `GPatcher`
    split_ : the split used
    result_ : figures of the training run
    batch_size_ : nodes in a step, None for all at once
    patches_ : the patches of all nodes
    features_ : the features of all nodes, as the model sees them
    calibration_ : what the validation nodes taught about the probabilities

    Examples
    --------
    >>> from gpatcher.datasets.synthetic import csbm
    >>> graph = csbm(phi=-0.9, n=200, features=10)
    >>> GPatcherClassifier(extractor="ppr", patch_size=8, epochs=30).fit(graph).predict(nodes=[0, 1]).shape
    (2,)
    """

    def __init__(
        self,
        extractor: str = "heterophily-aware",
        patch_size: int = 16,
        filters: int = 10,
        c: float = 0.5,
        eps: float = 1e-5,
        self_loops: bool = False,
        sigma: str = "none",
        candidates: int = 4,
        hidden: int = 64,
        mixer_hidden: int | None = 16,
        layers: int = 2,
        dropout: float = 0.5,
        input_dropout: float = 0.5,
        skip: bool = False,
        paths: Sequence[str] = PATHS,
        ego_gate: float = 1.0,
        mixer_gate: float = 1.0,
        mean_ego: bool = False,
        head_layers: int = 1,
        normalise: str = "none",
        structure: bool = False,
        mass: bool = False,
        lr: float = 0.005,
        weight_decay: float = 5e-4,
        epochs: int = 500,
        patience: int = 50,
        stop: str = "loss",
        batch_size: int | None = None,
        renew_every: int = 10,
        filter_lr: float = 1.0,
        class_weights: bool = False,
        average: float = 0.0,
        memory: int | None = None,
        device: str = "cpu",
        seed: int = 0,
    ) -> None:
        self.extractor = extractor
        self.patch_size = patch_size
        self.filters = filters
        self.c = c
        self.eps = eps
        self.self_loops = self_loops
        self.sigma = sigma
        self.candidates = candidates
        self.hidden = hidden
        self.mixer_hidden = mixer_hidden
        self.layers = layers
        self.dropout = dropout
        self.input_dropout = input_dropout
        self.skip = skip
        self.paths = paths
        self.ego_gate = ego_gate
        self.mixer_gate = mixer_gate
        self.mean_ego = mean_ego
        self.head_layers = head_layers
        self.normalise = normalise
        self.structure = structure
        self.mass = mass
        self.lr = lr
        self.weight_decay = weight_decay
        self.epochs = epochs
        self.patience = patience
        self.stop = stop
        self.batch_size = batch_size
        self.renew_every = renew_every
        self.filter_lr = filter_lr
        self.class_weights = class_weights
        self.average = average
        self.memory = memory
        self.device = device
        self.seed = seed

    # ---- fitting

    def fit(
        self,
        graph: Graph,
        split: Split | int | None = None,
        *,
        patches: PatchTable | str | Path | None = None,
        prepared: Prepared | None = None,
        progress: Callable[[int, dict[str, float]], None] | None = None,
        checkpoint: Path | None = None,
        engine: RayEngine | None = None,
        workers: int | None = None,
    ) -> Self:
        """Train on a graph.

        Parameters
        ----------
        split : a `Split`, or the number of one of the graph's; by default its first, else a stratified one
            (60 % train, 20 % validation, 20 % test of the labelled nodes)
        patches : a patch table of this graph, or its folder; its edges are not read then
        prepared : what `prepare` returned for this graph, to save making it again
        progress, checkpoint : see `gpatcher.training.loop.fit`
        engine, workers : a cluster to train on with so many processes, by default one for each CPU (or GPU, with
            ``device="cuda"``) up to 8; needs ``patches``, and a ``checkpoint`` on a file system that all machines share
        """
        self.split_ = self._choose(graph, split)
        if prepared is None or not self._fits(prepared, graph, self.extractor):
            prepared = self.prepare(graph, patches)
        if prepared.options:
            return self._fit_options(graph, prepared, progress, checkpoint)
        self.extractor_, self.exact_ = self.extractor, prepared.exact
        torch.manual_seed(self.seed)
        self.model_ = self._build(graph, prepared)
        given = {name: getattr(self, name) for name in TrainConfig.__dataclass_fields__}
        config = TrainConfig(**{**given, "batch_size": self._batch_size(graph, prepared)})
        self.batch_size_ = config.batch_size
        self.workers_peak_mb_ = 0.0
        if engine is not None:
            self._train_on(engine, graph, prepared, config, checkpoint, workers, progress)
        self.result_: FitResult = fit(
            self.model_,
            prepared.x,
            graph.labels(),
            self.split_,
            config,
            seed=self.seed,
            progress=progress,
            checkpoint=checkpoint,
        )
        self.compared_ = {self.extractor_: self.result_.val_loss}
        self.classes_ = np.array(graph.classes)
        self.fingerprint_ = graph.fingerprint
        self._remember(graph, prepared)
        known = self.split_.val[graph.labels()[self.split_.val] >= 0]
        self.calibration_: Calibration = calibrate(self._logits(known), graph.labels()[known], self.seed)
        return self

    def _train_on(
        self,
        engine: RayEngine,
        graph: Graph,
        prepared: Prepared,
        config: TrainConfig,
        checkpoint: Path | None,
        workers: int | None,
        progress: Callable[[int, dict[str, float]], None] | None,
    ) -> None:
        """Train in several processes of a cluster; the finished checkpoint is all that comes back."""
        if not isinstance(prepared.fixed, PatchTable) or checkpoint is None:
            raise InputError(
                "a cluster trains from a patch table and with a checkpoint that all its machines see; make "
                "the table with 'gpatcher patches' and pass it (patches=, --patches)"
            )
        if self.device not in ("cpu", "cuda"):
            raise InputError(f"a cluster trains on cpu or cuda and gives each process one, got device={self.device!r}")

        def hear(message: tuple[str, Any, Any]) -> None:
            kind, value, figures = message
            if kind == "peak":
                self.workers_peak_mb_ = max(self.workers_peak_mb_, value)
            elif progress is not None:
                progress(value, figures)

        about = {"parameters": self.get_params(), "classes": graph.num_classes, "config": config}
        about |= {"table": prepared.fixed.folder.absolute(), "checkpoint": checkpoint.absolute()}
        parts = tuple(np.array(part) for part in (self.split_.train, self.split_.val, self.split_.test))
        shared = (about, prepared.x, np.asarray(graph.labels()), parts)
        gpus = self.device == "cuda"
        run_together(
            engine, train_member, shared, folder=checkpoint.parent, workers=workers, gpus=gpus, on_message=hear
        )

    def _fit_options(
        self,
        graph: Graph,
        prepared: Prepared,
        progress: Callable[[int, dict[str, float]], None] | None,
        checkpoint: Path | None,
    ) -> Self:
        """Train one model for each extractor, all on the same split, and become the one that validates best."""
        trained = {}
        for option in prepared.options:
            name = option.key[0]
            place = None if checkpoint is None else checkpoint.with_name(f"{checkpoint.stem}-{name}.safetensors")
            twin = clone(self).set_params(extractor=name)
            trained[name] = twin.fit(graph, self.split_, prepared=option, progress=progress, checkpoint=place)
        compared = {name: twin.result_.val_loss for name, twin in trained.items()}
        best = trained[min(compared, key=lambda name: compared[name])]
        own = self.get_params()
        self.__dict__ |= {name: value for name, value in vars(best).items() if name not in own}
        self.compared_ = compared
        return self

    def _choose(self, graph: Graph, split: Split | int | None) -> Split:
        if isinstance(split, Split):
            if not any(split is own for own in graph.splits):
                graph.with_splits([split])  # checks it
            return split
        if split is None and not graph.splits:
            return stratified_split(graph.labels(), 0.6, 0.2, self.seed)
        number = 0 if split is None else split
        if not 0 <= number < len(graph.splits):
            raise InputError(f"there is no split {number}: {graph.name} has {len(graph.splits)}, counted from 0")
        return graph.splits[number]

    def prepare(
        self,
        graph: Graph,
        patches: PatchTable | str | Path | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
        extractor: str | None = None,
        exact: bool | None = None,
    ) -> Prepared:
        """Make what does not depend on a split: features, and patches (fixed) or products of pairs (learnable).

        Parameters
        ----------
        patches : a patch table of the graph, or its folder, to be read instead of making any
        progress : called with steps done and steps in all, where no eigenvectors are needed
        extractor : in place of the one this classifier was made with
        exact : whether the polynomial filter uses eigenvectors; by default where they are affordable
        """
        extractor = extractor or self.extractor
        exact = is_affordable(graph.n, self.memory) if exact is None else exact
        if extractor == AUTO:
            names = ("heterophily-aware" if exact else "polynomial", "ppr")
            options = tuple(self.prepare(graph, progress=progress, extractor=name, exact=exact) for name in names)
            seconds = sum(option.seconds for option in options)
            return Prepared(graph, self._key(AUTO), options[0].x, None, None, seconds, exact, options)
        x = node_features(graph, self.normalise, self.structure, self.mass, check_device(self.device))
        started = time.perf_counter()
        fixed: Patches | PatchTable | None = None
        pairs = None
        if patches is not None:
            fixed = self._open(patches, graph)
        else:
            fixed, pairs = self._extract(graph, extractor, exact, progress)
        exact = extractor != "ppr" and (exact or extractor != "polynomial")
        return Prepared(graph, self._key(extractor), x, fixed, pairs, time.perf_counter() - started, exact)

    def _open(self, patches: PatchTable | str | Path, graph: Graph) -> PatchTable:
        """Open a table after a look at whether it is one of this graph and made as this classifier says."""
        table = PatchTable.open(patches.folder if isinstance(patches, PatchTable) else patches, graph)
        made = table_parameters(table)
        differ = [name for name, value in made.items() if getattr(self, name) != value]
        if differ:
            here, there = (", ".join(f"{name}={of(name)!r}" for name in differ) for of in (self._get, made.get))
            raise InputError(
                f"the table in {table.folder} was made with {there}, this classifier has {here}; "
                "take over the table's: GPatcherClassifier(**table_parameters(table), ...)"
            )
        return table

    def _get(self, name: str) -> Any:
        return getattr(self, name)

    def _extract(
        self, graph: Graph, extractor: str, exact: bool, progress: Callable[[int, int], None] | None = None
    ) -> tuple[Patches | None, PairProducts | None]:
        """Make patches (fixed) or products of pairs (learnable)."""
        push: dict[str, Any] = {"c": self.c, "eps": self.eps, "self_loops": self.self_loops, "progress": progress}
        if check_extractor(extractor) == "ppr":
            return push_patches(graph, self.patch_size, **push), None
        if extractor == "polynomial" and not exact:
            return None, moment_products(graph, self.filters, self._candidates, **push)
        spectrum = graph_spectrum(graph, self.self_loops, self.memory)
        if extractor in LEARNABLE:
            return None, PairProducts.build(spectrum, self._filter(extractor), self._candidates)
        g = response(FIXED[extractor](self.filters), spectrum.values)
        return spectral_patches(spectrum, g, self.patch_size), None

    @property
    def _candidates(self) -> int:
        return max(self.candidates * self.patch_size, 64)

    def _key(self, extractor: str) -> tuple[Any, ...]:
        names = ("patch_size", "filters", "c", "eps", "self_loops", "sigma", "candidates")
        return extractor, *(getattr(self, name) for name in (*names, "normalise", "structure", "mass", "device"))

    def _fits(self, prepared: Prepared, graph: Graph, extractor: str) -> bool:
        parts = ("indptr", "indices", "weights", "x")
        same = all(getattr(prepared.graph, part) is getattr(graph, part) for part in parts)
        return same and prepared.key == self._key(extractor)

    def _filter(self, extractor: str) -> LearnableFilter:
        return LEARNABLE[extractor](self.filters, self.c, self.sigma)

    def _build(self, graph: Graph, prepared: Prepared) -> GPatcher:
        patches: Source
        if prepared.pairs is not None:
            patches = SpectralPatches(prepared.pairs, self._filter(prepared.key[0]), self.patch_size)
        elif isinstance(prepared.fixed, PatchTable):
            patches = TablePatches(prepared.fixed)
        elif prepared.fixed is not None:
            patches = FixedPatches(prepared.fixed)
        return self.build(patches, prepared.x.shape[1], graph.num_classes)

    def build(self, patches: Source, features: int, classes: int) -> GPatcher:
        """Return the model before training, for patches from anywhere."""
        return GPatcher(
            patches,
            features,
            classes,
            hidden=self.hidden,
            mixer_hidden=self.mixer_hidden,
            layers=self.layers,
            dropout=self.dropout,
            input_dropout=self.input_dropout,
            paths=tuple(self.paths),
            ego_gate=self.ego_gate,
            mixer_gate=self.mixer_gate,
            mean_ego=self.mean_ego,
            skip=self.skip,
            head_layers=self.head_layers,
        ).to(self.device)

    def _batch_size(self, graph: Graph, prepared: Prepared) -> int | None:
        """Return the nodes in a step: as given, else what the memory allows; None for all at once."""
        if self.batch_size is not None or prepared.fixed is None:
            return self.batch_size
        table = isinstance(prepared.fixed, PatchTable)
        if self.memory is None:
            return _TABLE_BATCH if table else None
        held = held_bytes(graph, prepared)
        batch = min(_TABLE_BATCH, 1 << (graph.n - 1).bit_length())
        while batch > _SMALLEST_BATCH and held + self.model_.step_bytes(batch, prepared.x) > self.memory:
            batch //= 2
        least = held + self.model_.step_bytes(batch, prepared.x)
        if least > self.memory:
            raise InputError(
                f"memory={self.memory / 2**30:.2f} GiB is too little: graph and program take about "
                f"{held / 2**30:.2f} GiB, with batches of {batch} nodes {least / 2**30:.2f} GiB; give more, or keep "
                "graph and patches on disk ('gpatcher store', 'gpatcher patches')"
            )
        return batch

    def _remember(self, graph: Graph, prepared: Prepared) -> None:
        self._graph, self._prepared = graph, prepared
        self._table = prepared.fixed.folder if isinstance(prepared.fixed, PatchTable) else None

    # ---- using

    def predict_proba(self, graph: Graph | None = None, nodes: Any = None, *, calibrated: bool = True) -> FloatArray:
        """Return the probability of each class, shape (len(nodes), C); by default for all nodes of the graph.

        ``calibrated=False`` gives the model's own softmax, before temperature scaling.
        """
        logits = self.decision_function(graph, nodes)
        return self.calibration_.probability(logits) if calibrated else torch.from_numpy(logits).softmax(1).numpy()

    def predict_sets(self, graph: Graph | None = None, nodes: Any = None, *, level: float = 0.9) -> npt.NDArray[Any]:
        """Return the classes that hold the true one with probability ``level``, as a mask (len(nodes), C).

        See `Calibration.sets` for what that rests on.
        """
        return self.calibration_.sets(self.decision_function(graph, nodes), level)

    def decision_function(self, graph: Graph | None = None, nodes: Any = None) -> FloatArray:
        """Return the logits, shape (len(nodes), C)."""
        check_is_fitted(self)
        graph = self._known(graph)
        return self._logits(np.arange(graph.n) if nodes is None else _node_ids(nodes, graph))

    def _logits(self, ids: IntArray) -> FloatArray:
        batch = self._batch_size(self._graph, self._prepared) or _TABLE_BATCH
        return predict_logits(self.model_, self._prepared.x, ids, batch).numpy()

    def predict(self, graph: Graph | None = None, nodes: Any = None) -> npt.NDArray[Any]:
        """Return the name of the most probable class of each node."""
        probability = self.predict_proba(graph, nodes)
        labels: npt.NDArray[Any] = self.classes_[probability.argmax(1)]
        return labels

    def score(self, graph: Graph | None = None, nodes: Any = None) -> float:
        """Return the accuracy on these nodes, by default the test nodes of the split it was fitted with."""
        check_is_fitted(self)
        graph = self._known(graph)
        ids: IntArray = self.split_.test if nodes is None else _node_ids(nodes, graph)
        ids = ids[graph.labels()[ids] >= 0]
        if not ids.size:
            raise InputError("none of these nodes has a label to compare with")
        return float((self.predict_proba(graph, ids).argmax(1) == graph.labels()[ids]).mean())

    def explain(self, node: int, graph: Graph | None = None) -> Explanation:
        """Return the node's patch and what each member adds to the decision."""
        return self.explain_nodes([node], graph)[0]

    def explain_nodes(self, nodes: Any, graph: Graph | None = None) -> list[Explanation]:
        """Explain several nodes, which shares most of the work."""
        check_is_fitted(self)
        graph = self._known(graph)
        names = [str(c) for c in self.classes_]
        temperature = self.calibration_.temperature
        return explain_nodes(
            self.model_, self._prepared.x, graph, self.split_, names, _node_ids(nodes, graph), temperature
        )

    def _known(self, graph: Graph | None) -> Graph:
        """Return the graph, made ready for this model; a saved model must be given it once."""
        if graph is None:
            if not hasattr(self, "_graph"):
                raise InputError("a loaded model does not carry its graph; pass it: predict(graph)")
            return self._graph
        if not hasattr(self, "_prepared") or not self._fits(self._prepared, graph, self.extractor_):
            self._check_edges(graph)
            prepared = self.prepare(graph, self._found_table(), extractor=self.extractor_, exact=self.exact_)
            self._attach(graph, prepared)
        self._graph = graph
        return graph

    def _found_table(self) -> Path | None:
        """Return where the patch table is that the model was trained with; an error where it is gone."""
        table: Path | None = getattr(self, "_table", None)
        if table is not None and not table.is_dir():
            settings = f"--size {self.patch_size} --c {self.c} --eps {self.eps}{' --self-loops' * self.self_loops}"
            raise InputError(
                f"the patch table {table} that the model was trained with is gone; make it again with "
                f"'gpatcher patches SOURCE {settings} --out {table}', or pass its new place (patches=, --patches)"
            )
        return table

    def _check_edges(self, graph: Graph) -> None:
        if graph.fingerprint != self.fingerprint_:
            raise InputError(
                f"the model was trained on a graph with the fingerprint {self.fingerprint_}, this one has "
                f"{graph.fingerprint}: its edges differ; train on this graph, or pass the one it was trained on"
            )

    def decision_function_new(self, newcomers: UnseenNodes) -> FloatArray:
        """Return the logits of nodes that came after training, shape (count, C).

        The answer is that of the whole graph with the newcomers in it and the same weights. With ``ppr``, and with
        ``polynomial`` where it needs no eigenvectors, walks start at the new nodes alone: the cost does not depend on
        the size of the graph (with ``structure`` it takes O(m)). The other extractors need the eigenvectors of the
        extended graph. With ``structure``, edges to newcomers are in no row: they had no column at training.
        """
        check_is_fitted(self)
        self._check_edges(newcomers.graph)
        fixed: Patches | None = None
        pairs: PairProducts | None = None
        push = (self.c, self.eps, self.self_loops)
        if self.extractor_ == "ppr":
            fixed = newcomers.patches(self.patch_size, *push)
        elif not self.exact_:
            pairs = newcomers.products(self.filters, self._candidates, *push)
        else:
            fixed, pairs = self._extract(newcomers.extended(), self.extractor_, exact=True)
            fixed = None if fixed is None else fixed[newcomers.nodes]
            pairs = (
                None if pairs is None else PairProducts(*(t[newcomers.nodes] for t in (pairs.around, pairs.products)))
            )
        # only the nodes met, under numbers of their own in the same order
        if fixed is not None:
            met = np.unique(fixed.index[fixed.index >= 0])
            fixed = Patches(localise(fixed.index, met), fixed.score)
        elif pairs is not None:
            met = np.unique(pairs.around[pairs.around >= 0].numpy())
            pairs = PairProducts(torch.from_numpy(localise(pairs.around.numpy(), met)), pairs.products)
        x = newcomers.features(met, self.normalise, self.structure, self.mass, check_device(self.device))
        graph = _with_classes(newcomers.graph, len(self.classes_))
        model = self._build(graph, Prepared(graph, self._key(self.extractor_), x, fixed, pairs, 0.0, self.exact_))
        state = self.model_.state_dict() if hasattr(self, "model_") else self._state
        state = {k: v for k, v in state.items() if not k.startswith("patches.") or k.startswith("patches.filter.")}
        _load_weights(model, state, strict=False)  # the selection is not among them: it is made anew
        model.renew()
        return predict_logits(model, x, np.arange(newcomers.count), self.batch_size or _TABLE_BATCH).numpy()

    def predict_proba_new(self, newcomers: UnseenNodes) -> FloatArray:
        """Return the calibrated probability of each class for nodes that came after training; see above."""
        return self.calibration_.probability(self.decision_function_new(newcomers))

    def predict_new(self, newcomers: UnseenNodes) -> npt.NDArray[Any]:
        """Return the name of the most probable class of each newcomer."""
        labels: npt.NDArray[Any] = self.classes_[self.predict_proba_new(newcomers).argmax(1)]
        return labels

    def _attach(self, graph: Graph, prepared: Prepared) -> None:
        """Put the fitted weights onto a graph prepared anew."""
        state = self.model_.state_dict() if hasattr(self, "model_") else self._state
        model = self._build(_with_classes(graph, len(self.classes_)), prepared)
        _load_weights(model, state)
        self.model_ = model
        self._remember(graph, prepared)

    @property
    def patches_(self) -> Patches:
        """The patches of all nodes, as the fitted filter has them."""
        check_is_fitted(self)
        self._known(None)
        return self.model_.patches.patches()

    @property
    def features_(self) -> FeatureTable:
        """The table of features that the model sees."""
        check_is_fitted(self)
        self._known(None)
        return self._prepared.x

    def filter_response(self, points: int = 201) -> FilterResponse:
        """Return λ over [-1, 1] and the response g(λ) of the filter there, learned and at the start."""
        values = np.linspace(-1.0, 1.0, points, dtype=np.float32)
        if self.extractor in (*LEARNABLE, AUTO):
            check_is_fitted(self)
        extractor: str = getattr(self, "extractor_", self.extractor)
        if extractor in LEARNABLE:
            self._known(None)
            learned = response(self.model_.patches.filter, values)  # type: ignore[arg-type]
            return FilterResponse(values, learned, response(self._filter(extractor), values))
        if extractor == "ppr":
            fixed = ppr_response(torch.from_numpy(values), self.c).numpy()
        else:
            fixed = response(FIXED[extractor](self.filters), values)
        return FilterResponse(values, fixed, fixed)

    # ---- keeping

    def save(self, folder: str | Path, source: dict[str, Any] | None = None) -> Path:
        """Write the weights (model.safetensors) and everything else (model.json) into a folder.

        ``source`` says where the graph came from, for ``gpatcher predict``.
        """
        check_is_fitted(self)
        self._known(None)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: value.contiguous().clone() for name, value in self.model_.state_dict().items()}
        state |= {
            f"split.{part}": torch.as_tensor(getattr(self.split_, part).copy()) for part in ("train", "val", "test")
        }
        state["calibration.scores"] = torch.as_tensor(self.calibration_.scores)
        safetensors.torch.save_file(state, folder / "model.safetensors")
        about = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "gpatcher": __version__,
            "parameters": self.get_params(),
            "extractor": self.extractor_,
            "exact": self.exact_,
            "compared": self.compared_,
            "classes": [str(c) for c in self.classes_],
            "fingerprint": self.fingerprint_,
            "features": int(self._prepared.x.shape[1]),
            "calibration": self.calibration_.to_dict(),
            "source": source,
            "patches": None if self._table is None else str(self._table.absolute()),
        }
        (folder / "model.json").write_text(json.dumps(about, indent=1) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path, graph: Graph | None = None, patches: str | Path | None = None) -> Self:
        """Read a saved model; pass the graph it was trained on here or to `predict`.

        ``patches`` is the place of its patch table, where that has moved.
        """
        folder = Path(folder)
        about = read_about(folder)
        try:
            state = safetensors.torch.load_file(folder / "model.safetensors")
        except (OSError, safetensors.SafetensorError) as error:
            raise InputError(f"{folder / 'model.safetensors'} is missing or damaged ({error}); train again") from None
        try:
            parameters = {**about["parameters"], "paths": tuple(about["parameters"]["paths"])}
            model = cls(**parameters)
            model.split_ = Split(*(state.pop(f"split.{part}").numpy() for part in ("train", "val", "test")))
            model.extractor_ = about.get("extractor", model.extractor)
            model.exact_ = about.get("exact", True)
            model.compared_ = about.get("compared", {})
            model.classes_ = np.array(about["classes"])
            model.fingerprint_ = about["fingerprint"]
            model.calibration_ = Calibration(**about["calibration"], scores=state.pop("calibration.scores").numpy())
        except (TypeError, KeyError) as error:
            raise InputError(f"{folder} does not hold a whole model of this version ({error}); train again") from None
        place = patches or about.get("patches")
        model._table = None if place is None else Path(place)
        model._state = state
        if graph is not None:
            model._known(graph)
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_") or hasattr(self, "_state")


def train_member(
    about: dict[str, Any], x: FeatureTable, y: IntArray, parts: tuple[IntArray, ...], tell: Callable[[Any], None]
) -> None:
    """Train as a member of a team; the first tells the others' driver of each epoch and keeps the checkpoint."""
    estimator, checkpoint = GPatcherClassifier(**about["parameters"]), about["checkpoint"]
    if not checkpoint.parent.is_dir():
        raise InputError(f"{checkpoint.parent} is not there on every machine; put it on a file system they all share")
    team = ProcessGroup(together=True)
    torch.manual_seed(estimator.seed)
    model = estimator.build(TablePatches(PatchTable.open(about["table"])), x.shape[1], about["classes"])
    first = team.rank == 0
    train(
        model,
        x,
        y,
        Split(*parts),
        about["config"],
        seed=estimator.seed,
        progress=(lambda epoch, figures: tell(("epoch", epoch, figures))) if first else None,
        checkpoint=checkpoint,
        team=team,
    )
    tell(("peak", peak_rss_mb(), None))


def table_parameters(table: PatchTable) -> dict[str, Any]:
    """Return the parameters of a classifier that trains from this table."""
    return {"extractor": "ppr", "patch_size": table.size, **table.parameters}


def _node_ids(nodes: Any, graph: Graph) -> IntArray:
    """Return node ids from ids or a mask, all of them in the graph."""
    array = np.asarray(nodes)
    array = np.flatnonzero(array) if array.dtype.kind == "b" else array.astype(np.int64)
    beyond = array[(array < 0) | (array >= graph.n)]
    if beyond.size:
        raise InputError(
            f"{counted(beyond.size, 'node is', 'nodes are')} not in the graph: {some(beyond)}; it "
            f"has 0 to {graph.n - 1}"
        )
    return array


def check_device(device: str) -> torch.device:
    """Return the device, or an error where it is not there."""
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"the device {device!r} cannot be used: {str(error).splitlines()[0]}") from None
    return place


def _with_classes(graph: Graph, count: int) -> Graph:
    return graph if graph.num_classes == count else replace(graph, classes=tuple(str(c) for c in range(count)))


def _load_weights(model: GPatcher, state: dict[str, torch.Tensor], strict: bool = True) -> None:
    try:
        model.load_state_dict(state, strict=strict)
    except RuntimeError as error:
        raise InputError(f"the weights do not fit this graph: {str(error).splitlines()[-1].strip()}") from None
