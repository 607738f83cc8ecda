"""DeepSurv and DeepHit: small networks for survival curves, trained here (Katzman et al. 2018; Lee et al. 2018)."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from assay.learning.survhte.base import Array, Mask

_PATIENCE = 10
_EPS = 1e-7


def perceptron(inputs: int, nodes: int, outputs: int, dropout: float) -> nn.Sequential:
    """Two hidden layers with batch normalisation and dropout."""
    layers: list[nn.Module] = []
    for width in (nodes, nodes):
        layers += [nn.Linear(inputs, width), nn.ReLU(), nn.BatchNorm1d(width), nn.Dropout(dropout)]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def cox_loss(score: Tensor, time: Tensor, event: Tensor) -> Tensor:
    """Mean negative log partial likelihood of events, rows sorted by falling time (ties in the order they come).

    Parameters
    ----------
    score, time, event
        Log hazard ratio, time, 1 for an event; shape (n,).
    """
    order = torch.argsort(time, descending=True, stable=True)
    score, event = score[order], event[order]
    risk = torch.logcumsumexp(score, 0)
    return -((score - risk) * event).sum() / event.sum().clamp(min=1)


def hit_loss(logits: Tensor, bin_: Tensor, event: Tensor, alpha: float = 0.2, sigma: float = 0.1) -> Tensor:
    """``alpha`` times DeepHit's likelihood plus ``1 - alpha`` times its ranking loss.

    Parameters
    ----------
    logits
        Of the mass in each time bin, shape (n, k); what lies beyond the last bin has the logit 0.
    bin_, event
        Bin of each time, 1 for an event; shape (n,).
    """
    n = len(logits)
    mass = torch.softmax(torch.cat([logits, logits.new_zeros(n, 1)], 1), 1)
    until = mass.cumsum(1)[:, :-1]
    at = bin_.view(-1, 1)
    own = mass.gather(1, at).squeeze(1)
    beyond = 1 - until.gather(1, at).squeeze(1)
    likelihood = torch.where(event > 0, own, beyond).clamp(min=_EPS).log().mean()
    # risk[i, j]: chance that j has had its event by the time of i.
    risk = until.gather(1, at).view(-1, 1), until[:, bin_].T
    earlier = bin_.view(-1, 1) < bin_.view(1, -1)
    same = (bin_.view(-1, 1) == bin_.view(1, -1)) & (event.view(1, -1) == 0)
    pairs = (earlier | same) & (event.view(-1, 1) > 0)
    ranking = (torch.exp(-(risk[0] - risk[1]) / sigma) * pairs).mean()
    return -alpha * likelihood + (1 - alpha) * ranking


class _Network:
    """Standardised inputs, Adam on batches, the epoch that was best on held-out rows."""

    linear = False

    def __init__(
        self,
        *,
        nodes: int = 32,
        dropout: float = 0.1,
        lr: float = 0.01,
        epochs: int = 100,
        batch: int = 64,
        seed: int | None = 0,
    ) -> None:
        self.nodes, self.dropout, self.lr, self.epochs, self.batch, self.seed = nodes, dropout, lr, epochs, batch, seed
        self.times: Array = np.empty(0)

    def _train(
        self, X: Array, outputs: int, time: Tensor, event: Tensor, loss: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> None:
        torch.set_num_threads(1)
        self.mean = X.mean(axis=0)
        spread = X.std(axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)
        x = self._input(X)
        rng = np.random.default_rng(self.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**31)))
            self.net = perceptron(X.shape[1], self.nodes, outputs, self.dropout)
            order = rng.permutation(len(x))
            held, rest = order[: len(x) // 5], order[len(x) // 5 :]
            optimiser = torch.optim.Adam(self.net.parameters(), self.lr)
            best, state, waited = np.inf, copy.deepcopy(self.net.state_dict()), 0
            for _ in range(self.epochs):
                self.net.train()
                shuffled = rng.permutation(rest)
                for start in range(0, len(rest), self.batch):
                    rows = torch.from_numpy(shuffled[start : start + self.batch])
                    if len(rows) < 2 or not event[rows].any():
                        continue
                    optimiser.zero_grad()
                    loss(self.net(x[rows]), time[rows], event[rows]).backward()
                    optimiser.step()
                self.net.eval()
                with torch.no_grad():
                    now = float(loss(self.net(x[held]), time[held], event[held])) if len(held) > 1 else 0.0
                if now < best - 1e-5:
                    best, state, waited = now, copy.deepcopy(self.net.state_dict()), 0
                else:
                    waited += 1
                    if waited > _PATIENCE:
                        break
        self.net.load_state_dict(state)
        self.net.eval()

    def _input(self, X: Array) -> Tensor:
        return torch.from_numpy(((X - self.mean) / self.spread).astype(np.float32))

    def _output(self, X: Array) -> Array:
        with torch.no_grad():
            return self.net(self._input(X)).numpy().astype(float)


class DeepSurv(_Network):
    """Cox's model with a network for the log hazard and Breslow's baseline; a step function."""

    def fit(self, X: Array, time: Array, event: Mask) -> DeepSurv:
        """Train and take the baseline."""
        t = torch.from_numpy(time.astype(np.float32))
        d = torch.from_numpy(event.astype(np.float32))
        self._train(X, 1, t, d, lambda out, at, seen: cox_loss(out.squeeze(1), at, seen))
        score = self._output(X)[:, 0]
        self.shift = float(score.max())
        self.times, inverse = np.unique(time, return_inverse=True)
        deaths = np.bincount(inverse, weights=event, minlength=len(self.times))
        weight = np.bincount(inverse, weights=np.exp(score - self.shift), minlength=len(self.times))
        at_risk = weight[::-1].cumsum()[::-1]
        keep = deaths > 0
        keep[-1] = True
        self.hazard = np.cumsum(deaths / at_risk)[keep]
        self.times = self.times[keep]
        return self

    def survival(self, X: Array) -> Array:
        """Curves on event times."""
        ratio = np.exp(self._output(X)[:, 0] - self.shift)
        return np.exp(-np.outer(ratio, self.hazard))


class DeepHit(_Network):
    """A network for the mass of at most 100 time bins; straight lines between them."""

    linear = True

    def __init__(self, *, bins: int = 100, alpha: float = 0.2, sigma: float = 0.1, **network: float | None) -> None:
        super().__init__(**network)  # type: ignore[arg-type]
        self.bins, self.alpha, self.sigma = bins, alpha, sigma

    def fit(self, X: Array, time: Array, event: Mask) -> DeepHit:
        """Train on times put into bins: events go up to the next bin, censored times down to the last one reached."""
        distinct = np.unique(time)
        if len(distinct) <= self.bins:
            self.times = distinct
        else:
            self.times = np.linspace(time.min(), time.max(), self.bins)
        up = np.minimum(np.searchsorted(self.times, time, side="left"), len(self.times) - 1)
        down = np.maximum(np.searchsorted(self.times, time, side="right") - 1, 0)
        bins = torch.from_numpy(np.where(event, up, down))
        d = torch.from_numpy(event.astype(np.float32))
        self._train(X, len(self.times), bins, d, lambda out, at, seen: hit_loss(out, at, seen, self.alpha, self.sigma))
        return self

    def survival(self, X: Array) -> Array:
        """Curves on the bins."""
        logits = np.concatenate([self._output(X), np.zeros((len(X), 1))], axis=1)
        logits -= logits.max(axis=1, keepdims=True)
        mass = np.exp(logits)
        mass /= mass.sum(axis=1, keepdims=True)
        return np.clip(1 - np.cumsum(mass, axis=1)[:, :-1], 0.0, 1.0)
