"""How sharp a minimum is: largest loss in a ball, top Hessian eigenvalue, trace; and the exact answer on quadratics.

``loss`` is always a function without arguments of the current weights of ``params``, with a graph.
"""

# torch exports its multi-tensor kernels under private names only.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.core.errors import UsageError
from assay.training.xsam.engine import EPS, dot, norm

Loss = Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class TopEigenvalue:
    """Largest eigenvalue in absolute value with its unit vector; ``residual`` is ``|Hv - value v|``."""

    value: float
    vector: list[Tensor]
    residual: float
    iterations: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Hutchinson's estimate with its standard error over probes."""

    value: float
    error: float


@contextmanager
def moved(params: Sequence[Tensor], *terms: tuple[Sequence[Tensor], float]) -> Iterator[None]:
    """Inside, ``params`` are moved by the sum of ``vectors * factor``; afterwards they are what they were, exactly."""
    home = [p.detach().clone() for p in params]
    with torch.no_grad():
        for vectors, factor in terms:
            torch._foreach_add_(list(params), list(vectors), alpha=factor)
    try:
        yield
    finally:
        with torch.no_grad():
            torch._foreach_copy_(list(params), home)


def gradient(loss: Loss, params: Sequence[Tensor]) -> list[Tensor]:
    """Gradient of the loss, zero where it does not reach; ``.grad`` is left alone."""
    found = torch.autograd.grad(loss(), list(params), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g.detach().clone() for p, g in zip(params, found)]


def hessian_product(loss: Loss, params: Iterable[Tensor]) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    """``v -> H v`` at the current weights by double backward; the graph is built once."""
    listed = list(params)
    first = torch.autograd.grad(loss(), listed, create_graph=True, allow_unused=True)
    reached = [g for g in first if g is not None and g.requires_grad]

    def product(vector: Sequence[Tensor]) -> list[Tensor]:
        weights = [v for g, v in zip(first, vector, strict=True) if g is not None and g.requires_grad]
        if not reached:
            return [torch.zeros_like(p) for p in listed]
        found = torch.autograd.grad(reached, listed, weights, retain_graph=True, allow_unused=True)
        return [torch.zeros_like(p) if h is None else h for p, h in zip(listed, found)]

    return product


def hessian_top(
    loss: Loss,
    params: Iterable[Tensor],
    generator: torch.Generator,
    *,
    iterations: int = 100,
    tolerance: float = 1e-4,
) -> TopEigenvalue:
    """Eigenvalue of the Hessian that is largest in absolute value, by power iteration from a random start.

    Stops once ``|Hv - value v| <= tolerance |value|``.
    """
    listed = list(params)
    product = hessian_product(loss, listed)
    vector = _normal(listed, generator)
    torch._foreach_div_(vector, norm(vector))
    value, residual, done = 0.0, math.inf, 0
    for done in range(1, iterations + 1):  # noqa: B007
        image = product(vector)
        value = dot(vector, image)
        residual = norm(list(torch._foreach_sub(image, torch._foreach_mul(vector, value))))
        length = norm(image)
        if length == 0.0 or residual <= tolerance * abs(value):
            break
        vector = list(torch._foreach_div(image, length))
    return TopEigenvalue(value, vector, residual, done)


def hessian_trace(loss: Loss, params: Iterable[Tensor], generator: torch.Generator, *, probes: int = 32) -> Trace:
    """Trace of the Hessian by Hutchinson's estimator with random signs."""
    if probes < 2:
        raise UsageError(f"hessian_trace needs at least 2 probes for its error; got {probes}.")
    listed = list(params)
    product = hessian_product(loss, listed)
    seen = []
    for _ in range(probes):
        signs = [torch.randint(0, 2, p.shape, generator=generator).to(p) * 2 - 1 for p in listed]
        seen.append(dot(signs, product(signs)))
    values = torch.tensor(seen, dtype=torch.float64)
    return Trace(float(values.mean()), float(values.std() / math.sqrt(probes)))


def largest_loss(
    loss: Loss, params: Iterable[Tensor], rho: float, *, steps: int = 20, starts: Sequence[Sequence[Tensor]] = ()
) -> tuple[float, list[Tensor]]:
    """Largest loss found on the sphere of radius ``rho``, and the unit direction where it was found.

    Every step goes to where the gradient at the present point of the sphere leads: the fixed points satisfy
    ``(lam I - H) d = g``, the condition of the true maximum. A lower bound of the maximum, exact on quadratics but for
    convergence.

    Parameters
    ----------
    starts
        Further directions to start from, beside the gradient.
    """
    listed = list(params)
    if not rho > 0:
        raise UsageError(f"rho must be above 0; got {rho}.")
    best, best_direction = -math.inf, [torch.zeros_like(p) for p in listed]
    for start in [gradient(loss, listed), *starts]:
        direction = [v.clone() for v in start]
        for step in range(steps + 1):
            torch._foreach_div_(direction, norm(direction) + EPS)
            with moved(listed, (direction, rho)):
                value = loss()
                found = torch.autograd.grad(value, listed, allow_unused=True) if step < steps else ()
            if float(value.detach()) > best:
                best, best_direction = float(value.detach()), [d.clone() for d in direction]
            if step < steps:
                direction = [torch.zeros_like(p) if g is None else g.clone() for p, g in zip(listed, found)]
    return best, best_direction


def cosine(left: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Cosine of the angle between two directions in weight space."""
    return dot(list(left), list(right)) / (norm(list(left)) * norm(list(right)) + EPS)


def quadratic_maximiser(hessian: Tensor, g: Tensor, rho: float) -> Tensor:
    """The d of length ``rho`` with the largest ``g'd + d'Hd / 2``, exactly.

    Solves ``(lam I - H) d = g`` for ``lam >= lam_max(H)`` with ``|d| = rho`` (secular equation, bisection). In the hard
    case, g orthogonal to the top eigenvectors and short, the rest of the length goes along a top eigenvector.

    Parameters
    ----------
    hessian, g
        Symmetric (n, n), (n,).
    """
    values, vectors = torch.linalg.eigh(hessian.double())
    parts = vectors.mT @ g.double()
    top = float(values[-1])
    scale = max(float(values.abs().max()), float(parts.norm()) / rho, 1e-300)
    at_top = (values - top).abs() <= 1e-12 * scale
    hard = float(parts[at_top].norm()) <= 1e-12 * float(parts.norm())
    rest = torch.where(at_top, torch.zeros_like(parts), parts / (top - values).masked_fill(at_top, 1.0))
    if hard and float(rest.norm()) <= rho:
        rest[-1] = math.sqrt(max(0.0, rho**2 - float(rest.square().sum())))
        return (vectors @ rest).to(g)
    low, high = top, top + float(parts.norm()) / rho
    for _ in range(200):
        middle = (low + high) / 2.0
        if float((parts / (middle - values)).norm()) > rho:
            low = middle
        else:
            high = middle
    d = parts / (high - values)
    return (vectors @ (d * (rho / d.norm()))).to(g)


def _normal(params: Sequence[Tensor], generator: torch.Generator) -> list[Tensor]:
    return [torch.randn(p.shape, generator=generator, dtype=torch.float32).to(p) for p in params]
