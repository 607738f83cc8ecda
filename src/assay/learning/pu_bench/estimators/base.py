"""What all deep methods share: checking, splitting, stages of training, choosing weights, predicting."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import f1_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
from torch import Tensor, nn

from assay.learning.pu_bench.backbones import Backbone, backbone
from assay.learning.pu_bench.errors import BadInput
from assay.learning.pu_bench.losses import logits_gradient
from assay.learning.pu_bench.perceptron import Gradient, Steps, layers_of
from assay.learning.pu_bench.prior import fold_of, resolve_prior
from assay.learning.pu_bench.scoring import prior_threshold, proxy_accuracy_score, proxy_auc_score
from assay.nn.trainer import Best, forward, seeded, train

# scikit-learn's annotations are guesses from its defaults.
_validated: Any = validate_data
_f1: Any = f1_score
SELECTIONS = ("last", "pa_case_control", "pa_single", "pauc", "f1")


@dataclass(slots=True)
class Problem:
    """Tensors of one fit: training rows, rows held out by label (or None), clean rows (or None).

    ``groups`` are equal for copies of one row; None = every row is its own.
    """

    x: Tensor
    labelled: Tensor
    prior: float
    generator: torch.Generator
    held: tuple[Tensor, NDArray] | None = None
    clean: tuple[Tensor, NDArray] | None = None
    groups: NDArray | None = None

    @property
    def of_l(self) -> Tensor:
        """Places of labelled rows."""
        return torch.nonzero(self.labelled).flatten().cpu()

    @property
    def of_u(self) -> Tensor:
        """Places of unlabelled rows."""
        return torch.nonzero(~self.labelled).flatten().cpu()


def check_labels(s: ArrayLike, what: str = "s") -> tuple[NDArray, NDArray[np.bool_]]:
    """(classes, mask of positives) of labels 1 and 0, or 1 and -1.

    Raises
    ------
    BadInput
        Other labels, both kinds at once, or one kind of row only.
    """
    labels = np.asarray(s)
    check_classification_targets(labels)
    found = np.unique(labels)
    known = set(found.tolist())
    if not known <= {0, 1} and not known <= {-1, 1}:
        shown = ", ".join(map(str, found[:5]))
        # The last sentence is the one that scikit-learn's own checks look for.
        kinds = (
            "" if len(found) < 3 else " Only binary classification is supported. The type of the target is multiclass."
        )
        raise BadInput(
            f"{what} must hold 1 (labelled) and 0, or 1 and -1 (unlabelled), not both kinds; it holds {shown}.{kinds}"
        )
    if len(found) < 2:
        lacks = "no labelled positive (1)" if 1 not in known else "no unlabelled row (0 or -1)"
        raise BadInput(f"{what} holds {lacks}, only 1 class; positive-unlabelled learning needs rows of both.")
    return found, labels == 1


class TwoClasses(ClassifierMixin):
    """A classifier of two classes by the sign of its decision function; ``classes_`` are those of s."""

    def predict(self, X: ArrayLike) -> NDArray:
        """Classes as they came in s: the positive one where the decision function is strictly above 0."""
        model: Any = self
        positive = model.decision_function(X) > 0
        return model.classes_[positive.astype(int)]

    def __sklearn_tags__(self) -> Any:
        parent: Any = super()
        tags = parent.__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class PUNet(TwoClasses, BaseEstimator):
    """Base of the deep estimators.

    Parameters
    ----------
    prior
        Share of positives among the unlabelled rows: a number in (0, 1); ``bbe`` (as None), ``tice`` or
        ``km2``: estimated; a function of (X, s); or an estimator with ``prior_``.
    net
        See `assay.learning.pu_bench.backbones.backbone`.
    epochs, batch_size, lr, weight_decay
        Of the (last) stage of training.
    optimizer
        ``adam``, ``adamw`` or ``sgd`` (Nesterov, momentum 0.9).
    selection
        Which epoch's weights are kept: ``last``; the best proxy accuracy (``pa_case_control``, ``pa_single``) or proxy
        AUC (``pauc``) on held-out rows with their labels s; ``f1`` on clean rows, which an oracle has (it sets a
        part of its own aside where none are given).
    validation_fraction
        Of the sources held out for a proxy.
    patience
        Epochs without a better value before the last stage ends; None = all epochs.
    threshold
        ``zero``, or ``prior``: as many training rows are predicted positive as the prior says.
    random_state, device
        Seed; ``cpu`` or ``cuda``.

    Attributes
    ----------
    prior_, net_, threshold_, classes_
        As used.
    history_, best_epoch_, seconds_, seconds_to_best_
        Rows an epoch; which epoch is kept; wall time of all training, and until that epoch.
    """

    prior: Any = None
    net: Any = "auto"
    epochs: int = 40
    batch_size: int = 256
    lr: float = 3e-4
    weight_decay: float = 1e-4
    optimizer: str = "adam"
    selection: str = "last"
    validation_fraction: float = 0.1
    patience: int | None = None
    threshold: str = "zero"
    random_state: Any = 0
    device: str = "cpu"

    supervision: ClassVar[str] = "pu"
    needs_prior: ClassVar[bool] = True

    def fit(
        self,
        X: ArrayLike,
        s: ArrayLike,
        *,
        source_index: ArrayLike | None = None,
        clean: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> Any:
        """Learn.

        Parameters
        ----------
        X
            Features (n, d), or pictures (n, channels, height, width); finite.
        s
            1 labelled positive, 0 or -1 unlabelled, (n,).
        source_index
            Equal for copies of one row, which a validation split then never separates.
        clean
            (X, y) with true classes, for ``selection="f1"``.
        """
        x, labels = _validated(self, X, s, dtype=np.float32, allow_nd=True, ensure_min_samples=2)
        self.classes_, labelled = check_labels(labels)
        self._check_options()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        groups = None if source_index is None else np.asarray(source_index)
        if groups is not None and len(groups) != len(x):
            raise BadInput(f"source_index has {len(groups)} entries for {len(x)} rows.")
        self.prior_ = resolve_prior(self.prior, x, labelled.astype(int), groups, seed) if self.needs_prior else np.nan
        rows = np.arange(len(x))
        held = None
        own = self.selection == "f1" and clean is None and self.supervision == "true"
        spare = None
        if own or self.selection in ("pa_case_control", "pa_single", "pauc"):
            folds = max(2, round(1 / self.validation_fraction))
            # The labelled rows decide: with few of them a tenth would be none.
            folds = min(folds, max(2, int(labelled.sum())))
            out = fold_of(labelled, folds, groups, np.random.default_rng(seed)) == 0
            if labelled.sum() > 1 and labelled[out].any() and labelled[~out].any() and (~labelled[~out]).any():
                rows, kept = rows[~out], self._tensor(x[out])
                if own:  # the oracle's labels are the classes
                    spare = (kept, labelled[out].astype(int))
                else:
                    held = (kept, np.where(labelled[out], 1, -1))
        if clean is not None:
            spare = (self._tensor(np.asarray(clean[0], np.float32)), (np.asarray(clean[1]) == 1).astype(int))
        if self.selection == "f1" and spare is None and not own:
            raise BadInput("selection='f1' is the oracle's: give fit(..., clean=(X, y)) with true classes.")
        self.history_: list[dict[str, Any]] = []
        self.best_epoch_, self.seconds_, self.seconds_to_best_ = 0, 0.0, 0.0
        with seeded(seed, self.device) as generator:
            problem = Problem(
                self._tensor(x[rows]), torch.from_numpy(labelled[rows]).to(self.device), float(self.prior_), generator,
                held, spare, None if groups is None else groups[rows],
            )  # fmt: skip
            self._fit(problem)
        self.threshold_ = 0.0
        if self.threshold == "prior":
            mine = self._logits(problem.x[~problem.labelled]).numpy()
            self.threshold_ = prior_threshold(mine, self.prior_)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float32]:
        """Logits beyond the threshold: positive where strictly above 0, (n,)."""
        check_is_fitted(self)
        x = _validated(self, X, dtype=np.float32, allow_nd=True, reset=False)
        return self._logits(self._tensor(x)).numpy() - np.float32(self.threshold_)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """(n, 2): the other class, the positive one."""
        positive = 1 / (1 + np.exp(-self.decision_function(X).astype(float)))
        return np.column_stack([1 - positive, positive])

    # -- for methods -----------------------------------------------------------------------------------------------

    def _fit(self, problem: Problem) -> None:
        raise NotImplementedError

    def _check_options(self) -> None:
        if self.selection not in SELECTIONS:
            raise BadInput(f"selection={self.selection!r} is not known; there are {', '.join(SELECTIONS)}.")
        if self.threshold not in ("zero", "prior"):
            raise BadInput(f"threshold={self.threshold!r} is not known; there are zero, prior.")
        if self.epochs < 1 or self.batch_size < 1:
            raise BadInput(f"epochs and batch_size must be at least 1; got {self.epochs} and {self.batch_size}.")
        if not 0 < self.validation_fraction < 1:
            raise BadInput(f"validation_fraction must lie in (0, 1); got {self.validation_fraction}.")

    def _tensor(self, x: NDArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(x, np.float32)).to(self.device)

    def _logits(self, x: Tensor) -> Tensor:
        return forward(self.net_, x)  # pyright: ignore[reportAttributeAccessIssue]

    def _build(self, problem: Problem, *, outputs: int = 1, biased: bool = True) -> Backbone:
        prior = problem.prior if biased and self.needs_prior else None
        net: Any = backbone(self.net, problem.x.shape[1:], outputs=outputs, prior=prior)
        return net.to(self.device)

    def _optimiser(
        self,
        *nets: nn.Module,
        lr: float | None = None,
        weight_decay: float | None = None,
        kind: str | None = None,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> torch.optim.Optimizer:
        parameters = [p for net in nets for p in net.parameters()]
        rate, decay = lr or self.lr, self.weight_decay if weight_decay is None else weight_decay
        kind = kind or self.optimizer
        if kind == "adam":
            return torch.optim.Adam(parameters, lr=rate, weight_decay=decay, betas=betas, fused=True)
        if kind == "adamw":
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, betas=betas, fused=True)
        if kind == "sgd":
            return torch.optim.SGD(parameters, lr=rate, weight_decay=decay, momentum=0.9, nesterov=True)
        raise BadInput(f"optimizer={kind!r} is not known; there are adam, adamw, sgd.")

    def _validator(self, problem: Problem, logits: Callable[[Tensor], Tensor]) -> Callable[[], dict[str, float]] | None:
        if self.selection == "f1" and problem.clean is not None:
            x, truth = problem.clean
            return lambda: {"value": float(_f1(truth, logits(x).numpy() > 0, zero_division=0))}
        if problem.held is None:
            return None
        x, s = problem.held
        if self.selection == "pauc":
            return lambda: {"value": proxy_auc_score(s, logits(x).numpy())}
        scenario = "single" if self.selection == "pa_single" else "case_control"
        prior = problem.prior if self.needs_prior else 0.5
        return lambda: {"value": proxy_accuracy_score(s, logits(x).numpy() > 0, prior, scenario)}

    def _stage(
        self,
        name: str,
        nets: nn.Module | Sequence[nn.Module],
        loss: Callable[..., Tensor | None],
        problem: Problem,
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        optimiser: torch.optim.Optimizer | None = None,
        schedule: Any = None,
        data: Sequence[Tensor] | None = None,
        last: bool = True,
    ) -> None:
        """Train with `assay.nn.trainer.train`; weights are chosen, and training cut short, in the last stage only."""
        modules = [nets] if isinstance(nets, nn.Module) else list(nets)
        history = train(
            modules,
            loss,
            data or (problem.x, problem.labelled),
            epochs=epochs or self.epochs,
            batch_size=batch_size or self.batch_size,
            optimiser=optimiser or self._optimiser(*modules),
            generator=problem.generator,
            schedule=schedule,
            validate=self._validator(problem, self._logits) if last else None,
            patience=self.patience if last and self._validator(problem, self._logits) else None,
            min_delta=1e-4,
        )
        self._keep(name, history.rows, history.best_epoch, history.seconds_to_best)

    def _descend(
        self,
        name: str,
        net: nn.Module,
        loss: Callable[[Tensor, Tensor], Tensor],
        problem: Problem,
        gradient: Gradient | None = None,
        *,
        epochs: int | None = None,
        optimiser: torch.optim.Optimizer | None = None,
        data: tuple[Tensor, Tensor] | None = None,
        last: bool = True,
    ) -> None:
        """As `_stage`, for a loss of the logits and the labels; a plain perceptron then does without autograd.

        ``gradient`` gives the loss and its gradient; without it autograd does, for the logits alone.
        """
        layers = layers_of(net)
        optimiser = optimiser or self._optimiser(net)
        x, labelled = data or (problem.x, problem.labelled)
        if layers is None:
            self._stage(
                name, net, lambda x, t: loss(net(x), t), problem, epochs=epochs, optimiser=optimiser,
                data=(x, labelled), last=last,
            )  # fmt: skip
            return
        steps = Steps(layers, gradient or partial(logits_gradient, loss), optimiser)

        def epoch(_: int) -> float:
            return steps.epoch(x, labelled, self.batch_size, problem.generator)

        self._loop(name, net, epoch, problem, epochs=epochs, last=last)

    def _loop(
        self,
        name: str,
        nets: nn.Module | Sequence[nn.Module],
        epoch: Callable[[int], float | None],
        problem: Problem,
        *,
        epochs: int | None = None,
        last: bool = True,
    ) -> None:
        """Epochs of one's own (``epoch(number from 1) -> mean loss``), with the same choice of weights."""
        modules = [nets] if isinstance(nets, nn.Module) else list(nets)
        validate = self._validator(problem, self._logits) if last else None
        best = Best(*modules, patience=self.patience if validate else None, min_delta=1e-4)
        rows: list[dict[str, Any]] = []
        total, to_best, kept = 0.0, 0.0, 0
        for number in range(1, (epochs or self.epochs) + 1):
            begun = time.perf_counter()
            for module in modules:
                module.train()
            row: dict[str, Any] = {"epoch": number, "loss": epoch(number)}
            if row["loss"] is not None and not np.isfinite(row["loss"]):
                raise BadInput(f"The loss of epoch {number} of stage {name!r} is {row['loss']}; lower lr.")
            for module in modules:
                module.eval()
            stop = False
            if validate is not None:
                row |= validate()
                stop = best.offer(row["value"], number)
            row["seconds"] = time.perf_counter() - begun
            total += row["seconds"]
            rows.append(row)
            if validate is None or best.epoch in (0, number):
                kept, to_best = number, total
            if stop:
                break
        best.restore()
        self._keep(name, rows, kept, to_best)

    def _keep(self, name: str, rows: Sequence[dict[str, Any]], best: int, to_best: float) -> None:
        before = len(self.history_)
        self.seconds_to_best_ = self.seconds_ + to_best
        self.best_epoch_ = before + best
        for row in rows:
            self.seconds_ += row["seconds"]
            self.history_.append(
                {
                    "stage": name,
                    "epoch": before + row["epoch"],
                    "loss": row["loss"],
                    "value": row.get("value"),
                    "seconds": row["seconds"],
                }
            )


def beta(a: float, b: float | None = None) -> float:
    """One draw of a Beta distribution from torch's generator."""
    return float(torch.distributions.Beta(torch.tensor(float(a)), torch.tensor(float(b or a))).sample())


def draw(places: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """``count`` of some places, with replacement."""
    return places[torch.randint(len(places), (count,), generator=generator)]
