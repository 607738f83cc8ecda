"""Makers: data sets by a generator, the package that participants get, figures, tuned settings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Literal

from assay.core.errors import DataError, UsageError

Kind = Literal["sea", "crust", "globe", "lorenz", "ks"]


def generate(
    out: Path,
    *,
    kind: Kind = "sea",
    sensors: int | None = None,
    rows: str = "own",
    seed: int = 0,
    medium: float = 0.1,
    high: float = 0.5,
    normalise: Literal["own", "trace", "group", "none"] = "own",
    truth: str | None = None,
    database: str | None = None,
) -> None:
    """Write ``KIND/KIND.yaml``, ``KIND/train`` and ``KIND/test``: ten training and nine test matrices.

    Parameters
    ----------
    kind
        sea, crust, globe, lorenz or ks.
    sensors
        Columns; None = 256 (crust 243, Lorenz 3). The published sizes are 3000 (fibre) and 2048 (globe).
    rows
        Rows of long, few and test matrices by comma, ``2000,500,1000`` say; own = the usual ones of the kind.
    medium, high
        Noise as a fraction of the data's standard deviation.
    normalise
        per trace, per group, none; own = trace for wavefields.
    truth
        Folder outside of ``out`` for the test matrices, so that ``out`` can be given away.
    database
        Folder of an AxiSEM database, for globe.
    """
    from assay.science.seismic_ctf.generators import suite

    lengths = None
    if rows != "own":
        parts = rows.split(",")
        if len(parts) != 3 or not all(p.strip().isdigit() for p in parts):
            raise UsageError(f"Option rows={rows!r} must be own or three numbers by comma: long, few, ahead.")
        lengths = (int(parts[0]), int(parts[1]), int(parts[2]))
    settings: dict[str, Any] = {}
    if kind == "globe":
        if database is None:
            raise UsageError("The generator globe needs -o database=FOLDER with an AxiSEM database.")
        settings["database"] = database
    made = {"generator": kind, "seed": seed, "noise_medium": medium, "noise_high": high, "normalise": normalise}
    if kind == "globe":
        from assay.science.seismic_ctf.generators.globe import open_database, row_seconds

        long, _, ahead = lengths or suite.ROWS[kind]
        made["row_seconds"] = row_seconds(open_database(database or ""), long + ahead)
    elif kind in ("sea", "crust"):
        made["row_seconds"] = 0.2 if kind == "sea" else 0.01
    definition = suite.generated_definition(kind, sensors, lengths, made_by=made)
    how = None if normalise == "own" else normalise
    matrices = suite.make_matrices(
        kind, definition, seed=seed, medium=medium, high=high, normalise=how, settings=settings
    )
    hidden = Path(truth).expanduser() / kind if truth is not None else None
    suite.write_suite(kind, out / kind, definition, matrices, hidden)


def fetch(out: Path, *, dataset: str, url: str, sha256: str) -> None:
    """Fetch the published archive of a data set (osf.io/6rzhm) and unpack it.

    Parameters
    ----------
    dataset
        Folder that the archive holds, seismo say.
    url, sha256
        Address of the archive, and its hash as the project's page states it.
    """
    from assay.science.seismic_ctf.data import fetch as fetch_archive

    fetch_archive(dataset, out, url=url, sha256=sha256)


def package(out: Path, *, data: str, datasets: str, truth: str) -> None:
    """Copy data sets for participants, without the test matrices, which go to ``truth`` (the referee's folder, 0700).

    Parameters
    ----------
    data
        Folder with complete data sets.
    datasets
        Names by comma.
    truth
        Folder for the truth; not below ``out``.
    """
    from assay.science.seismic_ctf.data import CTFDataset

    keep = Path(truth).expanduser().resolve()
    if keep.is_relative_to(out.resolve()):
        raise UsageError(f"Option truth={truth!r} lies inside the package {out}; put the truth elsewhere.")
    for name in (part.strip() for part in datasets.split(",")):
        one = CTFDataset.load(name, data)
        if not all(one.has_truth(number) for number in one.pair_ids):
            raise DataError(f"{name}: not every test matrix is in {one.truth_folder}.")
        for folder in (out / name / "train", keep / name / "test"):
            folder.mkdir(parents=True, exist_ok=True)
        (keep / name).chmod(0o700)
        for spec in one.definition.pairs:
            for file in (*spec.train, *((spec.init,) if spec.init else ())):
                shutil.copyfile(one.folder / "train" / file, out / name / "train" / file)
            shutil.copyfile(one.truth_folder / spec.test, keep / name / "test" / spec.test)
            (keep / name / "test" / spec.test).chmod(0o600)
        for extra in (f"{name}.yaml", "sensor_locations.csv"):
            if (one.folder / extra).is_file():
                shutil.copyfile(one.folder / extra, out / name / extra)


def figures(out: Path, *, runs: str, dataset: str | None = None) -> None:
    """Radar, heat map, and the figures of every pair, as SVG; the leaderboard as CSV, LaTeX and HTML.

    Parameters
    ----------
    runs
        Run folders by comma.
    dataset
        Which data set; needed when the runs have several.
    """
    import polars as pl

    from assay.core.results import Run, Runs
    from assay.report.export import write_table
    from assay.report.figures import to_svg, vega_lite
    from assay.science.seismic_ctf import analyses
    from assay.science.seismic_ctf import figures as drawn
    from assay.science.seismic_ctf.benchmark import PREDICTIONS, SeismicCTF
    from assay.science.seismic_ctf.data import read_matrix

    found = Runs([Run(part.strip()) for part in runs.split(",")])
    scores = analyses.Scores(found, dataset)
    by_system = {
        system: dict(zip(scores.names, map(float, scores.means[i]), strict=True))
        for i, system in enumerate(scores.systems)
    }
    (out / "radar.svg").write_text(to_svg(drawn.radar(by_system, f"Scores: {scores.dataset}")), encoding="utf-8")
    heat = analyses.heatmap(found, dataset=dataset)
    (out / "heatmap.svg").write_text(to_svg(vega_lite(heat)), encoding="utf-8")
    board = analyses.leaderboard(found, dataset=dataset)
    for suffix in ("csv", "tex", "html"):
        write_table(board, out / f"leaderboard.{suffix}")
    data = SeismicCTF(**found[0].info["options"]).sets[scores.dataset]
    for number in data.pair_ids:
        if data.missing(number) or not data.has_truth(number):
            continue
        predictions = {}
        for system, run in zip(scores.systems, found, strict=True):
            mine = run.records.filter(
                pl.col("task") == scores.dataset, pl.col("sample") == f"pair{number}", pl.col("attempt") == 0
            )
            for entry in mine["artifacts"].to_list()[0] if mine.height else ():
                if entry["path"].endswith(PREDICTIONS):
                    predictions[system] = read_matrix(run.path / entry["path"])
        for name, spec in drawn.pair_figures(data.definition, number, data.truth(number), predictions).items():
            (out / f"pair{number}-{name}.svg").write_text(to_svg(spec), encoding="utf-8")


def tune(
    out: Path,
    *,
    method: str,
    space: str,
    data: str | None = None,
    dataset: str = "sea",
    pairs: str = "all",
    trials: int = 20,
    train_split: float = 0.8,
    seed: int = 0,
) -> None:
    """Search settings of a method pair by pair on held-out training rows; writes ``settings.json`` and a log a pair.

    A broken-off search goes on where it stopped.

    Parameters
    ----------
    space
        JSON: ``{"hidden": {"type": "randint", "lower_bound": 8, "upper_bound": 64}, ...}`` (types as in the framework:
        uniform, quniform, loguniform, qloguniform, randn, randint, lograndint, choice), or the path of such a file.
    """
    from assay.science.seismic_ctf.benchmark import SeismicCTF
    from assay.science.seismic_ctf.tuning import parse_space, search

    bench = SeismicCTF(data, datasets=dataset, pairs=pairs)
    content = Path(space).read_text(encoding="utf-8") if Path(space).is_file() else space
    known = parse_space(content)
    best = {}
    for number in bench.numbers(dataset):
        result = search(
            method, bench.sets[dataset].pair(number), known, trials=trials, train_split=train_split, seed=seed,
            log=out / f"pair{number}.jsonl",
        )  # fmt: skip
        best[f"pair{number}"] = {"settings": result.settings, "validation": result.value, "failed": result.failed}
    (out / "settings.json").write_text(json.dumps(best, indent=1), encoding="utf-8")
