"""SurvITE: balanced representations and discrete hazards of both arms (Curth, Lee and van der Schaar 2021)."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from assay.core.errors import unknown_name
from assay.learning.survhte.base import Array, Mask, SurvivalEffect, read_x
from assay.learning.survhte.scoring import grid_index, rmst, survival_at
from assay.learning.survhte.survival_models import coarse

_EPS = 1e-8
_CHECK_EVERY, _PATIENCE = 100, 20
_TIMES_A_STEP = 4


def hazard_nll(hazard: Tensor, index: Tensor, event: Tensor) -> Tensor:
    """Mean negative log likelihood of discrete hazards.

    Parameters
    ----------
    hazard
        Shape (n, k), in (0, 1).
    index
        Bin of each time, shape (n,). A censored row survived its own bin.
    event
        1 for an event, shape (n,).
    """
    k = hazard.shape[1]
    at = index.clamp(max=k - 1).view(-1, 1)
    before = torch.arange(k).view(1, -1) < at
    stays = torch.log(1 - hazard + _EPS)
    own = torch.where(event > 0, torch.log(hazard.gather(1, at).squeeze(1) + _EPS), stays.gather(1, at).squeeze(1))
    return -(own + (stays * before).sum(1)).mean()


def linear_mmd(treated: Tensor, control: Tensor, p: float = 0.5) -> Tensor:
    """Squared distance of the arms' weighted means: ||2p mean(treated) - 2(1 - p) mean(control)||^2."""
    return ((2 * p * treated.mean(0) - 2 * (1 - p) * control.mean(0)) ** 2).sum()


def sinkhorn(treated: Tensor, control: Tensor, p: float = 0.5, strength: float = 10.0, rounds: int = 10) -> Tensor:
    """Entropic Wasserstein distance of the arms, squared Euclidean costs, with a dummy row and column for unequal mass.

    The smoothing, ``strength`` over the mean cost, is held constant in differentiation.
    """
    cost = torch.cdist(treated, control) ** 2
    n1, n0 = cost.shape
    scale = strength / cost.detach().mean().clamp(min=_EPS)
    far = cost.detach().max()
    full = torch.zeros(n1 + 1, n0 + 1, dtype=cost.dtype)
    full[:n1, :n0] = cost
    full[:n1, n0] = far
    full[n1, :n0] = far
    a = torch.cat([torch.full((n1,), p / n1, dtype=cost.dtype), torch.tensor([1 - p], dtype=cost.dtype)])
    b = torch.cat([torch.full((n0,), (1 - p) / n0, dtype=cost.dtype), torch.tensor([p], dtype=cost.dtype)])
    kernel = torch.exp(-scale * full) + 1e-6
    u = torch.ones(n1 + 1, dtype=cost.dtype)
    v = torch.ones(n0 + 1, dtype=cost.dtype)
    for _ in range(rounds):
        v = b / (kernel.T @ u + _EPS)
        u = a / (kernel @ v + _EPS)
    return 2 * (u.view(-1, 1) * kernel * v.view(1, -1) * full).sum()


IPMS = {"mmd": linear_mmd, "wasserstein": sinkhorn}


class _Net(nn.Module):
    def __init__(self, inputs: int, bins: int, width: int, dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(3):
            layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(dropout)]
            inputs = width
        self.phi = nn.Sequential(*layers)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, bins))
            for _ in range(2)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.phi(x)
        return z, torch.stack([torch.sigmoid(head(z)) for head in self.heads])


