"""Positive-unlabelled data from labelled data: labelling mechanisms, sampling schemes, exact counts.

A row is labelled (s = +1) or unlabelled (s = -1). pi is the share of positives, c the label frequency P(s=1 | y=1).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.learning.pu_bench.errors import BadInput

Scenario = Literal["single", "case_control"]
Mode = Literal["full_u", "story"]
StrategyName = Literal["scar", "sar_lbe_a", "sar_lbe_b", "sar_pusb", "sar_pusb_topk", "all"]
Strategy = Callable[[NDArray[np.float64], int, np.random.Generator], NDArray[np.integer]]
"""``f(scores of the positives, how many, generator) -> places among the positives``: a mechanism of one's own."""

_ALIASES = {
    "random": "scar", "S1": "scar", "sar_lbeA": "sar_lbe_a", "S2": "sar_lbe_a", "sar_lbeB": "sar_lbe_b",
    "S3": "sar_lbe_b", "S4": "sar_pusb_topk", "case-control": "case_control", "naive": "full_u",
    "naive_mode": "full_u", "nnpu_full_u": "full_u", "story_mode": "story", "story_equal_n": "story",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PUData:
    """A positive-unlabelled data set, with the truth for whoever evaluates.

    Attributes
    ----------
    X
        Features, (rows, ...).
    s
        +1 labelled positive, -1 unlabelled, (rows,).
    y_true
        True classes, 1 positive and 0 negative, (rows,).
    source_index
        Row of the original data each row is a copy of: under case-control, labelled rows occur among the
        unlabelled too.
    scenario, strategy, mode
        How it was made.
    """

    X: NDArray
    s: NDArray[np.int8]
    y_true: NDArray[np.int8]
    source_index: NDArray[np.int64]
    scenario: str
    strategy: str
    mode: str | None

    @property
    def n_labeled(self) -> int:
        """Labelled rows."""
        return int((self.s == 1).sum())

    @property
    def n_unlabeled(self) -> int:
        """Unlabelled rows."""
        return int((self.s == -1).sum())

    @property
    def prior_u(self) -> float:
        """Share of positives among the unlabelled rows: the prior that theory asks for. NaN without any."""
        unlabelled = self.s == -1
        return float(self.y_true[unlabelled].mean()) if unlabelled.any() else math.nan

    @property
    def prior_constructed(self) -> float:
        """Share of positives among all rows, labelled copies counted again: the rule of the first public code."""
        return float(self.y_true.mean())

    def audit(self) -> dict[str, int]:
        """What the sources tell: how many there are, how often one is labelled and unlabelled at once, how often one
        comes twice in one role, and how many labelled rows are not positive (0 unless somebody made this by hand).
        """
        labelled, unlabelled = self.source_index[self.s == 1], self.source_index[self.s == -1]
        return {
            "sources": len(np.unique(self.source_index)),
            "labelled_and_unlabelled": len(np.intersect1d(labelled, unlabelled)),
            "repeated_labelled": len(labelled) - len(np.unique(labelled)),
            "repeated_unlabelled": len(unlabelled) - len(np.unique(unlabelled)),
            "labelled_negatives": int((self.y_true[self.s == 1] == 0).sum()),
        }

    def split(self, share: float, *, random_state: int | np.random.Generator | None = 0) -> tuple[PUData, PUData]:
        """(rest, held out): about a ``share`` of the labelled and of the other sources, all copies of a row together.

        Raises
        ------
        BadInput
            share outside (0, 1), or one part would lack labelled or unlabelled rows.
        """
        if not 0 < share < 1:
            raise BadInput(f"share must lie strictly between 0 and 1; got {share}.")
        rng = np.random.default_rng(random_state)
        labelled = np.unique(self.source_index[self.s == 1])
        others = np.setdiff1d(self.source_index, labelled)
        held = [rng.permutation(part)[: round(share * len(part))] for part in (labelled, others)]
        out = np.isin(self.source_index, np.concatenate(held))
        for part in (self.s[out], self.s[~out]):
            if len(np.unique(part)) < 2:
                raise BadInput(
                    f"share={share} of {len(labelled)} labelled and {len(others)} other sources leaves a part without "
                    "labelled or unlabelled rows."
                )
        return self._rows(~out), self._rows(out)

    def as_two_samples(self) -> PUData:
        """One sample made ready for methods that expect two: its labelled rows stand among the unlabelled ones too.

        Such methods take the unlabelled rows for a sample of everything. In one sample they are what labelling left
        over, with fewer positives; a copy of the labelled rows makes up for it, and ``prior_u`` is then the share of
        positives among all rows. Two samples come back as they are.
        """
        if self.scenario != "single":
            return self
        order = np.concatenate([np.flatnonzero(self.s == 1), np.arange(len(self.s))])
        s = np.concatenate([np.ones(self.n_labeled, np.int8), -np.ones(len(self.s), np.int8)])
        return PUData(
            self.X[order], s, self.y_true[order], self.source_index[order], "case_control", self.strategy, "full_u"
        )

    def _rows(self, kept: NDArray[np.bool_]) -> PUData:
        return replace(
            self, X=self.X[kept], s=self.s[kept], y_true=self.y_true[kept], source_index=self.source_index[kept]
        )

    def counts(self) -> dict[str, float]:
        """Sizes and priors. ``c_realised`` is labelled rows by positives of the source."""
        unlabelled = self.s == -1
        positives = int(self.y_true[unlabelled].sum())
        of = positives + (self.n_labeled if self.scenario == "single" else 0)
        return {
            "n_total": len(self.s),
            "n_labeled": self.n_labeled,
            "n_unlabeled": self.n_unlabeled,
            "n_pos_total": int(self.y_true.sum()),
            "n_pos_unlabeled": positives,
            "prior_constructed": self.prior_constructed,
            "prior_unlabeled": self.prior_u,
            "c_realised": self.n_labeled / of if of else math.nan,
        }


def make_pu_dataset(
    X: ArrayLike,
    y: ArrayLike,
    *,
    scenario: Scenario | str = "case_control",
    c: float | None = None,
    n_labeled: int | None = None,
    strategy: StrategyName | Strategy | str = "scar",
    mode: Mode | str = "full_u",
    with_replacement: bool = True,
    scores: ArrayLike | None = None,
    random_state: int | np.random.Generator | None = 0,
) -> PUData:
    """Hide labels: from (X, y) to labelled positives and unlabelled rows.

    Parameters
    ----------
    X
        Features (n, ...).
    y
        True classes (n,), 1 (or True) positive and 0 (or -1) negative.
    scenario
        ``single``: one sample whose positives are partly labelled; n rows. ``case_control``: labelled positives beside
        a sample of its own.
    c, n_labeled
        Label frequency in (0, 1], or how many are labelled; ``int(positives * c)``. ``n_labeled`` goes before c.
    strategy
        ``scar`` (every positive alike), ``sar_lbe_a`` (easy positives), ``sar_lbe_b`` (ambiguous ones), ``sar_pusb``
        (accept and reject by score; may label fewer), ``sar_pusb_topk`` (the highest scores, as published), ``all``,
        or a function. The published names (random, S1 ... S4, sar_lbeA ...) are known.
    mode
        Of case-control. ``full_u``: the unlabelled rows are all n rows, so that their share of positives is exact.
        ``story``: sizes chosen so that labelled and unlabelled rows together are n in expectation; drawn anew, with
        replacement unless told otherwise.
    scores
        Scores of the positives in order of rows, (positives,); None = `positive_scores` where the strategy needs them.
    random_state
        Seed or generator; global generators are never touched.

    Raises
    ------
    BadInput
        Classes that are not binary, a class that is empty, c outside (0, 1], more labels than positives.

    Warns
    -----
    UserWarning
        Nothing is labelled; ``story`` with c = 1, which falls back to ``single`` with all positives labelled.
    """
    features, truth = _checked(X, y)
    rng = np.random.default_rng(random_state)
    how = _named(scenario, get_args(Scenario), "scenario")
    way = _named(mode, get_args(Mode), "mode")
    plan: str | Strategy = strategy if callable(strategy) else _named(strategy, get_args(StrategyName), "strategy")
    label = plan if isinstance(plan, str) else getattr(plan, "__name__", "custom")
    positives, negatives = np.flatnonzero(truth == 1), np.flatnonzero(truth == 0)
    if how == "case_control" and way == "story" and c is not None and c >= 1:
        warnings.warn(
            "mode='story' has no unlabelled rows at c = 1; made scenario='single', strategy='all'.", stacklevel=2
        )
        how, plan, label = "single", "all", "all"
    count = _label_count(len(positives), c, n_labeled, everything=plan == "all")
    if how == "case_control" and way == "story":
        labelled, unlabelled = _story(truth, positives, c, plan, with_replacement, scores, features, rng)
    else:
        places = _select(plan, count, len(positives), scores, features, truth, rng)
        chosen = np.zeros(len(positives), bool)
        chosen[places] = True
        labelled = positives[np.sort(places)]
        if how == "single":
            rest = np.setdiff1d(np.arange(len(truth)), labelled)
            labelled, unlabelled = labelled, rest
        else:
            unlabelled = np.concatenate([positives[~chosen], labelled, negatives])
    if len(labelled) == 0:
        warnings.warn(
            f"No positive is labelled (int({len(positives)} * {c}) = 0); estimators refuse such data, raise c.",
            stacklevel=2,
        )
    source = np.concatenate([labelled, unlabelled]).astype(np.int64)
    s = np.concatenate([np.ones(len(labelled), np.int8), -np.ones(len(unlabelled), np.int8)])
    if how == "single":  # the data set stays as it was
        order = np.argsort(source, kind="stable")
        source, s = source[order], s[order]
    return PUData(features[source], s, truth[source], source, how, label, way if how == "case_control" else None)


def positive_scores(X: ArrayLike, y: ArrayLike, *, random_state: int | None = 0) -> NDArray[np.float64]:
    """P(y=1 | x) of the positives by logistic regression on all rows with their true labels: what bias is made of."""
    from sklearn.linear_model import LogisticRegression

    features, truth = _checked(X, y)
    if truth.all():
        raise BadInput("y holds no negative: a biased strategy scores positives against negatives; take scar.")
    flat = features.reshape(len(features), -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a hundred iterations are the published rule, converged or not
        model = LogisticRegression(solver="lbfgs", max_iter=100, random_state=random_state).fit(flat, truth)
    return model.predict_proba(flat[truth == 1])[:, 1]


def lbe_a_probabilities(scores: ArrayLike, *, k: float = 10.0) -> NDArray[np.float64]:
    """Selection probabilities that favour easy positives: scores to the power k, a tenth of it uniform."""
    weight = np.asarray(scores, float) ** k
    total = weight.sum()
    share = weight / total if total > 0 else np.full(len(weight), 1 / len(weight))
    mixed = 0.9 * share + 0.1 / len(weight)
    return mixed / mixed.sum()


def lbe_b_probabilities(scores: ArrayLike, *, k: float = 10.0, delta: float = 1.0) -> NDArray[np.float64]:
    """Selection probabilities that favour ambiguous positives: (1.5 + delta - score) to the power k."""
    weight = np.maximum(0.0, 1.5 + delta - np.asarray(scores, float)) ** k
    total = weight.sum()
    return weight / total if total > 0 else np.full(len(weight), 1 / len(weight))


def pusb_acceptance(scores: ArrayLike) -> NDArray[np.float64]:
    """Acceptance probabilities in proportion to the score, 1 for the highest."""
    p = np.asarray(scores, float)
    top = p.max(initial=0.0)
    return p / top if top > 0 else np.ones(len(p))


def pusb_order(scores: ArrayLike) -> NDArray[np.integer]:
    """Places by falling score; of equal ones the last comes first, as in the first public code.

    Its power of 20 changes no order, but makes small scores equal: 0.
    """
    p = np.asarray(scores, float)
    powered = (p / p.mean()) ** 20 if p.size and p.mean() > 0 else p
    return np.argsort(powered, kind="stable")[::-1]


def resample_by_prevalence(
    y: ArrayLike, target: float, *, random_state: int | np.random.Generator | None = 0
) -> NDArray[np.int64]:
    """Shuffled rows of a subset whose share of positives is ``target``; the class that is too frequent is thinned.

    Raises
    ------
    BadInput
        target outside (0, 1), or a class without rows, before or after.
    """
    truth = _binary(np.asarray(y))
    if not 0 < target < 1:
        raise BadInput(f"target_prevalence must lie strictly between 0 and 1; got {target}.")
    rng = np.random.default_rng(random_state)
    positives, negatives = np.flatnonzero(truth == 1), np.flatnonzero(truth == 0)
    if not len(positives) or not len(negatives):
        raise BadInput("Prevalence needs rows of both classes in y.")
    if target > truth.mean():
        negatives = rng.permutation(negatives)[: math.floor(len(positives) * (1 - target) / target)]
    elif target < truth.mean():
        positives = rng.permutation(positives)[: math.floor(len(negatives) * target / (1 - target))]
    if not len(positives) or not len(negatives):
        raise BadInput(f"target_prevalence={target} leaves no row of one class; take one nearer {truth.mean():.3g}.")
    return rng.permutation(np.concatenate([positives, negatives]))


def _story(
    truth: NDArray, positives: NDArray, c: float | None, plan: str | Strategy, replace: bool,
    scores: ArrayLike | None, features: NDArray, rng: np.random.Generator,
) -> tuple[NDArray, NDArray]:  # fmt: skip
    if c is None:
        raise BadInput("mode='story' is defined by c; give c, not n_labeled.")
    n, prior = len(truth), len(positives) / len(truth)
    scale = 1.0 / (1.0 - c + c * prior)
    # Rounded first: a product that is whole on paper must not be one more for its last bit.
    n_labelled = math.ceil(round(scale * c * prior * n, 9))
    n_unlabelled = math.ceil(round(scale * (1.0 - c) * n, 9))
    if replace and (callable(plan) or plan in ("sar_pusb", "sar_pusb_topk")):
        raise BadInput(f"strategy={plan!r} takes each positive once; give with_replacement=False or mode='full_u'.")
    if not replace and (n_labelled > len(positives) or n_unlabelled > n):
        raise BadInput(
            f"mode='story' wants {n_labelled} labelled and {n_unlabelled} unlabelled rows of {len(positives)} and {n}; "
            "that needs with_replacement=True."
        )
    if not replace:
        places = _select(plan, n_labelled, len(positives), scores, features, truth, rng)
    else:
        p = None if plan in ("scar", "all") else _probabilities(str(plan), _scores(scores, features, truth))
        places = rng.choice(len(positives), n_labelled, replace=True, p=p)
    return positives[places], rng.choice(n, n_unlabelled, replace=replace)


def _select(
    plan: str | Strategy, count: int, available: int, scores: ArrayLike | None, features: NDArray, truth: NDArray,
    rng: np.random.Generator,
) -> NDArray[np.integer]:  # fmt: skip
    """Places, among the positives, of those that are labelled."""
    if plan == "all":
        return np.arange(available)
    if plan == "scar":
        return rng.choice(available, count, replace=False)
    known = _scores(scores, features, truth)
    if not isinstance(plan, str):
        places = np.asarray(plan(known, count, rng))
        fits = places.ndim == 1 and len(np.unique(places)) == len(places) <= count
        if not fits or (len(places) and not (places.min() >= 0 and places.max() < available)):
            raise BadInput(f"The strategy must return at most {count} different places in 0 .. {available - 1}.")
        return places
    if plan == "sar_pusb_topk":
        return pusb_order(known)[:count]
    if plan == "sar_pusb":
        accepted = np.flatnonzero(pusb_acceptance(known) > rng.random(available))
        return rng.permutation(accepted)[:count]
    return rng.choice(available, count, replace=False, p=_probabilities(plan, known))


def _probabilities(plan: str, scores: NDArray) -> NDArray[np.float64]:
    return lbe_a_probabilities(scores) if plan == "sar_lbe_a" else lbe_b_probabilities(scores)


def _scores(scores: ArrayLike | None, features: NDArray, truth: NDArray) -> NDArray[np.float64]:
    known = positive_scores(features, truth) if scores is None else np.asarray(scores, float)
    if known.shape != (int(truth.sum()),) or not np.isfinite(known).all():
        raise BadInput(f"scores must be one finite number a positive, ({int(truth.sum())},); got {known.shape}.")
    return known


def _label_count(positives: int, c: float | None, n_labeled: int | None, *, everything: bool) -> int:
    if everything:
        return positives
    if n_labeled is not None:
        if not 1 <= n_labeled <= positives:
            raise BadInput(f"n_labeled={n_labeled} must lie between 1 and the {positives} positives of y.")
        return int(n_labeled)
    if c is None:
        raise BadInput("Give c (label frequency) or n_labeled.")
    if not 0 < c <= 1:
        raise BadInput(f"c must lie in (0, 1]; got {c}.")
    return min(int(positives * c), positives)


def _checked(X: ArrayLike, y: ArrayLike) -> tuple[NDArray, NDArray[np.int8]]:
    features, truth = np.asarray(X), _binary(np.asarray(y))
    if features.ndim < 2 or len(features) != len(truth):
        raise BadInput(f"X must have a row for each of the {len(truth)} entries of y; its shape is {features.shape}.")
    if features.dtype.kind == "f" and not np.isfinite(features).all():
        raise BadInput("X holds NaN or infinite values; impute them first.")
    if not truth.any():
        raise BadInput("y holds no positive (1): there is nothing to label.")
    return features, truth


def _binary(y: NDArray) -> NDArray[np.int8]:
    if y.ndim != 1:
        raise BadInput(f"y must be one class a row; its shape is {y.shape}.")
    found = set(np.unique(y).tolist())
    if not found <= {0, 1} and not found <= {-1, 1}:
        shown = sorted(map(str, found))[:5]
        raise BadInput(f"y must hold 1 and 0, or 1 and -1, and not both kinds; it holds {', '.join(shown)}.")
    return (y == 1).astype(np.int8)


def _named(value: str, known: tuple[str, ...], what: str) -> str:
    name = _ALIASES.get(value, value)
    if name not in known:
        raise BadInput(f"{what}={value!r} is not known; there are {', '.join(known)}.")
    return name
