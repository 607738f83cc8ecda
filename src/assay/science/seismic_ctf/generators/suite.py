"""From a simulator to the ten training and nine test matrices: groups, noise, few snapshots, normalisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import MissingExtra, UsageError, unknown_name
from assay.science.seismic_ctf.definition import Definition, define

Normalise = Literal["trace", "group", "none"]
GENERATORS = {"sea": "sea", "crust": "crust", "globe": "globe", "lorenz": "lorenz", "ks": "kuramoto"}
ROWS = {
    "sea": (2000, 500, 1000), "globe": (2000, 500, 1000), "crust": (500, 200, 100),
    "lorenz": (10_000, 100, 1000), "ks": (2000, 100, 1000),
}  # fmt: skip
SENSORS = {"sea": 256, "globe": 256, "crust": 243, "lorenz": 3, "ks": 256}

# Each group is one realisation of its own: what a training matrix shows never tells another pair's truth.
GROUPS: tuple[tuple[str, ...], ...] = (
    ("X1train", "X1test"), ("X2train", "X2test", "X3test"), ("X3train", "X4test", "X5test"), ("X4train", "X6test"),
    ("X5train", "X7test"), ("X6train",), ("X7train",), ("X8train",), ("X9train", "X8test"), ("X10train", "X9test"),
)  # fmt: skip
NOISE = {"X2train": "medium", "X3train": "high", "X5train": "medium"}


def generated_definition(
    kind: str, sensors: int | None = None, rows: tuple[int, int, int] | None = None, **metadata: Any
) -> Definition:
    """Definition of a generated data set; None = the sizes of its kind."""
    if kind not in GENERATORS:
        raise unknown_name("generator", kind, GENERATORS)
    s = SENSORS[kind] if sensors is None else sensors
    long, few, ahead = ROWS[kind] if rows is None else rows
    if min(long, few, ahead) < 1 or few > long:
        raise UsageError(f"Rows {long}, {few}, {ahead} (long, few, ahead): each at least 1, few no more than long.")
    if kind in ("lorenz", "ks"):
        # As in the parent framework: few snapshots stand at the beginning and are forecast from there.
        starts = (0, long - few, few, long)
    else:
        starts = (long - few, long - few, long, long)
    dt = {"lorenz": 0.05, "ks": 0.025}.get(kind, 1.0)
    if kind == "lorenz":
        return define(kind, widths=(s, s), rows=(long, few, ahead), starts=starts, delta_t=dt, suffix="npz",
                      long_time="histogram_L2_error", metadata=metadata, modes=min(500, ahead))  # fmt: skip
    return define(kind, widths=(s, s), rows=(long, few, ahead), starts=starts, delta_t=dt, metadata=metadata,
                  modes=min(100, s - s // 2), k_short=min(20, ahead), k_long=min(20, ahead))  # fmt: skip


def simulator(kind: str, **settings: Any) -> tuple[Callable[..., NDArray[Any]], str, tuple[float, ...]]:
    """``simulate(rng, rows, sensors=..., PARAMETER=...)`` of a kind, its parameter's name and five values.

    Values are those of X6train, X7train, X8train, of the pair in between and of the pair beyond.
    """
    module = import_module(f"assay.science.seismic_ctf.generators.{GENERATORS[kind]}")
    if kind == "globe" and "database" in settings:
        settings = settings | {"database": module.open_database(settings["database"])}

    def simulate(rng: np.random.Generator, rows: int, **more: Any) -> NDArray[Any]:
        return module.simulate(rng, rows, **settings, **more)

    return simulate, module.PARAMETER, module.VALUES


def make_matrices(
    kind: str,
    definition: Definition,
    *,
    seed: int = 0,
    medium: float = 0.1,
    high: float = 0.5,
    normalise: Normalise | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, NDArray[Any]]:
    """All nineteen matrices by name (``X1train`` ...).

    Parameters
    ----------
    definition
        Shapes and places in time.
    seed
        Of everything: sources, media, noise.
    medium, high
        Standard deviation of the added Gaussian noise as a fraction of the data's.
    normalise
        Zero mean and unit variance within a group: per ``trace``, one pair of numbers for the ``group``, or ``none``;
        None = trace for wavefields, none for Lorenz and Kuramoto-Sivashinsky. Statistics are of the clean data.
    """
    if not (medium >= 0 and high >= 0):
        raise UsageError(f"Noise levels must not be negative; got medium={medium}, high={high}.")
    how = normalise or ("none" if kind in ("lorenz", "ks") else "trace")
    if how not in ("trace", "group", "none"):
        raise UsageError(f"normalise must be trace, group or none; got {how!r}.")
    simulate, parameter, values = simulator(kind, **(settings or {}))
    files = {Path(name).stem: name for name in definition.shapes}
    found = {}
    # One seed for all five parametric groups: they differ in the parameter alone.
    seeds = np.random.SeedSequence(seed).spawn(len(GROUPS) + 1)
    for number, members in enumerate(GROUPS):
        spans = {m: definition.starts.get(files[m], 0) for m in members}
        shapes = {m: definition.shapes[files[m]] for m in members}
        rows = max(spans[m] + shapes[m][0] for m in members)
        varied = number >= 5
        rng = np.random.default_rng(seeds[5 if varied else number])
        more = {parameter: values[number - 5]} if varied else {}
        clean = simulate(rng, rows, sensors=shapes[members[0]][1], **more)
        used = np.unique(np.concatenate([np.arange(spans[m], spans[m] + shapes[m][0]) for m in members]))
        clean = _normalised(clean, used, how)
        noise = np.random.default_rng([seed, number, 1])
        for m in members:
            part = clean[spans[m] : spans[m] + shapes[m][0]]
            if m in NOISE:
                level = medium if NOISE[m] == "medium" else high
                part = part + level * clean[used].std(axis=0) * noise.standard_normal(part.shape)
            found[m] = part.astype(np.float64 if kind == "lorenz" else np.float32)
    return found


def _normalised(clean: NDArray[Any], used: NDArray[Any], how: str) -> NDArray[Any]:
    if how == "none":
        return clean
    axis = 0 if how == "trace" else None
    scale = clean[used].std(axis=axis)
    return (clean - clean[used].mean(axis=axis)) / np.where(scale > 0, scale, 1.0)


def write_suite(
    kind: str, out: Path, definition: Definition, matrices: Mapping[str, NDArray[Any]], truth: Path | None = None
) -> None:
    """Write ``NAME.yaml``, ``train`` and ``test`` in the published layout; ``truth`` = another place for ``test``."""
    try:
        import yaml
    except ImportError:
        raise MissingExtra("Writing a data set's YAML", "seismic_ctf") from None
    test = (truth if truth is not None else out) / "test"
    for folder in (out / "train", test):
        folder.mkdir(parents=True, exist_ok=True)
    for file in definition.shapes:
        stem = Path(file).stem
        folder = test if stem.endswith("test") else out / "train"
        np.savez(folder / file, X=matrices[stem])
    config = yaml.safe_dump(definition.config(), sort_keys=False)
    (out / f"{definition.name}.yaml").write_text(config, encoding="utf-8")
    if kind == "globe":
        from assay.science.seismic_ctf.generators.globe import fibonacci_sphere

        sensors = definition.shapes[next(iter(definition.shapes))][1]
        rows = [",".join(repr(float(v)) for v in row) for row in fibonacci_sphere(sensors)]
        text = "\n".join(["latitude,longitude,x,y,z", *rows]) + "\n"
        (out / "sensor_locations.csv").write_text(text, encoding="utf-8")


def generated_folder(kind: str, seed: int = 0, **settings: Any) -> Path:
    """Folder of a generated data set at its usual size, made once and kept in assay's cache."""
    import os
    import shutil
    import tempfile

    from assay.core.cache import cache_folder, code_version, content_key

    d = generated_definition(kind)
    module = import_module(f"assay.science.seismic_ctf.generators.{GENERATORS[kind]}")
    key = content_key(kind, seed, sorted(settings.items()), d.config(), code_version(make_matrices),
                      code_version(module.simulate))  # fmt: skip
    home = cache_folder() / "seismic_ctf"
    target = home / f"{kind}-{key[:16]}"
    if target.is_dir():
        return target / kind
    home.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=home, prefix=".draft-"))
    write_suite(kind, draft / kind, d, make_matrices(kind, d, seed=seed, settings=settings))
    try:
        os.rename(draft, target)
    except OSError:
        # Another process was first; what it made is the same.
        shutil.rmtree(draft, ignore_errors=True)
    return target / kind
