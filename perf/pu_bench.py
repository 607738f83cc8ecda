"""PU extra trees, best-bin estimation and training steps beside plain readings, a DataLoader and pulearn, in one run.

    python perf/pu_bench.py [--rows 1000] [--only steps]

The plain trees are the published algorithm row by row (NumPy where it computes distinct values, Python elsewhere). The
plain training loop is what one writes with torch alone: a DataLoader over a TensorDataset, autograd, torch's dropout
and Adam as they come, the risk as three means.
"""

from __future__ import annotations

import argparse
import math
import time
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import ExtraTreesClassifier
from torch.utils.data import DataLoader, TensorDataset

from assay.learning.pu_bench.backbones import Dropout, backbone
from assay.learning.pu_bench.data import gaussian_mixture
from assay.learning.pu_bench.estimators import make_estimator
from assay.learning.pu_bench.estimators.trees import PUETClassifier, node_impurity, node_value
from assay.learning.pu_bench.generator import make_pu_dataset
from assay.learning.pu_bench.losses import nnpu_gradient, nnpu_loss
from assay.learning.pu_bench.perceptron import Steps, layers_of
from assay.learning.pu_bench.prior import ESTIMATORS, bbe, prior_estimator
from assay.nn.trainer import train

TREES = 30


class PlainTree:
    """One tree as the algorithm is written down: a node a dictionary, a row at a time."""

    def __init__(self, prior: float, rng: np.random.Generator) -> None:
        self.prior, self.rng = prior, rng

    def fit(self, x: np.ndarray, labelled: np.ndarray) -> PlainTree:
        self.n = (int(labelled.sum()), int((~labelled).sum()))
        self.root = self._node(x, labelled, 0)
        return self

    def _node(self, x: np.ndarray, labelled: np.ndarray, depth: int) -> dict[str, Any]:
        counts = (int(labelled.sum()), int((~labelled).sum()))
        wide = [f for f in range(x.shape[1]) if len(np.unique(x[:, f])) > 1]
        if (
            node_impurity(counts[0], counts[1], self.n[0], self.n[1], self.prior) <= 0
            or depth >= 30
            or len(x) <= 1
            or not wide
        ):
            return {"value": min(1.0, node_value(counts[0], counts[1], self.n[0], self.n[1], self.prior))}
        best: tuple[float, int, float] | None = None
        for feature in self.rng.permutation(wide)[: math.ceil(math.sqrt(x.shape[1]))]:
            values = np.unique(x[:, feature])
            low, high = values[0] + 0.4 * (values[1] - values[0]), values[-2] + 0.6 * (values[-1] - values[-2])
            cut = self.rng.uniform(low, high)
            left = [0, 0]
            for row in range(len(x)):
                if x[row, feature] <= cut:
                    left[0 if labelled[row] else 1] += 1
            right = (counts[0] - left[0], counts[1] - left[1])
            total = sum(node_impurity(a, b, self.n[0], self.n[1], self.prior) for a, b in ((left[0], left[1]), right))
            if best is None or total < best[0]:
                best = (total, int(feature), float(cut))
        assert best is not None
        _, feature, cut = best
        side = x[:, feature] <= cut
        return {
            "feature": feature,
            "cut": cut,
            "left": self._node(x[side], labelled[side], depth + 1),
            "right": self._node(x[~side], labelled[~side], depth + 1),
        }

    def values(self, x: np.ndarray) -> np.ndarray:
        out = []
        for row in x:
            node = self.root
            while "feature" in node:
                node = node["left"] if row[node["feature"]] <= node["cut"] else node["right"]
            out.append(node["value"])
        return np.array(out)


