"""Generative and adversarial methods: VAE-PU, PAN, CGenPU."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.learning.pu_bench import losses
from assay.learning.pu_bench.errors import BadInput
from assay.learning.pu_bench.estimators.base import Problem, PUNet, draw
from assay.nn.nets import MLP
from assay.nn.trainer import batches, forward


def _step(optimiser: torch.optim.Optimizer, value: Tensor) -> float:
    optimiser.zero_grad(set_to_none=True)
    value.backward()
    optimiser.step()
    return float(value.detach())


@dataclass(eq=False, repr=False, kw_only=True)
class PANClassifier(PUNet):
    """Predictive adversarial networks (Hu et al. 2021): a recogniser and a discriminator of one kind of net.

    The discriminator tells labelled rows (real) from unlabelled rows that the recogniser calls positive (fake). The
    recogniser learns labelled rows as positive and is drawn to the discriminator's opinion of unlabelled rows, and
    pushed from its opposite, by KL divergences that reach the recogniser.

    ``objective="first_code"`` is what the first public code computes: the discriminator's rows are the unlabelled ones
    (real) and those of them called positive (fake); the recogniser's term of weight ``pull`` has no gradient, so that
    ``push`` alone, towards 0 where the discriminator says real, meets unlabelled rows.
    """

    epochs: int = 120
    batch_size: int = 64
    judge_lr: float | None = None
    pull: float = 1.5
    push: float = 0.4
    objective: str = "kl"
    needs_prior: ClassVar[bool] = False

    def _fit(self, problem: Problem) -> None:
        if self.objective not in ("kl", "first_code"):
            raise BadInput(f"objective={self.objective!r} is not known; there are kl, first_code.")
        self.net_, judge = self._build(problem), self._build(problem)
        mine, its = self._optimiser(self.net_), self._optimiser(judge, lr=self.judge_lr)
        of_l, of_u = problem.of_l, problem.of_u

        def epoch(_: int) -> float:
            total, count = 0.0, 0
            for places in batches(len(of_u), self.batch_size, problem.generator):
                x_l, x_u = problem.x[draw(of_l, len(places), problem.generator)], problem.x[of_u[places]]
                with torch.no_grad():
                    says = self.net_(x_u).sigmoid()
                if self.objective == "kl":
                    # Unlabelled rows count as fake as far as the recogniser believes them positive.
                    judged = F.softplus(-judge(x_l)).mean() + (says * F.softplus(judge(x_u))).mean()
                else:
                    d_u = judge(x_u)
                    judged = F.softplus(-d_u).mean() + losses.masked_mean(F.softplus(d_u), says > 0.5)
                _step(its, judged)
                with torch.no_grad():
                    d_u = judge(x_u)
                    opinion = d_u.sigmoid()
                g_l, g_u = self.net_(x_l), self.net_(x_u)
                value = losses.soft_bce(g_l, torch.ones_like(g_l))
                if self.objective == "kl":
                    r = g_u.sigmoid()
                    away = losses.bernoulli_kl(opinion, 1 - r).clamp(max=5)
                    value = value + self.pull * (losses.bernoulli_kl(opinion, r) - self.push * away).mean()
                else:
                    value = value + self.pull * F.softplus(-d_u).mean()
                    value = value + self.push * (opinion * F.softplus(g_u)).mean()
                total, count = total + _step(mine, value), count + 1
            return total / count

        self._loop("adversarial", [self.net_, judge], epoch, problem)


@dataclass(eq=False, repr=False, kw_only=True)
class CGenPUClassifier(PUNet):
    """A conditional generator with an auxiliary classifier (CGenPU); the classifier predicts."""

    epochs: int = 200
    batch_size: int = 32
    lr: float = 3e-4
    judge_lr: float = 1e-4
    classifier_lr: float = 5e-5
    noise: int = 256
    hidden: int = 256
    prior_weight: float = 3.0
    generator_weight: float = 0.5

    def _fit(self, problem: Problem) -> None:
        self.net_ = net = self._build(problem)
        judge = self._build(problem, biased=False)
        size = math.prod(problem.x.shape[1:])
        maker = MLP(self.noise + 1, (self.hidden, self.hidden), size).to(problem.x.device)
        betas = (0.5, 0.999)
        of_maker = self._optimiser(maker, betas=betas, kind="adam")
        of_judge = self._optimiser(judge, lr=self.judge_lr, betas=betas, kind="adam")
        of_net = self._optimiser(net, lr=self.classifier_lr, betas=betas)
        of_l = problem.of_l
        prior = torch.tensor(problem.prior, device=problem.x.device)
        one = torch.ones((), device=problem.x.device)

        def made(count: int, label: float) -> Tensor:
            z = torch.randn(count, self.noise, device=problem.x.device)
            flat = maker(torch.cat([z, torch.full((count, 1), label, device=z.device)], 1))
            return flat.reshape(count, *problem.x.shape[1:])

        def between(of_p: Tensor, of_n: Tensor, real: Tensor | None) -> Tensor:
            value = losses.elementwise_kl(of_p, 1 - of_n)
            return value if real is None else value + losses.elementwise_kl(real.mean().expand_as(of_p), of_p)

        def epoch(_: int) -> float:
            total, count = 0.0, 0
            for index in batches(len(problem.x), self.batch_size, problem.generator):
                n = len(index)
                if n < 2:
                    continue
                x_l = problem.x[draw(of_l, n, problem.generator)]
                with torch.no_grad():
                    fake = torch.cat([made(n, 1.0), made(n, 0.0)])
                real = judge(torch.cat([x_l, problem.x[index]]))
                _step(of_judge, F.softplus(-real).mean() + F.softplus(judge(fake)).mean())
                a_l, a_p, a_n = net(x_l).sigmoid(), net(fake[:n]).sigmoid(), net(fake[n:]).sigmoid()
                value = losses.elementwise_kl(one.expand_as(a_l), a_l) + between(a_p, a_n, a_l)
                of_all = net(problem.x[index]).sigmoid().mean()
                value = value + self.prior_weight * losses.bernoulli_kl(prior, of_all)
                total, count = total + _step(of_net, value), count + 1
                g_p, g_n = made(n, 1.0), made(n, 0.0)
                a_l, a_p, a_n = net(x_l).sigmoid().detach(), net(g_p).sigmoid(), net(g_n).sigmoid()
                fool = F.softplus(-judge(torch.cat([g_p, g_n]))).mean()
                _step(of_maker, fool + self.generator_weight * between(a_p, a_n, a_l))
            return total / count if count else 0.0

        self._loop("adversarial", [net, judge, maker], epoch, problem)


class _Coder(nn.Module):
    """Two latent vectors of a row, for its class and for whether it is observed, and back."""

    def __init__(self, size: int, h_y: int, h_o: int, hidden: int) -> None:
        super().__init__()
        self.h_y = h_y
        self.encode = MLP(size, (hidden, hidden), 2 * (h_y + h_o))
        self.decode = MLP(h_y + h_o, (hidden, hidden), size)
        self.observed = nn.Linear(h_o, 1)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Means and log variances of both: (mean_y, log_var_y, mean_o, log_var_o)."""
        mean, log_var = self.encode(x).chunk(2, 1)
        log_var = log_var.clamp(-8, 8)
        return mean[:, : self.h_y], log_var[:, : self.h_y], mean[:, self.h_y :], log_var[:, self.h_y :]


