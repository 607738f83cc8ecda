"""Disambiguation by selecting and mixing rows: Self-PU, P3Mix-C, P3Mix-E, Robust-PU."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from assay.learning.pu_bench import losses
from assay.learning.pu_bench.curriculum import paced_threshold, self_paced_weights, sigmoid_rampup
from assay.learning.pu_bench.estimators.base import Problem, PUNet, beta, draw
from assay.nn.trainer import batches, forward


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, decay: float) -> None:
    """Move a teacher's weights to a student's: exponential average; buffers are copied."""
    for mine, other in zip(teacher.parameters(), student.parameters()):
        mine.lerp_(other, 1 - decay)
    for mine, other in zip(teacher.buffers(), student.buffers()):
        mine.copy_(other)


def teacher_of(student: Any) -> Any:
    """A copy that is never trained."""
    teacher = copy.deepcopy(student).eval()
    for parameter in teacher.parameters():
        parameter.requires_grad_(False)
    return teacher


@dataclass(eq=False, repr=False, kw_only=True)
class SelfPUClassifier(PUNet):
    """Self-paced selection by two nets with averaged teachers (Chen et al. 2020, arXiv 2006.11280).

    From epoch ``start`` on, every second epoch, each net takes its teacher's most confident unlabelled rows as
    clean, half
    of them positive, half negative, at most the share in ``shares``; the rest goes to nnPU. Teachers enter as targets
    from ``consistency_start`` on. Logits are the mean of the two nets'.
    """

    lr: float = 1e-3
    weight_decay: float = 5e-4
    start: int = 5
    ramp: int = 30
    shares: tuple[float, float] = (0.1, 0.2)
    consistency_start: int = 10
    consistency_weight: float = 0.3
    decay: float = 0.999

    def _fit(self, problem: Problem) -> None:
        self.net_ = nn.ModuleList([self._build(problem), self._build(problem)])
        teachers = [teacher_of(net) for net in self.net_]
        optimisers = [self._optimiser(net) for net in self.net_]
        n, of_u = len(problem.x), problem.of_u
        # Target of the clean rows by net: NaN = not clean.
        clean = [torch.full((n,), torch.nan) for _ in teachers]
        steps = 0

        def epoch(number: int) -> float:
            nonlocal steps
            if number >= self.start and (number - self.start) % 2 == 0:
                for at, teacher in enumerate(teachers):
                    share = self.shares[at] * min(max(number - self.start, 1) / self.ramp, 1.0)
                    half = int(len(of_u) * share) // 2
                    clean[at].fill_(torch.nan)
                    if half:
                        order = of_u[forward(teacher, problem.x[of_u]).argsort()]
                        clean[at][order[:half]], clean[at][order[-half:]] = 0.0, 1.0
            total, count = 0.0, 0
            for index in batches(n, self.batch_size, problem.generator):
                x, t = problem.x[index], problem.labelled[index]
                steps += 1
                for at, (net, teacher, optimiser) in enumerate(zip(self.net_, teachers, optimisers)):
                    g, target = net(x), clean[at][index].to(x.device)
                    sure = ~target.isnan()
                    value = losses.nnpu_loss(g[~sure], t[~sure], problem.prior) if (~sure).any() else g.sum() * 0
                    if sure.any():
                        value = value + losses.soft_bce(g[sure], target[sure])
                    if number >= self.consistency_start:
                        with torch.no_grad():
                            aim = teacher(x).sigmoid()
                        weight = self.consistency_weight * sigmoid_rampup(number, 20)
                        value = value + weight * ((g.sigmoid() - aim) ** 2).mean()
                    optimiser.zero_grad(set_to_none=True)
                    value.backward()
                    optimiser.step()
                    # An average over more steps than there were would still be the first weights.
                    follow(teacher, net, min(1 - 1 / (steps + 1), self.decay))
                    total, count = total + float(value.detach()), count + 1
            return total / count

        self._loop("train", self.net_, epoch, problem)

    def _logits(self, x: Tensor) -> Tensor:
        first, second = self.net_
        return (forward(first, x) + forward(second, x)) / 2


@dataclass(eq=False, repr=False, kw_only=True)
class P3MixCClassifier(PUNet):
    """Partner mixing with correction of confident unlabelled rows (Li et al. 2022, P3Mix-C).

    Rows near the boundary, scores between 1 - ``boundary`` and ``boundary``, are mixed with the labelled rows of
    largest
    predictive entropy, others at random, at the input or one of the first ``layers`` blocks.
    """

    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 0.0
    iterations: int = 100
    start: int = 15
    boundary: float = 0.85
    pool: int = 100
    alpha: float = 0.5
    layers: int = 3
    unlabelled_weight: float = 0.5
    entropy_weight: float = 0.05
    correct: bool = True
    early_weight: float = 0.0
    decay: float = 0.997
    halve_every: int = 20

    needs_prior = False

    def _fit(self, problem: Problem) -> None:
        self.net_ = net = self._build(problem)
        teacher = teacher_of(net)
        optimiser = self._optimiser(net, betas=(0.5, 0.99))
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, self.halve_every, 0.5)
        of_l, of_u = problem.of_l, problem.of_u
        half = max(1, self.batch_size // 2)
        depth = min(self.layers, len(net.blocks))

        def epoch(number: int) -> float:
            score = forward(teacher, problem.x).sigmoid()
            doubt = -(score * score.clamp(min=1e-7).log() + (1 - score) * (1 - score).clamp(min=1e-7).log())
            candidates = of_l[doubt[of_l].argsort(descending=True)[: self.pool]]
            target = problem.labelled.cpu().float()
            late = number >= self.start
            near = torch.zeros(len(score), dtype=torch.bool)
            if late:
                near[of_u] = (score[of_u] > 1 - self.boundary) & (score[of_u] < self.boundary)
                if self.correct:
                    target[of_u[score[of_u] >= self.boundary]] = 1.0
            total = 0.0
            for _ in range(self.iterations):
                index = torch.cat([draw(of_l, half, problem.generator), draw(of_u, half, problem.generator)])
                partner = index[torch.randperm(len(index), generator=problem.generator)]
                chosen = draw(candidates, len(index), problem.generator)
                partner = torch.where(near[index], chosen, partner)
                lam = beta(self.alpha)
                lam = max(lam, 1 - lam)
                layer = int(torch.randint(depth + 1, (), generator=problem.generator))
                g = net.mixed(problem.x[index], problem.x[partner], lam, layer)
                aim = (lam * target[index] + (1 - lam) * target[partner]).to(g.device)
                value = losses.soft_bce(g[:half], aim[:half])
                value = value + self.unlabelled_weight * losses.soft_bce(g[half:], aim[half:])
                p = g.sigmoid()
                value = value + self.entropy_weight * losses.entropy(p)
                if self.early_weight and late:
                    t = (lam * score[index] + (1 - lam) * score[partner]).to(g.device)
                    agree = (t * p + (1 - t) * (1 - p)).clamp(max=1 - 1e-4)
                    value = value + self.early_weight * torch.log1p(-agree).mean()
                optimiser.zero_grad(set_to_none=True)
                value.backward()
                optimiser.step()
                follow(teacher, net, min(1 - 1 / (number + 1), self.decay))
                total += float(value.detach())
            schedule.step()
            return total / self.iterations

        self._loop("train", net, epoch, problem)


@dataclass(eq=False, repr=False, kw_only=True)
class P3MixEClassifier(P3MixCClassifier):
    """Partner mixing with early-learning regularisation in place of correction (P3Mix-E); see `P3MixCClassifier`."""

    start: int = 5
    unlabelled_weight: float = 1.0
    entropy_weight: float = 0.01
    correct: bool = False
    early_weight: float = 0.5


@dataclass(eq=False, repr=False, kw_only=True)
class RobustPUClassifier(PUNet):
    """Self-paced learning from the easy to the hard (Zhu et al. 2023, Robust-PU).

    After nnPU, rows are weighted by their hardness (`assay.learning.pu_bench.curriculum.self_paced_weights`),
    unlabelled
    ones as negatives. ``epochs`` episodes of ``inner_epochs``, a fresh optimiser each; the threshold grows an epoch.
    ``smoothing`` is the weight of a row's earlier hardness.
    """

    epochs: int = 5
    lr: float = 1e-2
    pretrain_epochs: int = 20
    pretrain_lr: float = 1e-4
    inner_epochs: int = 5
    pacing: str = "linear"
    starts: tuple[float, float] = (0.1, 0.11)
    temperatures: tuple[float, float] = (1.0, 1.5)
    grow_steps: int = 10
    smoothing: float = 0.0

    def _fit(self, problem: Problem) -> None:
        self.net_ = net = self._build(problem)
        prior = problem.prior
        self._descend(
            "pre-train", net, partial(losses.nnpu_loss, prior=prior), problem,
            partial(losses.nnpu_gradient, prior=prior), epochs=self.pretrain_epochs,
            optimiser=self._optimiser(net, lr=self.pretrain_lr), last=False,
        )  # fmt: skip
        labelled = problem.labelled.cpu().numpy()
        heat = np.where(labelled, self.temperatures[0], self.temperatures[1])
        sign = np.where(labelled, 1.0, -1.0)
        hardness: np.ndarray | None = None
        done = 0

        def episode(_: int) -> float:
            nonlocal hardness, done
            optimiser = self._optimiser(net)
            total, count = 0.0, 0
            for _ in range(self.inner_epochs):
                g = forward(net, problem.x).double().numpy()
                # By row, in the order of the data: a shuffled pass would average different rows.
                now = np.logaddexp(0.0, -sign * g / heat)
                hardness = now if hardness is None else self.smoothing * hardness + (1 - self.smoothing) * now
                weight = np.empty(len(now))
                for side, start in zip((labelled, ~labelled), self.starts):
                    theta = paced_threshold(done, start, self.grow_steps)
                    weight[side] = self_paced_weights(hardness[side], theta, self.pacing)
                done += 1
                weights = torch.from_numpy(weight).float().to(problem.x.device)
                net.train()
                for index in batches(len(problem.x), self.batch_size, problem.generator):
                    if not bool(weights[index].any()):
                        continue
                    target = problem.labelled[index].float()
                    value = losses.soft_bce(net(problem.x[index]), target, weights[index])
                    optimiser.zero_grad(set_to_none=True)
                    value.backward()
                    optimiser.step()
                    total, count = total + float(value.detach()), count + 1
            return total / count if count else 0.0

        self._loop("self-paced", net, episode, problem)