def plain_bbe(labelled: np.ndarray, unlabelled: np.ndarray, delta: float = 0.1, gamma: float = 0.01) -> float:
    """The estimate as a loop over unlabelled scores; counts by a pointer that moves on."""
    p, u = sorted(labelled.tolist(), reverse=True), sorted(unlabelled.tolist(), reverse=True)
    slack = (1 + gamma) * sum(math.sqrt(math.log(4 / delta) / (2 * n)) for n in (len(p), len(u)))
    best, found, j = math.inf, 0.5, 0
    for i, cut in enumerate(u):
        while j < len(p) and p[j] >= cut:
            j += 1
        if i < 1 or j <= 1 or u[i - 1] == cut:
            continue
        share = j / len(p)
        ratio = i / len(u) / share
        if ratio + slack / share < best:
            best, found = ratio + slack / share, ratio
    return min(0.99, max(0.01, found))


def counting_bbe(labelled: np.ndarray, unlabelled: np.ndarray, delta: float = 0.1, gamma: float = 0.01) -> float:
    """The same, counting the labelled scores above each threshold afresh."""
    u = np.sort(unlabelled)[::-1]
    slack = (1 + gamma) * sum(math.sqrt(math.log(4 / delta) / (2 * n)) for n in (len(labelled), len(u)))
    best, found = math.inf, 0.5
    for i in range(1, len(u)):
        if u[i] == u[i - 1]:
            continue
        j = int(np.sum(labelled >= u[i]))
        if j > 1:
            share = j / len(labelled)
            ratio = i / len(u) / share
            if ratio + slack / share < best:
                best, found = ratio + slack / share, ratio
    return min(0.99, max(0.01, found))


def timed(fn: Any, *arguments: Any) -> tuple[float, Any]:
    """(CPU seconds, result): other work on the machine then weighs on no side."""
    begun = time.process_time()
    found = fn(*arguments)
    return time.process_time() - begun, found


def trees(rows: int) -> None:
    """Fit and predict beside the plain reading, and beside scikit-learn's compiled extra trees."""
    x, y, _ = gaussian_mixture(rows, np.random.default_rng(0))
    x_test, y_test, _ = gaussian_mixture(5 * rows, np.random.default_rng(1))
    pu = make_pu_dataset(x, y, c=0.3)
    PUETClassifier(prior=0.4, n_estimators=1).fit(pu.X[::9], pu.s[::9]).predict(pu.X[:50])  # compiled before the clock
    fit, model = timed(PUETClassifier(prior=pu.prior_u, n_estimators=TREES).fit, pu.X, pu.s)
    predict, probability = min((timed(model.predict_proba, x_test) for _ in range(5)), key=lambda found: found[0])
    slow_fit, plain = timed(
        lambda: [PlainTree(pu.prior_u, np.random.default_rng(t)).fit(pu.X, pu.s == 1) for t in range(TREES)]
    )
    slow_predict, slow = timed(lambda: np.mean([tree.values(x_test) for tree in plain], axis=0))
    right = [((p > 0.5) == (y_test == 1)).mean() for p in (probability[:, 1], slow)]
    print(f"PUET, {TREES} trees, {len(pu.s)} rows x {x.shape[1]}; {len(x_test)} rows predicted")
    print(f"  fit      {fit:9.4f} s, row by row {slow_fit:9.4f} s: {slow_fit / fit:.0f} times")
    print(f"  predict  {predict:9.4f} s, row by row {slow_predict:9.4f} s: {slow_predict / predict:.0f} times")
    print(f"  accuracy {right[0]:.3f}, row by row {right[1]:.3f}")
    kit = ExtraTreesClassifier(TREES, max_features="sqrt", max_depth=30)
    theirs, _ = timed(kit.fit, pu.X, pu.s)
    print(
        f"  scikit-learn's extra trees on the same rows fit in {theirs:.4f} s: ours takes {fit / theirs:.2f} times that"
    )


