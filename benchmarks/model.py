"""Three ratios: a learned filter to a fixed one, encoding before or after the gather, extraction to its spectrum.

python benchmarks/model.py    (needs the files of Cora, Chameleon and Squirrel in $GPATCHER_DATA)
"""

import json
import subprocess
import sys

import numpy as np
import record
import scipy.linalg
import torch
import torch.nn.functional as F
from torch import Tensor

from gpatcher.datasets.load import load_dataset
from gpatcher.estimator.classifier import GPatcherClassifier
from gpatcher.model.config import ModelConfig
from gpatcher.model.gpatcher import GPatcher
from gpatcher.model.inputs import FeatureConfig, node_features
from gpatcher.patches import PPR, Patches, make_extractor
from gpatcher.patches.ppr import push_patches
from gpatcher.patches.spectral import spectral_patches
from gpatcher.spectral.filters import Adaptive, response
from gpatcher.spectral.spectrum import eigenpairs
from gpatcher.training.loop import TrainConfig

EPOCHS = 60


def learning(name: str) -> dict[str, object]:
    """Compare an epoch with a learned filter, reselection included, with one of the same model on fixed patches."""
    graph = load_dataset(name)
    seconds = {}
    for extractor in ("ppr", "heterophily-aware"):
        model = GPatcherClassifier(
            patches=make_extractor(extractor, {"size": 16}),
            features=FeatureConfig(normalise="l2"),
            train=TrainConfig(epochs=EPOCHS, patience=EPOCHS),
        )
        prepared = model.prepare(graph)
        seconds[extractor] = min(model.fit(graph, 0, prepared=prepared).result_.seconds / EPOCHS for _ in range(2))
    ratio = seconds["heterophily-aware"] / seconds["ppr"]
    ms = {extractor: 1000 * value for extractor, value in seconds.items()}
    return {"what": f"learned / fixed epoch, {name}", "ours_ms": ms["heterophily-aware"], "peer_ms": ms["ppr"]} | {
        "ratio": ratio,
        "bound": "at most 2",
    }


class Literal(GPatcher):
    """The same model with the gather before the encoder, as in Algorithm 1: it builds a tensor [n, p, d]."""

    def forward(self, x: Tensor, nodes: Tensor) -> Tensor:  # type: ignore[override]
        """Return the logits of these nodes."""
        index, score = self.sources[0](nodes)
        mask = (index >= 0).to(score.dtype)
        rows = F.relu(x[index.clamp_min(0)] @ self.weight + self.bias)
        scale = score * mask.sum(1, keepdim=True) / score.abs().sum(1, keepdim=True).clamp_min(1e-9)
        weight = torch.cat([torch.zeros_like(score[:, :1]), score[:, 1:]], 1)
        weight = weight / weight.abs().sum(1, keepdim=True).clamp_min(1e-9)
        mean = torch.bmm(weight[:, None], rows).squeeze(1)
        mixed = self.mixers[0](self.rows(rows) * scale[..., None], mask)
        return self.classifier(torch.cat([rows[:, 0], mean, mixed], 1))


def gather_step(variant: str) -> None:
    """Run training steps on all of Cora in this process; print seconds, peak memory and the first logits."""
    graph = load_dataset("cora")
    torch.manual_seed(0)
    source = push_patches(graph, PPR(size=32)).source()
    build = Literal if variant == "literal" else GPatcher
    config = ModelConfig(mixer_hidden=16, dropout=0.0, input_dropout=0.0)
    model = build(source, graph.num_features, graph.num_classes, config)
    x = torch.from_numpy(np.array(graph.x)) if variant == "literal" else node_features(graph)
    nodes, y = torch.arange(graph.n), torch.from_numpy(graph.y.copy())

    def step() -> Tensor:
        model.zero_grad()
        logits = model(x, nodes)
        F.cross_entropy(logits, y).backward()
        return logits

    record.reset_peak()
    before = record.memory_bytes("VmRSS")
    first = step().detach()
    seconds = record.timed(step, repeats=9)
    peak = record.memory_bytes("VmHWM") - before
    print(json.dumps({"seconds": seconds, "peak": peak, "logits": first[:20].tolist()}))


def gather() -> list[dict[str, object]]:
    """Compare both orders of computation: same weights, same outputs, different cost."""
    results = {}
    for variant in ("literal", "ours"):
        done = subprocess.run([sys.executable, __file__, variant], capture_output=True, text=True, check=True)
        results[variant] = json.loads(done.stdout.splitlines()[-1])
    gap = np.abs(np.array(results["literal"]["logits"]) - np.array(results["ours"]["logits"])).max()
    assert gap < 1e-4, f"the outputs differ by {gap}"
    ours, peer = results["ours"], results["literal"]
    time = {"what": "literal / ours, a step on Cora, p = 32", "ours_ms": 1000 * ours["seconds"]}
    time |= {"peer_ms": 1000 * peer["seconds"], "ratio": peer["seconds"] / ours["seconds"], "bound": "at least 8"}
    memory = {
        "what": "ours / literal, peak MiB of it",
        "ours_ms": ours["peak"] / 2**20,
        "peer_ms": peer["peak"] / 2**20,
    }
    return [time, memory | {"ratio": ours["peak"] / peer["peak"], "bound": "at most 0.25"}]


def extraction(name: str) -> dict[str, object]:
    """Compare extraction by the exact spectrum with an eigendecomposition and one matrix product alone."""
    graph = load_dataset(name)

    def bare() -> None:
        dense = graph.normalised(dtype=np.float32).toarray()
        _, vectors = scipy.linalg.eigh(dense, driver="evd", overwrite_a=True, check_finite=False)
        vectors @ vectors.T

    def ours() -> Patches:
        spectrum = eigenpairs(graph, dtype=np.float32)
        return spectral_patches(spectrum, response(Adaptive(), spectrum.values), 32)

    ours()  # compile
    peer, cost = record.timed(bare, 3), record.timed(ours, 3)
    row = {"what": f"extraction / (eigh + product), {name}", "ours_ms": 1000 * cost, "peer_ms": 1000 * peer}
    return row | {"ratio": cost / peer, "bound": "at most 1.3"}


if __name__ == "__main__":
    if len(sys.argv) == 2:
        gather_step(sys.argv[1])
    else:
        rows = [learning("chameleon"), learning("squirrel"), *gather(), extraction("chameleon"), extraction("cora")]
        record.write("model", rows)
