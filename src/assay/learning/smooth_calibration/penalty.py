"""The error as a term of a training loss, for torch: the witness is solved anew on every batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.core.errors import MissingExtra
from assay.learning.smooth_calibration.exact import smooth_ce_gradient, smooth_ce_logit_gradient

try:
    import torch
except ImportError:
    raise MissingExtra("The calibration penalty", "smooth_calibration") from None


class _Error(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, target: torch.Tensor, logit: bool) -> torch.Tensor:
        solve = smooth_ce_logit_gradient if logit else smooth_ce_gradient
        value, gradient = solve(target.detach().cpu().numpy().ravel(), values.detach().cpu().double().numpy().ravel())
        ctx.save_for_backward(torch.as_tensor(gradient.reshape(values.shape), dtype=values.dtype, device=values.device))
        return torch.as_tensor(np.asarray(value), dtype=values.dtype, device=values.device)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return grads[0] * gradient, None, None


def smooth_ce_penalty(preds: torch.Tensor, target: torch.Tensor, *, logit: bool = True) -> torch.Tensor:
    """Smooth calibration error of a batch, with its exact gradient by the predictions (envelope theorem).

    Add a multiple of it to a loss. On a batch of size b a calibrated model still shows about 1 / (2 sqrt b), so batches
    of hundreds are wanted; alone it is no loss, for a constant prediction can have none.

    Parameters
    ----------
    preds
        Logits (``smooth_ce_logit``), or probabilities with ``logit=False`` (``smooth_ce``), any shape, any device.
    target
        Labels 0 and 1 of the same number.

    Returns
    -------
    Tensor
        A scalar.
    """
    return _Error.apply(preds, target, logit)
