"""The training loop of all models: trains any module that maps (features, nodes) to logits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError, check_at_least, check_choice, check_fraction, counted, some
from gpatcher.graph.split import Split, is_labelled
from gpatcher.model.gpatcher import Encoded, GPatcher
from gpatcher.model.inputs import FeatureTable
from gpatcher.scale.process_group import ProcessGroup
from gpatcher.training.allocator import reuse_memory
from gpatcher.training.checkpoint import checkpoint_error, read_checkpoint, write_checkpoint
from gpatcher.training.metrics import METRICS, REGRESSION_METRICS
from gpatcher.training.task import task_of

MONITORS = ("loss", *METRICS, *REGRESSION_METRICS, "last")
Progress = Callable[[int, dict[str, float]], None]  # called with the epoch and its metrics
_CHECKPOINT_SECONDS = 30  # long epochs are saved before `checkpoint_every` of them are done
_LONGER = 4  # batches of a prediction, whose patches take little memory in compiled kernels, than of training
_UNLABELLED = 512  # nodes without a training label in a step with a consistency loss, unless batches are given
_DRAWS = 1 << 32  # stream of random numbers that draws them; those below are of the order and of the processes
_CONFIDENCE = 0.3  # of the way from the uniform to a certain prediction: from here on the passes should agree


@dataclass(frozen=True)
class TrainConfig:
    """Training parameters; the defaults are the paper's.

    Parameters
    ----------
    lr, weight_decay : float
        Of Adam.
    epochs : int
        Maximum number of epochs.
    patience : int
        Epochs without a better validation result after which training stops.
    monitor : str
        What is monitored on the validation nodes: ``loss`` or a metric (ties are broken by the loss). With ``last``
        all epochs are trained and the last weights are kept; without validation nodes the training nodes are measured.
        In a regression a metric of classes stands for R².
    batch_size : int, optional
        Nodes per step; None for all at once.
    reselect_every : int
        Epochs between two selections of patch members by a learned filter.
    filter_lr : float
        Learning rate of the filter's weights, as a factor on ``lr``.
    class_weights : bool
        Whether to weight classes by the inverse of their size.
    ema_decay : float
        Decay of an exponential moving average of the weights, which is then validated and kept; 0 for none.
    consistency : float
        Weight of a consistency loss (GRAND, Feng et al., 2020); 0 for none. A step then has two passes with different
        dropout and also reads nodes without a training label, on which the passes should agree (`disagreement`). It
        helps where few nodes have labels; for classes only.
    """

    lr: float = 0.005
    weight_decay: float = 5e-4
    epochs: int = 500
    patience: int = 50
    monitor: str = "loss"
    batch_size: int | None = None
    reselect_every: int = 10
    filter_lr: float = 1.0
    class_weights: bool = False
    ema_decay: float = 0.0
    consistency: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lr", "epochs", "patience", "reselect_every"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0, got {getattr(self, name)}")
        check_at_least(0, weight_decay=self.weight_decay, filter_lr=self.filter_lr, consistency=self.consistency)
        check_choice("monitor", self.monitor, MONITORS)
        check_fraction("ema_decay", self.ema_decay)
        if self.batch_size is not None:
            check_at_least(1, batch_size=self.batch_size)


@dataclass(frozen=True)
class FitResult:
    """Metrics of a training run; the model itself has the best weights."""

    val_accuracy: float | None  # None in a regression
    val_loss: float
    test_accuracy: float | None
    epochs: int
    best_epoch: int
    seconds: float
    history: list[dict[str, float]] = field(repr=False, default_factory=list)


def predict_logits(
    model: nn.Module, x: FeatureTable | Encoded, nodes: IntArray, batch_size: int | None = None
) -> Tensor:
    """Return the logits of these nodes without dropout, shape (len(nodes), C); non-finite ones are an error."""
    several = batch_size is not None and batch_size < len(nodes)
    with reuse_memory() if several else nullcontext():
        logits = _logits(model, x, nodes, batch_size)
    finite = logits.isfinite().all(1)
    if not finite.all():
        bad = np.asarray(nodes)[~finite.numpy()]
        raise InputError(
            f"the model's output is not a finite number for {counted(bad.size, 'node')} of {len(nodes):,}: "
            f"{some(bad)}; check the features of these nodes for extreme values, or train with a lower lr"
        )
    return logits


def disagreement(logits: Tensor) -> Tensor:
    """Return the consistency loss of several passes: their squared distance to the sharpened mean, where that is sure.

    With the predictions p_s of S passes and their mean p̄, it is the mean over nodes and passes of

        ‖p_s - q‖²,  q = p̄² / Σ_c p̄_c²,

    without a gradient through q. Nodes with max p̄ at most 1/C + 0.3 (1 - 1/C) count as 0, as in GRAND+ (Feng et al.,
    2022): noise between unsure passes would otherwise drive all predictions to the uniform one.

    Parameters
    ----------
    logits : Tensor, shape (S, b, C)

    Examples
    --------
    >>> sure, unsure = torch.tensor([[3.0, -3.0]]), torch.tensor([[0.1, -0.1]])
    >>> [round(float(disagreement(torch.stack([one, 0.5 * one]))), 4) for one in (sure, unsure)]
    [0.0022, 0.0]
    """
    p = logits.softmax(2)
    mean = p.detach().mean(0)
    uniform = 1 / logits.shape[2]
    sure = mean.amax(1) > uniform + _CONFIDENCE * (1 - uniform)
    q = mean.square()
    distance = (p - q / q.sum(1, keepdim=True)).square().sum(2)
    return (distance * sure).mean()


@torch.no_grad()
def _logits(model: Any, x: FeatureTable | Encoded, nodes: IntArray, batch_size: int | None = None) -> Tensor:
    model.eval()
    ids = torch.as_tensor(np.array(nodes)).to(x.device)
    batch_size = batch_size or max(1, len(ids))
    parts = torch.split(ids, batch_size)
    if not isinstance(x, Encoded) and isinstance(model, GPatcher) and model.encodes_once(x, len(ids), batch_size):
        x = model.encode_all(x)
        if model.compiles(x):
            parts = torch.split(ids, _LONGER * batch_size)
    return torch.cat([model(x, batch) for batch in _read_ahead(model, x, parts)]).cpu()


def _read_ahead(model: Any, x: FeatureTable | Encoded, parts: Sequence[Tensor]) -> Iterator[Any]:
    """Yield the input of the model for each batch; the next is prefetched while the current one is in use."""
    if len(parts) < 2 or not getattr(model, "reads_ahead", False):
        yield from parts
        return
    with ThreadPoolExecutor(1) as reader:
        pending = reader.submit(model.fetch, x, parts[0])
        for part in parts[1:]:
            batch, pending = pending.result(), reader.submit(model.fetch, x, part)
            yield batch
        yield pending.result()


def fit(
    model: nn.Module,
    x: FeatureTable,
    y: IntArray,
    split: Split,
    config: TrainConfig | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 10,
) -> FitResult:
    """Train on ``split.train``, stop early by ``split.val``, restore the best weights and score ``split.test`` once.

    The model is called as ``model(x, nodes)``. It may have ``reselect()``, called every `reselect_every` epochs,
    ``parameter_groups(lr, weight_decay, filter_lr)`` and ``extra_loss(x, nodes, target)``, added to the loss. If the
    ``checkpoint`` exists, training continues from it.
    """
    config = config or TrainConfig()
    run = train(
        model,
        x,
        y,
        split,
        config,
        seed=seed,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )
    model.load_state_dict(run.best)
    test = None
    labelled = split.test[is_labelled(np.asarray(y)[split.test])]
    if labelled.size and run.task.metric == "accuracy":
        logits = predict_logits(model, x, labelled, config.batch_size)
        test = run.task.measure("accuracy", logits, run.y[torch.as_tensor(labelled)])
    best = run.history[run.best_epoch - 1]
    accuracy = best.get("val_accuracy")
    return FitResult(accuracy, best["val_loss"], test, run.done, run.best_epoch, run.seconds, run.history)


def train(
    model: nn.Module,
    x: FeatureTable,
    y: IntArray,
    split: Split,
    config: TrainConfig,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 10,
    group: ProcessGroup | None = None,
) -> TrainingRun:
    """Train without reading the test nodes; see `fit`.

    In a process group every process calls this with the same arguments, and the first writes the checkpoint. A call of
    `fit` with that checkpoint afterwards returns the result of the group.
    """
    if config.monitor != "last" and not is_labelled(np.asarray(y)[split.val]).any():
        raise InputError("the split has no validation nodes with a label; training needs them for early stopping")
    run = TrainingRun(model, x, np.asarray(y), split, config, seed, group or ProcessGroup())
    if checkpoint is not None and checkpoint.exists():
        run.load(checkpoint)
    run.check_group()
    saved = time.perf_counter()
    with reuse_memory():
        while not run.finished:
            figures = run.epoch()
            if progress is not None:
                progress(run.done, figures)
            due = run.done % checkpoint_every == 0 or run.finished or time.perf_counter() - saved > _CHECKPOINT_SECONDS
            if checkpoint is not None and run.group.rank == 0 and due:
                run.save(checkpoint)
                saved = time.perf_counter()
    return run


class TrainingRun:
    """The state of a training run, as saved in checkpoints."""

    def __init__(
        self,
        model: nn.Module,
        x: FeatureTable,
        y: npt.NDArray[Any],
        split: Split,
        config: TrainConfig,
        seed: int,
        group: ProcessGroup,
    ) -> None:
        self.model, self.x, self.config, self.seed, self.group = model, x, config, seed, group
        self.task = task_of(y, split.train)
        self.y = self.task.target(y)
        self.identity = f"{split.hash} {seed} {asdict(config)}"
        self.train = torch.as_tensor(split.train.copy()).to(x.device)
        # a model that reads labels needs some that are not targets of the step
        targets = math.ceil(len(self.train) * getattr(model, "target_fraction", 1.0))
        self.batch_size = min(config.batch_size or targets, targets)
        self.target = self.y.to(x.device)
        self.val = split.val[is_labelled(y[split.val])]
        if config.monitor == "last" and not self.val.size:
            self.val = split.train.copy()
        torch.manual_seed(seed)
        if hasattr(model, "parameter_groups"):
            groups: Any = model.parameter_groups(  # type: ignore[operator]
                config.lr, config.weight_decay, config.filter_lr
            )
        else:
            groups = [{"params": list(model.parameters()), "lr": config.lr, "weight_decay": config.weight_decay}]
        self.optimiser = torch.optim.Adam(groups, fused=True)
        self.weights: Tensor | None = None
        for name in ("class_weights", "consistency"):
            if getattr(config, name) and self.task.metric != "accuracy":
                raise InputError(f"{name} is for classes; a regression has none: leave it out")
        if config.class_weights:
            counts = torch.bincount(self.target[self.train], minlength=int(y.max()) + 1).float()
            self.weights = torch.where(counts > 0, counts.sum() / counts.clamp_min(1) / (counts > 0).sum(), 0.0)
        self.mean = {name: p.detach().clone() for name, p in model.named_parameters()} if config.ema_decay else {}
        self.best: dict[str, Tensor] = {}
        self.best_epoch = 0
        self.best_key = (-math.inf, -math.inf)
        self.history: list[dict[str, float]] = []
        self.seconds = 0.0

    @property
    def done(self) -> int:
        """Epochs done."""
        return len(self.history)

    @property
    def finished(self) -> bool:
        """Whether training has ended."""
        return self.done >= self.config.epochs or self.done - self.best_epoch >= self.config.patience

    def epoch(self) -> dict[str, float]:
        """Train for one epoch, validate, and return the metrics."""
        started = time.perf_counter()
        if self.done and self.done % self.config.reselect_every == 0 and hasattr(self.model, "reselect"):
            self.model.reselect()  # type: ignore[operator]
        self.model.train()
        if self.group.size > 1:
            torch.manual_seed(self._number(1 + self.group.rank))  # dropout of this process, the same after a restart
        parts = torch.split(self._order(), self.batch_size)
        shares = [self.group.share(part) for part in parts]
        inputs = self._with_unlabelled(shares) if self.config.consistency else shares
        total = 0.0
        for part, share, batch in zip(parts, shares, _read_ahead(self.model, self.x, inputs), strict=True):
            self.optimiser.zero_grad(set_to_none=True)
            loss = self._loss(batch, share, part)
            loss.backward()  # type: ignore[no-untyped-call]
            self.group.add_gradients(self.model)
            self.optimiser.step()
            total += float(loss.detach()) * len(part)
        total = float(self.group.add(torch.tensor(total, dtype=torch.float64)))
        self._average()
        with self._averaged():
            logits = self.group.spread(
                self.val, lambda nodes: _logits(self.model, self.x, nodes, self.config.batch_size)
            )
            target = self.y[torch.as_tensor(self.val)]
            val_loss, score = float(self.task.loss(logits, target)), self.task.measure(self.task.metric, logits, target)
            score = -math.inf if score is None else score  # all validation labels are equal
            if not math.isfinite(total) or not math.isfinite(val_loss):
                raise InputError(f"the loss is not finite after epoch {self.done + 1}; lower lr={self.config.lr}")
            key = (-val_loss, score)
            if self.config.monitor == "last":
                key = (float(self.done), 0.0)
            elif self.config.monitor != "loss":
                metric = self.task.measure(self.config.monitor, logits, target)
                if metric is None:
                    raise InputError(f"monitor={self.config.monitor} needs two classes among the validation nodes")
                key = (metric, -val_loss)
            figures = {"train_loss": total / len(self.train), "val_loss": val_loss, f"val_{self.task.metric}": score}
            self.history.append(figures)
            if key > self.best_key:
                self.best_key, self.best_epoch = key, self.done
                # a copy: the optimiser keeps writing into the weights
                self.best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.seconds += time.perf_counter() - started
        return figures

    def _loss(self, batch: Any, share: Tensor, part: Tensor) -> Tensor:
        """Return the loss of this process's share of a batch; nodes without a label follow it in the model's input."""
        passes = 2 if self.config.consistency else 1
        outputs = torch.stack([self.model(self.x, batch) for _ in range(passes)])
        labelled, unlabelled = outputs[:, : len(share)], outputs[:, len(share) :]
        loss = self.task.loss(labelled.flatten(0, 1), self.target[share].repeat(passes), self.weights)
        if hasattr(self.model, "extra_loss"):
            loss = loss + self.model.extra_loss(self.x, share, self.target[share])  # type: ignore[operator]
        loss = loss * self._fraction(share, part)
        if unlabelled.shape[1]:
            loss = loss + disagreement(unlabelled) * (self.config.consistency / self.group.size)
        return loss

    def _with_unlabelled(self, shares: Sequence[Tensor]) -> list[Tensor]:
        """Return the nodes of each step, followed by nodes without a training label that are drawn for this epoch."""
        mask = torch.ones(self.x.shape[0], dtype=torch.bool, device=self.train.device)
        mask[self.train] = False
        rest = mask.nonzero().flatten()
        count = min(len(rest), self.config.batch_size or _UNLABELLED)
        if count > self.group.size:
            count -= count % self.group.size  # every process has the same number
        generator = torch.Generator().manual_seed(self._number(_DRAWS))
        draws = [rest[torch.randperm(len(rest), generator=generator)[:count].to(rest.device)] for _ in shares]
        return [torch.cat([share, self.group.share(drawn)]) for share, drawn in zip(shares, draws, strict=True)]

    def _order(self) -> Tensor:
        """Return the training nodes in the order of this epoch, which depends only on the seed and the epoch."""
        if self.batch_size >= len(self.train):
            return self.train
        generator = torch.Generator().manual_seed(self._number(0))
        return self.train[torch.randperm(len(self.train), generator=generator).to(self.train.device)]

    def _number(self, stream: int) -> int:
        """Return the seed of a stream of random numbers in this epoch."""
        return int(np.random.SeedSequence([self.seed, self.done, stream]).generate_state(1, np.uint64)[0] >> 1)

    def _fraction(self, share: Tensor, part: Tensor) -> float:
        """Return the weight of this process's mean loss in the mean over the batch."""
        if self.group.size == 1:
            return 1.0
        if share is part:
            return 1 / self.group.size
        if self.weights is None:
            return len(share) / len(part)
        return float(self.weights[self.target[share]].sum() / self.weights[self.target[part]].sum())

    def check_group(self) -> None:
        """Check that all processes start from the same epoch, and give them the same weights."""
        if not self.group.agree(self.done):
            raise InputError(
                "the workers do not read the same checkpoint; put the output on a file system that all machines share"
            )
        self.group.start_equal(self.model.state_dict().values())

    @torch.no_grad()
    def _average(self) -> None:
        # the decay is smaller at first, so that the initial weights are forgotten; not so in torch's AveragedModel
        decay = min(self.config.ema_decay, (1 + self.done) / (10 + self.done))
        for name, p in self.model.named_parameters() if self.mean else ():
            self.mean[name].lerp_(p, 1 - decay)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Replace the weights by their moving average within the block."""
        own = {name: p.detach().clone() for name, p in self.model.named_parameters()} if self.mean else {}
        self._put(self.mean)
        yield
        self._put(own)

    @torch.no_grad()
    def _put(self, weights: dict[str, Tensor]) -> None:
        for name, p in self.model.named_parameters() if weights else ():
            p.copy_(weights[name])

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        optimiser = {
            f"{number}.{name}": torch.as_tensor(value)
            for number, state in self.optimiser.state_dict()["state"].items()
            for name, value in state.items()
        }
        groups = {"model": self.model.state_dict(), "best": self.best, "mean": self.mean, "optimiser": optimiser}
        values = {name: getattr(self, name) for name in ("history", "best_epoch", "best_key", "seconds")}
        write_checkpoint(path, self.identity, groups, values)

    def load(self, path: Path) -> None:
        """Continue from a checkpoint."""
        groups, values = read_checkpoint(path, self.identity, ("model", "best", "mean", "optimiser"))
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in groups["optimiser"].items():
            number, _, key = name.partition(".")
            state.setdefault(int(number), {})[key] = value
        try:
            self.model.load_state_dict(groups["model"])
            self.best, self.mean = groups["best"], groups["mean"]
            self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})
            self.history, self.best_epoch = values["history"], values["best_epoch"]
            self.best_key, self.seconds = tuple(values["best_key"]), values["seconds"]
        except (KeyError, TypeError, RuntimeError, ValueError) as error:
            raise checkpoint_error(path, error) from None
