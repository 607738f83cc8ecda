"""Distances between languages as features see them, beside typological ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.cache import ContentCache, cache_folder
from assay.core.datasets.readers import read_rows, shown
from assay.core.errors import DataError, UsageError
from assay.speech.ttsds2.scoring import DEFAULT, Distribution, Settings, distance, score

Array = NDArray[np.float64]


def similarities(
    languages: Mapping[str, Distribution], noises: Mapping[str, Distribution], settings: Settings = DEFAULT
) -> Array:
    """Score of each language's real speech against each other's, (n, n), made symmetric; 100 on the diagonal."""
    names = list(languages)
    found = np.full((len(names), len(names)), 100.0)
    to_noise = {n: {k: distance(d.fitted(), languages[n].fitted(), settings) for k, d in noises.items()} for n in names}
    for i, a in enumerate(names):
        for j in range(i):
            apart = distance(languages[names[j]].fitted(), languages[a].fitted(), settings)
            both = [score({"other": apart}, to_noise[n]).score for n in (a, names[j])]
            found[i, j] = found[j, i] = np.mean(both)
    return found


def mantel(a: Array, b: Array, *, permutations: int = 9999, seed: int = 0) -> tuple[float, float]:
    """Spearman correlation of two symmetric tables over pairs, and its two-sided permutation p.

    Whole rows and columns are permuted, as pairs that share a language are not independent.

    Raises
    ------
    UsageError
        Fewer than four languages: there are too few permutations to tell anything.
    """
    from scipy.stats import rankdata

    n = len(a)
    if n < 4:
        raise UsageError(f"{n} languages are too few to correlate two tables; give four at least.")
    upper = np.triu_indices(n, 1)
    first = rankdata(a[upper])
    ranks = np.zeros_like(b)
    ranks[upper] = rankdata(b[upper])
    ranks += ranks.T
    first = (first - first.mean()) / first.std()

    def rho(order: Any) -> float:
        other = ranks[np.ix_(order, order)][upper]
        return float(first @ (other - other.mean()) / other.std() / len(first))

    observed = rho(np.arange(n))
    rng = np.random.default_rng(seed)
    beyond = sum(abs(rho(rng.permutation(n))) >= abs(observed) - 1e-12 for _ in range(permutations))
    return observed, (beyond + 1) / (permutations + 1)


def read_typology(path: str | Path, names: Sequence[str]) -> Array:
    """Distances of languages from a CSV with the columns a, b, distance (URIEL+ say), as a table in the order of names.

    Raises
    ------
    DataError
        A pair is missing, or a distance is no number.
    """
    found: dict[frozenset[str], float] = {}
    for line, row in read_rows(path, ("a", "b", "distance")):
        try:
            found[frozenset((row["a"], row["b"]))] = float(row["distance"])
        except ValueError:
            raise DataError(
                f"{path}, line {line}: field 'distance' is {shown(row['distance'])}, and must be a number."
            ) from None
    table = np.zeros((len(names), len(names)))
    for i, a in enumerate(names):
        for j in range(i):
            pair = frozenset((a, names[j]))
            if pair not in found:
                raise DataError(f"{path} has no distance of {a} and {names[j]}.")
            table[i, j] = table[j, i] = found[pair]
    return table


def study(
    out: Path, *, folder: str, typology: str | None = None, profile: str = "lite", features: str = "",
    noise_clips: int = 10, weights: str | None = None,
) -> None:  # fmt: skip
    """Languages by the mean of their feature scores against each other: ``languages.json``.

    Parameters
    ----------
    folder
        A subfolder of real speech for each language.
    typology
        CSV with a, b, distance; their rank correlation with the scores is added (negative = near languages score high).
    features
        Short names by comma; empty = all of the profile that can be measured here.
    """
    from assay.speech.ttsds2.datasets import DirectoryDataset
    from assay.speech.ttsds2.features import Resources, features_of, measure
    from assay.speech.ttsds2.noise import noise_datasets
    from assay.speech.ttsds2.suite import common_bandwidth

    root = Path(folder)
    names = sorted(p.name for p in root.iterdir() if p.is_dir()) if root.is_dir() else []
    if len(names) < 2:
        raise UsageError(f"{root} must hold a subfolder of recordings for each of two languages at least.")
    sets = [DirectoryDataset(root / name) for name in names]
    band = common_bandwidth(sets)
    cache = ContentCache(cache_folder())
    only = [part.strip() for part in features.split(",") if part.strip()]
    tables = {}
    for short, feature in features_of(profile, Resources(Path(weights) if weights else None), only=only).items():  # type: ignore[arg-type]
        if feature.missing():
            continue
        fitted = feature.fit(sets)
        measured = {n: measure(fitted, d.limited(band), cache) for n, d in zip(names, sets)}
        noise = {d.name: measure(fitted, d, cache) for d in noise_datasets(noise_clips)}
        tables[short] = similarities(measured, noise)
    whole = np.mean(list(tables.values()), axis=0)
    found: dict[str, Any] = {
        "languages": names,
        "features": list(tables),
        "scores": whole.round(4).tolist(),
        "bandwidth": band,
    }
    if typology is not None:
        found["spearman"], found["p"] = mantel(whole, read_typology(typology, names))
    (out / "languages.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
