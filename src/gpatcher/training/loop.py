"""The one training loop. It knows no model's name: anything that maps (features, nodes) to logits can be trained."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpatcher.arrays import IntArray
from gpatcher.errors import InputError
from gpatcher.graph.split import Split
from gpatcher.model.inputs import FeatureTable
from gpatcher.scale.process_group import ProcessGroup
from gpatcher.training.metrics import METRICS, measure

STOPS = ("loss", *METRICS)
_CHECKPOINT_SECONDS = 30  # long epochs are kept before `checkpoint_every` of them are done


@dataclass(frozen=True)
class TrainConfig:
    """How to train; the defaults are the paper's.

    Parameters
    ----------
    lr, weight_decay : of Adam
    epochs, patience : at most so many epochs, and so many without a better validation result
    stop : what is watched on the validation nodes, ``loss`` or a metric (where it is equal, the smaller loss)
    batch_size : nodes in a step; None takes all at once
    renew_every : epochs between two selections of a learnable extractor
    filter_lr : factor on the learning rate of the filter's weights
    class_weights : weigh classes by the inverse of their size
    average : decay of a running mean of the weights, which is what is validated and kept; 0 for none
    """

    lr: float = 0.005
    weight_decay: float = 5e-4
    epochs: int = 500
    patience: int = 50
    stop: str = "loss"
    batch_size: int | None = None
    renew_every: int = 10
    filter_lr: float = 1.0
    class_weights: bool = False
    average: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lr", "epochs", "patience", "renew_every"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("weight_decay", "filter_lr"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.stop not in STOPS:
            raise InputError(f"stop must be one of {', '.join(STOPS)}, got {self.stop!r}")
        if not 0 <= self.average < 1:
            raise InputError(f"average must lie in [0, 1), got {self.average}")
        if self.batch_size is not None and self.batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {self.batch_size}")


@dataclass(frozen=True)
class FitResult:
    """What a training run gave; the model itself holds the best weights."""

    val_accuracy: float
    val_loss: float
    test_accuracy: float | None
    epochs: int
    best_epoch: int
    seconds: float
    history: list[dict[str, float]] = field(repr=False, default_factory=list)


@torch.no_grad()
def predict_logits(model: nn.Module, x: FeatureTable, nodes: IntArray, batch_size: int | None = None) -> Tensor:
    """Return the logits of these nodes without dropout, shape (len(nodes), C)."""
    model.eval()
    ids = torch.as_tensor(np.array(nodes)).to(x.device)
    parts = torch.split(ids, batch_size or max(1, len(ids)))
    return torch.cat([model(x, ready) for ready in _read_ahead(model, x, parts)]).cpu()


def _read_ahead(model: Any, x: FeatureTable, parts: Sequence[Tensor]) -> Iterator[Any]:
    """Yield what the model is to be called with for each part; the next is read while the present one is worked on."""
    if len(parts) < 2 or not getattr(model, "reads_ahead", False):
        yield from parts
        return
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(model.fetch, x, parts[0])
        for following in parts[1:]:
            ready, coming = coming.result(), reader.submit(model.fetch, x, following)
            yield ready
        yield coming.result()


def fit(
    model: nn.Module,
    x: FeatureTable,
    y: IntArray,
    split: Split,
    config: TrainConfig | None = None,
    *,
    seed: int = 0,
    progress: Callable[[int, dict[str, float]], None] | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 10,
) -> FitResult:
    """Train on ``split.train``, stop by ``split.val``, restore the best weights and score ``split.test`` once.

    Parameters
    ----------
    model : called as ``model(x, nodes)``; may have ``renew()``, called every `renew_every` epochs,
        ``parameter_groups(lr, weight_decay, filter_lr)`` and ``extra_loss(x, nodes, target)``, added to its loss
    y : classes of all nodes, shape (n,)
    progress : called after each epoch with its number and its figures
    checkpoint : a file to keep the state in; where it is there already, training goes on from it
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
    known = split.test[np.asarray(y)[split.test] >= 0]
    if known.size:
        logits = predict_logits(model, x, known, config.batch_size)
        test = _accuracy(logits, run.y[torch.as_tensor(known)])
    best = run.history[run.best_epoch - 1]
    return FitResult(best["val_accuracy"], best["val_loss"], test, run.done, run.best_epoch, run.seconds, run.history)


