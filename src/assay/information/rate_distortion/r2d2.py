"""R2D2: a drift learned on control energy + eps x terminal entropy, one network for a range of eps."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from assay.core.datasets import check_zip, guarded
from assay.core.errors import DataError, UsageError
from assay.information.rate_distortion.curves import Point
from assay.information.rate_distortion.entropy import (
    Knife,
    knn_entropy,
    mixture_cross_entropy,
    negentropy_entropy,
    spacing_entropy,
    transition_cross_entropy,
)
from assay.information.rate_distortion.networks import Drift, MixtureDrift, make_network
from assay.information.rate_distortion.simulation import simulate
from assay.nn.trainer import History, seeded, train

Array = NDArray[np.float64]
ENTROPIES = ("auto", "spacing", "negentropy", "knife")
SINGULAR = 2.0
"""Of E|u|^2 / (eps d) in the last step, which is eps times the Fisher information of X_1: its density is being lost."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a model is built and trained with; eps in the units of the data.

    Attributes
    ----------
    steps, batch, lr, clip
        Adam's steps, samples a step, first learning rate (falls by a cosine), largest norm of the gradient.
    simulation_steps
        Of Euler and Maruyama.
    network, hidden, image_shape
        mlp, film or conv; widths; (channels, height, width) of conv.
    initial
        ``mixture``: start from the closed-form drift of a Gaussian mixture fitted by EM. ``zero``: from no drift.
    components
        At most so many in that mixture (BIC chooses); of the one behind ``knife`` that starts from zero.
    entropy
        Estimate in training: ``spacing`` (1-D), ``negentropy``, ``knife``; auto = spacing in one dimension, else knife.
    groups
        Values of eps a step; None = one a sample for knife, one for the others.
    log_uniform
        Draw log eps evenly, not eps.
    """

    eps_range: tuple[float, float]
    steps: int = 1500
    batch: int = 1024
    simulation_steps: int = 20
    network: Literal["mlp", "film", "conv"] = "mlp"
    hidden: tuple[int, ...] = (64, 64)
    image_shape: tuple[int, int, int] | None = None
    initial: Literal["mixture", "zero"] = "mixture"
    components: int = 8
    entropy: Literal["auto", "spacing", "negentropy", "knife"] = "auto"
    groups: int | None = None
    log_uniform: bool = True
    lr: float = 2e-3
    clip: float = 1.0
    checkpointing: bool = False
    dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        low, high = self.eps_range
        if not 0 < low <= high:
            raise UsageError(f"eps_range={self.eps_range} must be (low, high) with 0 < low <= high.")
        for name in ("steps", "batch", "simulation_steps", "components"):
            if getattr(self, name) < (0 if name == "steps" else 1):
                raise UsageError(f"{name}={getattr(self, name)} is too small.")
        for name, known in (
            ("entropy", ENTROPIES),
            ("initial", ("mixture", "zero")),
            ("dtype", ("float32", "float64")),
        ):
            if getattr(self, name) not in known:
                raise UsageError(f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}.")


class R2D2:
    """The learned drift in coordinates that are centred, scaled by one number and turned to principal axes.

    Parameters
    ----------
    settings
        See `Settings`.
    device
        Of torch.
    seed
        Of weights, batches and noise.
    """

    def __init__(self, settings: Settings, *, device: str = "cpu", seed: int = 0) -> None:
        self.settings, self.device, self.seed = settings, torch.device(device), seed
        self.dtype = torch.float64 if settings.dtype == "float64" else torch.float32
        self.history: History | None = None

    def fit(self, x: Array, *, checkpoint: Path | None = None, progress: Callable[..., None] | None = None) -> R2D2:
        """Learn from samples (n, d); a tenth of them chooses the weights that are kept."""
        s = self.settings
        self._standardise(x)
        data = self._tensor(x)
        with seeded(self.seed, self.device) as generator:
            self._build(data, generator)
            if s.steps == 0:
                return self
            held = min(4096, max(1, len(data) // 10))
            order = torch.randperm(len(data), generator=generator)
            valid, rest = data[order[:held]], data[order[held:]]
            batch = min(s.batch, len(rest))
            epochs = max(1, round(s.steps / max(1, len(rest) // batch)))
            optimiser = torch.optim.Adam(self.parts.parameters(), s.lr)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
            start, before = copy.deepcopy(self.parts.state_dict()), self._validate(valid)
            self.history = train(
                self.parts,
                lambda x0: self.loss(x0, self._draw_eps(len(x0), generator), generator),
                [rest],
                epochs=epochs,
                batch_size=batch,
                optimiser=optimiser,
                generator=generator,
                schedule=schedule,
                validate=lambda: self._validate(valid),
                higher_is_better=False,
                clip=s.clip,
                drop_last=True,
                checkpoint=checkpoint,
                progress=progress,
            )
            best = self.history.best_value
            if best is None or best > before:
                # A closed form that fits is not improved by learning.
                self.parts.load_state_dict(start)
        return self

    def loss(self, x0: Tensor, eps: Tensor, generator: torch.Generator) -> Tensor:
        """Mean over samples of (energy + eps H(X_1)) / eps, in standard coordinates; eps (n, 1)."""
        s = self.settings
        path = simulate(
            self.drift, x0, eps, steps=s.simulation_steps, generator=generator, checkpointing=s.checkpointing
        )
        return (path.energy / eps[:, 0]).mean() + self._entropy(path.end, eps)

    def simulate(self, x: Array, eps: float, *, seed: int = 0, keep: bool = False) -> tuple[Array, Array]:
        """(X_1 or all states, energy of every path) from samples (n, d), in the units of the data."""
        generator = torch.Generator().manual_seed(seed % 2**63)
        with torch.no_grad():
            path = simulate(
                self.drift,
                self._tensor(x),
                self._eps(eps),
                steps=self.settings.simulation_steps,
                generator=generator,
                keep=keep,
            )
        found = path.states if path.states is not None else path.end
        return self._back(found), path.energy.double().cpu().numpy() * self.scale**2

    def point(self, eps: float, fit: Array, test: Array, *, noise_seeds: int = 2) -> Point:
        """R and D at ``eps`` on samples ``test``; densities of X_1 are fitted on the ends of paths from ``fit``.

        Every candidate density gives an upper bound (of R at the measured D), and the smallest is taken: the learned
        mixture; in up to three dimensions the law of the last step (`transition_cross_entropy`), above one fitted by
        EM. ``extra`` tells the rate with Kozachenko and Leonenko's entropy (``rate_knn``), which is no bound.
        """
        low, high = self.settings.eps_range
        if not low * (1 - 1e-9) <= eps <= high * (1 + 1e-9):
            raise UsageError(f"eps={eps:g} lies outside eps_range={self.settings.eps_range}, for which it was trained.")
        n = self.settings.simulation_steps
        generator = torch.Generator().manual_seed((self.seed + 1) % 2**63)
        x0, e = self._tensor(test), self._eps(eps)
        with torch.no_grad():
            made = simulate(self.drift, self._tensor(fit), e, steps=n, generator=generator)
            paths = [simulate(self.drift, x0, e, steps=n, generator=generator) for _ in range(noise_seeds)]
            ends = torch.cat([p.end for p in paths])
            found = {}
            if self.knife is not None:
                found["knife"] = -self.knife.log_prob(ends, e.expand(len(ends), 1))
            if self.d <= 3:
                found["transition"] = transition_cross_entropy(made.last_mean, float(e) / n, ends, made.end)
            else:
                found["mixture"] = self._fitted(made.end, ends)
        scale, d = self.scale, self.d
        best = min(found, key=lambda name: float(found[name].double().mean()))
        shape = (noise_seeds, len(x0))
        entropy = found[best].double().view(shape)
        energy = torch.stack([p.energy for p in paths]).double()
        cost = torch.stack([((p.end - x0) ** 2).sum(1) / 2 for p in paths]).double()
        # Scaling adds d log s to the entropy, and d/2 log(2 pi eps) takes it away again: rates are those of the data.
        gained = (energy - cost) / float(e) + entropy - d / 2 * math.log(2 * math.pi * float(e))
        rows = gained.mean(0)
        rate = float(rows.mean())
        other = knn_entropy(paths[0].end.double().cpu().numpy())[0]
        pressed = float(torch.stack([p.last_drift for p in paths]).mean() / (float(e) * d))
        self._warn(eps, rate, pressed)
        return Point(
            eps,
            max(rate, 0.0),
            float(cost.mean()) * scale**2,
            float(entropy.mean()) + d * math.log(scale),
            float(energy.mean()) * scale**2,
            float(rows.std() / math.sqrt(len(rows))),
            "upper",
            {"rate_knn": rate - float(entropy.mean()) + other, "rate_raw": rate, "end_drift": pressed},
        )

    def save(self, path: Path | str) -> Path:
        """One file, read back without running code from it."""
        path = Path(path)
        state = {
            "settings": asdict(self.settings),
            "seed": self.seed,
            "centre": torch.from_numpy(self.centre),
            "basis": torch.from_numpy(self.basis),
            "scale": self.scale,
            "mixture": self.mixture,
            "variance": self.drift.variance,
            "weights": self.parts.state_dict(),
        }
        torch.save(state, path)
        return path

    @classmethod
    def load(cls, path: Path | str, *, device: str = "cpu") -> R2D2:
        """Read what `save` wrote."""
        with guarded(path, "a saved R2D2 model"):
            check_zip(path)
            state = torch.load(path, map_location=device, weights_only=True)
            given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in state["settings"].items()}
            model = cls(Settings(**given), device=device, seed=int(state["seed"]))
            model.centre, model.basis = state["centre"].cpu().numpy(), state["basis"].cpu().numpy()
            model.scale, model.d = float(state["scale"]), len(model.centre)
            _check_state(state, model.settings, model.d, path)
            model._assemble(state["mixture"], state["variance"])
            model.parts.load_state_dict(state["weights"])
        return model

    def _standardise(self, x: Array) -> None:
        self.d = x.shape[1]
        self.centre = x.mean(0)
        covariance = np.atleast_2d(np.cov(x.T))
        # One scale for all axes: the squared error allows turning and uniform scaling, nothing else.
        self.scale = float(np.sqrt(np.trace(covariance) / self.d))
        # Convolutions need pixels to stay pixels.
        self.basis = np.eye(self.d) if self.settings.network == "conv" else np.linalg.eigh(covariance)[1]

    def _build(self, data: Tensor, generator: torch.Generator) -> None:
        s = self.settings
        variance = data.var(0)
        if s.initial == "mixture":
            mixture = _fit_mixture(data, s.components, self.seed)
        else:
            chosen = data[torch.randint(0, len(data), (s.components,), generator=generator)]
            k, d = chosen.shape
            mixture = (
                torch.full((k,), 1 / k),
                chosen,
                variance.expand(k, d).clone(),
                torch.eye(d).expand(k, d, d).clone(),
            )
        self._assemble(tuple(m.to(self.device, self.dtype) for m in mixture), variance)

    def _assemble(self, mixture: tuple[Tensor, ...], variance: Tensor) -> None:
        s = self.settings
        self.mixture = mixture
        low, high = (e / self.scale**2 for e in s.eps_range)
        base = MixtureDrift(*mixture) if s.initial == "mixture" else None
        net = make_network(s.network, self.d, s.hidden, s.image_shape)
        self.drift = Drift(base, net, variance, (low, high)).to(self.device, self.dtype)
        self.knife = None
        if self._kind == "knife":
            self.knife = Knife(mixture[0], mixture[1], mixture[2], mixture[3], (low, high)).to(self.device, self.dtype)
        self.parts = nn.ModuleList([self.drift] if self.knife is None else [self.drift, self.knife])

    @property
    def _kind(self) -> str:
        kind = self.settings.entropy
        if kind == "spacing" and self.d > 1:
            raise UsageError(f"entropy='spacing' is for one dimension; this source has {self.d}.")
        return kind if kind != "auto" else "spacing" if self.d == 1 else "knife"

    def _groups(self, n: int) -> int:
        wanted = self.settings.groups or (n if self._kind == "knife" else 1)
        if n % wanted and self._kind != "knife":
            raise UsageError(f"A batch of {n} samples cannot be split into groups={wanted} equal parts.")
        return min(wanted, n)

    def _draw_eps(self, n: int, generator: torch.Generator) -> Tensor:
        groups = self._groups(n)
        u = torch.rand(groups, 1, generator=generator)
        low, high = self.drift.eps_range
        eps = low * (high / low) ** u if self.settings.log_uniform else low + (high - low) * u
        return eps.repeat_interleave(math.ceil(n / groups), 0)[:n].to(self.device, self.dtype)

    def _entropy(self, end: Tensor, eps: Tensor) -> Tensor:
        if self.knife is not None:
            return -self.knife.log_prob(end, eps).mean()
        groups = self._groups(len(end))
        if self._kind == "spacing":
            return spacing_entropy(end.view(groups, -1)).mean()
        return negentropy_entropy(end.view(groups, -1, self.d)).mean()

    @torch.no_grad()
    def _validate(self, x0: Tensor) -> float:
        # The same noise and levels every time: differences between epochs are those of the weights.
        generator = torch.Generator().manual_seed(self.seed % 2**63)
        levels = torch.linspace(0, 1, 4)
        low, high = self.drift.eps_range
        total = 0.0
        for level in levels.tolist():
            eps = torch.full((len(x0), 1), low * (high / low) ** level, dtype=self.dtype, device=self.device)
            path = simulate(self.drift, x0, eps, steps=self.settings.simulation_steps, generator=generator)
            if self.knife is not None:
                entropy = -self.knife.log_prob(path.end, eps).mean()
            else:
                entropy = spacing_entropy(path.end[:, 0]) if self.d == 1 else negentropy_entropy(path.end)
            total += float((path.energy / eps[:, 0]).mean() + entropy)
        return total / len(levels)

    def _fitted(self, fit: Tensor, test: Tensor) -> Tensor:
        found = mixture_cross_entropy(
            fit.double().cpu().numpy(), test.double().cpu().numpy(), self.settings.components, self.seed
        )
        return torch.from_numpy(found).to(self.device)

    def _warn(self, eps: float, rate: float, pressed: float) -> None:
        if rate < 0:
            warnings.warn(f"The rate at eps={eps:g} came out as {rate:.3g} nats and is given as 0.", stacklevel=3)
        # The first is a sign, the second a proof: such a direction has rate 0.
        if pressed > SINGULAR or float(self.drift.variance.min()) * self.scale**2 <= eps:
            warnings.warn(
                f"At eps={eps:g} the optimal reconstruction loses its density: the drift explodes at the end. Use "
                "method='ba' or 'wgd' for so low a rate.",
                stacklevel=3,
            )

    def _tensor(self, x: Array) -> Tensor:
        return torch.as_tensor((x - self.centre) @ self.basis / self.scale, dtype=self.dtype, device=self.device)

    def _back(self, x: Tensor) -> Array:
        return x.double().cpu().numpy() * self.scale @ self.basis.T + self.centre

    def _eps(self, eps: float) -> Tensor:
        return torch.full((1, 1), eps / self.scale**2, dtype=self.dtype, device=self.device)


def _check_state(state: Mapping[str, Any], settings: Settings, d: int, path: Path | str) -> None:
    """Shapes and numbers of a saved model; its settings build no network larger than the weights beside them."""
    shapes = {"centre": (d,), "basis": (d, d), "variance": (d,)}
    k = len(state["mixture"][0])
    given = {name: state[name] for name in shapes}
    for name, value, shape in zip(
        ("weights", "means", "variances", "axes"), state["mixture"], ((k,), (k, d), (k, d), (k, d, d))
    ):
        given[f"mixture, {name}"], shapes[f"mixture, {name}"] = value, shape
    for name, value in given.items():
        if tuple(value.shape) != shapes[name]:
            raise DataError(f"{path}: {name} has shape {tuple(value.shape)}, and must have {shapes[name]}.")
        if not torch.isfinite(value).all():
            raise DataError(f"{path}: {name} holds numbers that are not finite.")
    for name, value in state["weights"].items():
        # Minus infinity is the logarithm of a component without weight.
        if torch.isnan(value).any():
            raise DataError(f"{path}: the weights {name[:60]!r} hold NaN.")
    if not (math.isfinite(state["scale"]) and state["scale"] > 0):
        raise DataError(f"{path}: scale is {state['scale']}, and must be positive.")
    held = sum(value.numel() for value in state["weights"].values())
    widths = settings.hidden
    if sum(a * b for a, b in pairwise(widths)) + sum(widths) > held:
        raise DataError(f"{path}: the settings' hidden={widths} is larger than the {held} weights in the file.")


def _fit_mixture(data: Tensor, most: int, seed: int) -> tuple[Tensor, ...]:
    """The mixture of up to ``most`` components with the best BIC: superfluous ones would have variances below eps."""
    from sklearn.mixture import GaussianMixture

    points, best, worse = data[:20_000].double().cpu().numpy(), None, 0
    for k in range(1, most + 1):
        with warnings.catch_warnings():
            # EM that has not converged is as good a beginning.
            warnings.simplefilter("ignore")
            model = GaussianMixture(k, init_params="k-means++", max_iter=100, random_state=seed % 2**32).fit(points)
        bic = model.bic(points)
        if best is None or bic < best[0]:
            best, worse = (bic, model), 0
        else:
            worse += 1
        if worse == 2:
            break
    assert best is not None
    model = best[1]
    values, axes = np.linalg.eigh(np.asarray(model.covariances_))
    return tuple(torch.from_numpy(np.ascontiguousarray(a)) for a in (model.weights_, model.means_, values, axes))
