"""GPatcher (Algorithm 1) and Fast-GPatcher (Algorithm 2): encode, gather, mix, classify.

The two differ only in where patches come from: a learned filter, or personalised PageRank. A model may read several
sources side by side. Shapes: b nodes in a batch, p positions in a patch, h hidden features, C classes.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gpatcher.errors import InputError, check_memory
from gpatcher.model import compiled
from gpatcher.model.config import NORMS, ModelConfig, count_parameters
from gpatcher.model.dropout import Dropout, dropout
from gpatcher.model.inputs import FeatureTable, SparseProduct
from gpatcher.model.mixer import PatchMixer
from gpatcher.model.views import PatchView, mean_weights
from gpatcher.patches.base import PatchSource

_SPARSE = 0.25  # patches with a smaller fraction of filled positions are read as a sparse matrix
CHUNK = 1 << 16  # nodes of a round at a time; larger graphs use gradient checkpointing
_PRODUCTS = 1 << 15  # positions of a batch from which sparse products save more time than it takes to build them


@dataclass(frozen=True, eq=False)
class Encoded:
    """All nodes as the last round reads them, computed once for many batches."""

    h: Tensor  # (n, h)
    rows: Tensor | None  # (n, mixer_hidden)

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.h.device


@dataclass(frozen=True, eq=False)
class Batch:
    """The input of a step: patches from each source, and the features and labels of the nodes in them."""

    nodes: Tensor  # (b,)
    views: tuple[PatchView, ...]  # one per source; index refers to rows of x; empty if rounds run over all nodes
    x: FeatureTable | Encoded  # of the distinct nodes in the patches, or of all nodes
    labels: Tensor | None = None  # (rows, C): training labels, one-hot, 0 where unknown or masked
    members: compiled.Members | None = None  # the distinct nodes, if compiled kernels read them from x, of all nodes


class Round(nn.Module):
    """One round: concatenates the node itself and, for each source, the mean of its patch and the mixed patch."""

    def __init__(self, sizes: Sequence[int], config: ModelConfig, hidden: int) -> None:
        super().__init__()
        self.config = config
        self.norm = NORMS[config.norm](hidden) if config.rounds > 1 else nn.Identity()
        self.gates = {"ego": config.ego_gate, "mean": 1.0, "mixer": config.mixer_gate}
        width = config.mixer_hidden or config.hidden
        if "mixer" in config.readout:
            narrow = nn.Linear(hidden, width) if width != hidden else nn.Identity()
            self.rows = nn.Sequential(narrow, nn.LayerNorm(width))  # per node, before the gather
            self.mixers: Sequence[PatchMixer] = nn.ModuleList(  # type: ignore[assignment]
                PatchMixer(size, width, config.layers, config.dropout, config.skip) for size in sizes
            )
        nodes = [config.hidden] * (hidden // config.hidden)  # with jump, of each round before
        widths = {"ego": nodes, "mean": nodes * len(sizes), "mixer": [width] * len(sizes)}
        self.widths = [part for name in config.readout for part in widths.get(name, [])]
        self.width = sum(self.widths)
        self.selection = nn.Parameter(torch.zeros(len(self.widths))) if config.selection else None

    def forward(self, h: Tensor, views: Sequence[PatchView], rows: Tensor | None = None) -> Tensor:
        """Return the readouts side by side, shape (b, width), of patches whose members are rows of ``h``."""
        readouts = {"ego": [views[0].ego(h)]} if "ego" in self.config.readout else {}
        if "mean" in self.config.readout:
            readouts["mean"] = [view.mean(h, *self.config.mean_weighting) for view in views]
        if "mixer" in self.config.readout:
            rows = self.rows(h) if rows is None else rows
            readouts["mixer"] = [
                compiled.mix(mixer, view, rows) if view.compiled else mixer(view.gather(rows), view.mask)
                for view, mixer in zip(views, self.mixers, strict=True)
            ]
        return self.join(readouts)

    def join(self, readouts: dict[str, list[Tensor]]) -> Tensor:
        """Return readouts side by side, gated or selected."""
        gated = [(self.gates[name], part) for name in self.config.readout for part in readouts.get(name, [])]
        read = torch.cat([part if gate == 1 else gate * part for gate, part in gated], 1)
        if self.selection is None:
            return read
        weights, parts = self.selection.softmax(0), torch.split(read, self.widths, 1)
        return torch.cat([weight * F.normalize(part, dim=1) for weight, part in zip(weights, parts, strict=True)], 1)


class GPatcher(nn.Module):
    """The whole model.

    Each node is encoded once, x → h, and patches are gathered from h, so a tensor of shape (n, p, d) is never built.
    Rows are scaled by their scores, which lets gradients reach a learned filter. With R rounds, R - 1 of them run over
    all nodes, h ← h + dropout(relu(W · round(norm(h)))) or without the sum, and the classifier reads the last; with one
    round this is Algorithm 1.

    NOTE[DIFF] the classifier reads up to three things side by side: the node itself (``ego``), the score-weighted mean
    of its patch (``mean``) and the mixed patch (``mixer``), the last two once per source. The paper, read
    literally, has the mixer alone. Under heterophily a node is unlike its patch, and its own features must not be
    averaged away; with few labels the mean generalises where the mixer overfits.

    With the readout ``labels`` the classifier also reads the training labels of the other members. In training, the
    labels of the target nodes of a step are masked, so no node's label reaches its own prediction.

    Parameters
    ----------
    sources : PatchSource or sequence of PatchSource
        Where patches come from.
    features, classes : int
        Numbers of features d and classes C.
    config : ModelConfig, optional
    labels : Tensor, shape (n,), optional
        Classes of the training nodes, -1 elsewhere, or standardised numbers, NaN elsewhere; needed if ``readout`` has
        ``labels``.
    """

    def __init__(
        self,
        sources: PatchSource | Sequence[PatchSource],
        features: int,
        classes: int,
        config: ModelConfig | None = None,
        labels: Tensor | None = None,
    ) -> None:
        super().__init__()
        config = config or ModelConfig()
        self.config, self.classes = config, classes
        modules = nn.ModuleList([sources] if isinstance(sources, PatchSource) else sources)
        self.sources: Sequence[PatchSource] = modules  # type: ignore[assignment]
        if self.reads_labels and labels is None:
            raise InputError("the readout 'labels' needs the training labels: pass labels")
        self.register_buffer("labels", labels, persistent=False)
        sizes = [source.size for source in self.sources]
        numbers = labels is not None and labels.is_floating_point()
        classifier_input = len(sizes) * (2 if numbers else classes) * self.reads_labels
        count = count_parameters(config, sizes, features, classes, classifier_input)
        advice = "lower model.hidden, model.mixer_hidden, model.layers, model.rounds or the patch size"
        check_memory(4.0 * count, f"a model with {count:,} parameters", advice)
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(features, config.hidden)))
        self.bias = nn.Parameter(torch.zeros(config.hidden))
        widths = [config.hidden] * (config.rounds - 1) + [config.hidden * (config.rounds if config.jump else 1)]
        rounds = nn.ModuleList(Round(sizes, config, width) for width in widths)
        self.rounds: Sequence[Round] = rounds  # type: ignore[assignment]
        if not config.residual:
            self.rounds[-1].norm = nn.Identity()  # its input is normalised already
        self.updates = nn.ModuleList(nn.Linear(round_.width, config.hidden) for round_ in self.rounds[:-1])
        readout = self.rounds[-1].width + classifier_input
        if config.head_layers == 1:
            self.classifier: nn.Module = nn.Linear(readout, classes)
        else:
            head = (nn.Linear(readout, config.hidden), nn.ReLU(), Dropout(config.dropout))
            self.classifier = nn.Sequential(*head, nn.Linear(config.hidden, classes))
        self._chunks: list[tuple[PatchView, ...]] = []  # patches of all nodes, if they are constant

    labels: Tensor | None

    def with_sources(self, sources: Sequence[PatchSource], labels: Tensor | None) -> GPatcher:
        """Return a model that shares all other weights, with these patch sources and labels."""
        model = copy.copy(self)
        model._modules = {**self._modules, "sources": nn.ModuleList(sources)}
        model._buffers = {**self._buffers, "labels": labels}
        model._chunks = []
        return model

    @property
    def reads_labels(self) -> bool:
        """Whether the classifier reads the training labels of members."""
        return "labels" in self.config.readout

    @property
    def target_fraction(self) -> float:
        """Maximum fraction of the training nodes that are targets of a step, with their labels masked."""
        return 0.5 if self.reads_labels else 1.0

    @property
    def reads_ahead(self) -> bool:
        """Whether a batch does not depend on the weights, so that it may be prefetched."""
        return not any(source.learned for source in self.sources)

    def encodes_once(self, x: FeatureTable, count: int, batch: int) -> bool:
        """Return whether `encode_all` saves time for ``count`` nodes in several batches, and takes little memory.

        That is no more than a training step by the modules, or than the features that are in memory.
        """
        n = x.shape[0]
        positions = count * sum(source.size for source in self.sources)
        if count <= batch or positions <= n or self.reads_all(n):
            return False
        return 4 * n * (self.config.hidden + self._row_width) <= max(self._module_bytes(batch, x), x.nbytes)

    @property
    def _row_width(self) -> int:
        return (self.config.mixer_hidden or self.config.hidden) if "mixer" in self.config.readout else 0

    def encode_all(self, x: FeatureTable) -> Encoded:
        """Return all nodes as the last round reads them."""
        n, last = x.shape[0], self.rounds[-1]
        h = torch.empty(n, self.config.hidden, device=x.device)
        rows = torch.empty(n, self._row_width, device=x.device) if self._row_width else None
        for nodes in torch.split(torch.arange(n, device=x.device), CHUNK):
            part = slice(int(nodes[0]), int(nodes[-1]) + 1)
            h[part] = last.norm(self.encode(x.take(nodes), self.compiles(x)))
            if rows is not None:
                rows[part] = last.rows(h[part])
        return Encoded(h, rows)

    def fetch(self, x: FeatureTable | Encoded, nodes: Tensor) -> Batch:
        """Return the input of `forward` for these nodes; with fixed patches it can be prefetched."""
        labels = self.known_labels(nodes if self.training else None)
        if not isinstance(x, Encoded) and self.reads_all(x.shape[0]):
            return Batch(nodes, (), x, labels)
        views = self._views(nodes)
        entries = sum(view.index.numel() for view in views)
        if entries >= _PRODUCTS and self.compiles(x):
            views = [replace(view, compiled=True) for view in views]
        if isinstance(x, Encoded):
            return Batch(nodes, tuple(views), x, labels)
        if self._reads_members(x, entries):
            members, views = compiled.find_members(views, x.shape[0], self.config.mean_weighting)
            labels = None if labels is None else labels[members.nodes]
            if x.dense is None or not x.dense.is_contiguous():
                x, members = x.take(members.nodes), replace(members, nodes=torch.arange(len(members.nodes)))
            return Batch(nodes, tuple(views), x, labels, members)
        if x.mapped or entries < x.shape[0]:  # a small batch: only the nodes in its patches
            members, inverse = torch.unique(torch.cat([view.index.flatten() for view in views]), return_inverse=True)
            parts = torch.split(inverse, [view.index.numel() for view in views])
            views = [replace(view, index=part.view_as(view.index)) for part, view in zip(parts, views, strict=True)]
            x, labels = x.take(members), None if labels is None else labels[members]
        if self.training and x.device.type == "cpu" and entries >= _PRODUCTS:
            views = [self._with_products(view, s, x.shape[0]) for view, s in zip(views, self.sources, strict=True)]
        return Batch(nodes, tuple(views), x, labels)

    def compiles(self, x: FeatureTable | Encoded) -> bool:
        """Return whether compiled kernels encode and mix: on a CPU, if the graph has more than 65,536 nodes.

        Small batches are left to the modules all the same.
        """
        n = len(x.h) if isinstance(x, Encoded) else x.shape[0]
        return x.device.type == "cpu" and n > CHUNK and self.weight.dtype == torch.float32

    def _reads_members(self, x: FeatureTable, entries: int) -> bool:
        """Return whether compiled kernels gather too: with dense features, and patches that are fixed."""
        dense = x.mapped or x.dense is not None
        return dense and entries >= _PRODUCTS and self.compiles(x) and self.reads_ahead and self.config.rounds == 1

    def _with_products(self, view: PatchView, source: PatchSource, n: int) -> PatchView:
        """Return a view of fixed patches as sparse matrices, whose gradients are faster than those of a gather."""
        if source.learned:
            return view
        if "mean" in self.config.readout:
            means = FeatureTable(mean_weights(view, n, *self.config.mean_weighting))
            means._product  # noqa: B018  # built here, so that a prefetching thread does this work
            view = replace(view, means=means)
        if "mixer" in self.config.readout:
            count = view.index.numel()
            entries = (np.ones(count, np.float32), view.index.flatten().numpy(), np.arange(count + 1))
            view = replace(view, members=SparseProduct(sp.csr_array(entries, shape=(count, n))))
        return view

    def reads_all(self, n: int) -> bool:
        """Return whether a step runs over all nodes: with several rounds, or if most positions of patches are empty.

        A sparse product over all nodes is then faster than a gather of padded patches.
        """
        if self.config.rounds > 1:
            return True
        if n > CHUNK or "mixer" in self.config.readout or any(source.rows != n for source in self.sources):
            return False
        filled = sum(source.fill * source.size for source in self.sources)
        return filled < _SPARSE * sum(source.size for source in self.sources)

    def _views(self, nodes: Tensor) -> list[PatchView]:
        pairs = [source(nodes) for source in self.sources]
        return [PatchView(index.clamp_min(0), score, (index >= 0).to(score.dtype)) for index, score in pairs]

    def known_labels(self, masked: Tensor | None = None) -> Tensor | None:
        """Return the training labels without those of the masked nodes, and scaled up to compensate.

        They are one-hot; numbers are followed by a column that says whether they are known.
        """
        if not self.reads_labels or self.labels is None:
            return None
        y = self.labels
        numbers = y.is_floating_point()
        scale = 1.0
        if masked is not None:
            y = y.index_fill(0, masked, torch.nan if numbers else -1)
            known, left = (labels.isfinite() if numbers else labels >= 0 for labels in (self.labels, y))
            scale = float(known.sum() / left.sum().clamp_min(1))
        if numbers:
            return torch.stack([y.nan_to_num(0.0), y.isfinite().to(y.dtype)], 1) * scale
        return F.one_hot(y + 1, self.classes + 1)[:, 1:].to(self.weight.dtype) * scale

    def forward(self, x: FeatureTable | Encoded, nodes: Tensor | Batch) -> Tensor:
        """Return the logits of these nodes, or of a batch fetched for them, shape (b, C)."""
        batch = nodes if isinstance(nodes, Batch) else self.fetch(x, nodes)
        if isinstance(batch.x, Encoded):
            return self._head(self.rounds[-1](batch.x.h, batch.views, batch.x.rows), batch.views, batch.labels)
        if batch.members is not None:
            return self._head(self._read(batch, batch.members), batch.views, batch.labels)
        h = self.encode(batch.x, any(view.compiled for view in batch.views))
        if batch.views:
            return self.classify(h, batch.views, batch.labels)
        chunks = self._all_views(len(h), h.device)
        h = self.propagate(h, [chunks] * len(self.updates))
        if len(chunks) == 1:  # a product with all rows is faster than gathering some
            return self.classify(h, chunks[0], batch.labels)[batch.nodes]
        parts = torch.split(batch.nodes, CHUNK)
        return torch.cat([self.classify(h, self._views(part), batch.labels) for part in parts])

    def encode(self, x: FeatureTable, by_kernel: bool = False) -> Tensor:
        """Return the encoding of each node, which is the first channel mixing; shape (n, h).

        With ``by_kernel`` a compiled kernel encodes dense features, with other bits.
        """
        if by_kernel and x.dense is not None:
            dropouts = (self.config.input_dropout, self.config.dropout) if self.training else (0.0, 0.0)
            return compiled.encode(x.dense, self.weight, self.bias, *dropouts)
        z = x.linear(self.weight, self.config.input_dropout if self.training else 0.0) + self.bias
        return dropout(F.relu(z), self.config.dropout, self.training)

    def _read(self, batch: Batch, members: compiled.Members) -> Tensor:
        """Return what the round reads of a batch, by compiled kernels that encode its members and gather them."""
        x: Any = batch.x
        last, narrow, mixed = self.rounds[-1], None, []
        if "mixer" in self.config.readout:
            narrow = last.rows
        dropouts = (self.config.input_dropout, self.config.dropout) if self.training else (0.0, 0.0)
        encoder = self.weight, self.bias
        ego, means, patches = compiled.read(x.dense, members, batch.views, encoder, dropouts, narrow)
        if narrow is not None:
            triples = zip(last.mixers, patches, batch.views, strict=True)
            mixed = [compiled.mix_patches(mixer, z, view.mask) for mixer, z, view in triples]
        return last.join({"ego": [ego], "mean": means, "mixer": mixed})

    def propagate(self, h: Tensor, patches: Sequence[Sequence[Sequence[PatchView]]]) -> Tensor:
        """Return the input of the last round, shape (n, h), or (n, R h) with ``jump``.

        ``patches`` are those of all nodes in chunks, for each round before the last; or of the first nodes, if later
        rounds read no others. The result then has as many rows.
        """
        residual = self.config.residual
        outputs = [h]
        for round_, update, chunks in zip(self.rounds[:-1], self.updates, patches, strict=True):
            z = round_.norm(h) if residual else h

            def read(views: Sequence[PatchView], z: Tensor = z, round_: Any = round_, update: Any = update) -> Tensor:
                out: Tensor = update(round_(z, views))
                return dropout(F.relu(out), self.config.dropout, self.training) if residual else out

            if len(chunks) > 1 and torch.is_grad_enabled():
                parts = [checkpoint(read, views, use_reentrant=False) for views in chunks]
            else:
                parts = [read(views) for views in chunks]
            out = torch.cat(parts)
            if residual:
                h = h[: out.shape[0]] + out
            else:
                h = dropout(F.relu(round_.norm(out)), self.config.dropout, self.training)
            outputs.append(h)
        return torch.cat([output[: h.shape[0]] for output in outputs], 1) if self.config.jump else h

    def _all_views(self, n: int, device: torch.device) -> list[tuple[PatchView, ...]]:
        """Return the patches of all nodes in chunks; those of fixed sources are built once."""
        if self._chunks and self._chunks[0][0].index.device == device:
            return self._chunks
        chunks = []
        for nodes in torch.split(torch.arange(n, device=device), CHUNK):
            views = [replace(view, first=int(nodes[0])) for view in self._views(nodes)]
            for i, source in enumerate(self.sources):
                if "mean" in self.config.readout and not source.learned:
                    weights = mean_weights(views[i], n, *self.config.mean_weighting)
                    views[i] = replace(views[i], means=FeatureTable(weights, device))
                if self.reads_labels and not source.learned:
                    counts = FeatureTable(mean_weights(views[i], n, ego=False, divide=True), device)
                    views[i] = replace(views[i], counts=counts)
            chunks.append(tuple(views))
        if self.reads_ahead:
            self._chunks = chunks
        return chunks

    def classify(self, h: Tensor, views: Sequence[PatchView], labels: Tensor | None = None) -> Tensor:
        """Return the logits of patches whose members are rows of ``h`` (and of ``labels``, one-hot), shape (b, C)."""
        last = self.rounds[-1]
        return self._head(last(last.norm(h), views), views, labels)

    def _head(self, readout: Tensor, views: Sequence[PatchView], labels: Tensor | None) -> Tensor:
        if self.reads_labels:
            if labels is None:
                raise InputError("the readout 'labels' needs the labels of the members: pass labels")
            readout = torch.cat([readout, *(view.histogram(labels) for view in views)], 1)
        logits: Tensor = self.classifier(dropout(readout, self.config.dropout, self.training))
        return logits

    def step_bytes(self, batch: int, x: FeatureTable) -> int:
        """Estimate the bytes of a training step on ``batch`` nodes, with the next batch prefetched.

        The 4-byte numbers that are alive in the backward pass, from the widths of the model. By compiled kernels:

            r (8 + h + 2 m) + b p (50 + 2 m) + 8 b w, and 3 r d where features are memory-mapped,

        by the modules:

            r (5 d + 8 h) + b p (30 + 3 h + m (18 L - 2)),

        b nodes with p positions over all sources, r = min(b p, n) distinct nodes, d features (non-zeros where sparse),
        h hidden, m the width of the mixer and L its layers, w the width of what the classifier reads.
        """
        positions = batch * sum(source.size for source in self.sources)
        if not self._reads_members(x, positions):
            return self._module_bytes(batch, x)
        rows, width = min(positions, x.shape[0]), self._row_width
        per_row = 8 + self.config.hidden + 2 * width + 3 * x.width * x.mapped
        return 4 * (rows * per_row + positions * (50 + 2 * width) + 8 * batch * self.rounds[-1].width)

    def _module_bytes(self, batch: int, x: FeatureTable) -> int:
        """Estimate the bytes of a step by the modules, see `step_bytes`."""
        positions = batch * sum(source.size for source in self.sources)
        hidden = self.config.hidden
        rows = min(positions, x.shape[0])
        per_position = 30 + 3 * hidden * ("mean" in self.config.readout)
        if "mixer" in self.config.readout:
            per_position += self._row_width * (18 * self.config.layers - 2)
        return 4 * (rows * (5 * x.width + 8 * hidden) + positions * per_position)

    def check_training_memory(self, rows: int) -> None:
        """Raise if weights, gradients, Adam's moments and the best weights, and ``rows`` encoded nodes, cannot fit."""
        count = sum(p.numel() for p in self.parameters())
        # by row: the encoding before and after ReLU, and each round
        needed = 20.0 * count + 4.0 * rows * self.config.hidden * (1 + self.config.rounds)
        what = f"training {count:,} parameters on {rows:,} nodes at once"
        check_memory(needed, what, "lower model.hidden, model.mixer_hidden or model.rounds, or set train.batch_size")

    def reselect(self) -> None:
        """Select the members of patches again in every source, by the current weights of its filter."""
        for source in self.sources:
            source.reselect()

    def parameter_groups(self, lr: float, weight_decay: float, filter_lr: float) -> list[dict[str, object]]:
        """Return parameter groups; filters have their own learning rate, they and selections no weight decay."""
        filters = [p for source in self.sources for p in source.parameters()]
        selections = [round_.selection for round_ in self.rounds if round_.selection is not None]
        ids = {id(p) for p in (*filters, *selections)}
        rest = [p for p in self.parameters() if id(p) not in ids]
        groups = [(rest, lr, weight_decay), (filters, lr * filter_lr, 0.0), (selections, lr, 0.0)]
        return [{"params": params, "lr": rate, "weight_decay": decay} for params, rate, decay in groups if params]