class SurvITE(SurvivalEffect):
    """One representation, two hazard networks; its balance between the arms is part of the loss.

    Parameters
    ----------
    ipm
        ``wasserstein`` or ``mmd``: how the arms are compared.
    at_risk
        Balance those still at risk at a time, at four times drawn a step (the paper averages over all); False: the
        whole batch once.
    beta, gamma
        Weights of balance and of smooth hazards.
    bins
        Points in time, at most.
    steps
        Of Adam on batches; every 100th is checked on a held-out fifth, 20 checks without gain end it.
    """

    def __init__(
        self,
        *,
        ipm: str = "wasserstein",
        at_risk: bool = True,
        beta: float = 1e-3,
        gamma: float = 0.0,
        bins: int = 100,
        steps: int = 10_000,
        width: int = 100,
        dropout: float = 0.3,
        lr: float = 1e-3,
        batch: int = 512,
        estimand: str = "rmst",
        horizon: float | None = None,
        random_state: int | None = 42,
    ) -> None:
        self.ipm = ipm
        self.at_risk = at_risk
        self.beta = beta
        self.gamma = gamma
        self.bins = bins
        self.steps = steps
        self.width = width
        self.dropout = dropout
        self.lr = lr
        self.batch = batch
        self.estimand = estimand
        self.horizon = horizon
        self.random_state = random_state

    def _fit(self, X: Array, W: NDArray[np.int64], time: Array, event: Mask) -> None:
        if self.ipm not in IPMS:
            raise unknown_name("distance between arms", self.ipm, IPMS)
        torch.set_num_threads(1)
        rng = np.random.default_rng(self.random_state)
        self.times_ = coarse(time, self.bins)
        self.end_ = float(time.max())
        spread = X.std(axis=0)
        self.mean_, self.spread_ = X.mean(axis=0), np.where(spread > 0, spread, 1.0)
        x, w = self._input(X), torch.from_numpy(W)
        index, d = torch.from_numpy(grid_index(self.times_, time)), torch.from_numpy(event.astype(np.float32))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**31)))
            self.net_ = _Net(X.shape[1], len(self.times_), self.width, self.dropout)
            self._train(x, w, index, d, rng)

    def _train(self, x: Tensor, w: Tensor, index: Tensor, event: Tensor, rng: np.random.Generator) -> None:
        order = rng.permutation(len(x))
        held, rest = torch.from_numpy(order[: len(x) // 5]), order[len(x) // 5 :]
        optimiser = torch.optim.Adam(self.net_.parameters(), self.lr)
        best, state, waited = np.inf, copy.deepcopy(self.net_.state_dict()), 0
        for step in range(1, self.steps + 1):
            self.net_.train()
            rows = torch.from_numpy(rng.choice(rest, min(self.batch, len(rest)), replace=False))
            optimiser.zero_grad()
            self._loss(x[rows], w[rows], index[rows], event[rows], rng).backward()
            optimiser.step()
            if step % _CHECK_EVERY and step != self.steps:
                continue
            self.net_.eval()
            with torch.no_grad():
                now = float(self._likelihood(x[held], w[held], index[held], event[held])[1])
            if now < best:
                best, state, waited = now, copy.deepcopy(self.net_.state_dict()), 0
            else:
                waited += 1
                if waited >= _PATIENCE:
                    break
        self.net_.load_state_dict(state)
        self.net_.eval()

    def _likelihood(self, x: Tensor, w: Tensor, index: Tensor, event: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z, hazards = self.net_(x)
        own = torch.where(w.view(-1, 1) == 1, hazards[1], hazards[0])
        return z, hazard_nll(own, index, event), own

    def _loss(self, x: Tensor, w: Tensor, index: Tensor, event: Tensor, rng: np.random.Generator) -> Tensor:
        z, loss, own = self._likelihood(x, w, index, event)
        if self.gamma:
            loss = loss + self.gamma * (own[:, 1:] - own[:, :-1]).pow(2).mean()
        if not self.beta:
            return loss
        times = rng.integers(0, len(self.times_), _TIMES_A_STEP) if self.at_risk else [0]
        distances = []
        for time in times:
            there = index >= int(time) if self.at_risk else torch.ones_like(index, dtype=torch.bool)
            treated, control = z[there & (w == 1)], z[there & (w == 0)]
            if len(treated) and len(control):
                distances.append(IPMS[self.ipm](treated, control))
        return loss + self.beta * torch.stack(distances).mean() if distances else loss

    def _input(self, X: Array) -> Tensor:
        return torch.from_numpy(((X - self.mean_) / self.spread_).astype(np.float32))

    def predict_survival_function(self, X: Array, w: int) -> tuple[Array, Array]:
        """Grid (k,) and curves (n, k) under treatment ``w``."""
        check_is_fitted(self, "fitted_")
        X = read_x(X, self.n_features_in_)
        with torch.no_grad():
            hazard = self.net_(self._input(X))[1][w].numpy().astype(float)
        return self.times_, np.cumprod(1 - hazard, axis=1)

    def _effect(self, X: Array) -> Array:
        values = []
        for w in (1, 0):
            times, curves = self.predict_survival_function(X, w)
            if self.estimand == "survival":
                assert self.horizon is not None
                values.append(survival_at(times, curves, self.horizon))
            else:
                values.append(rmst(times, curves, self.end_ if self.horizon is None else self.horizon))
        return values[0] - values[1]
