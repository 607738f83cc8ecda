"""Risk minimisers: uPU, nnPU, PUSB, VPU, BBE + nnPU, LBE, Dist-PU, PULDA; and the oracle that sees the truth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from assay.learning.pu_bench import losses
from assay.learning.pu_bench.errors import BadInput
from assay.learning.pu_bench.estimators.base import Problem, PUNet, beta, draw
from assay.learning.pu_bench.prior import bbe, fold_of
from assay.nn.trainer import batches, forward


@dataclass(eq=False, repr=False, kw_only=True)
class UPUClassifier(PUNet):
    """Unbiased risk (du Plessis et al. 2015). It overfits with flexible nets; nnPU is its cure. See `PUNet`."""

    loss: str = "sigmoid"

    def _fit(self, problem: Problem) -> None:
        self.net_ = self._build(problem)
        settings: dict[str, Any] = {"prior": problem.prior, "loss": self.loss}
        loss, gradient = partial(losses.upu_loss, **settings), partial(losses.upu_gradient, **settings)
        self._descend("train", self.net_, loss, problem, gradient)


@dataclass(eq=False, repr=False, kw_only=True)
class NNPUClassifier(PUNet):
    """Non-negative risk (Kiryo et al. 2017, arXiv 1703.00593). See `PUNet`; ``loss``, ``gamma``, ``beta`` of the
    risk.
    """

    loss: str = "sigmoid"
    gamma: float = 1.0
    beta: float = 0.0

    risk: ClassVar[tuple[Any, Any]] = (losses.nnpu_loss, losses.nnpu_gradient)

    def _minimise(self, name: str, prior: float, problem: Problem, **stage: Any) -> None:
        settings: dict[str, Any] = {"prior": prior, "loss": self.loss, "gamma": self.gamma, "beta": self.beta}
        loss, gradient = (partial(function, **settings) for function in self.risk)
        self._descend(name, self.net_, loss, problem, gradient, **stage)

    def _fit(self, problem: Problem) -> None:
        self.net_ = self._build(problem)
        self._minimise("train", problem.prior, problem)


@dataclass(eq=False, repr=False, kw_only=True)
class NNPUSBClassifier(NNPUClassifier):
    """PUSB (Kato et al. 2019): for labels with selection bias. ``threshold="prior"`` is its original decision rule."""

    loss: str = "logistic"
    risk: ClassVar[tuple[Any, Any]] = (losses.nnpusb_loss, losses.nnpusb_gradient)


@dataclass(eq=False, repr=False, kw_only=True)
class VPUClassifier(PUNet):
    """Variational PU learning (Chen et al. 2020, arXiv 1906.00642); needs no prior. ``mixup``: of Beta(mixup,
    mixup).
    """

    mixup: float = 0.3
    needs_prior: ClassVar[bool] = False

    def _fit(self, problem: Problem) -> None:
        self.net_ = self._build(problem)
        of_l = problem.of_l

        def loss(x: Tensor, t: Tensor) -> Tensor | None:
            if not t.any():
                return None
            lam = beta(self.mixup)
            partner = problem.x[draw(of_l, len(x), problem.generator)]
            return losses.vpu_loss(self.net_(x), t, self.net_(lam * x + (1 - lam) * partner), lam)

        self._stage("train", self.net_, loss, problem)


@dataclass(eq=False, repr=False, kw_only=True)
class BBEPUClassifier(NNPUClassifier):
    """nnPU with the prior estimated on held-out rows by BBE after a warm-up (Garg et al. 2021, arXiv 2111.00980).

    ``prior`` serves the warm-up alone. ``prior_`` is the estimate; where fewer than ``least`` labelled or
    unlabelled rows
    can be held out the warm-up's prior stays, and ``estimated_`` says so.
    """

    batch_size: int = 128
    gamma: float = 0.5
    beta: float = 0.1
    warmup_epochs: int = 8
    holdout: float = 0.2
    least: int = 5

    def _fit(self, problem: Problem) -> None:
        labelled = problem.labelled.cpu().numpy()
        rng = np.random.default_rng(int(torch.randint(2**31, (), generator=problem.generator)))
        out = fold_of(labelled, max(2, round(1 / self.holdout)), problem.groups, rng) == 0
        self.estimated_ = int(labelled[out].sum()) >= self.least and int((~labelled[out]).sum()) >= self.least
        self.net_ = self._build(problem)
        if self.estimated_:
            inner = torch.from_numpy(np.flatnonzero(~out))
            part = (problem.x[inner], problem.labelled[inner])
            self._minimise("warm-up", problem.prior, problem, epochs=self.warmup_epochs, data=part, last=False)
            scores = torch.sigmoid(forward(self.net_, problem.x[torch.from_numpy(np.flatnonzero(out))])).numpy()
            self.prior_ = bbe(scores[labelled[out]], scores[~labelled[out]])
        self._minimise("train", self.prior_, problem)


@dataclass(eq=False, repr=False, kw_only=True)
class LBEClassifier(PUNet):
    """Instance-dependent labelling by expectation and maximisation (Gong et al. 2021): classifier and labelling model.

    ``pretrain_epochs`` of both against s, then ``epochs`` rounds of ``steps`` gradient steps, each on all labelled rows
    and, of a tenth of the rows drawn from the unlabelled, the ``kept`` share that fits the posterior best.
    """

    epochs: int = 20
    batch_size: int = 64
    lr: float = 5e-4
    pretrain_epochs: int = 20
    steps: int = 20
    kept: float = 0.8
    needs_prior: ClassVar[bool] = False

    def _fit(self, problem: Problem) -> None:
        self.net_, labelling = self._build(problem), self._build(problem)
        self.labelling_ = labelling
        optimiser = self._optimiser(self.net_, labelling)

        def pretrain(x: Tensor, t: Tensor) -> Tensor:
            return losses.balanced_bce(self.net_(x), t) + losses.soft_bce(labelling(x), t.float())

        self._stage(
            "pre-train", [self.net_, labelling], pretrain, problem, epochs=self.pretrain_epochs, optimiser=optimiser,
            last=False,
        )  # fmt: skip
        of_l, of_u = problem.of_l, problem.of_u
        ratio = len(of_u) / len(of_l)
        count = max(1, len(problem.x) // 10)

        def em(_: int) -> float:
            f, eta = forward(self.net_, problem.x).sigmoid(), forward(labelling, problem.x).sigmoid()
            q = (f * (1 - eta) / (f * (1 - eta) + 1 - f).clamp(min=1e-12)).clamp(0, 1)
            q[of_l] = 1.0  # a labelled row is positive, whatever the models say
            total = 0.0
            for _ in range(self.steps):
                drawn = of_u[torch.randperm(len(of_u), generator=problem.generator)[:count]]
                with torch.no_grad():
                    fits = F.binary_cross_entropy(f[drawn].clamp(1e-6, 1 - 1e-6), q[drawn], reduction="none")
                drawn = drawn[fits.argsort()[: max(1, math.ceil(self.kept * len(drawn)))]]
                index = torch.cat([of_l, drawn])
                optimiser.zero_grad(set_to_none=True)
                # Pieces with their gradients added up: one step a draw, whatever fits into memory.
                for piece in index.split(1024):
                    x, t, target = problem.x[piece], problem.labelled[piece].float(), q[piece].to(problem.x.device)
                    weight = torch.where(t > 0, ratio, 1.0)
                    value = losses.soft_bce(self.net_(x), target, weight)
                    value = value + losses.soft_bce(labelling(x), t, torch.where(t > 0, 1.0, target))
                    (value * len(piece) / len(index)).backward()
                    total += float(value.detach()) * len(piece) / len(index)
                optimiser.step()
            return total / self.steps

        self._loop("em", [self.net_, labelling], em, problem)


@dataclass(eq=False, repr=False, kw_only=True)
class DistPUClassifier(PUNet):
    """Label-distribution alignment (Zhao et al. 2022, arXiv 2212.02801), then mix-up on its own scores with entropy."""

    epochs: int = 20
    warmup_epochs: int = 20
    bins: int = 1
    mixup_lr: float = 5e-5
    mixup_weight_decay: float = 5e-4
    entropy_weight: float = 0.0
    mix_entropy_weight: float = 0.04
    mixup_weight: float = 5.0
    alpha: float = 1.0

    def _fit(self, problem: Problem) -> None:
        self.net_ = net = self._build(problem)
        prior = problem.prior

        def align(g: Tensor, t: Tensor) -> Tensor:
            return losses.distpu_loss(g, t, prior, bins=self.bins)

        self._descend("warm-up", net, align, problem, epochs=self.warmup_epochs, last=False)
        pseudo = forward(net, problem.x).sigmoid().to(problem.x.device)
        pseudo[problem.labelled] = 1.0
        optimiser = self._optimiser(net, lr=self.mixup_lr, weight_decay=self.mixup_weight_decay)
        index = torch.arange(len(problem.x))
        steps_all = self.epochs * max(1, math.ceil(len(index) / self.batch_size))
        done = 0

        def mixed(x: Tensor, t: Tensor, at: Tensor) -> Tensor:
            nonlocal done
            done += 1
            g = net(x)
            lam = max(lam_ := beta(self.alpha), 1 - lam_)
            order = torch.randperm(len(x), generator=problem.generator)
            target = lam * pseudo[at] + (1 - lam) * pseudo[at[order]]
            g_mixed = net(lam * x + (1 - lam) * x[order])
            value = align(g, t) + self.mixup_weight * losses.soft_bce(g_mixed, target)
            value = value + self.mix_entropy_weight * losses.entropy(g_mixed.sigmoid())
            if self.entropy_weight and (~t).any():
                ramp = 1 - math.cos(math.pi / 2 * done / steps_all)
                value = value + ramp * self.entropy_weight * losses.entropy(g[~t].sigmoid())
            pseudo[at] = torch.where(t, 1.0, g.detach().sigmoid())
            return value

        self._stage("mix-up", net, mixed, problem, optimiser=optimiser, data=(problem.x, problem.labelled, index))


@dataclass(eq=False, repr=False, kw_only=True)
class PULDAClassifier(PUNet):
    """Label-distribution alignment with a two-way margin (Jiang et al. 2023); see
    `assay.learning.pu_bench.losses.PULDALoss`.
    """

    epochs: int = 60
    batch_size: int = 128
    lr: float = 1e-3
    warmup_epochs: int = 60
    warmup_lr: float = 1e-4
    warmup_weight_decay: float = 5e-4
    labelled_batch: int = 16
    temperature: float = 3.5
    margin: float = 0.6
    mixup_weight: float = 4.2
    alpha: float = 11.0

    def _fit(self, problem: Problem) -> None:
        self.net_ = net = self._build(problem)
        warm = self._optimiser(net, lr=self.warmup_lr, weight_decay=self.warmup_weight_decay)
        self._descend(
            "warm-up", net, losses.labels_bce, problem, losses.labels_gradient, epochs=self.warmup_epochs,
            optimiser=warm, last=False,
        )  # fmt: skip
        align = losses.PULDALoss(problem.prior, self.temperature, self.margin)
        optimiser = self._optimiser(net)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.epochs, eta_min=0.7 * self.lr)
        pseudo = forward(net, problem.x).sigmoid().to(problem.x.device)
        pseudo[problem.labelled] = 1.0
        of_l, of_u = problem.of_l, problem.of_u

        def epoch(_: int) -> float:
            total, count = 0.0, 0
            for places in batches(len(of_u), self.batch_size, problem.generator):
                at = torch.cat([draw(of_l, self.labelled_batch, problem.generator), of_u[places]])
                x, t = problem.x[at], problem.labelled[at]
                g = net(x).clamp(-10, 10)
                lam = beta(self.alpha)
                order = torch.randperm(len(at), generator=problem.generator)
                target = lam * pseudo[at] + (1 - lam) * pseudo[at[order]]
                g_mixed = net(lam * x + (1 - lam) * x[order]).clamp(-10, 10)
                value = align.alignment(g, t) + align.two_way(g, t)
                value = value + self.mixup_weight * losses.soft_bce(g_mixed, target)
                optimiser.zero_grad(set_to_none=True)
                value.backward()
                optimiser.step()
                pseudo[at] = torch.where(t, 1.0, g.detach().sigmoid())
                total, count = total + float(value.detach()), count + 1
            schedule.step()
            return total / count

        self._loop("align", net, epoch, problem)


@dataclass(eq=False, repr=False, kw_only=True)
class PNClassifier(PUNet):
    """The oracle: the same net with true classes in place of s. It bounds what a method can hope for.

    Weights are those of the best F1 on a tenth of its rows, as published; ``selection="last"`` uses all rows.
    """

    epochs: int = 50
    batch_size: int = 128
    lr: float = 5e-4
    weight_decay: float = 1e-5
    selection: str = "f1"
    patience: int | None = 5
    needs_prior: ClassVar[bool] = False
    supervision: ClassVar[str] = "true"

    def _fit(self, problem: Problem) -> None:
        if self.selection not in ("last", "f1"):
            raise BadInput("The oracle has no proxy to choose by; selection is last or f1.")
        self.net_ = self._build(problem)
        self._descend("train", self.net_, losses.labels_bce, problem, losses.labels_gradient)