def best_bin(n: int = 50_000) -> None:
    """The estimate at n labelled and n unlabelled scores."""
    rng = np.random.default_rng(0)
    p, u = rng.beta(4, 2, n), np.where(rng.random(n) < 0.4, rng.beta(4, 2, n), rng.beta(2, 4, n))
    fast, mine = timed(bbe, p, u)
    moving, theirs = timed(plain_bbe, p, u)
    part = 2_000  # counting afresh is quadratic: timed on a part of the thresholds' number, not scaled
    small, _ = timed(bbe, p[:part], u[:part])
    counting, _ = timed(counting_bbe, p[:part], u[:part])
    whole, again = timed(counting_bbe, p, u)
    print(
        f"BBE, {n} and {n} scores: {fast:.4f} s; loop with a moving pointer {moving:.4f} s: {moving / fast:.0f} times"
    )
    print(f"  loop that counts at each threshold {whole:.3f} s: {whole / fast:.0f} times")
    print(f"  at {part}: {small:.5f} against {counting:.4f} s; estimates {mine:.4f}, {theirs:.4f}, {again:.4f}")


def plain_risk(g: torch.Tensor, labelled: torch.Tensor, prior: float) -> torch.Tensor:
    """The non-negative risk as it is written down."""
    n_l, n_u = max(1, int(labelled.sum())), max(1, int((~labelled).sum()))
    of_l, of_u = labelled.float(), (~labelled).float()
    positive = torch.sum(of_l * torch.sigmoid(-g)) / n_l
    negative = torch.sum(of_u * torch.sigmoid(g)) / n_u - prior * torch.sum(of_l * torch.sigmoid(g)) / n_l
    return -negative if negative.item() < 0 else prior * positive + negative


def plain_net(name: str, shape: tuple[int, ...]) -> Any:
    """The same layers as torch offers them."""
    made: Any = backbone(name, shape, prior=0.4)
    layers = [
        layer for block in made.blocks for layer in (block if isinstance(block, torch.nn.Sequential) else [block])
    ]
    layers = [torch.nn.Dropout(layer.cut / 65536) if isinstance(layer, Dropout) else layer for layer in layers]
    net: Any = torch.nn.Sequential(*layers, made.head, torch.nn.Flatten(0))
    return net.to(memory_format=torch.contiguous_format)


def our_epoch(name: str, x: torch.Tensor, labelled: torch.Tensor, batch: int) -> Any:
    """A function that trains for an epoch as `assay.learning.pu_bench.estimators.base.PUNet` does."""
    net: Any = backbone(name, tuple(x.shape[1:]), prior=0.4)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    generator = torch.Generator().manual_seed(0)
    if layers := layers_of(net):
        mine = Steps(layers, partial(nnpu_gradient, prior=0.4), optimiser)
        return lambda: mine.epoch(x, labelled, batch, generator)
    settings: dict[str, Any] = {"epochs": 1, "batch_size": batch, "optimiser": optimiser, "generator": generator}
    return lambda: train(net, lambda a, b: nnpu_loss(net(a), b, 0.4), (x, labelled), **settings)


def their_epoch(name: str, x: torch.Tensor, labelled: torch.Tensor, batch: int) -> Any:
    """The same with a DataLoader, autograd and Adam as torch offers them."""
    net = plain_net(name, tuple(x.shape[1:]))
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(x, labelled), batch_size=batch, shuffle=True)

    def epoch() -> None:
        for features, of_l in loader:
            optimiser.zero_grad()
            plain_risk(net(features), of_l, 0.4).backward()
            optimiser.step()

    return epoch