def train(
    model: nn.Module,
    x: FeatureTable,
    y: IntArray,
    split: Split,
    config: TrainConfig,
    *,
    seed: int = 0,
    progress: Callable[[int, dict[str, float]], None] | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int = 10,
    team: ProcessGroup | None = None,
) -> _Run:
    """Train without a look at the test nodes; see `fit`.

    In a team every member calls this with the same arguments; the first keeps the checkpoint for all. Whoever calls
    `fit` with that checkpoint afterwards gets the result of the team.
    """
    if not (np.asarray(y)[split.val] >= 0).any():
        raise InputError("the split has no validation nodes with a label; training needs them to know when to stop")
    run = _Run(model, x, torch.as_tensor(np.array(y)), split, config, seed, team or ProcessGroup())
    if checkpoint is not None and checkpoint.exists():
        run.load(checkpoint)
    run.check_team()
    kept = time.perf_counter()
    while not run.finished:
        figures = run.epoch()
        if progress is not None:
            progress(run.done, figures)
        due = run.done % checkpoint_every == 0 or run.finished or time.perf_counter() - kept > _CHECKPOINT_SECONDS
        if checkpoint is not None and run.team.rank == 0 and due:
            run.save(checkpoint)
            kept = time.perf_counter()
    return run


def _accuracy(logits: Tensor, y: Tensor) -> float:
    return float((logits.argmax(1) == y).double().mean())


