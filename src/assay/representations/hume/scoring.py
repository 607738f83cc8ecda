"""Scores and agreement of annotators by the published protocol (arXiv:2510.10062).

Each annotator is scored alone; then classification takes the majority vote and sts the mean rating an item and scores
those once, while clustering and reranking average the annotators' scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from assay.core.errors import DataError

Scores = dict[str, float]
Judgements = Sequence[float | None]

BANDS = ((0.8, "Almost Perfect"), (0.6, "Substantial"), (0.4, "Moderate"), (0.2, "Fair"))


def classification_scores(gold: Sequence[str], answers: Sequence[str | None]) -> Scores:
    """Accuracy (main), f1, f1_weighted, precision, recall (macro); missing answers are left out.

    With one distinct label on either side all five are the accuracy, as published.
    """
    from sklearn import metrics

    pairs = [(g, a) for g, a in _zip(gold, answers) if a is not None]
    names = ("accuracy", "f1", "f1_weighted", "precision", "recall")
    if not pairs:
        return dict.fromkeys(names, 0.0)
    y, p = (list(side) for side in zip(*pairs))
    accuracy = float(metrics.accuracy_score(y, p))
    if len(set(y)) == 1 or len(set(p)) == 1:
        return dict.fromkeys(names, accuracy)

    def of(score: Any, average: str) -> float:
        return float(score(y, p, average=average, zero_division=0))

    return {
        "accuracy": accuracy,
        "f1": of(metrics.f1_score, "macro"),
        "f1_weighted": of(metrics.f1_score, "weighted"),
        "precision": of(metrics.precision_score, "macro"),
        "recall": of(metrics.recall_score, "macro"),
    }


def clustering_scores(gold: Sequence[Any], clusters: Sequence[Any]) -> Scores:
    """V-measure (main), ari, ami against gold; all 0 where either side is one cluster."""
    from sklearn import metrics

    pairs = [(str(g), str(c)) for g, c in _zip(gold, clusters) if c is not None]
    y, p = ([pair[side] for pair in pairs] for side in (0, 1))
    if len(set(y)) < 2 or len(set(p)) < 2:
        return {"v_measure": 0.0, "ari": 0.0, "ami": 0.0}
    return {
        "v_measure": float(metrics.v_measure_score(y, p)),
        "ari": float(metrics.adjusted_rand_score(y, p)),
        "ami": float(metrics.adjusted_mutual_info_score(y, p)),
    }


def sts_scores(gold: Sequence[float], ratings: Sequence[float | None]) -> Scores:
    """Spearman (main), pearson, mse over pairs that have both numbers; 0 where there are fewer than two pairs or a
    side is constant (`is_constant` tells which it was)."""
    from scipy.stats import pearsonr, spearmanr

    x, y = _both(gold, ratings)
    if len(x) < 2:
        return {"spearman": 0.0, "pearson": 0.0, "mse": 0.0}
    mse = float(((x - y) ** 2).mean())
    if is_constant(x) or is_constant(y):
        return {"spearman": 0.0, "pearson": 0.0, "mse": mse}
    return {"spearman": _statistic(spearmanr(x, y)), "pearson": _statistic(pearsonr(x, y)), "mse": mse}


def is_constant(values: Sequence[float | None] | np.ndarray) -> bool:
    """Whether all numbers are one: then a correlation of 0 means undefined, not unrelated."""
    found = {float(v) for v in values if v is not None}
    return len(found) < 2


def query_scores(relevant: Sequence[int], judgements: Judgements) -> Scores | None:
    """map, mrr@10 and ndcg@10 of one query; None where a judgement is missing.

    ``map`` is scikit-learn's average precision with judgements as scores: equal ones form one threshold. The other two
    take the order "relevant first, ties as the documents stand".
    """
    _zip(relevant, judgements)
    if any(j is None for j in judgements):
        return None
    from sklearn.metrics import average_precision_score

    y, s = np.asarray(relevant, int), np.asarray(judgements, float)
    order = np.argsort(-s, kind="stable")[:10]
    gains = 2.0 ** y[order] - 1
    ideal = 2.0 ** np.sort(y)[::-1][:10] - 1
    discounts = 1 / np.log2(np.arange(2, len(order) + 2))
    best = float(ideal @ discounts)
    hits = np.flatnonzero(y[order] > 0)
    return {
        "map": float(average_precision_score(y > 0, s)) if (y > 0).any() else 0.0,
        "mrr@10": 1.0 / (int(hits[0]) + 1) if len(hits) else 0.0,
        "ndcg@10": float(gains @ discounts) / best if best > 0 else 0.0,
    }


def reranking_scores(relevant: Sequence[Sequence[int]], judgements: Sequence[Judgements | None]) -> Scores:
    """Mean over queries of `query_scores`; queries with a missing judgement are passed over, as published."""
    found = [query_scores(y, j) for y, j in _zip(relevant, judgements) if j is not None]
    return mean_scores([f for f in found if f is not None]) or {"map": 0.0, "mrr@10": 0.0, "ndcg@10": 0.0}


def majority_vote(answers: Sequence[Sequence[str | None]]) -> list[str | None]:
    """Most frequent answer an item, of answers by annotator; ties go to the alphabetically first, no vote is None."""
    voted: list[str | None] = []
    for item in zip(*answers, strict=True):
        votes = Counter(a for a in item if a is not None)
        voted.append(min(votes, key=lambda a: (-votes[a], a)) if votes else None)
    return voted


def mean_rating(ratings: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Mean rating an item, of ratings by annotator; None where nobody rated."""
    given = ([r for r in item if r is not None] for item in zip(*ratings, strict=True))
    return [float(np.mean(item)) if item else None for item in given]