@dataclass(eq=False, repr=False, kw_only=True)
class VAEPUClassifier(PUNet):
    """Variational auto-encoder with virtual positives (Na et al. 2020, VAE-PU).

    A row has a latent for its class, with a mixture of two normals as prior, and one for whether it is observed.
    Positives
    that look unlabelled are made by giving labelled rows the second latent of the nearest unlabelled row; a classifier
    then learns from labelled, made and unlabelled rows by the non-negative risk. Stages: ``pretrain_epochs`` of the
    encoder, ``vae_epochs`` with mixture and adversary, then ``epochs`` of the classifier, its judgement fed back to
    the encoder. Squared error reconstructs.
    """

    epochs: int = 40
    batch_size: int = 100
    lr: float = 3e-4
    pretrain_epochs: int = 100
    vae_epochs: int = 60
    classifier_lr: float = 3e-4
    h_y: int = 32
    h_o: int = 16
    hidden: int = 128
    labelled_share: float = 0.01
    adversary_weight: float = 0.1
    consistency_weight: float = 0.1
    observed_weight: float = 1.0

    def _fit(self, problem: Problem) -> None:
        size = math.prod(problem.x.shape[1:])
        device = problem.x.device
        self.coder_ = coder = _Coder(size, self.h_y, self.h_o, self.hidden).to(device)
        judge = MLP(size, (self.hidden,), 1).to(device)
        self.net_ = net = self._build(problem)
        of_coder, of_judge = self._optimiser(coder), self._optimiser(judge)
        of_net = self._optimiser(net, lr=self.classifier_lr)
        of_l, of_u, n = problem.of_l, problem.of_u, len(problem.x)
        mixture: tuple[Tensor, Tensor, Tensor] | None = None

        def vae(index: Tensor) -> Tensor:
            x, t = problem.x[index].flatten(1), problem.labelled[index].float()
            m_y, v_y, m_o, v_o = coder.split(x)
            z_y = m_y + torch.randn_like(m_y) * (v_y / 2).exp()
            z_o = m_o + torch.randn_like(m_o) * (v_o / 2).exp()
            value = ((coder.decode(torch.cat([z_y, z_o], 1)) - x) ** 2).sum(1).mean() / 2
            value = value + (0.5 * (m_o**2 + v_o.exp() - 1 - v_o).sum(1)).mean()
            value = value + _to_mixture(m_y, v_y, z_y, mixture)
            return value + self.observed_weight * losses.soft_bce(coder.observed(z_o)[:, 0], t)

        def virtual(count: int) -> tuple[Tensor, Tensor]:
            x_l = problem.x[draw(of_l, count, problem.generator)].flatten(1)
            x_u = problem.x[draw(of_u, 4 * count, problem.generator)].flatten(1)
            y_l, _, o_l, _ = coder.split(x_l)
            _, _, o_u, _ = coder.split(x_u)
            near = torch.cdist(o_l, o_u).argmin(1)
            return coder.decode(torch.cat([y_l, o_u[near]], 1)), x_u

        def pretrain(_: int) -> float:
            steps = [_step(of_coder, vae(index)) for index in batches(n, self.batch_size, problem.generator)]
            return float(np.mean(steps))

        def adversary(_: int) -> float:
            total, count = 0.0, 0
            for index in batches(n, self.batch_size, problem.generator):
                with torch.no_grad():
                    fake, real = virtual(len(index))
                _step(of_judge, F.softplus(-judge(real)).mean() + F.softplus(judge(fake)).mean())
                fake = virtual(len(index))[0]
                value = vae(index) + self.adversary_weight * F.softplus(-judge(fake)).mean()
                total, count = total + _step(of_coder, value), count + 1
            return total / count

        share = min(self.labelled_share, problem.prior / 2)

        def classify(_: int) -> float:
            total, count = 0.0, 0
            for places in batches(len(of_u), self.batch_size, problem.generator):
                k = len(places)
                x_l, x_u = problem.x[draw(of_l, k, problem.generator)], problem.x[of_u[places]]
                with torch.no_grad():
                    fake = virtual(k)[0].reshape(k, *x_l.shape[1:])
                g_l, g_v, g_u = net(torch.cat([x_l, fake, x_u])).split(k)
                positive = share * torch.sigmoid(-g_l).mean() + (problem.prior - share) * torch.sigmoid(-g_v).mean()
                wrong = share * torch.sigmoid(g_l).mean() + (problem.prior - share) * torch.sigmoid(g_v).mean()
                negative = torch.sigmoid(g_u).mean() - wrong
                value = -negative if negative.item() < 0 else positive + negative
                total, count = total + _step(of_net, value), count + 1
                if count % 5 == 0:
                    made = virtual(k)[0].reshape(k, *x_l.shape[1:])
                    _step(of_coder, vae(of_u[places]) + self.consistency_weight * F.softplus(-net(made)).mean())
            return total / count

        self._loop("encode", coder, pretrain, problem, epochs=self.pretrain_epochs, last=False)
        mixture = self._mixture(coder, problem)
        self._loop("adversarial", [coder, judge], adversary, problem, epochs=self.vae_epochs, last=False)
        self._loop("classify", [net, coder], classify, problem)

    def _mixture(self, coder: _Coder, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
        """Weights (2,), means and log variances (2, h_y) of the class latent."""
        from sklearn.mixture import GaussianMixture

        means = forward(lambda x: coder.split(x)[0], problem.x.flatten(1)).double().numpy()
        seed = int(torch.randint(2**31 - 1, (), generator=problem.generator))
        found: Any = GaussianMixture(2, covariance_type="diag", reg_covar=1e-3, random_state=seed).fit(means)
        kept = (found.weights_, found.means_, np.log(found.covariances_))
        weight, mean, log_var = (torch.from_numpy(np.asarray(part)).float().to(problem.x.device) for part in kept)
        return weight, mean, log_var


def _to_mixture(mean: Tensor, log_var: Tensor, z: Tensor, mixture: tuple[Tensor, Tensor, Tensor] | None) -> Tensor:
    """KL part of the class latent: to a standard normal, or to a mixture by its responsibilities (Jiang et al.
    2017).
    """
    if mixture is None:
        return (0.5 * (mean**2 + log_var.exp() - 1 - log_var).sum(1)).mean()
    weight, centre, spread = mixture
    log_p = -0.5 * (((z[:, None] - centre) ** 2) / spread.exp() + spread).sum(2) + weight.clamp(min=1e-6).log()
    gamma = log_p.softmax(1).detach()
    inside = spread + (log_var.exp()[:, None] + (mean[:, None] - centre) ** 2) / spread.exp() - log_var[:, None] - 1
    return (gamma * (0.5 * inside.sum(2) + (gamma.clamp(min=1e-6).log() - weight.clamp(min=1e-6).log()))).sum(1).mean()