class _Run:
    """The state of a training run: everything that a checkpoint must hold."""

    def __init__(
        self,
        model: nn.Module,
        x: FeatureTable,
        y: Tensor,
        split: Split,
        config: TrainConfig,
        seed: int,
        team: ProcessGroup,
    ) -> None:
        self.model, self.x, self.y, self.config, self.seed, self.team = model, x, y, config, seed, team
        self.identity = f"{split.hash} {seed} {asdict(config)}"  # what a checkpoint must belong to
        self.train = torch.as_tensor(split.train.copy()).to(x.device)
        self.target = y.to(x.device)
        self.val = split.val[y.numpy()[split.val] >= 0]
        torch.manual_seed(seed)
        if hasattr(model, "parameter_groups"):
            groups: Any = model.parameter_groups(  # type: ignore[operator]
                config.lr, config.weight_decay, config.filter_lr
            )
        else:
            groups = [{"params": list(model.parameters()), "lr": config.lr, "weight_decay": config.weight_decay}]
        self.optimiser = torch.optim.Adam(groups, fused=True)
        self.weights: Tensor | None = None
        if config.class_weights:
            counts = torch.bincount(self.target[self.train], minlength=int(y.max()) + 1).float()
            self.weights = torch.where(counts > 0, counts.sum() / counts.clamp_min(1) / (counts > 0).sum(), 0.0)
        self.mean = {name: p.detach().clone() for name, p in model.named_parameters()} if config.average else {}
        self.best: dict[str, Tensor] = {}
        self.best_epoch = 0
        self.best_key = (-math.inf, -math.inf)
        self.history: list[dict[str, float]] = []
        self.seconds = 0.0

    @property
    def done(self) -> int:
        return len(self.history)

    @property
    def finished(self) -> bool:
        return self.done >= self.config.epochs or self.done - self.best_epoch >= self.config.patience

    def epoch(self) -> dict[str, float]:
        started = time.perf_counter()
        if self.done and self.done % self.config.renew_every == 0 and hasattr(self.model, "renew"):
            self.model.renew()  # type: ignore[operator]
        self.model.train()
        if self.team.size > 1:
            torch.manual_seed(self._number(1 + self.team.rank))  # dropout of its own, the same after a restart
        parts = torch.split(self._order(), self.config.batch_size or len(self.train))
        shares = [self.team.share(part) for part in parts]
        total = 0.0
        for part, share, ready in zip(parts, shares, _read_ahead(self.model, self.x, shares), strict=True):
            self.optimiser.zero_grad(set_to_none=True)
            loss = F.cross_entropy(self.model(self.x, ready), self.target[share], weight=self.weights)
            if hasattr(self.model, "extra_loss"):
                loss = loss + self.model.extra_loss(self.x, share, self.target[share])  # type: ignore[operator]
            loss = loss * self._counts(share, part)
            loss.backward()  # type: ignore[no-untyped-call]
            self.team.add_gradients(self.model)
            self.optimiser.step()
            total += float(loss.detach()) * len(part)
        total = float(self.team.add(torch.tensor(total, dtype=torch.float64)))
        self._average()
        with self._averaged():
            logits = self.team.spread(
                self.val, lambda nodes: predict_logits(self.model, self.x, nodes, self.config.batch_size)
            )
            target = self.y[torch.as_tensor(self.val)]
            val_loss, accuracy = float(F.cross_entropy(logits, target)), _accuracy(logits, target)
            if not math.isfinite(total) or not math.isfinite(val_loss):
                raise InputError(f"the loss is not finite after epoch {self.done + 1}; lower lr={self.config.lr}")
            key = (-val_loss, accuracy)
            if self.config.stop != "loss":
                watched = measure(self.config.stop, target.numpy(), logits.softmax(1).numpy())
                if watched is None:
                    raise InputError(f"stop={self.config.stop} needs two classes among the validation nodes; use loss")
                key = (watched, -val_loss)
            figures = {"train_loss": total / len(self.train), "val_loss": val_loss, "val_accuracy": accuracy}
            self.history.append(figures)
            if key > self.best_key:
                self.best_key, self.best_epoch = key, self.done
                # a copy: the optimiser goes on writing into the weights themselves
                self.best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        self.seconds += time.perf_counter() - started
        return figures

    def _order(self) -> Tensor:
        """Return the training nodes in the order of this epoch, which follows from the seed and its number alone."""
        if (self.config.batch_size or len(self.train)) >= len(self.train):
            return self.train
        drawn = torch.Generator().manual_seed(self._number(0))
        return self.train[torch.randperm(len(self.train), generator=drawn).to(self.train.device)]

    def _number(self, stream: int) -> int:
        """Return a seed for this epoch, another for each stream of random numbers."""
        return int(np.random.SeedSequence([self.seed, self.done, stream]).generate_state(1, np.uint64)[0] >> 1)

    def _counts(self, share: Tensor, part: Tensor) -> float:
        """Return what the mean over a share counts in the mean over its batch."""
        if self.team.size == 1:
            return 1.0
        if share is part:
            return 1 / self.team.size
        if self.weights is None:
            return len(share) / len(part)
        return float(self.weights[self.target[share]].sum() / self.weights[self.target[part]].sum())

    def check_team(self) -> None:
        """Make sure that all members start from the same epoch and the same weights."""
        if not self.team.agree(self.done):
            raise InputError(
                "the workers do not read the same checkpoint; put the output on a file system that all nodes share"
            )
        self.team.start_equal(self.model.state_dict().values())

    @torch.no_grad()
    def _average(self) -> None:
        # young means forget faster, so that the first weights do not linger
        decay = min(self.config.average, (1 + self.done) / (10 + self.done))
        for name, p in self.model.named_parameters() if self.mean else ():
            self.mean[name].lerp_(p, 1 - decay)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Put the running mean in the place of the weights for a while."""
        own = {name: p.detach().clone() for name, p in self.model.named_parameters()} if self.mean else {}
        self._put(self.mean)
        yield
        self._put(own)

    @torch.no_grad()
    def _put(self, weights: dict[str, Tensor]) -> None:
        for name, p in self.model.named_parameters() if weights else ():
            p.copy_(weights[name])

    # ---- checkpoints: tensors in safetensors, the rest as JSON in its metadata; no pickle

    def save(self, path: Path) -> None:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        tensors |= {f"mean.{name}": value for name, value in self.mean.items()}
        for number, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{name}": torch.as_tensor(value) for name, value in state.items()}
        tensors["random"] = torch.get_rng_state()
        rest = {
            "identity": self.identity,
            "history": self.history,
            "best_epoch": self.best_epoch,
            "best_key": self.best_key,
            "seconds": self.seconds,
        }
        draft = path.with_name(f".{path.name}.partial")
        tensors = {name: value.contiguous().clone() for name, value in tensors.items()}
        safetensors.torch.save_file(tensors, draft, metadata={"run": json.dumps(rest)})
        draft.replace(path)

    def load(self, path: Path) -> None:
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                rest = json.loads(file.metadata()["run"])
            if rest["identity"] != self.identity:
                raise ValueError("another split, seed or configuration")
            self.model.load_state_dict(_under(tensors, "model."))
            self.best, self.mean = _under(tensors, "best."), _under(tensors, "mean.")
            state: dict[int, dict[str, Tensor]] = {}
            for name, value in _under(tensors, "optimiser.").items():
                number, _, key = name.partition(".")
                state.setdefault(int(number), {})[key] = value
            self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})
            torch.set_rng_state(tensors["random"])
            self.history, self.best_epoch = rest["history"], rest["best_epoch"]
            self.best_key, self.seconds = tuple(rest["best_key"]), rest["seconds"]
        except (safetensors.SafetensorError, KeyError, TypeError, RuntimeError, ValueError) as error:
            raise InputError(
                f"the checkpoint {path} does not belong to this run or is damaged ({str(error).splitlines()[0]}); "
                "delete it to start anew"
            ) from None


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