def mean_scores(scores: Sequence[Scores]) -> Scores:
    """Mean of each score."""
    return {name: float(np.mean([s[name] for s in scores])) for name in scores[0]} if scores else {}


SCORERS = {
    "classification": classification_scores,
    "clustering": clustering_scores,
    "sts": sts_scores,
    "reranking": reranking_scores,
}


def score(kind: str, gold: Sequence[Any], answers: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Scores of annotators, alone and together.

    Parameters
    ----------
    gold
        An entry an item: label; cluster label; rating; 0/1 by document.
    answers
        By annotator, an entry an item: label; cluster id; rating; 0/1 by document. None is missing.

    Returns
    -------
    dict
        ``per_annotator`` {annotator: scores}, ``aggregated`` scores, ``agreement`` (None for one annotator).
    """
    if not answers:
        raise DataError("There are no annotators to score.")
    for annotator, given in answers.items():
        if len(given) != len(gold):
            raise DataError(f"Annotator {annotator!r} has {len(given)} answers for {len(gold)} items.")
        if all(a is None for a in given):
            raise DataError(f"Annotator {annotator!r} gave no answer at all.")
    scorer = SCORERS[kind]
    each = {annotator: scorer(gold, given) for annotator, given in answers.items()}
    sides = list(answers.values())
    if kind == "classification":
        together = scorer(gold, majority_vote(sides))
    elif kind == "sts":
        together = scorer(gold, mean_rating(sides))
    else:
        together = mean_scores(list(each.values()))
    return {
        "per_annotator": each,
        "aggregated": together,
        "agreement": agreement(kind, answers) if len(answers) > 1 else None,
    }


def agreement(kind: str, answers: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Agreement of two annotators or more, with the published names."""
    sides = list(answers.values())
    done = [item for item in zip(*sides, strict=True) if all(a is not None for a in item)]
    facts = {
        "n_annotators": len(sides),
        "n_items": len(sides[0]),
        "total_annotations": sum(a is not None for side in sides for a in side),
    }
    if kind == "classification":
        return _label_agreement(sides, done, facts)
    if kind == "clustering":
        from sklearn.metrics import adjusted_rand_score

        value = _pairwise(sides, lambda a, b: float(adjusted_rand_score(a, b)))
        return {"metric": "mean_pairwise_ari", "value": value, **facts}
    if kind == "sts":
        from scipy.stats import spearmanr

        def rho(a: Sequence[float], b: Sequence[float]) -> float:
            return float("nan") if is_constant(a) or is_constant(b) else _statistic(spearmanr(a, b))

        return {"metric": "mean_pairwise_spearman", "value": _pairwise(sides, rho), **facts}
    return {**facts, **_judgement_agreement(sides)}


def interpretation(kappa: float) -> str:
    """Published name of a band of kappa."""
    return next((name for floor, name in BANDS if kappa > floor), "Poor")


def _label_agreement(
    sides: Sequence[Sequence[Any]], done: Sequence[tuple[Any, ...]], facts: Mapping[str, Any]
) -> dict[str, Any]:
    from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa

    from assay.core.stats.agreement import cohen_kappa

    kappa = _pairwise(sides, cohen_kappa)
    percent = _pairwise(sides, lambda a, b: float(np.mean([x == y for x, y in zip(a, b)])))
    value = float("nan")
    if done:
        labels = sorted({a for item in done for a in item})
        codes = np.array([[labels.index(a) for a in item] for item in done])
        if len(labels) > 1:
            value = float(fleiss_kappa(aggregate_raters(codes, n_cat=len(labels))[0]))
    metric = "fleiss_kappa" if np.isfinite(value) else "mean_pairwise_kappa"
    shown = value if np.isfinite(value) else kappa
    return {
        "metric": metric,
        "value": shown,
        "interpretation": interpretation(shown),
        **facts,
        "mean_pairwise_kappa": kappa,
        "mean_percentage_agreement": percent,
    }


def _judgement_agreement(sides: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """By query and annotator pair; a constant vector has no correlation and drops out."""
    from scipy.stats import kendalltau, spearmanr

    from assay.core.stats.agreement import cohen_kappa

    rho, tau, kappa = [], [], []
    for query in zip(*sides, strict=True):
        for a, b in combinations([j for j in query if j is not None and None not in j], 2):
            kappa.append(cohen_kappa(list(a), list(b)))
            if is_constant(a) or is_constant(b):
                continue
            rho.append(_statistic(spearmanr(a, b)))
            tau.append(_statistic(kendalltau(a, b)))
    rho, tau, kappa = ([v for v in found if np.isfinite(v)] for found in (rho, tau, kappa))
    return {
        "mean_spearman": _mean(rho),
        "mean_kendall_tau": _mean(tau),
        "mean_binary_kappa": _mean(kappa),
        "spearman_std": float(np.std(rho)) if rho else float("nan"),
        "n_comparisons": len(rho),
    }


def _pairwise(sides: Sequence[Sequence[Any]], f: Any) -> float:
    """Mean of ``f`` over pairs of annotators on the items that both answered; NaN where none is defined."""
    found = []
    for a, b in combinations(sides, 2):
        shared = [(x, y) for x, y in zip(a, b) if x is not None and y is not None]
        if shared:
            found.append(f([x for x, _ in shared], [y for _, y in shared]))
    return _mean([v for v in found if np.isfinite(v)])


def _statistic(test: Any) -> float:
    """The statistic of one of scipy's results, whose types its stubs do not tell."""
    return float(test.statistic)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _both(gold: Sequence[float], ratings: Sequence[float | None]) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(g, r) for g, r in _zip(gold, ratings) if g is not None and r is not None]
    found = np.array(pairs, float).reshape(-1, 2)
    found = found[np.isfinite(found).all(axis=1)]
    return found[:, 0], found[:, 1]


def _zip(gold: Sequence[Any], answers: Sequence[Any]) -> list[tuple[Any, Any]]:
    if len(gold) != len(answers):
        raise DataError(f"There are {len(answers)} answers for {len(gold)} items; they must be as many.")
    return list(zip(gold, answers))
