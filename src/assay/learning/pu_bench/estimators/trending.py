"""Disambiguation by trends and corrected labels: Holistic-PU, PUL-CPBF, LaGAM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from assay.learning.pu_bench import losses
from assay.learning.pu_bench.backbones import Backbone, strong_view, weak_view
from assay.learning.pu_bench.curriculum import natural_break, trend_scores
from assay.learning.pu_bench.errors import BadInput
from assay.learning.pu_bench.estimators.base import Problem, PUNet, beta, draw
from assay.nn.trainer import batches, forward


@dataclass(eq=False, repr=False, kw_only=True)
class HolisticPUClassifier(PUNet):
    """Trends of predicted scores (Wang et al. 2023, arXiv 2308.04177).

    Phase 1 learns labelled against unlabelled rows and records the score of each unlabelled row an epoch; rows whose
    trend lies above the natural break become pseudo-positive. Phase 2 trains a fresh net on these, with consistency.
    A single logit stands for the two of the first code (their difference).
    """

    epochs: int = 100
    batch_size: int = 64
    lr: float = 0.01
    weight_decay: float = 5e-4
    optimizer: str = "sgd"
    phase1_epochs: int = 10
    phase1_steps: int = 512
    phase1_lr: float = 1e-3
    smoothing: float = 0.05
    confidence: float = 0.9
    unlabelled_weight: float = 1.0
    needs_prior: ClassVar[bool] = False

    def _fit(self, problem: Problem) -> None:
        of_l, of_u = problem.of_l, problem.of_u
        paths = self._phase_one(problem)
        trend = trend_scores(paths)
        self.pseudo_positive_ = trend > natural_break(trend)
        # By row, not by position in a pass over the data: a pass that drops its last batch would shift them.
        pseudo = torch.from_numpy(self.pseudo_positive_.astype(np.float32))
        self.net_ = net = self._build(problem)
        optimiser = self._optimiser(net)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda e: math.cos(7 * math.pi * e / (16 * self.epochs))
        )

        def epoch(number: int) -> float:
            share = (number / self.epochs) ** 0.8
            total, count = 0.0, 0
            for places in batches(len(of_u), self.batch_size, problem.generator):
                x_l = problem.x[draw(of_l, len(places), problem.generator)]
                x_u = problem.x[of_u[places]]
                weak, strong = weak_view(x_u), strong_view(x_u)
                g_l, g_w, g_s = net(torch.cat([weak_view(x_l), weak, strong])).split(len(places))
                value = losses.soft_bce(g_l, torch.ones_like(g_l))
                value = value + self.unlabelled_weight * losses.soft_bce(g_w, share * pseudo[places].to(g_w.device))
                p = g_w.detach().sigmoid()
                sure = torch.maximum(p, 1 - p) >= self.confidence
                value = value + self.unlabelled_weight * losses.masked_mean(
                    torch.nn.functional.binary_cross_entropy_with_logits(g_s, (p > 0.5).float(), reduction="none"), sure
                )
                optimiser.zero_grad(set_to_none=True)
                value.backward()
                optimiser.step()
                total, count = total + float(value.detach()), count + 1
            schedule.step()
            return total / count

        self._loop("pseudo-labels", net, epoch, problem)

    def _phase_one(self, problem: Problem) -> np.ndarray:
        net = self._build(problem)
        self.net_ = net
        optimiser = self._optimiser(net, lr=self.phase1_lr, kind="adam")
        of_l, of_u, half = problem.of_l, problem.of_u, max(1, self.batch_size // 2)
        low, high = self.smoothing / 2, 1 - self.smoothing / 2
        paths: list[np.ndarray] = []

        def epoch(_: int) -> float:
            total = 0.0
            for _ in range(self.phase1_steps):
                x_l = problem.x[draw(of_l, half, problem.generator)]
                x_u = problem.x[draw(of_u, half, problem.generator)]
                weak_l, strong_l, g_u = net(torch.cat([weak_view(x_l), strong_view(x_l), weak_view(x_u)])).split(half)
                value = (losses.soft_bce(weak_l, torch.full_like(weak_l, high)) +
                         losses.soft_bce(strong_l, torch.full_like(strong_l, high))) / 2  # fmt: skip
                value = value + losses.soft_bce(g_u, torch.full_like(g_u, low))
                optimiser.zero_grad(set_to_none=True)
                value.backward()
                optimiser.step()
                total += float(value.detach())
            paths.append(forward(net, problem.x[of_u]).sigmoid().numpy())
            return total / self.phase1_steps

        self._loop("trends", net, epoch, problem, epochs=max(2, self.phase1_epochs), last=False)
        return np.stack(paths, axis=1)


@dataclass(eq=False, repr=False, kw_only=True)
class PULCPBFClassifier(PUNet):
    """Cost-sensitive scores, their trends, then confident pseudo-labels (PUL-CPBF).

    The target of an unlabelled row is what phase 1 says of it, never its true class, which the first public code reads.
    Rows whose trend lies above the break are positive: their scores rise or fall least. ``falling`` takes the others,
    as that code does; on digits and on two normals fewer than one in eight of those are positives.
    """

    epochs: int = 50
    batch_size: int = 64
    lr: float = 0.002
    weight_decay: float = 5e-4
    optimizer: str = "sgd"
    phase1_epochs: int = 20
    phase1_lr: float = 3e-4
    alpha: float = 0.5
    falling: bool = False
    unlabelled_weight: float = 0.85
    confidence: tuple[float, float] = (0.6, 0.9)
    temperature: tuple[float, float] = (1.5, 0.5)

    def _fit(self, problem: Problem) -> None:
        of_l, of_u = problem.of_l, problem.of_u
        self.net_ = net = self._build(problem)
        share = len(of_l) / len(problem.x)
        warm = self._optimiser(net, lr=self.phase1_lr, kind="adam")
        paths: list[np.ndarray] = []

        def phase_one(_: int) -> float:
            total, count = 0.0, 0
            for index in batches(len(problem.x), self.batch_size, problem.generator):
                value = losses.asymmetric_loss(
                    net(problem.x[index]), problem.labelled[index], problem.prior, share=share, alpha=self.alpha
                )
                warm.zero_grad(set_to_none=True)
                value.backward()
                warm.step()
                total, count = total + float(value.detach()), count + 1
            paths.append(forward(net, problem.x[of_u]).sigmoid().numpy())
            return total / count

        self._loop("trends", net, phase_one, problem, epochs=max(2, self.phase1_epochs), last=False)
        trend = trend_scores(np.stack(paths, axis=1))
        cut = natural_break(trend)
        self.pseudo_positive_ = trend <= cut if self.falling else trend > cut
        pseudo = torch.from_numpy(self.pseudo_positive_.astype(np.float32)).to(problem.x.device)
        optimiser = self._optimiser(net)

        def epoch(number: int) -> float:
            at = number / self.epochs
            bar = self.confidence[0] + at * (self.confidence[1] - self.confidence[0])
            heat = self.temperature[0] + at * (self.temperature[1] - self.temperature[0])
            total, count = 0.0, 0
            for places in batches(len(of_u), self.batch_size, problem.generator):
                x_u = problem.x[of_u[places]]
                x_l = problem.x[draw(of_l, len(places), problem.generator)]
                g_l, g_w, g_s = net(torch.cat([x_l, weak_view(x_u), strong_view(x_u)])).split(len(places))
                p = (g_w.detach() / heat).sigmoid()
                hard = (p > 0.5).float()
                sure = torch.maximum(p, 1 - p) >= bar
                value = losses.soft_bce(g_l, torch.ones_like(g_l))
                soft = at * hard + (1 - at) * pseudo[places]
                strong = torch.nn.functional.binary_cross_entropy_with_logits(g_s, hard, reduction="none")
                value = value + self.unlabelled_weight * (losses.soft_bce(g_w, soft) + losses.masked_mean(strong, sure))
                optimiser.zero_grad(set_to_none=True)
                value.backward()
                optimiser.step()
                total, count = total + float(value.detach()), count + 1
            return total / count

        self._loop("pseudo-labels", net, epoch, problem)


@dataclass(eq=False, repr=False, kw_only=True)
class LaGAMClassifier(PUNet):
    """Labels corrected by meta-learning, with grouped representations (Long et al. 2024, LaGAM).

    It needs a small clean set: ``fit(X, s, clean=(X, y))`` with both classes, so it uses labelled negatives.
    """

    epochs: int = 35
    batch_size: int = 64
    lr: float = 1e-3
    warmup_epochs: int = 15
    alpha: float = 4.0
    clusters: int = 50
    rho: tuple[float, float] = (0.95, 0.8)
    contrastive_weight: float = 1.0
    temperature: float = 0.07
    neighbours: int = 10
    neighbours_from: int = 50
    needs_prior: ClassVar[bool] = False
    supervision: ClassVar[str] = "clean"

    def _fit(self, problem: Problem) -> None:
        if problem.clean is None or len(set(problem.clean[1].tolist())) < 2:
            raise BadInput("LaGAM needs a small clean set with both classes: fit(X, s, clean=(X, y)).")
        x_clean, truth = problem.clean[0], torch.from_numpy(problem.clean[1]).float().to(problem.x.device)
        of_clean = torch.stack([1 - truth, truth], 1)
        self.net_ = net = self._build(problem)
        optimiser = self._optimiser(net)
        soft = torch.stack([(~problem.labelled).float(), problem.labelled.float()], 1)

        def loss(x: Tensor, t: Tensor, target: Tensor) -> Tensor:
            lam = beta(self.alpha)
            order = torch.randperm(len(x), generator=problem.generator)
            mixed = net(lam * x + (1 - lam) * x[order])
            value = losses.class_normalised_bce(net(x), target)
            return value + losses.class_normalised_bce(mixed, lam * target + (1 - lam) * target[order])

        self._stage(
            "warm-up", net, loss, problem, epochs=self.warmup_epochs, optimiser=optimiser,
            data=(problem.x, problem.labelled, soft), last=False,
        )  # fmt: skip

        def epoch(number: int) -> float:
            group, near = self._groups(net, problem, number)
            at = (number - 1) / max(1, self.epochs - 1)
            rho = self.rho[0] + at * (self.rho[1] - self.rho[0])
            total, count = 0.0, 0
            for index in batches(len(problem.x), self.batch_size, problem.generator):
                x, t = problem.x[index], problem.labelled[index]
                drawn = draw(torch.arange(len(x_clean)), min(len(x_clean), self.batch_size), problem.generator)
                better = self._corrected(net, x, soft[index], x_clean[drawn], of_clean[drawn])
                fresh = rho * soft[index] + (1 - rho) * better
                soft[index] = torch.where(t[:, None], soft[index], fresh)
                features = net.features(x)
                says = net.head(features)[:, 0].detach() > 0
                mask = (group[index][:, None] == group[index]) & (says[:, None] == says)
                if near is not None:
                    mask = mask | torch.isin(near[index], index).any(1)[:, None] & (
                        near[index][:, :, None] == index
                    ).any(1)
                value = loss(x, t, soft[index])
                value = value + self.contrastive_weight * losses.contrastive_loss(features, mask, self.temperature)
                optimiser.zero_grad(set_to_none=True)
                value.backward()
                optimiser.step()
                total, count = total + float(value.detach()), count + 1
            return total / count

        self._loop("meta", net, epoch, problem)
        self.corrected_ = soft[:, 1].cpu().numpy()

    def _groups(self, net: Backbone, problem: Problem, number: int) -> tuple[Tensor, Tensor | None]:
        """Cluster of each row, and its nearest neighbours once training has gone on for long."""
        from sklearn.cluster import KMeans
        from sklearn.neighbors import NearestNeighbors

        features = forward(net.features, problem.x).numpy()
        seed = int(torch.randint(2**31 - 1, (), generator=problem.generator))
        count = min(self.clusters, max(1, len(features) // 2))
        kit: Any = KMeans
        found = kit(count, n_init=1, random_state=seed).fit_predict(features)
        group = torch.from_numpy(found.astype(np.int64)).to(problem.x.device)
        if self.warmup_epochs + number <= self.neighbours_from:
            return group, None
        near = (
            NearestNeighbors(n_neighbors=min(self.neighbours + 1, len(features))).fit(features).kneighbors(features)[1]
        )
        return group, torch.from_numpy(near[:, 1:].astype(np.int64)).to(problem.x.device)

    def _corrected(self, net: Backbone, x: Tensor, soft: Tensor, x_clean: Tensor, of_clean: Tensor) -> Tensor:
        """One-hot labels towards which the clean loss falls, after a virtual step of the head."""
        with torch.no_grad():
            features, clean = net.features(x), net.features(x_clean)
        weight, bias = net.head.weight, net.head.bias
        epsilon = torch.zeros_like(soft, requires_grad=True)
        inner = losses.class_normalised_bce((features @ weight.T + bias)[:, 0], soft + epsilon)
        d_weight, d_bias = torch.autograd.grad(inner, (weight, bias), create_graph=True)
        moved = clean @ (weight - self.lr * d_weight).T + (bias - self.lr * d_bias)
        outer = losses.class_normalised_bce(moved[:, 0], of_clean)
        (slope,) = torch.autograd.grad(outer, epsilon)
        return torch.nn.functional.one_hot((-slope).argmax(1), 2).float()