def steps(only: str | None) -> None:
    """Training steps of nnPU beside a DataLoader's, a backbone and size of batch at a time."""
    kinds: list[tuple[str, tuple[int, ...], int, int, int]] = [
        ("linear", (64,), 64, 2048, 10), ("small_mlp", (64,), 64, 2048, 10), ("small_mlp", (64,), 256, 2048, 20),
        ("mlp", (64,), 64, 2048, 5), ("mlp", (64,), 256, 2048, 5), ("lenet", (1, 28, 28), 64, 1024, 2),
        ("lenet", (1, 28, 28), 256, 1024, 2), ("cifar_cnn", (3, 32, 32), 64, 64, 1),
        ("mri_cnn", (1, 128, 128), 16, 16, 1),
    ]  # fmt: skip
    rng = torch.Generator().manual_seed(0)
    for name, shape, batch, rows, epochs in kinds:
        if only not in (None, name):
            continue
        x, labelled = torch.randn(rows, *shape, generator=rng), torch.rand(rows, generator=rng) < 0.1
        both = [make(name, x, labelled, batch) for make in (our_epoch, their_epoch)]
        best = [math.inf, math.inf]
        for turn in range(6):  # in turn, the best of five after one to warm up: whoever shares the machine weighs alike
            for side, epoch in enumerate(both):
                begun = time.process_time()
                for _ in range(epochs):
                    epoch()
                if turn:
                    best[side] = min(best[side], (time.process_time() - begun) / epochs / math.ceil(rows / batch))
        print(
            f"nnPU, {name}, batch {batch}: {1e3 * best[0]:.3f} ms a step, with a DataLoader {1e3 * best[1]:.3f}: "
            f"{best[1] / best[0]:.2f} times"
        )


def peers(rows: int) -> None:
    """pulearn's classifiers and estimates of the prior on the rows of the trees."""
    try:
        import pulearn
    except ImportError:
        print("pulearn is not installed: nothing beside it")
        return
    from sklearn.linear_model import LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    x, y, _ = gaussian_mixture(rows, np.random.default_rng(0))
    x_test, y_test, _ = gaussian_mixture(5 * rows, np.random.default_rng(1))
    pu = make_pu_dataset(x, y, c=0.3)
    wide, labels = pu.X.astype(float), pu.s.astype(int)
    models = {
        "puet": PUETClassifier(prior=pu.prior_u),
        "nnpu, linear": make_estimator("nnpu", prior=pu.prior_u, net="linear", epochs=20, lr=0.01),
        "boost": make_estimator("boost", prior=pu.prior_u),
        "pulearn Elkan-Noto": pulearn.ElkanotoPuClassifier(LogisticRegression(), hold_out_ratio=0.2, random_state=0),
        "pulearn bagging": pulearn.BaggingPuClassifier(DecisionTreeClassifier(), n_estimators=TREES, random_state=0),
        "pulearn nnPU, linear": pulearn.NNPUClassifier(prior=pu.prior_u, random_state=0),
    }
    print(f"{len(labels)} rows; prior {pu.prior_u:.3f}; {len(x_test)} rows predicted")
    for name, model in models.items():
        fit, _ = timed(model.fit, wide, labels)
        predict, says = timed(model.predict, x_test.astype(float))
        right = float(((np.asarray(says) == 1) == (y_test == 1)).mean())
        print(f"  {name:22} fit {fit:8.4f} s, predict {predict:8.4f} s, accuracy {right:.3f}")
    share = float((pu.s == 1).mean())
    estimates = {name: prior_estimator(name) for name in ESTIMATORS}
    print(f"share of positives among all rows: {pu.prior_constructed:.3f}")
    for name, model in estimates.items():
        seconds, fitted = timed(model.fit, wide, labels)
        print(f"  {name:22} {share + (1 - share) * fitted.prior_:.3f}, {seconds:.4f} s")
    for kind in (pulearn.ScarEMPriorEstimator, pulearn.HistogramMatchPriorEstimator):
        seconds, fitted = timed(kind().fit, wide, labels)
        print(f"  pulearn {kind.__name__.removesuffix('PriorEstimator'):14} {fitted.pi_:.3f}, {seconds:.4f} s")


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--only", choices=("trees", "best_bin", "steps", "peers"))
    parser.add_argument("--net", help="steps of this backbone alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts = {
        "trees": lambda: trees(arguments.rows), "best_bin": best_bin, "steps": lambda: steps(arguments.net),
        "peers": lambda: peers(arguments.rows),
    }  # fmt: skip
    for name, part in parts.items():
        if arguments.only in (None, name):
            part()


if __name__ == "__main__":
    main()
